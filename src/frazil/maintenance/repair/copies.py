"""The search for another copy of each damaged file, and the steps that write files."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Final

from frazil.changes.diff import compare_versions
from frazil.display import counted
from frazil.errors import FormatError, IcechunkError
from frazil.format.chunk_trailer import check_file, find_remains, is_marked
from frazil.format.columns import U8
from frazil.format.ids import (
    CHUNKS,
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
from frazil.format.snapshot import Snapshot
from frazil.format.transaction_log import Move, TransactionLog, empty_log, encode_transaction_log
from frazil.maintenance.repair.repair_plan import Certainty, RepairStep
from frazil.maintenance.repair.storages import Overlay, Quarantine, read_present
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.repo_state import state_of
from frazil.repository.catalog.assets import MANIFEST, SNAPSHOT, TRANSACTION_LOG, FileKind, require_id
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files_v1 import decode_ref
from frazil.repository.session.workspace import Workspace
from frazil.storage.base import Storage
from frazil.storage.checks import skip_damage
from frazil.survey.columns import FileUses, SnapshotManifests, among
from frazil.survey.survey import Survey
from frazil.threads import Purpose, map_bounded

#: The files that contain their id.
KINDS: Final[Mapping[str, FileKind[Any]]] = {
    SNAPSHOTS: SNAPSHOT,
    MANIFESTS: MANIFEST,
    TRANSACTIONS: TRANSACTION_LOG,
}
#: A tag of spec version 1 never moves, so the file of a copy is right.
_TAGS: Final = f"{REFS}/tag."


@dataclass(eq=False)
class RepairContext:
    """Where steps are made: the storage of the repository or an overlay of it, and the quarantine.

    ``metadata`` are those of commits.
    """

    storage: Storage
    open_context: Callable[[Storage], Context]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    quarantine: Quarantine = field(default_factory=Quarantine.new)

    @cached_property
    def context(self) -> Context:
        """The context of the repository. The file ``repo`` must be readable."""
        return self.open_context(self.storage)


@dataclass(frozen=True, slots=True)
class RepairAction:
    """A step for users, and the function that makes it. A second call of the function changes nothing."""

    shown: RepairStep
    perform: Callable[[RepairContext], object]


def check_content(key: str, data: Buffer, end: int = 0) -> Certainty:
    """Check that bytes are a content of the file ``key``, of which references need ``end`` bytes."""
    folder, _, name = key.partition("/")
    if folder in KINDS:
        kind = KINDS[folder]
        content = kind.decode(data, key)
        require_id(key, kind.name, id_from_text(name), content.id)
        if isinstance(content, Snapshot) and content.nodes.refused:
            raise FormatError(next(iter(content.nodes.refused.values())))
        return "proved"
    if folder == CHUNKS:
        return _check_chunks(key, id_from_text(name), data, end)
    if folder == OVERWRITTEN:
        decode_repo_info(data, key)
    elif folder == REFS:
        decode_ref(bytes(data), key)
        return "proved"
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
            f"{key}: {counted(len(check.rows), 'chunk')} differ from their checksums. Use another copy"
        )
    return "proved"


def copy_files(repair: RepairContext, copy: Storage, keys: Sequence[str], ends: Mapping[str, int]) -> None:
    """Write files with the contents that a copy of the repository has. On an overlay, only link them."""
    storage = repair.storage

    def copy_file(key: str) -> None:
        if isinstance(storage, Overlay):
            storage.link(key, copy, key)
        else:
            data = copy.get(key)
            check_content(key, data, ends.get(key, 0))
            repair.quarantine.replace_file(storage, key, data)

    map_bounded(Purpose.FILE_COPIES, copy_file, keys)


@dataclass(slots=True, eq=False)
class FileSearch:
    """The search for copies. ``storage`` is the storage of the repository, not an overlay."""

    storage: Storage
    copies: Sequence[Storage]
    #: The files that earlier rounds have written, each with the number of its copy; None is a built log.
    _tried: set[tuple[str, int | None]] = field(default_factory=set)

    def steps(self, repair: RepairContext, findings: Iterable[Finding]) -> list[RepairAction]:
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
            _, uses, _ = users_of_files(repair.context, id_matrix(list(map(id_of_key, chunks))))
            ends |= dict(zip(map(chunk_key, id_list(uses.ids)), uses.ends.tolist(), strict=True))
        copies = map_bounded(Purpose.FILE_COPIES, partial(self._good_copy, ends=ends), [*files, *chunks])
        # Files with the same copy, reason and certainty are one step.
        groups: dict[tuple[int, str, Certainty], list[str]] = {}
        for key, copy in zip([*files, *chunks], copies, strict=True):
            if copy is not None:
                reason = "the chunk file is missing or damaged" if key in ends else why[key]
                groups.setdefault((copy[0], reason, copy[1]), []).append(key)
                self._tried.add((key, copy[0]))
        steps: list[RepairAction] = []
        for (number, reason, certainty), keys in groups.items():
            copy_from = self.copies[number]
            shown = RepairStep("copy", tuple(keys), copy_from.label(), reason, certainty)
            steps.append(RepairAction(shown, partial(copy_files, copy=copy_from, keys=keys, ends=ends)))
        left = [key for key in files if not any(key in keys for keys in groups.values())]
        return [*steps, *self._rebuilds(repair, left, why)]

    def _good_copy(self, key: str, ends: Mapping[str, int]) -> tuple[int, Certainty] | None:
        """Return the number of the first copy with a good content, if there is one that proves it."""
        best: tuple[int, Certainty] | None = None
        for number, copy in enumerate(self.copies):
            if (key, number) in self._tried:
                continue
            with suppress(IcechunkError):
                data = copy.get(key)
                certainty = check_content(key, data, ends.get(key, 0))
                present = read_present(self.storage, key)
                if present is None or memoryview(present[0]) != memoryview(data):
                    if certainty == "proved":
                        return number, certainty
                    best = best or (number, certainty)
        return best

    def _rebuilds(
        self, repair: RepairContext, keys: Sequence[str], why: Mapping[str, str]
    ) -> Iterator[RepairAction]:
        """Make the steps that build transaction logs again whose two versions can be read."""
        keys = [key for key in keys if key.startswith(f"{TRANSACTIONS}/") and (key, None) not in self._tried]
        versions = {each.id for each in state_of(repair.context).versions} if keys else set()
        for key in keys:
            if (id_ := id_of_key(key)) in versions:
                # The parent that the repository lists now may be an ancestor, after an expiration.
                snapshots = repair.context.catalog.full_repo_info().snapshots
                step = rebuild_step(id_, snapshots.entry(snapshots.find_snapshot(id_)).parent, why[key])
                with skip_damage():  # one of the versions is damaged
                    step.perform(repair)
                    self._tried.add((key, None))
                    yield step


def id_of_key(key: str) -> bytes:
    """Return the id in the key of a file, zeros for another name."""
    name = key.rpartition("/")[2]
    return id_from_text(name) if is_id_text(name) else bytes(OBJECT_ID_BYTES)


def users_of_files(
    context: Context, files: U8
) -> tuple[SnapshotManifests, FileUses, dict[bytes, list[bytes]]]:
    """Return the needed versions, the oldest first, and the uses of chunk files, with manifests by file."""
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


def rebuild_step(id_: bytes, parent: bytes | None, why: str) -> RepairAction:
    """Return the step that writes the transaction log of a snapshot. ``parent`` is None for the first one."""
    key = transaction_key(id_)
    source = "the first snapshot" if parent is None else f"the parent {id_to_text(parent)}"
    why = f"{why}; the log lists all differences from the parent"

    def perform(repair: RepairContext) -> None:
        repair.quarantine.replace_file(repair.storage, key, rebuilt_log(repair.context, id_, parent))

    return RepairAction(RepairStep("rebuild", (key,), source, why, "consistent"), perform)


def rebuilt_log(context: Context, id_: bytes, parent: bytes | None) -> bytes:
    """Return the log with the differences of two versions, without writes of a value that was there."""
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
        log = TransactionLog(id_, **ids, updated_chunks=chunks, moves=tuple(moves), odd_chunks={})
    level = context.settings.compression_level
    return encode_transaction_log(log, level=level, spec_version=context.spec_version)


def _ids(table: NodeTable, paths: Iterable[str]) -> U8:
    return id_matrix(sorted(id_list(table.ids[table.find_nodes(list(paths))])), NODE_ID_BYTES)
