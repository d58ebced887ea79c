"""The commit that wrote each chunk of an array last, from transaction logs.

A transaction log has the coordinates of all chunks that a commit changed, by the id of the array. So a
renamed array has one history. The logs are read from the newest commit to older ones, in parts of growing
length, until each chunk has its commit. Within a part, all coordinates are one column, and one assignment in
the order of the commits leaves the newest.

    a merge        Chunks in its log come from the branch that was merged. The logs of that branch are read,
                   for these chunks alone. Chunks that no commit of the branch has belong to the merge.
    a compaction   It moves the bytes of chunks, and writes no data. It is left out.
    expiration     A commit has the logs of expired versions before it. Chunks in these logs, and chunks in no
                   log, were written before the commit: ``is_before``.
    a lost log     All older commits are uncertain. The remaining chunks were written before the commit after
                   the lost one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U32
from frazil.format.manifest import ChunkTable
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.lineage import FRAZIL, all_ancestors, is_of_compaction, second_parents


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """A transaction log: its id, the row of the commit that has it, and whether its version was expired."""

    log: bytes
    row: int
    is_before: bool


@dataclass(slots=True, eq=False)
class Origins:
    """The row of the commit that wrote each chunk last, and whether it was written before this commit.

    rows        int64 (n,), -1 for a chunk whose commit is not known yet
    is_before   bool (n,)
    """

    rows: I64
    is_before: NDArray[np.bool_]

    @staticmethod
    def of_nothing(count: int) -> Origins:
        """Return the origins of chunks whose commits are not known yet."""
        return Origins(np.full(count, -1, np.int64), np.zeros(count, np.bool_))

    def set_remaining(self, among: NDArray[np.bool_] | slice, row: int, *, is_before: bool) -> None:
        """Set the commit of all chunks of a selection that have none."""
        chosen = np.zeros(len(self.rows), np.bool_)
        chosen[among] = True
        chosen &= self.rows < 0
        self.rows[chosen] = row
        self.is_before[chosen] = is_before


@dataclass(frozen=True, slots=True, eq=False)
class ArrayLogs:
    """The logs of one array, ``node``, in the history of a repository."""

    assets: Assets
    info: RepoInfo
    node: bytes

    def coordinates(self, logs: Sequence[LogOrigin]) -> list[U32 | None]:
        """Return the coordinates that each log has, shape (k, ndim). None for a log that was deleted."""
        nothing = np.zeros((0, 0), np.uint32)
        read = self.assets.transaction_logs([each.log for each in logs])
        return [None if log is None else log.updated_chunks.get(self.node, nothing) for log in read]

    def logs_of(self, entry: SnapshotEntry) -> list[LogOrigin]:
        """Return the logs of a commit, oldest first."""
        if is_of_compaction(entry.metadata):
            return []
        row = self.info.snapshots.find_snapshot(entry.id)
        return [LogOrigin(id_, row, id_ != entry.id) for id_ in entry.logs]

    def merged_logs(self, merge: SnapshotEntry) -> list[LogOrigin]:
        """Return the logs of commits that came with a merge, oldest first, with other merges at the start."""
        info = self.info
        first = np.zeros(0, np.int64) if merge.parent is None else all_ancestors(info, merge.parent)
        every = [all_ancestors(info, id_) for id_ in second_parents(merge)]
        rows = np.setdiff1d(np.concatenate([np.zeros(0, np.int64), *every]), first)
        is_merge = np.isin(rows, info.snapshots.mentioning(rows, FRAZIL))
        rows = rows[np.lexsort((info.snapshots.flushed_at()[rows], ~is_merge))]
        return [log for entry in info.snapshots.entries(rows) for log in self.logs_of(entry)]


def chunk_origins(logs: ArrayLogs, tip: int, table: ChunkTable) -> Origins:
    """Return the origins of all chunks in ``table`` in the version at the row ``tip``."""
    origins = Origins.of_nothing(len(table))
    newer = tip
    for entries in segments(logs.info, tip):
        merge = entries[0] if list(second_parents(entries[0])) else None
        if merge is not None:
            _assign_merged(logs, merge, table, origins)
        newer, is_complete = _assign(logs, entries[::-1], table, origins, newer)
        if not is_complete or (origins.rows >= 0).all():
            break
    origins.set_remaining(slice(None), newer, is_before=True)
    return origins


def segments(info: RepoInfo, tip: int) -> Iterator[list[SnapshotEntry]]:
    """Yield the history of a version, newest first, in parts. Merges are at the start of a part."""
    snapshots = info.snapshots
    for part in snapshots.parts(tip):
        entries = list(snapshots.entries(part))
        is_special = np.isin(part, snapshots.mentioning(part, FRAZIL))
        starts = [at for at in np.flatnonzero(is_special).tolist() if list(second_parents(entries[at]))]
        for start, end in pairwise(dict.fromkeys([0, *starts, len(entries)])):
            yield entries[start:end]


def _assign(
    logs: ArrayLogs, entries: Sequence[SnapshotEntry], table: ChunkTable, origins: Origins, newer: int
) -> tuple[int, bool]:
    """Assign the commits ``entries``, oldest first, to chunks without a commit.

    Return the row of the oldest commit whose log was read, and whether all logs exist. ``newer`` is the row
    of the commit after them.
    """
    sources = [log for entry in entries for log in logs.logs_of(entry)]
    coords = logs.coordinates(sources)
    lost = max((at for at, each in enumerate(coords) if each is None), default=-1)
    _assign_coordinates(sources[lost + 1 :], coords[lost + 1 :], table, origins, slice(None))
    # The first snapshot has no changes: nothing was written before the commit after it.
    own = [each.row for each in sources[lost + 1 :] if not each.is_before and each.log != _root(entries)]
    return (own[0] if own else newer), lost < 0


def _root(entries: Sequence[SnapshotEntry]) -> bytes | None:
    return entries[0].id if entries[0].parent is None else None


def _assign_merged(logs: ArrayLogs, merge: SnapshotEntry, table: ChunkTable, origins: Origins) -> None:
    """Assign the commits of a merged branch to the chunks that the merge changed."""
    row = logs.info.snapshots.find_snapshot(merge.id)
    own = logs.coordinates([LogOrigin(merge.id, row, False)])[0]
    if own is None or own.shape[1] != table.ndim:
        return
    rows = table.find_chunks(own)
    among = np.zeros(len(table), np.bool_)
    among[rows[rows >= 0]] = True
    if not (among & (origins.rows < 0)).any():
        return
    sources = logs.merged_logs(merge)
    coords = logs.coordinates(sources)
    if not any(each is None for each in coords):
        _assign_coordinates(sources, coords, table, origins, among)


def _assign_coordinates(
    sources: Sequence[LogOrigin],
    coords: Sequence[U32 | None],
    table: ChunkTable,
    origins: Origins,
    among: NDArray[np.bool_] | slice,
) -> None:
    """Assign logs, oldest first, to those chunks ``among`` the table that have no commit."""
    fitting = [(at, each) for at, each in enumerate(coords) if each is not None and len(each)]
    fitting = [(at, each) for at, each in fitting if each.shape[1] == table.ndim]
    if not fitting:
        return
    numbers = np.array([at for at, _ in fitting], np.int64)
    rows = table.find_chunks(np.concatenate([each for _, each in fitting]))
    newest = np.full(len(table) + 1, -1, np.int64)
    newest[rows] = np.repeat(numbers, [len(each) for _, each in fitting])  # the last assignment stays
    newest = newest[:-1]
    chosen = np.zeros(len(table), np.bool_)
    chosen[among] = True
    chosen &= (newest >= 0) & (origins.rows < 0)
    commits = np.array([each.row for each in sources], np.int64)
    before = np.array([each.is_before for each in sources], np.bool_)
    origins.rows[chosen] = commits[newest[chosen]]
    origins.is_before[chosen] = before[newest[chosen]]
