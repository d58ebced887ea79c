"""Checks of single files, and of snapshots, transaction logs and manifests against each other."""

from __future__ import annotations

import zlib
from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import ne
from typing import Any, Final, Literal

import numpy as np

from frazil.changes.diff import rows_of
from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, FormatError, IcechunkError
from frazil.format.chunk_table import within
from frazil.format.columns import I64, U32
from frazil.format.envelope import Violation, spec_version_of
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_keys,
    id_list,
    manifest_key,
    snapshot_key,
    transaction_key,
)
from frazil.format.manifest import ChunkKind, ChunkTable, VirtualRef
from frazil.format.nodes import NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot, SnapshotEntry
from frazil.format.transaction_log import Move, TransactionLog
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.ancestry import is_of_compaction
from frazil.repository.catalog.assets import (
    MANIFEST,
    SNAPSHOT,
    TRANSACTION_LOG,
    Assets,
    CacheLimits,
    FileKind,
)
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage
from frazil.storage.checks import is_outage, require_whole, skip_damage
from frazil.storage.foreign_objects import is_foreign_outage
from frazil.survey.columns import FileUses, ManifestUses, ends_of
from frazil.threads import Purpose, map_bounded

#: The checks of foreign objects, by the kinds of errors of their reads.
_VIRTUAL: Final = {
    ErrorKind.VIRTUAL_CHUNK_MODIFIED: "virtual-modified",
    ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER: "virtual-unauthorized",
    ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK: "virtual-unauthorized",
}


@dataclass(frozen=True, slots=True, eq=False)
class CheckedFile[T]:
    """A metadata file. ``value`` is None if it is missing or cannot be read."""

    value: T | None = None
    data: Buffer = b""
    findings: list[Finding] = field(default_factory=list)
    is_missing: bool = False
    outage: IcechunkError | None = None


def read_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a read belongs to."""
    if is_outage(error):
        return "unavailable"
    return "missing" if error.kind == ErrorKind.OBJECT_NOT_FOUND else "unreadable"


def read_finding(error: IcechunkError, key: str) -> Finding:
    """Return the finding for a file that cannot be read. Readers refuse a file that is not unavailable."""
    check = read_check(error)
    return Finding(check, key, detail=error.message, is_unreadable=check != "unavailable")


@contextmanager
def noted(findings: list[Finding], key: str) -> Iterator[None]:
    """Turn an error of a read in the block into a finding: some columns are decoded when they are used."""
    try:
        yield
    except IcechunkError as error:
        findings.append(read_finding(error, key))


def check_file[T](storage: Storage, key: str, decode: Callable[[Any, list[Violation]], T]) -> CheckedFile[T]:
    """Read a file. Damage becomes findings: the broken rules, or ``unreadable`` if no rule explains it."""
    try:
        data = storage.get(key)
    except IcechunkError as error:
        check = read_check(error)
        findings = [Finding(check, key, detail=error.message)]
        outage = error if check == "unavailable" else None
        return CheckedFile(findings=findings, is_missing=check == "missing", outage=outage)
    broken: list[Violation] = []
    value, is_refused = None, False
    try:
        value = decode(data, broken)
    except IcechunkError as error:
        try:
            require_whole(storage, key, data)
        except IcechunkError as short:
            return CheckedFile(findings=[read_finding(short, key)], outage=short)
        is_refused = True
        check = error.check if isinstance(error, FormatError) and error.check else "unreadable"
        broken.append(Violation(check, error.message))
    findings = [
        Finding(each.check, key, each.node, each.coordinates, each.detail, is_refused) for each in broken
    ]
    return CheckedFile(value, data, findings)


def check_kind[T: Any](context: Context, kind: FileKind[T], id_: bytes) -> CheckedFile[T]:
    """Read a file that is named by an id."""

    def decode(data: Any, broken: list[Violation]) -> T:
        value = kind.decoded(data, id_, broken)
        if (version := spec_version_of(data)) > context.spec_version:
            detail = f"the spec version must be 1 to {context.spec_version}, got {version}"
            broken.append(Violation("file-spec-version", detail))
        return value

    return check_file(context.storage, kind.key(id_), decode)


def virtual_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a foreign read belongs to."""
    other = "virtual-unavailable" if is_foreign_outage(error) else "virtual-unreadable"
    return _VIRTUAL.get(error.kind, other)


def virtual(table: ChunkTable, row: int, offset: int, length: int) -> VirtualRef:
    """Return a reference to a range of the foreign object ``row`` of a table, with its checksum."""
    foreign = table.foreign
    etag, modified = foreign.etags.text(row) or None, int(foreign.modified[row]) or None
    return VirtualRef(foreign.locations.text(row), offset, length, etag, modified)


@dataclass(frozen=True, slots=True, eq=False)
class NeededChunkFiles:
    """The chunk files that a manifest needs, with the bytes and numbers of its references.

    ``unchecked`` is the number of foreign objects that were not compared.
    """

    files: FileUses
    size: int = 0
    count: int = 0
    foreign: int = 0
    unchecked: int = 0

    def to_bytes(self) -> bytes:
        """Return the value as bytes, for the state of a verification."""
        head = np.array([self.size, self.count, self.foreign, len(self.files)], "<u8")
        columns = self.files.ids.tobytes() + self.files.ends.astype("<u8").tobytes()
        return zlib.compress(head.tobytes() + columns, 1)

    @staticmethod
    def from_bytes(data: bytes) -> NeededChunkFiles:
        """Return the value of ``to_bytes``. Raises ``ValueError`` or ``zlib.error`` for other bytes."""
        raw = np.frombuffer(zlib.decompress(data), np.uint8)
        size, count, foreign, files = raw[:32].view("<u8").tolist()
        split = 32 + files * OBJECT_ID_BYTES
        ends = np.frombuffer(raw[split:].tobytes(), "<u8").astype(np.uint64)
        return NeededChunkFiles(
            FileUses(raw[32:split].reshape(files, OBJECT_ID_BYTES), ends), size, count, foreign
        )


@dataclass(frozen=True, slots=True, eq=False)
class ManifestUse:
    """A manifest as snapshots describe it: sizes with counts, and the arrays that use it with boxes."""

    id: bytes
    listed: Sequence[tuple[int, int]]
    boxes: Sequence[tuple[bytes, U32]]


@dataclass(frozen=True, slots=True)
class ManifestLevel:
    """How much the check of a manifest reads and returns."""

    with_chunks: bool = False
    #: Which foreign objects are compared with their checksums
    foreign: Literal["none", "some", "all"] = "none"
    with_inline: bool = False


def check_manifests(
    context: Context, item: tuple[ManifestLevel, Sequence[ManifestUse]]
) -> Iterator[tuple[bytes, list[Finding], NeededChunkFiles]]:
    """Yield the findings of manifests and, if the level has it, the chunk files that each needs."""
    level, uses = item
    comparison = ForeignComparison(context.virtual.strict(), takes_all=level.foreign == "all")
    for use in uses:
        key, required = manifest_key(use.id), NeededChunkFiles(FileUses.union([]))
        file = check_kind(context, MANIFEST, use.id)
        findings = file.findings
        with noted(findings, key):
            tables = file.value.arrays if file.value is not None else {}
            every = [each for table in tables.values() for each in (table, *table.others)]
            count = sum(map(len, every))
            stored = (memoryview(file.data).nbytes, count)
            for what, listed, actual in zip(
                ("size", "count"), zip(*use.listed, strict=True), stored, strict=True
            ):
                for expected in sorted(set(listed) - {actual}) if file.value is not None else ():
                    detail = f"a snapshot has {expected}, the file has {actual}"
                    findings.append(Finding(f"manifest-{what}", key, detail=detail))
            findings += _outside(key, tables, use.boxes)
            if level.foreign != "none":
                findings += comparison.findings(tables)
                required = replace(required, foreign=comparison.foreign, unchecked=comparison.unchecked)
            if level.with_chunks:
                size = foreign = 0
                for table in every:
                    size += int(table.length[level.with_inline | (table.kind != ChunkKind.INLINE)].sum())
                    foreign += int(np.count_nonzero(table.kind == ChunkKind.VIRTUAL))
                unchecked = required.unchecked
                required = NeededChunkFiles(FileUses.of(every), size, count, foreign, unchecked)
        yield use.id, findings, required


def _outside(
    key: str, tables: Mapping[bytes, ChunkTable], boxes: Sequence[tuple[bytes, U32]]
) -> Iterator[Finding]:
    for node, box in boxes:
        if node not in tables:
            continue
        for odd in (tables[node], *tables[node].others):
            if len(odd) and odd.ndim != len(box):
                detail = f"the array has {len(box)} dimensions, and the coordinates have {odd.ndim} numbers"
                yield Finding("ref-rank", key, node, odd.index, detail)
        table = tables[node].of_rank(len(box))
        outside = ((table.index < box[:, 0]) | (table.index >= box[:, 1])).any(axis=1)
        if outside.any():
            yield Finding("manifest-extents", key, node, table.index[outside], "outside of the extents")


#: The most foreign objects that the default level compares, for a group of manifests.
_MOST_FOREIGN: Final = 1000
#: What the default level finds about foreign objects: what makes values unreadable, without more requests.
_CHANGES: Final = ("virtual-modified", "virtual-unreadable")


@dataclass(slots=True, eq=False)
class ForeignComparison:
    """A comparison of foreign objects with their checksums, by a read of one byte of each.

    It ``takes_all`` objects, or up to 1,000 that have a checksum, each once. ``foreign`` and ``unchecked``
    count the objects of the last manifest, and those of them without an answer.
    """

    sources: VirtualSources
    takes_all: bool
    foreign: int = 0
    unchecked: int = 0
    answers: dict[tuple[str, str | None, int | None], tuple[str, str]] = field(default_factory=dict)

    def findings(self, tables: Mapping[bytes, ChunkTable]) -> Iterator[Finding]:
        """Yield findings of objects of a manifest that are missing, too short, or changed."""
        self.foreign = self.unchecked = 0
        for node, table in tables.items():
            used, ends = ends_of(table, ChunkKind.VIRTUAL, len(table.foreign))
            refs = [
                virtual(table, row, max(end - 1, 0), 1) for row, end in zip(used, ends.tolist(), strict=True)
            ]
            self.foreign += len(refs)
            for row, ref, (check, detail) in zip(used.tolist(), refs, self._ask(refs), strict=True):
                if check and (self.takes_all or check in _CHANGES):
                    lost = (table.kind == ChunkKind.VIRTUAL) & (table.source == row)
                    yield Finding(check, ref.location, node, table.index[lost], detail)
                elif check:
                    self.unchecked += 1

    def _ask(self, refs: Sequence[VirtualRef]) -> Iterable[tuple[str, str]]:
        """Return the check that each object fails, and the reason. Both are empty for a good object."""
        if self.takes_all:
            return map_bounded(Purpose.VERIFICATION_READS, self._answer, refs)
        keys = [(ref.location, ref.etag, ref.modified) for ref in refs]
        named = dict(zip(keys, refs, strict=True))
        new = [key for key in named if key not in self.answers and (key[1] or key[2])]
        new = new[: _MOST_FOREIGN - len(self.answers)]
        answers = map_bounded(Purpose.VERIFICATION_READS, self._answer, [named[key] for key in new])
        self.answers.update(zip(new, answers, strict=True))
        return [self.answers.get(key, ("virtual-unchecked", "")) for key in keys]

    def _answer(self, ref: VirtualRef) -> tuple[str, str]:
        try:
            self.sources.locate(ref).get(ref.offset, ref.offset + ref.length)
        except IcechunkError as error:
            return virtual_check(error), error.message
        return "", ""


#: The parent is mostly the snapshot that was checked before.
_PARENTS: Final = CacheLimits(snapshot_nodes=50_000, chunk_refs=0)
#: The manifests of a version are those of the next version's parent. Several threads have a cache each.
_MANIFESTS: Final = CacheLimits(snapshot_nodes=0, chunk_refs=1_000_000)


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A snapshot to check, and the parent that its log compares it with, None if it is not known.

    ``pruned`` are expired snapshots between the two, whose logs may exist; only one version lists each. A
    version that is not needed by a branch or tag may have lost files in a garbage collection. An expiration
    of icechunk 2.0 makes the root the parent of a version, and lists no logs (``may_be_expired``).
    """

    id: bytes
    parent: bytes | None
    pruned: tuple[bytes, ...]
    is_needed: bool
    is_root: bool = True
    entry: SnapshotEntry | None = None
    may_be_expired: bool = False


@dataclass(frozen=True, slots=True)
class ChangedArray:
    """An array of two snapshots with different manifests: those of the earlier only, of the later only.

    ``num_chunks`` are those of the later snapshot along each dimension.
    """

    node: bytes
    num_chunks: tuple[int, ...]
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.num_chunks)


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """A snapshot whose transaction log must have the changed chunks of some arrays."""

    id: bytes
    arrays: tuple[ChangedArray, ...] = ()
    is_compaction: bool = False


@dataclass(slots=True, eq=False)
class CheckedVersion:
    """The findings of a snapshot, its manifests, and the arrays that use them."""

    id: bytes
    findings: list[Finding] = field(default_factory=list)
    manifests: ManifestFiles = field(default_factory=ManifestFiles.empty)
    uses: ManifestUses = field(default_factory=lambda: ManifestUses.union([]))
    changes: LoggedChanges = LoggedChanges(b"")


def check_versions(context: Context, item: tuple[None, Sequence[ListedVersion]]) -> Iterator[CheckedVersion]:
    """Check snapshots and their logs, best in the order of their history."""
    assets = Assets(context.storage, _PARENTS)
    last: Snapshot | None = None
    for version in item[1]:
        checked = CheckedVersion(version.id)
        with noted(checked.findings, snapshot_key(version.id)):
            for id_ in version.pruned:
                _check_log(context, id_, checked, may_be_gone=True)
            parent = last if last is not None and last.id == version.parent else None
            with skip_damage():  # there is a finding for a parent that cannot be read
                if parent is None and version.parent is not None:
                    parent = assets.snapshot(version.parent)
            last = _check_version(context, version, parent, checked) or last
        yield checked


def _check_version(
    context: Context, version: ListedVersion, parent: Snapshot | None, checked: CheckedVersion
) -> Snapshot | None:
    key = snapshot_key(version.id)
    file = check_kind(context, SNAPSHOT, version.id)
    if version.is_needed or not file.is_missing:
        checked.findings += file.findings
    snapshot = file.value
    if snapshot is None:
        _check_log(context, version.id, checked, may_be_gone=not version.is_needed)
        return None
    # In spec version 1 the first snapshot has no log, and old writers gave it a random id.
    first = snapshot.spec_version < 2 and snapshot.parent_id is None
    if first and not version.is_root and version.id != INITIAL_SNAPSHOT_ID:
        detail = "parent_id must be present in spec version 1"
        checked.findings.append(Finding("snapshot-parent-v1", key, detail=detail))
    log = _check_log(context, version.id, checked, may_be_gone=first or not version.is_needed)
    if log is not None:
        findings = list(log_findings(version.id, parent, snapshot, log))
        if version.may_be_expired and any(each.check == "log-nodes" for each in findings):
            detail = f"{findings[0].detail}; an expiration has removed the versions before, and lists no logs"
            parent = None
            findings = list(log_findings(version.id, None, snapshot, log))
            findings += [Finding("log-expired", transaction_key(version.id), detail=detail)] * (not findings)
        checked.findings += findings
        if parent is not None and snapshot.spec_version > 1:
            arrays = tuple(_changed_arrays(parent.nodes, snapshot.nodes))
            is_compaction = bool(arrays) and is_of_compaction(snapshot.metadata)
            checked.changes = LoggedChanges(version.id, arrays, is_compaction)
    entry = version.entry
    names = ("flushed_at", "message", "metadata")
    wrong = [name for name in names if entry and getattr(entry, name) != getattr(snapshot, name)]
    if wrong:
        detail = f"the file `repo` has another {' and '.join(wrong)} than the snapshot"
        checked.findings.append(Finding("snapshot-summary", key, detail=detail))
    checked.manifests, checked.uses = snapshot.manifests, ManifestUses.of(snapshot)
    return snapshot


def _check_log(
    context: Context, id_: bytes, checked: CheckedVersion, *, may_be_gone: bool
) -> TransactionLog | None:
    file = check_kind(context, TRANSACTION_LOG, id_)
    if not (may_be_gone and file.is_missing):
        checked.findings += file.findings
    return file.value


# Nodes and moves of a log


def log_findings(
    id_: bytes, parent: Snapshot | None, snapshot: Snapshot, log: TransactionLog
) -> Iterator[Finding]:
    """Yield the contradictions between the log of a snapshot and the two snapshots."""
    key = transaction_key(id_)
    before = NodeTable.from_nodes([]) if id_ == INITIAL_SNAPSHOT_ID else None
    # Expiration in spec version 1 changes parents and leaves no trace.
    if parent is not None and snapshot.spec_version > 1:
        before = parent.nodes.whole()
    differences = [
        f"{what}: {expected} by the snapshots, {logged} in the log"
        for what, expected, logged in _differences(before, snapshot.nodes.whole(), log)
    ]
    if differences:
        yield Finding("log-nodes", key, detail="; ".join(differences))
    if before is not None and (log.moves or parent is not None):
        old, new = (
            dict(zip(id_list(each.ids), each.paths_list(), strict=True)) for each in (before, snapshot.nodes)
        )
        for check, node, detail in _wrong_moves(old, new, log.moves):
            yield Finding(check, key, node, detail=detail)


def _differences(
    before: NodeTable | None, after: NodeTable, log: TransactionLog
) -> Iterator[tuple[str, int, int]]:
    """Yield contradictions between a log and the two snapshots, with the number of nodes in each.

    A node that is written again with the same content is updated only in the log. The reference joins the
    logs of a commit and of its amendment, so a node may be in both lists of the log, and in neither snapshot.
    """
    passing: list[Any] = []
    for kind, arrays in (("arrays", True), ("groups", False)):
        after_keys = id_keys(after.ids[after.is_array == arrays])
        new, deleted, updated = (
            id_keys(getattr(log, f"{name}_{kind}")) for name in ("new", "deleted", "updated")
        )
        passing.append(np.intersect1d(new, deleted))
        new, deleted = np.setdiff1d(new, passing[-1]), np.setdiff1d(deleted, passing[-1])
        if before is None:
            if not np.isin(new, after_keys).all():
                yield f"new {kind}", int(np.isin(new, after_keys).sum()), len(new)
            continue
        before_keys = id_keys(before.ids[before.is_array == arrays])
        for name, expected, logged in (
            ("new", np.setdiff1d(after_keys, before_keys), new),
            ("deleted", np.setdiff1d(before_keys, after_keys), deleted),
        ):
            if not np.array_equal(expected, logged):
                yield f"{name} {kind}", len(expected), len(logged)
        rows, old_rows = _in_both(before, after)
        of_kind = after.is_array[rows] == arrays
        rows, old_rows = rows[of_kind], old_rows[of_kind]
        documents = after.user_data.take(rows).blobs(), before.user_data.take(old_rows).blobs()
        changed = id_keys(after.ids[rows])[np.fromiter(map(ne, *documents), bool, len(rows))]
        if not np.isin(changed, updated).all():
            yield f"updated {kind}", len(changed), len(updated)
    if before is not None:
        ids = id_keys(np.frombuffer(b"".join(log.updated_chunks), np.uint8).reshape(-1, NODE_ID_BYTES))
        arrays_of = [id_keys(table.ids[table.is_array]) for table in (before, after)]
        is_array = np.isin(ids, np.concatenate([*arrays_of, *passing]))
        if not is_array.all():
            yield "arrays with updated chunks", int(is_array.sum()), len(ids)


def _in_both(before: NodeTable, after: NodeTable) -> tuple[I64, I64]:
    """Return the rows of the nodes of both snapshots, in the later and in the earlier one."""
    old_rows = rows_of(before, after.ids)
    rows = np.flatnonzero(old_rows >= 0)
    return rows, old_rows[rows]


def _wrong_moves(
    before: Mapping[bytes, str], after: Mapping[bytes, str], moves: Sequence[Move]
) -> Iterator[tuple[str, bytes, str]]:
    """Yield broken rules about the moves of a log and the paths of the two snapshots."""
    moved = {move.node_id for move in moves}
    for id_, path in after.items():
        if before.get(id_, path) != path and id_ not in moved:
            yield "moves-complete", b"", f"the log has no move from {before[id_]} to {path}"
            break
    groups, sources = set(after.values()), {move.source for move in moves}
    occupied = set(before.values()) - sources if moves else set()
    rules = {
        "moves-paths": (
            "the move from {0.source} to {0.target} is not that of the snapshots",
            lambda move: (
                before.get(move.node_id, move.source) != move.source
                or after.get(move.node_id, move.target) != move.target
            ),
        ),
        "moves-parent": (
            "{0.target} has no parent group",
            lambda move: move.node_id in after and (move.target.rpartition("/")[0] or "/") not in groups,
        ),
        "moves-overwrite": (
            "{0.target} was the path of another node, which has no move",
            lambda move: move.target in occupied,
        ),
    }
    for check, (text, is_wrong) in rules.items():
        wrong = next(filter(is_wrong, moves), None)
        if wrong is not None:
            yield check, wrong.node_id, text.format(wrong)


# Chunks of a log


def _changed_arrays(before: NodeTable, after: NodeTable) -> Iterator[ChangedArray]:
    """Yield the arrays that are in both snapshots with different manifests."""
    rows, old_rows = _in_both(before, after)
    are_arrays = after.is_array[rows] & before.is_array[old_rows]
    rows, old_rows = rows[are_arrays], old_rows[are_arrays]
    blobs = after.manifests.take(rows).blobs(), before.manifests.take(old_rows).blobs()
    changed = np.fromiter(map(ne, *blobs), bool, len(rows))
    for row, old_row in zip(rows[changed].tolist(), old_rows[changed].tolist(), strict=True):
        old, new = before.manifests.row(old_row).tolist(), after.manifests.row(row).tolist()
        num_chunks = tuple(after.num_chunks.row(row).tolist())
        if after.guessed[row]:
            num_chunks = (1 << 32,) * len(num_chunks)  # only the metadata of zarr are exact
        both = set(old).intersection(new)
        only_old, only_new = (tuple(id_ for id_ in ids if id_ not in both) for ids in (old, new))
        yield ChangedArray(after.ids[row].tobytes(), num_chunks, only_old, only_new)


def check_log_chunks(
    context: Context, item: tuple[None, Sequence[LoggedChanges]]
) -> Iterator[tuple[bytes, list[Finding]]]:
    """Yield the findings of each log about updated chunks, best in the order of the history."""
    assets = Assets(context.storage, _MANIFESTS)
    for changes in item[1]:
        key, findings = transaction_key(changes.id), list[Finding]()
        try:
            log = assets.transaction_log(changes.id)
            for array in changes.arrays:
                changed = _changed_chunks(assets, array, is_compaction=changes.is_compaction)
                stored = log.chunks_of(array.node, array.ndim)
                silent = changed[ChunkTable.from_absent(stored).find_chunks(changed) < 0]
                # A smaller shape removes the chunks behind it. The log then names only the array.
                silent = silent[within(silent, array.num_chunks)]
                if len(silent):
                    detail = "the log does not have changed chunks"
                    findings.append(Finding("log-chunks", key, array.node, silent, detail))
        except IcechunkError as error:  # another check reports a file that is missing or damaged
            findings = [read_finding(error, key)] if is_outage(error) else []
        yield changes.id, findings


def _changed_chunks(assets: Assets, array: ChangedArray, *, is_compaction: bool) -> U32:
    """Return the coordinates of the chunks with different references.

    A compaction moves chunks to other files, and its log does not name them. They have the same lengths.
    """
    both_tables = list[ChunkTable]()
    for ids in (array.old, array.new):
        tables = [assets.manifest(id_).arrays.get(array.node) for id_ in ids]
        fitting = [table.of_rank(array.ndim) for table in tables if table is not None]
        both_tables.append(ChunkTable.merge_tables([ChunkTable.empty(array.ndim), *reversed(fitting)]))
    old, new = both_tables
    rows = old.find_chunks(new.index)
    both = np.flatnonzero(rows >= 0)
    same = np.zeros(len(new), bool)
    same[both] = new.same(both, old, rows[both])
    if is_compaction:
        moved = (new.kind[both] == ChunkKind.NATIVE) & (old.kind[rows[both]] == ChunkKind.NATIVE)
        same[both] |= moved & (new.length[both] == old.length[rows[both]])
    is_absent = new.find_chunks(old.index) < 0
    return np.concatenate([new.index[~same], old.index[is_absent]])
