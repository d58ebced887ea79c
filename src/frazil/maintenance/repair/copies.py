"""The search for another copy of each damaged file, and the steps that write files.

every file       the same key in a copy of the repository, and in quarantine
metadata files   also another file of the same folder that contains the id of the damaged file. Such a
and packs        file has the name of another file: two files were exchanged
chunk files      also another chunk file whose hash is the id of the damaged file (deduplication)
logs             also the rebuild from the snapshots before and after the commit

Each step is atomic for each of its files, and can be repeated after an interruption.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from frazil.changes.diff import compare_versions
from frazil.display import counted
from frazil.errors import FormatError, IcechunkError
from frazil.format.chunk_trailer import SINGLE_TRAILER_BYTES, check_file, find_remains, is_marked
from frazil.format.columns import U8
from frazil.format.ids import (
    CHUNKS,
    CONFIG,
    MANIFESTS,
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    OVERWRITTEN,
    REFS,
    SNAPSHOTS,
    TRANSACTIONS,
    chunk_key,
    id_from_text,
    id_list,
    id_matrix,
    id_to_text,
    is_id_text,
    transaction_key,
)
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import decode_repo_info
from frazil.format.transaction_log import Move, TransactionLog, empty_log, encode_transaction_log
from frazil.maintenance.repair.repair_plan import Certainty, RepairStep
from frazil.maintenance.repair.storages import (
    QUARANTINE,
    Overlay,
    Quarantine,
    copies_in_quarantine,
    read_present,
)
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.repo_state import state_of
from frazil.repository.catalog.assets import MANIFEST, SNAPSHOT, TRANSACTION_LOG, FileKind, require_id
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files_v1 import decode_ref
from frazil.repository.session.workspace import Workspace
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.config_yaml import load_config
from frazil.storage.base import Storage
from frazil.storage.checks import skip_damage
from frazil.survey.columns import FileUses, SnapshotManifests, among, list_objects
from frazil.survey.survey import Survey
from frazil.threads import Purpose, map_bounded

#: The files that contain their id.
KINDS: Final[Mapping[str, FileKind[Any]]] = {
    SNAPSHOTS: SNAPSHOT,
    MANIFESTS: MANIFEST,
    TRANSACTIONS: TRANSACTION_LOG,
}
#: The largest number of files of one folder that are read to find exchanged files.
_READ: Final = 1000
_SAME_HASH: Final = "a file with the same hash"
_EXCHANGED: Final = "the file of another name"
#: A tag of spec version 1 never moves, so the file of a copy is right.
_TAGS: Final = f"{REFS}/tag."


class RepairContext:
    """Where steps are made: the storage of the repository or an overlay of it, and the quarantine."""

    def __init__(
        self,
        storage: Storage,
        open_context: Callable[[Storage], Context],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.storage = storage
        self.quarantine = Quarantine.new()
        #: The metadata of commits.
        self.metadata = dict(metadata or {})
        self._open = open_context

    @cached_property
    def context(self) -> Context:
        """The context of the repository. The file ``repo`` must be readable."""
        return self._open(self.storage)


@dataclass(frozen=True, slots=True)
class Step:
    """A step for users, and the function that makes it. A second call of the function changes nothing."""

    shown: RepairStep
    perform: Callable[[RepairContext], object]


@dataclass(frozen=True, slots=True)
class Origin:
    """A file that has, or may have, the content of a damaged file.

    ``stop`` is the end of the content, because the trailer of a chunk file belongs to its own name. None
    means the whole file.
    """

    label: str
    storage: Storage
    key: str
    stop: int | None = None

    def read(self) -> Buffer:
        """Return the content. Raises ``StorageError`` if it cannot be read."""
        return self.storage.get(self.key, 0, self.stop)


def check_content(key: str, data: Buffer, end: int = 0) -> Certainty:
    """Check that bytes are a content of the file ``key``, of which references need ``end`` bytes."""
    folder, _, name = key.partition("/")
    if folder in KINDS:
        kind = KINDS[folder]
        require_id(key, kind.name, id_from_text(name), kind.decode(data, key).id)
        return "proved"
    if folder == CHUNKS:
        return _check_chunks(key, id_from_text(name), data, end)
    if folder == OVERWRITTEN:
        decode_repo_info(data, key)
    elif folder == REFS:
        decode_ref(bytes(data), key)
        return "proved"
    elif key == CONFIG:
        from_document(load_config(bytes(data), key))
    return "consistent"


def _check_chunks(key: str, id_: bytes, data: Buffer, end: int) -> Certainty:
    """Check the bytes of a chunk file with the checksums in it, or with its name if that is a hash."""
    size = memoryview(data).nbytes
    if size < end:
        raise FormatError(f"{key}: the content must have {end} bytes, got {size}. Use another copy")
    check = check_file(id_, data)
    rest = memoryview(data)[end:]
    if check.trailer is None and (find_remains(id_, rest) or (len(rest) and is_marked(id_))):
        raise FormatError(f"{key}: the end of the content is cut off. Use another copy")
    if check.trailer is None:
        return "proved" if id_ == sha256(data).digest()[:OBJECT_ID_BYTES] else "consistent"
    if not check.ok:
        raise FormatError(
            f"{key}: {counted(len(check.rows), 'chunk')} of the content differ from their checksums. Use "
            "another copy"
        )
    return "proved"


def copy_step(
    origins: Sequence[tuple[str, Origin]],
    why: str,
    certainty: Certainty,
    ends: Mapping[str, int] = MappingProxyType({}),
) -> Step:
    """Return the step that writes files with the contents of their origins.

    ``ends`` has the number of bytes that references need, for chunk files.
    """
    shown = RepairStep("copy", tuple(key for key, _ in origins), origins[0][1].label, why, certainty)
    return Step(shown, lambda repair: copy_files(repair, origins, ends))


def copy_files(repair: RepairContext, origins: Sequence[tuple[str, Origin]], ends: Mapping[str, int]) -> None:
    """Copy the files. On an overlay, only link them."""
    storage = repair.storage
    if isinstance(storage, Overlay):
        for key, origin in origins:
            if origin.stop is None:
                storage.link(key, origin.storage, origin.key)
            else:
                storage.put(key, origin.read())
        return
    # Contents of files that the step itself replaces must be read before the first write.
    own = {key for key, _ in origins}
    early = {key: origin.read() for key, origin in origins if origin.key in own - {key}}

    def copy_file(pair: tuple[str, Origin]) -> None:
        key, origin = pair
        data = early[key] if key in early else origin.read()
        check_content(key, data, ends.get(key, 0))
        repair.quarantine.replace_file(storage, key, data)

    map_bounded(Purpose.FILE_COPIES, copy_file, origins)


class FileSearch:
    """The search for copies. ``storage`` is the storage of the repository, not an overlay."""

    def __init__(self, storage: Storage, copies: Sequence[Storage]) -> None:
        self._storage = storage
        self._copies = copies
        #: The pairs of a damaged key and an origin that an earlier round has used, and the rebuilt logs.
        self._tried: set[tuple[str, str, str]] = set()
        self._rebuilt: set[str] = set()

    def steps(self, repair: RepairContext, findings: Iterable[Finding]) -> list[Step]:
        """Return the steps that repair files with findings, as far as there are copies.

        A file that the storage did not return may be good, and stays as it is.
        """
        every = list(findings)
        may_be_good = {each.key for each in every if each.check == "unavailable"}
        why = {each.key: each.detail or str(each) for each in every if each.key not in may_be_good}
        chunks = sorted(key for key in why if key.startswith(f"{CHUNKS}/"))
        files = sorted(
            key for key in why if key.split("/")[0] in {*KINDS, OVERWRITTEN} or key.startswith(_TAGS)
        )
        ends: dict[str, int] = dict.fromkeys(chunks, 0)
        if chunks:
            _, uses, _ = users_of_files(repair.context, id_matrix(list(map(_id_of, chunks))))
            ends |= dict(zip(map(chunk_key, id_list(uses.ids)), uses.ends.tolist(), strict=True))
        copies = self._found([*files, *chunks], ends)
        missing = [key for key in files if key not in copies and key.startswith(f"{TRANSACTIONS}/")]
        # Files with the same origin, reason and certainty are one step. Exchanged files must be in the same
        # step, which reads all of them before it writes.
        groups: dict[tuple[str, str, Certainty], list[tuple[str, Origin]]] = {}
        for key, (origin, certainty) in copies.items():
            reason = "files were exchanged" if origin.label == _EXCHANGED else why[key]
            if key in ends:
                reason = "the chunk file is missing or damaged"
            groups.setdefault((origin.label, reason, certainty), []).append((key, origin))
        steps = [copy_step(each, reason, certain, ends) for (_, reason, certain), each in groups.items()]
        return [*steps, *self._rebuilds(repair, missing, why)]

    def _found(self, keys: Sequence[str], ends: Mapping[str, int]) -> dict[str, tuple[Origin, Certainty]]:
        """Return an origin with a good content for each key that has one."""
        if not keys:
            return {}
        storage, aside = self._storage, copies_in_quarantine(self._storage)
        elsewhere = self._by_id(keys, aside) | self._by_hash(aside, ends)

        def search(key: str) -> tuple[Origin, Certainty] | None:
            best: tuple[Origin, Certainty] | None = None
            origins = [Origin(copy.label(), copy, key) for copy in self._copies]
            origins += (Origin(QUARANTINE, storage, name) for name in aside.get(key, ()))
            origins += [elsewhere[key]] if key in elsewhere else []
            for origin in origins:
                if (key, origin.label, origin.key) in self._tried:
                    continue
                with suppress(IcechunkError):
                    data = origin.read()
                    certainty = check_content(key, data, ends.get(key, 0))
                    present = read_present(storage, key)
                    if present is None or memoryview(present[0]) != memoryview(data):
                        if certainty == "proved":
                            return origin, certainty
                        best = best or (origin, certainty)
            return best

        results = zip(keys, map_bounded(Purpose.FILE_COPIES, search, keys), strict=True)
        good = {key: result for key, result in results if result is not None}
        self._tried |= {(key, origin.label, origin.key) for key, (origin, _) in good.items()}
        return good

    def _by_id(self, keys: Sequence[str], aside: Mapping[str, list[str]]) -> dict[str, Origin]:
        """Return files that contain the id of a damaged file of the same folder."""

        def key_inside(name: str) -> str | None:
            folder = name.split("/")[-2]
            with skip_damage():
                data = self._storage.get(name)
                if folder in KINDS:
                    return KINDS[folder].key(KINDS[folder].decode(data, name).id)
                trailer = check_file(_id_of(name), data).trailer
                return None if trailer is None else chunk_key(trailer.id)
            return None

        answer: dict[str, Origin] = {}
        for folder in (*KINDS, CHUNKS):
            damaged = [key for key in keys if key.startswith(f"{folder}/")]
            names = [*damaged, *_aside(aside, folder)][:_READ]
            if damaged and len(names) > 1:
                inside = map_bounded(Purpose.FILE_COPIES, key_inside, names)
                answer |= {
                    key: Origin(_EXCHANGED, self._storage, name)
                    for key, name in zip(inside, names, strict=True)
                    if key in damaged and key != name
                }
        return answer

    def _by_hash(self, aside: Mapping[str, list[str]], ends: Mapping[str, int]) -> dict[str, Origin]:
        """Return chunk files whose hash is the id of a damaged file. Only files of the same size are read."""
        sizes = sorted(set(ends.values()) - {0})
        if not sizes:
            return {}
        files = list_objects(self._storage, CHUNKS)
        wanted = np.array([size + more for size in sizes for more in (0, SINGLE_TRAILER_BYTES)], np.int64)
        rows = np.isin(files.sizes, wanted)
        names = files.select_files(rows).keys() if rows.sum() <= _READ else []
        names += _aside(aside, CHUNKS)

        def origins(name: str) -> list[tuple[str, Origin]]:
            with skip_damage():
                data = memoryview(self._storage.get(name))
                return [
                    (key, Origin(_SAME_HASH, self._storage, name, size))
                    for size in sizes
                    if size <= len(data)
                    if (key := chunk_key(sha256(data[:size]).digest()[:OBJECT_ID_BYTES])) != name
                ]
            return []

        pairs = chain.from_iterable(map_bounded(Purpose.FILE_COPIES, origins, names[:_READ]))
        return {key: origin for key, origin in pairs if key in ends}

    def _rebuilds(self, repair: RepairContext, keys: Sequence[str], why: Mapping[str, str]) -> Iterator[Step]:
        """Make the steps that rebuild transaction logs whose two versions can be read."""
        versions = {each.id for each in state_of(repair.context).versions} if keys else set()
        for key in keys:
            if (id_ := _id_of(key)) in versions and key not in self._rebuilt:
                # The parent that the repository lists now may be an ancestor, after an expiration.
                snapshots = repair.context.catalog.full_repo_info().snapshots
                step = rebuild_step(id_, snapshots.entry(snapshots.find_snapshot(id_)).parent, why[key])
                with skip_damage():  # one of the versions is damaged
                    step.perform(repair)
                    self._rebuilt.add(key)
                    yield step


def _aside(aside: Mapping[str, list[str]], folder: str) -> list[str]:
    return [name for key, names in aside.items() if key.startswith(f"{folder}/") for name in names]


def _id_of(key: str) -> bytes:
    name = key.rpartition("/")[2]
    return id_from_text(name) if is_id_text(name) else bytes(OBJECT_ID_BYTES)


def users_of_files(
    context: Context, files: U8
) -> tuple[SnapshotManifests, FileUses, dict[bytes, list[bytes]]]:
    """Return the needed versions, the oldest first, and the uses of chunk files, with manifests by file.

    This reads all manifests, each once. Damaged files are skipped, because there is a finding for each.
    """
    needed = id_matrix([each.id for each in state_of(context).versions if each.is_needed])
    survey = Survey(context, is_incremental=False)
    versions = SnapshotManifests.concat(list(survey.read_versions(needed, skips_damage=True)))
    parts: list[FileUses] = []
    users: dict[bytes, list[bytes]] = {}
    for manifest, uses in survey.file_uses(versions.files, skips_damage=True):
        own = uses.select_files(among(uses.ids, files))
        for id_ in id_list(own.ids):
            users.setdefault(id_, []).append(manifest)
        parts.append(own)
    return versions, FileUses.union(parts), users


def rebuild_step(id_: bytes, parent: bytes | None, why: str) -> Step:
    """Return the step that writes the transaction log of a snapshot. ``parent`` is None for the first one."""
    key = transaction_key(id_)
    source = "the first snapshot" if parent is None else f"the parent {id_to_text(parent)}"
    why = f"{why}; the log lists all differences from the parent"

    def perform(repair: RepairContext) -> None:
        repair.quarantine.replace_file(repair.storage, key, rebuilt_log(repair.context, id_, parent))

    return Step(RepairStep("rebuild", (key,), source, why, "consistent"), perform)


def rebuilt_log(context: Context, id_: bytes, parent: bytes | None) -> bytes:
    """Return the log with the nodes and chunks in which two versions differ, as a new commit would write it.

    A commit may also write the same value again, which no version shows.
    """
    log = empty_log(id_)
    if parent is not None:
        old, new = Workspace(context, parent), Workspace(context, id_)
        before, after = old.base, new.base
        changed = compare_versions(before, after, old.ref_table, new.ref_table)
        tables = {"new": after, "deleted": before, "updated": after}
        ids = {
            (name := f"{change}_{kind}"): _ids(table, getattr(changed, name))
            for change, table in tables.items()
            for kind in ("groups", "arrays")
        }
        chunks = {
            after.ids[after.find_node(path)].tobytes(): at for path, at in changed.updated_chunks.items()
        }
        moved = after.identities(after.find_nodes([target for _, target in changed.moved]))
        moves = (
            Move(*paths, node, is_array) for paths, node, is_array in zip(changed.moved, *moved, strict=True)
        )
        log = TransactionLog(id_, **ids, updated_chunks=chunks, moves=tuple(moves))
    level = context.settings.compression_level
    return encode_transaction_log(log, level=level, spec_version=context.spec_version)


def _ids(table: NodeTable, paths: Iterable[str]) -> U8:
    return id_matrix(sorted(id_list(table.ids[table.find_nodes(list(paths))])), NODE_ID_BYTES)
