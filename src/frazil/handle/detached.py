"""The merge of detached snapshots, which workers have flushed, into one commit.

The changes of a snapshot are those of its own transaction log, relative to its parent. The changes of the
snapshots of one parent are united as those of forks, and carried to the tip of the branch as a rebase does.
The update of the commit removes the snapshots from the list: so a snapshot that is listed was not merged, and
a repeated call finds the commit by a digest of the ids in its metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import batched, chain, compress
from typing import Any, Final

import numpy as np

from frazil.arguments import wrong_type
from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.changes.conflicts import align_nodes, find_conflicts
from frazil.changes.diff import (
    NodeChanges,
    VersionContent,
    change_set_between,
    node_changes_of_change_set,
    node_changes_of_logs,
    rows_of,
    same_refs,
)
from frazil.changes.merge import differing, merge_snapshot_changes
from frazil.chunks.reader import ChunkReader
from frazil.errors import (
    ErrorKind,
    InvalidInputError,
    MergeConflictError,
    RebaseFailedError,
    SessionStateError,
    SnapshotNotFoundError,
    StorageError,
)
from frazil.format.chunk_table import ChunkKind
from frazil.format.columns import U32
from frazil.format.ids import NODE_ID_BYTES, id_list, id_matrix, id_to_text
from frazil.format.joined_files import MOST_JOINED
from frazil.format.manifest import ChunkTable, Manifest
from frazil.format.nodes import Node, NodeTable
from frazil.format.repo_info import RepoInfo
from frazil.format.transaction_log import ID_LISTS, TransactionLog
from frazil.handle.opening import require_writable
from frazil.handle.sessions import Integration, IntegrationPlan, carry_changes
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.ancestry import FRAZIL, mentioning, own_values
from frazil.repository.catalog.assets import (
    LATE_SNAPSHOT,
    MANIFEST,
    SNAPSHOT_MANIFESTS,
    TRANSACTION_LOG,
    Assets,
    CacheLimits,
    FileKind,
    HasId,
    small_parts,
)
from frazil.repository.catalog.collection_guard import flush_lease
from frazil.repository.catalog.context import Context, files_of
from frazil.repository.catalog.repo_changes import require_detached, resolve_id
from frazil.repository.session.conflicts import Conflict, ConflictSolver
from frazil.repository.session.differences import commits_between, read_logs
from frazil.repository.session.workspace import Workspace
from frazil.threads import Purpose, map_bounded

#: The key of Frazil's values in the metadata of the commit.
_MERGED: Final = "merged_snapshots"
#: Chunks of about this number of bytes are compared at a time.
_COMPARED: Final = 32 << 20
#: The memory that the comparison of a chunk needs, in addition to its bytes.
_OBJECTS: Final = 1 << 10


class DetachedMerges(Integration):
    """The method of ``Repository`` that merges detached snapshots."""

    def merge_snapshots(
        self,
        branch: str,
        snapshot_ids: Sequence[str],
        message: str,
        *,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Merge detached snapshots, which workers have made with ``Session.flush``, into one commit.

        All changes are committed together, or none. Each snapshot counts with its changes to its parent. The
        parents can differ, and the branch may have moved: then the changes are rebased onto its tip. Equal
        changes never conflict: chunks with equal bytes, equal metadata, and equal new groups and arrays.

        The commit removes the snapshots from the repository. A repeated call with the same ids, such as
        after a crash, returns the id of the first commit.

        Args:
            branch: The name of the branch that receives the commit.
            snapshot_ids: The ids that ``Session.flush`` has returned, at least one, in any order. An id that
                is named twice counts once.
            message: The message of the commit.
            metadata: Metadata of the commit: values that JSON can hold, by name. Default: none.

        Returns:
            The id of the commit.

        Raises:
            MergeConflictError: ``merge-failed`` if two snapshots, or a snapshot and the branch since its
                parent, changed the same chunk or node in different ways.
            SnapshotNotFoundError: ``snapshot-not-found`` if a snapshot is not in the repository any more.
            InvalidInputError: ``invalid-snapshot-id`` if there is no id, if a text is not an id, or if a
                branch, a tag or another snapshot needs a snapshot.
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.
            FormatError: ``unsupported-spec-version`` in a repository of spec version 1.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
            >>> def work(start):
            ...     session = repo.writable_session("main")
            ...     zarr.open_array(session.store, path="t")[start : start + 2] = start + 1
            ...     return session.flush(f"from {start}")
            >>> merged = repo.merge_snapshots("main", [work(0), work(2)], "both parts")
            >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
            [1, 1, 3, 3]
        """
        self._context.require_version_2()
        require_writable(self.storage)
        given = list(snapshot_ids)
        if isinstance(snapshot_ids, str) or not all(isinstance(each, str) for each in given):
            raise wrong_type("snapshot_ids", snapshot_ids, "a list of ids")
        ids = tuple(sorted({resolve_id(each, self._context.catalog.repo_info) for each in given}))
        if not ids:
            raise InvalidInputError(
                "snapshot_ids must have at least one id, got none", ErrorKind.INVALID_SNAPSHOT_ID
            )
        mark = hashlib.sha256(b"".join(ids)).hexdigest()[:32]

        def plan(info: RepoInfo, tip: bytes) -> IntegrationPlan | bytes:
            missing = info.table.find_snapshots(id_matrix([*ids])) < 0
            if missing.any():
                for entry in mentioning(info, tip, FRAZIL, mark):
                    if own_values(entry.metadata).get(_MERGED) == mark:
                        return entry.id
                raise SnapshotNotFoundError(
                    f"{int(missing.sum())} of {len(ids)} snapshots are not listed, such as "
                    f"`{id_to_text(ids[int(np.argmax(missing))])}`. They were merged in another call, "
                    "expired or dropped, or are of another repository"
                )
            require_detached(info, ids)
            return _SnapshotsPlan(tip, tip, message, {_MERGED: mark}, allow_empty=True, merged=ids)

        commit = self._integrate(plan, branch, None, None, metadata, None)
        with suppress(StorageError):  # the leases end by themselves
            self.storage.delete(list(map(flush_lease, ids)))
        return commit

    merge_snapshots_async: Final = awaitable(merge_snapshots)


class _SnapshotsPlan(IntegrationPlan):
    """A plan to commit the changes of the snapshots ``merged``."""

    __slots__ = ()

    def carry(self, context: Context, info: RepoInfo, tip: bytes, solver: ConflictSolver) -> Workspace:
        """See ``IntegrationPlan.carry``."""
        rows = info.table.find_snapshots(id_matrix([*self.merged]))
        groups: dict[bytes, list[bytes]] = {}
        for id_, parent in zip(self.merged, info.table.parents()[rows].tolist(), strict=True):
            groups.setdefault(info.table.id_of(parent), []).append(id_)
        parts: dict[bytes, ChangeSet] = {}
        for parent, ids in groups.items():
            group = _Siblings(context, Workspace(context, parent), ids)
            parts[ids[0]] = group.carried(info, tip, solver)
        return Workspace(context, tip, None, None, _united(Workspace(context, tip), parts))


@dataclass(frozen=True, slots=True)
class _Siblings:
    """Detached snapshots of one parent."""

    context: Context
    parent: Workspace
    ids: Sequence[bytes]

    def carried(self, info: RepoInfo, tip: bytes, solver: ConflictSolver) -> ChangeSet:
        """Return the changes of all snapshots relative to the snapshot ``tip``."""
        parts = map(self._changes, batched(self.ids, MOST_JOINED))
        united = _united(self.parent, dict(chain.from_iterable(map(dict.items, parts))))
        if self.parent.snapshot_id == tip:
            return united
        current = Workspace(self.context, tip)
        commits = commits_between(info, self.parent.snapshot_id, tip)
        nodes = current.snapshot.nodes
        theirs = node_changes_of_logs(
            read_logs(self.context.assets, commits), self.parent.snapshot.nodes, nodes
        )
        _share_new_nodes(
            [united], {path: nodes.node(nodes.find_node(path)) for path in theirs.created.values()}
        )
        content = _changed_content(current, theirs)

        def table(path: str) -> ChunkTable:
            refs = content.table(path)
            ours = [each for each in united.chunks.values() if each.path == path and each.ndim == refs.ndim]
            return with_equal_refs(current.reader, refs, ours[0].table()) if ours else refs

        try:
            work = carry_changes(
                self.parent, current, united, theirs, VersionContent(nodes, table), solver, tip
            )
        except RebaseFailedError as error:
            owner = next(filter(partial(self._made, error.conflicts[0]), self.ids), self.ids[0])
            raise MergeConflictError(id_to_text(owner), id_to_text(tip), error.conflicts) from error
        return work.changes

    def _changes(self, ids: Sequence[bytes]) -> dict[bytes, ChangeSet]:
        """Return what some snapshots changed in their parent."""
        logs = dict(zip(ids, self.context.assets.transaction_logs(ids), strict=True))
        parts = self._chunk_changes([log for log in logs.values() if log is not None])
        others = [id_ for id_ in ids if id_ not in parts]
        parts.update(zip(others, self._run(lambda id_: self.changes(id_, logs[id_]), others), strict=True))
        return parts

    def _chunk_changes(self, logs: Sequence[TransactionLog]) -> dict[bytes, ChangeSet]:
        """Return the changes of snapshots that, by their logs, have only set chunks of arrays.

        The references of these chunks are in the manifests that the parent does not have. Snapshots with
        anything else are left out.
        """
        nodes, listed = self.parent.snapshot.nodes, {*id_list(self.parent.snapshot.manifests.ids)}
        touched = sorted({*chain.from_iterable(log.updated_chunks for log in logs)})
        rows = rows_of(nodes, id_matrix(touched, NODE_ID_BYTES))
        known = list(compress(touched, (rows >= 0).tolist()))
        rows = rows[rows >= 0]
        ndims = nodes.array_length.lengths[rows].tolist()
        arrays = dict(zip(known, zip(nodes.paths.take(rows).texts(), ndims, strict=True), strict=True))
        chosen = {log.id: log.updated_chunks for log in logs if _sets_chunks(log, arrays)}
        lists = self._read(SNAPSHOT_MANIFESTS, list(zip(chosen, chosen, strict=True)))
        files = [(each.id, id_) for each in lists for id_ in id_list(each.files.ids) if id_ not in listed]
        owners = dict[bytes, list[Manifest]]()
        for (id_, _), manifest in zip(files, self._read(MANIFEST, files), strict=True):
            owners.setdefault(id_, []).append(manifest)
        out = dict[bytes, ChangeSet]()
        for id_, manifests in owners.items():
            changes = ChangeSet()
            for node, index in chosen[id_].items():
                tables = [manifest.arrays[node] for manifest in manifests if node in manifest.arrays]
                path, ndim = arrays[node]
                if (table := _only_refs(tables, index)) is None:
                    break
                changes.chunks[node] = ChunkChanges(path, ndim, (table,))
            else:
                out[id_] = changes
        return out

    def _read[T: HasId](self, kind: FileKind[T], files: Sequence[tuple[bytes, bytes]]) -> Iterator[T]:
        """Yield the files with the ids of their snapshots, and their own ids."""

        def fetch(file: tuple[bytes, bytes]) -> tuple[bytes, Buffer]:
            with files_of(self.context, file[0]):
                return file[1], self.context.storage.get(kind.key(file[1]))

        for part in small_parts(self._run(fetch, files)):
            yield from chain.from_iterable(kind.decoded_together(part))

    def _run[T, R](self, function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """Call a function for all items, on threads if each call waits for a network."""
        is_local = self.context.storage.is_local
        return map(function, items) if is_local else map_bounded(Purpose.CATALOG_READS, function, items)

    def changes(self, id_: bytes, log: TransactionLog | None = None) -> ChangeSet:
        """Return what a snapshot, whose log may have been read, changed in its parent."""
        context = self.context
        with files_of(context, id_):
            snapshot = LATE_SNAPSHOT.read(context.storage, id_)
            log = log or TRANSACTION_LOG.read(context.storage, id_)
            # Its files are read once, and there may be thousands of snapshots.
            uncached = replace(context, assets=Assets(context.storage, CacheLimits(0, 0)))
            after = Workspace(uncached, id_, snapshot=snapshot)
            before = self.parent.snapshot.nodes
            edits = node_changes_of_logs([log], before, snapshot.nodes)
            return change_set_between(
                edits, VersionContent(before, self.parent.ref_table), _changed_content(after, edits)
            )

    def _made(self, conflict: Conflict, id_: bytes) -> bool:
        """Return whether a snapshot made the change of a conflict."""
        changes = self.changes(id_)
        tables = [each.table() for each in changes.chunks.values() if each.path == conflict.path]
        if conflict.chunks is None:
            return conflict.path in changes.nodes or bool(tables)
        return any((table.find_chunks(conflict.chunks) >= 0).any() for table in tables)


def _sets_chunks(log: TransactionLog, arrays: Mapping[bytes, tuple[str, int]]) -> bool:
    """Return whether, by a log, a snapshot has only set or deleted chunks of ``arrays``: path and rank."""
    nodes_changed = log.moves or log.odd_chunks or any(len(getattr(log, name)) for name in ID_LISTS)
    return not nodes_changed and all(
        id_ in arrays and index.shape[1] == arrays[id_][1] for id_, index in log.updated_chunks.items()
    )


def _only_refs(tables: Sequence[ChunkTable], index: U32) -> ChunkTable | None:
    """Return the references at ``index``, or None if not exactly one table has each of them."""
    if len(tables) == 1 and np.array_equal(tables[0].index, index):
        return tables[0]  # with the sources of its neighbours, which a union takes once
    rows = [table.find_chunks(index) for table in tables]
    if not rows or (np.sum([each >= 0 for each in rows], axis=0) != 1).any():
        return None
    chosen = [table.select_chunks(each[each >= 0]) for table, each in zip(tables, rows, strict=True)]
    return ChunkTable.merge_tables([table.prune().compact() for table in chosen])


def _changed_content(workspace: Workspace, edits: NodeChanges) -> VersionContent:
    """Return the content of a version. Of arrays with changed chunks, it has only these references."""
    chunks = {path: edits.chunks[id_] for id_, path in edits.chunk_paths.items()}

    def table(path: str) -> ChunkTable:
        if path not in chunks:
            return workspace.ref_table(path)
        return workspace.refs_at(path, chunks[path]).sorted().stored().prune().compact()

    return VersionContent(workspace.snapshot.nodes, table)


def _united(base: Workspace, parts: Mapping[bytes, ChangeSet]) -> ChangeSet:
    """Return the union of the changes that snapshots made to ``base``. Raises ``MergeConflictError``."""
    ids, changes, nodes = list(parts), list(parts.values()), base.snapshot.nodes
    if len(changes) == 1:
        return changes[0]
    _share_new_nodes(changes, {})
    _share_equal_chunks(base.reader, changes)

    def error_of(some: Sequence[ChangeSet]) -> SessionStateError | None:
        try:
            merge_snapshot_changes(nodes, some)
        except SessionStateError as error:
            return error
        return None

    try:
        return merge_snapshot_changes(nodes, changes)
    except SessionStateError as error:
        if error.kind != ErrorKind.MERGE_FAILED:
            raise
        low, high = 1, len(changes)  # the snapshots before ``low`` fit, those before ``high`` do not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if error_of(changes[:middle]) else (middle, high)
        mine = changes[high - 1]
        other = next((at for at in range(high - 1) if error_of([changes[at], mine])), 0)
        conflicts = list(_conflicts(nodes, mine, changes[other]))
        reason = "" if conflicts else error.problem
        raise MergeConflictError(
            id_to_text(ids[high - 1]), id_to_text(ids[other]), conflicts, reason
        ) from error


def _conflicts(base: NodeTable, ours: ChangeSet, theirs: ChangeSet) -> Iterator[Conflict]:
    """Yield the conflicts between two change sets of one base. Equal chunks are none."""
    ours = ours.copy()
    for id_ in ours.chunks.keys() & theirs.chunks.keys():
        path, mine, others = ours.chunks[id_].path, ours.chunks[id_].table(), theirs.chunks[id_].table()
        if mine.ndim == others.ndim:
            rest = mine.select_chunks(~same_refs(mine, others, mine.index))
            ours.chunks[id_] = ChunkChanges(path, mine.ndim, (rest,))
    node_changes = node_changes_of_change_set(theirs, base)
    for each in find_conflicts(align_nodes(ours, base, node_changes, theirs.apply(base), by_chunk=True)):
        chunks = None if each.chunks is None else each.chunks.tolist()
        yield Conflict(each.type, each.path, chunks)


def _share_new_nodes(parts: Iterable[ChangeSet], existing: Mapping[str, Node]) -> None:
    """Give equal new nodes at one path the same id, that of ``existing`` nodes if they are equal."""
    first = dict(existing)
    for changes in parts:
        for path, node in changes.nodes.items():
            if node is None or node.id not in changes.created:
                continue
            known = first.setdefault(path, node)
            if known.id == node.id or known.user_data != node.user_data:
                continue
            changes.nodes[path] = replace(node, id=known.id)
            changes.created ^= {node.id, known.id}
            if node.id in changes.chunks:
                changes.chunks[known.id] = changes.chunks.pop(node.id)


def _share_equal_chunks(reader: ChunkReader, parts: Sequence[ChangeSet]) -> None:
    """Give chunks with equal bytes, which several change sets have, the same reference."""
    several: dict[bytes, list[ChangeSet]] = {}
    for changes in parts:
        for id_ in changes.chunks:
            several.setdefault(id_, []).append(changes)
    for id_, owners in several.items():
        tables = [owner.chunks[id_].table() for owner in owners]
        if len({table.ndim for table in tables}) > 1 or not len(twice := differing(tables)):
            continue
        known = ChunkTable.empty(tables[0].ndim)
        for owner, table in zip(owners, tables, strict=True):
            rows = table.find_chunks(twice)
            own = table.select_chunks(rows[rows >= 0])
            shared = with_equal_refs(reader, own, known)
            if shared is not own:
                merged = ChunkTable.merge_tables([table, shared])
                owner.chunks[id_] = ChunkChanges(owner.chunks[id_].path, merged.ndim, (merged,))
            known = ChunkTable.merge_tables([shared, known])


def with_equal_refs(reader: ChunkReader, table: ChunkTable, other: ChunkTable) -> ChunkTable:
    """Return a table with the references of ``other`` where both chunks of the repository are equal."""
    theirs = other.find_chunks(table.index)
    rows = np.flatnonzero(theirs >= 0)
    rows = rows[~table.same(rows, other, theirs[rows]) & (table.length[rows] == other.length[theirs[rows]])]
    for each, at in ((table, np.arange(len(table))), (other, theirs)):
        rows = rows[np.isin(each.kind[at[rows]], (ChunkKind.NATIVE, ChunkKind.INLINE))]
    sizes = np.cumsum(table.length[rows].astype(np.int64) + _OBJECTS)
    is_equal = list[bool]()
    for part in np.split(rows, np.flatnonzero(np.diff(sizes // _COMPARED)) + 1):
        pairs = [(table.ref(row), other.ref(int(theirs[row]))) for row in part.tolist()]
        data = reader.read_many([(ref, 0, None) for pair in pairs for ref in pair if ref is not None])
        is_equal += [bytes(one) == bytes(two) for one, two in zip(data[::2], data[1::2], strict=True)]
    equal = rows[np.array(is_equal, np.bool_)]
    return ChunkTable.merge_tables([table, other.select_chunks(theirs[equal])]) if len(equal) else table
