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
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Any, Final, Protocol

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

    def replace_file(self, key: str, data: Buffer) -> None:
        """Put a damaged file aside, and write another content under its key."""
        self.quarantine.replace_file(self.storage, key, data)


class Step(Protocol):
    """A step of a repair."""

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""

    def perform(self, repair: RepairContext) -> None:
        """Make the step. A second call changes nothing."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A file that has, or may have, the content of a damaged file.

    ``stop`` is the end of the content: the trailer of a chunk file belongs to its own name. None means the
    whole file.
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


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """Writes files with the contents of their origins.

    ``ends`` has the number of bytes that references need, for chunk files.
    """

    origins: Sequence[tuple[str, Origin]]
    why: str
    certainty: Certainty
    ends: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        keys = tuple(key for key, _ in self.origins)
        return RepairStep("copy", keys, self.origins[0][1].label, self.why, self.certainty)

    def perform(self, repair: RepairContext) -> None:
        """Copy the files. On an overlay, only link them."""
        if isinstance(repair.storage, Overlay):
            for key, origin in self.origins:
                if origin.stop is None:
                    repair.storage.link(key, origin.storage, origin.key)
                else:
                    repair.storage.put(key, origin.read())
            return
        # Contents of files that the step itself replaces must be read before the first write.
        own = {key for key, _ in self.origins}
        early = {key: origin.read() for key, origin in self.origins if origin.key in own - {key}}

        def copy_file(pair: tuple[str, Origin]) -> None:
            key, origin = pair
            data = early[key] if key in early else origin.read()
            check_content(key, data, self.ends.get(key, 0))
            repair.replace_file(key, data)

        map_bounded(Purpose.FILE_COPIES, copy_file, list(self.origins))


@dataclass(slots=True)
class FileSearch:
    """The search for copies, and the pairs of a damaged key and an origin that an earlier round has used.

    ``storage`` is the storage of the repository, not an overlay.
    """

    storage: Storage
    copies: Sequence[Storage]
    tried: set[tuple[str, str, str]] = field(default_factory=set)
    rebuilt: set[str] = field(default_factory=set)

    def steps(self, repair: RepairContext, findings: Iterable[Finding]) -> list[Step]:
        """Return the steps that repair files with findings, as far as there are copies.

        A file that the storage did not return may be good, and stays as it is.
        """
        every = list(findings)
        may_be_good = {each.key for each in every if each.check == "unavailable"}
        why = {each.key: each.detail or str(each) for each in every if each.key not in may_be_good}
        chunks = sorted(key for key in why if key.startswith(f"{CHUNKS}/"))
        files = sorted(key for key in why if _is_copied(key))
        if not chunks and not files:
            return []
        ends: dict[str, int] = {}
        if chunks:
            _, uses, _ = users_of_files(repair.context, id_matrix(list(map(_id_of, chunks))))
            ends = dict.fromkeys(chunks, 0) | dict(
                zip(map(chunk_key, id_list(uses.ids)), uses.ends.tolist(), strict=True)
            )
        copies = self._copies([*files, *chunks], copies_in_quarantine(self.storage), ends)
        missing = [key for key in files if key not in copies and key.startswith(f"{TRANSACTIONS}/")]
        return [*_grouped(copies, why, ends), *self._rebuilds(repair, missing, why)]

    def _copies(
        self, keys: Sequence[str], aside: Mapping[str, list[str]], ends: Mapping[str, int]
    ) -> dict[str, tuple[Origin, Certainty]]:
        """Return an origin with a good content for each key that has one."""
        elsewhere = self._by_id(keys, aside) | self._by_hash(aside, ends)

        def search(key: str) -> tuple[Origin, Certainty] | None:
            best: tuple[Origin, Certainty] | None = None
            origins = [Origin(copy.label(), copy, key) for copy in self.copies]
            origins += (Origin(QUARANTINE, self.storage, name) for name in aside.get(key, ()))
            origins += [elsewhere[key]] if key in elsewhere else []
            for origin in origins:
                if (key, origin.label, origin.key) in self.tried:
                    continue
                with suppress(IcechunkError):
                    data = origin.read()
                    certainty = check_content(key, data, ends.get(key, 0))
                    present = read_present(self.storage, key)
                    if present is None or memoryview(present[0]) != memoryview(data):
                        if certainty == "proved":
                            return origin, certainty
                        best = best or (origin, certainty)
            return best

        results = zip(keys, map_bounded(Purpose.FILE_COPIES, search, list(keys)), strict=True)
        good = {key: result for key, result in results if result is not None}
        self.tried |= {(key, origin.label, origin.key) for key, (origin, _) in good.items()}
        return good

    def _by_id(self, keys: Sequence[str], aside: Mapping[str, list[str]]) -> dict[str, Origin]:
        """Return files that contain the id of a damaged file of the same folder."""

        def key_inside(name: str) -> str | None:
            folder = name.split("/")[-2]
            with skip_damage():
                data = self.storage.get(name)
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
                pairs = [pair for pair in zip(inside, names, strict=True) if pair[0] != pair[1]]
                answer |= {
                    key: Origin(_EXCHANGED, self.storage, name) for key, name in pairs if key in damaged
                }
        return answer

    def _by_hash(self, aside: Mapping[str, list[str]], ends: Mapping[str, int]) -> dict[str, Origin]:
        """Return chunk files whose hash is the id of a damaged file. Only files of the same size are read."""
        sizes = sorted(set(ends.values()) - {0})
        if not sizes:
            return {}
        files = list_objects(self.storage, CHUNKS)
        wanted = np.array([size + more for size in sizes for more in (0, SINGLE_TRAILER_BYTES)], np.int64)
        rows = np.isin(files.sizes, wanted)
        names = files.select_files(rows).keys() if rows.sum() <= _READ else []
        names += _aside(aside, CHUNKS)

        def origins(name: str) -> list[tuple[str, Origin]]:
            with skip_damage():
                data = memoryview(self.storage.get(name))
                return [
                    (key, Origin(_SAME_HASH, self.storage, name, size))
                    for size in sizes
                    if size <= len(data)
                    if (key := chunk_key(sha256(data[:size]).digest()[:OBJECT_ID_BYTES])) != name
                ]
            return []

        pairs = chain.from_iterable(map_bounded(Purpose.FILE_COPIES, origins, names[:_READ]))
        return {key: origin for key, origin in pairs if key in ends}

    def _rebuilds(
        self, repair: RepairContext, keys: Sequence[str], why: Mapping[str, str]
    ) -> Iterator[RebuildLog]:
        """Make the steps that rebuild transaction logs whose two versions can be read."""
        versions = {each.id for each in state_of(repair.context).versions} if keys else set()
        for key in keys:
            id_ = _id_of(key)
            if id_ not in versions or key in self.rebuilt:
                continue
            # The parent that the repository lists now may be an ancestor, after an expiration.
            snapshots = repair.context.catalog.full_repo_info().snapshots
            step = RebuildLog(id_, snapshots.entry(snapshots.find_snapshot(id_)).parent, why[key])
            with skip_damage():  # one of the versions is damaged
                step.perform(repair)
                self.rebuilt.add(key)
                yield step


def _is_copied(key: str) -> bool:
    return key.split("/")[0] in {*KINDS, OVERWRITTEN} or key.startswith(_TAGS)


def _aside(aside: Mapping[str, list[str]], folder: str) -> list[str]:
    return [name for key, names in aside.items() if key.startswith(f"{folder}/") for name in names]


def _id_of(key: str) -> bytes:
    name = key.rpartition("/")[2]
    return id_from_text(name) if is_id_text(name) else bytes(OBJECT_ID_BYTES)


def _grouped(
    copies: Mapping[str, tuple[Origin, Certainty]], why: Mapping[str, str], ends: Mapping[str, int]
) -> Iterator[CopyFiles]:
    """Yield one step for all files with the same origin, reason and certainty.

    Exchanged files must be in the same step, which reads all of them before it writes.
    """
    groups: dict[tuple[str, str, Certainty], list[tuple[str, Origin]]] = {}
    for key, (origin, certainty) in copies.items():
        reason = "files were exchanged" if origin.label == _EXCHANGED else why[key]
        if key.startswith(f"{CHUNKS}/"):
            reason = "the chunk file is missing or damaged"
        groups.setdefault((origin.label, reason, certainty), []).append((key, origin))
    for (_, reason, certainty), origins in groups.items():
        needs = {key: ends[key] for key, _ in origins if key in ends}
        yield CopyFiles(tuple(origins), reason, certainty, needs)


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


@dataclass(frozen=True, slots=True)
class RebuildLog:
    """Writes the transaction log of a snapshot. ``parent`` is None for the first snapshot.

    The log has the nodes and chunks in which the two versions differ, as the log of a new commit with the
    same differences. A commit may also write the same value again, which no version shows.
    """

    id: bytes
    parent: bytes | None
    why: str

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        source = "the first snapshot" if self.parent is None else f"the parent {id_to_text(self.parent)}"
        why = f"{self.why}; the log lists all differences from the parent"
        return RepairStep("rebuild", (transaction_key(self.id),), source, why, "consistent")

    def perform(self, repair: RepairContext) -> None:
        """Write the log, and put the damaged log aside."""
        repair.replace_file(transaction_key(self.id), rebuilt_log(repair.context, self.id, self.parent))


def rebuilt_log(context: Context, id_: bytes, parent: bytes | None) -> bytes:
    """Return the file of the log with the differences between a snapshot and its parent."""
    log = empty_log(id_) if parent is None else _log_of_differences(context, id_, parent)
    level = context.settings.compression_level
    return encode_transaction_log(log, level=level, spec_version=context.spec_version)


def _log_of_differences(context: Context, id_: bytes, parent: bytes) -> TransactionLog:
    old, new = Workspace(context, parent), Workspace(context, id_)
    before, after = old.base, new.base
    changed = compare_versions(before, after, old.ref_table, new.ref_table)
    moved = after.identities(after.find_nodes([target for _, target in changed.moved]))
    return TransactionLog(
        id_,
        new_groups=_ids(after, changed.new_groups),
        new_arrays=_ids(after, changed.new_arrays),
        deleted_groups=_ids(before, changed.deleted_groups),
        deleted_arrays=_ids(before, changed.deleted_arrays),
        updated_arrays=_ids(after, changed.updated_arrays),
        updated_groups=_ids(after, changed.updated_groups),
        updated_chunks={
            after.ids[after.find_node(path)].tobytes(): index
            for path, index in changed.updated_chunks.items()
        },
        moves=tuple(
            Move(source, target, node, is_array)
            for (source, target), node, is_array in zip(changed.moved, *moved, strict=True)
        ),
    )


def _ids(table: NodeTable, paths: Iterable[str]) -> U8:
    return id_matrix(sorted(id_list(table.ids[table.find_nodes(list(paths))])), NODE_ID_BYTES)
