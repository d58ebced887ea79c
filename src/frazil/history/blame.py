"""The answers of ``Repository.history.blame`` and ``history_of``: commits of chunks, as columns.

The transaction logs are read from the newest commit to older ones, until each chunk has its commit. Within a
part, one assignment in the order of the commits leaves the newest. Chunks in the log of a merge come from the
merged branch, whose logs are read for them. A compaction writes no data, and is left out. Chunks in logs of
expired versions, or in no log, were written before the commit that is left: ``is_before``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.display import Record, Shown, counted, literal, table_html, utc
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.format.columns import I64, U32
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import Node
from frazil.history.reports import chunk_grid
from frazil.repository.catalog.ancestry import FRAZIL, all_ancestors, is_of_compaction, second_parents
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.history_records import JOB
from frazil.repository.clock import to_datetime
from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types


def chunk_of_cell(node: Node, cell: Sequence[int]) -> tuple[int, ...]:
    """Return the coordinates of the chunk that has a cell. Negative indices count from the end."""
    shape = node.array_data.shape
    try:
        numbers = tuple(map(index, cell))
    except TypeError:
        raise TypeError(f"index must be integers, got {cell!r:.80}") from None
    places = [at + length if at < 0 else at for at, length in zip(numbers, shape, strict=False)]
    is_inside = len(numbers) == len(shape) and all(
        0 <= place < length for place, length in zip(places, shape, strict=True)
    )
    if not is_inside:
        raise InvalidInputError(
            f"index must name a cell of `{node.path}`, which has the shape {shape}, got {numbers}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return tuple(
        place // edge
        if isinstance(edge, int)
        else int(np.searchsorted(list(accumulate(edge)), place, "right"))
        for place, edge in zip(places, chunk_lengths(node.user_data), strict=True)
    )


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """A transaction log: its id, the row of the commit that has it, and whether its version was expired."""

    log: bytes
    row: int
    is_before: bool


@dataclass(slots=True, eq=False)
class Origins:
    """The row of the commit that wrote each chunk last, and whether it was written before this commit, (n,).

    The row is -1 for a chunk whose commit is not known yet.
    """

    rows: I64
    is_before: NDArray[np.bool_]


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
    origins = Origins(np.full(len(table), -1, np.int64), np.zeros(len(table), np.bool_))
    newer = tip  # the row of the oldest commit whose log was read
    for entries in segments(logs.info, tip):
        if list(second_parents(entries[0])):
            _assign_merged(logs, entries[0], table, origins)
        sources = [log for entry in entries[::-1] for log in logs.logs_of(entry)]
        coords = logs.coordinates(sources)
        lost = max((at for at, each in enumerate(coords) if each is None), default=-1)
        sources, coords = sources[lost + 1 :], coords[lost + 1 :]
        _assign_coordinates(sources, coords, table, origins, slice(None))
        # The first snapshot has no changes: nothing was written before the commit after it.
        root = entries[-1].id if entries[-1].parent is None else None
        newer = next((each.row for each in sources if not each.is_before and each.log != root), newer)
        if lost >= 0 or (origins.rows >= 0).all():
            break
    remaining = origins.rows < 0
    origins.rows[remaining], origins.is_before[remaining] = newer, True
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


#: The item of the metadata of a commit that names its author.
_AUTHOR: Final = "author"


@dataclass(frozen=True, slots=True, repr=False)
class ChunkCommit(Record, shown_as="snapshots.ChunkCommit"):
    """A commit that wrote chunks.

    Attributes:
        snapshot_id: The id of the snapshot.
        written_at: The time of the commit.
        message: The message of the commit.
        author: The item ``author`` of the commit's metadata. None if there is none.
        job: The job that made the commit: its name and id. None for other commits.
        is_before: The chunks were written before this snapshot, by versions that were expired. Nothing else
            is known of these versions.
    """

    snapshot_id: str
    written_at: datetime
    message: str
    author: str | None = None
    job: str | None = None
    is_before: bool = False

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "before" if self.is_before else "snapshot_id", self.snapshot_id
        yield "written_at", utc(self.written_at)
        yield "message", self.message
        yield "author", str(self.author)
        yield "job", str(self.job)


class ChunkHistory(list[ChunkCommit]):
    """The commits that wrote a chunk, newest first. Notebooks show a table."""

    def _repr_html_(self) -> str:
        rows = (
            (
                f"{'before ' if each.is_before else ''}{each.snapshot_id}",
                f"{each.written_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
                each.author or "",
                each.message,
            )
            for each in self
        )
        columns = ("snapshot", "written at (UTC)", "author", "message")
        return table_html("commits of a chunk, newest first", columns, rows)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Blame(Record, shown_as="snapshots.Blame"):
    """The commit that wrote each chunk of an array last.

    Attributes:
        path: The path of the array.
        num_chunks: The number of chunks along each dimension.
        index: The coordinates of the chunks that exist, uint32 of shape (n, ndim).
        number: The position of each chunk's commit in ``commits``, int64 of shape (n,).
        commits: The commits, newest first.
    """

    path: str
    num_chunks: tuple[int, ...]
    index: U32
    number: I64
    commits: Sequence[ChunkCommit]

    def grid(self) -> I64:
        """Return the positions of the commits on the chunk grid.

        Returns:
            An int64 array with one cell for each chunk: the position in ``commits``, -1 for a missing chunk.

        Examples:
            >>> index = np.array([[0], [2]], np.uint32)
            >>> Blame("/t", (3,), index, np.array([1, 0]), []).grid().tolist()
            [1, -1, 0]
        """
        return chunk_grid(self.num_chunks, self.index, self.number, -1)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return a table with one row for each chunk.

        Returns:
            The columns ``chunk`` (its coordinates, shape (n, ndim)), ``snapshot_id``, ``written_at``
            (datetime64, UTC), ``message``, ``author``, ``job`` and ``is_before``.

        Examples:
            >>> sorted(Blame("/t", (3,), np.zeros((0, 1), np.uint32), np.zeros(0, np.int64), []).columns())
            ['author', 'chunk', 'is_before', 'job', 'message', 'snapshot_id', 'written_at']
        """
        commits = self.commits
        values: dict[str, NDArray[Any]] = {
            "snapshot_id": np.array([each.snapshot_id for each in commits], object),
            "written_at": np.array([each.written_at.replace(tzinfo=None) for each in commits], "M8[us]"),
            "message": np.array([each.message for each in commits], object),
            "author": np.array([each.author for each in commits], object),
            "job": np.array([each.job for each in commits], object),
            "is_before": np.array([each.is_before for each in commits], np.bool_),
        }
        return {"chunk": self.index, **{name: column[self.number] for name, column in values.items()}}

    def to_arrow(self) -> pa.Table:
        """Return ``columns`` as a table of Arrow, for SQL, pandas and polars.

        Returns:
            A ``pyarrow.Table``. The column ``chunk`` is a list of integers. Texts are dictionaries.

        Raises:
            MissingExtraError: ``missing-extra`` if pyarrow is not installed.

        Examples:
            >>> Blame("/t", (3,), np.zeros((0, 1), np.uint32), np.zeros(0, np.int64), []).to_arrow().num_rows
            0
        """
        with needs("Blame.to_arrow"):
            import pyarrow as pa
        columns = self.columns()
        index = columns.pop("chunk")
        names = ("snapshot_id", "message", "author", "job")
        texts = {name: pa.array(columns[name], pa.string()).dictionary_encode() for name in names}
        flat = pa.array(index.reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, index.shape[1]) if index.shape[1] else None
        chunk = lists if lists is not None else pa.array([[]] * len(index), pa.list_(pa.uint32()))
        return pa.table({"chunk": chunk, **{name: texts.get(name, columns[name]) for name in columns}})

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "path", self.path
        yield "num_chunks", literal(self.num_chunks)
        counts = np.bincount(self.number, minlength=len(self.commits))
        for commit, count in zip(self.commits, counts.tolist(), strict=True):
            name = f"before {commit.snapshot_id}" if commit.is_before else commit.snapshot_id
            yield name, f"{counted(count, 'chunk')}: {commit.message}"


def blame(context: Context, info: RepoInfo, snapshot: bytes, path: str) -> Blame:
    """Return the commits that wrote the chunks of an array. See ``Repository.history.blame``."""
    workspace = Workspace(context, snapshot)
    node = workspace.require_array(absolute(path))
    table = workspace.ref_table(node.path)
    logs = ArrayLogs(context.assets, info, node.id)
    origins = chunk_origins(logs, info.snapshots.find_snapshot(snapshot), table)
    keys = origins.rows * 2 + origins.is_before
    distinct, number = np.unique(keys, return_inverse=True)
    # Newest first: expired versions before a commit are older than the commit.
    times = info.snapshots.flushed_at()[distinct // 2].astype(np.int64)
    order = np.lexsort((distinct % 2, -times))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = distinct[order]
    entries = info.snapshots.entries(rows // 2)
    commits = [_commit(entry, bool(key % 2)) for entry, key in zip(entries, rows.tolist(), strict=True)]
    return Blame(node.path, node.array_data.num_chunks, table.index, place[number.reshape(-1)], commits)


def history_of(
    context: Context, info: RepoInfo, snapshot: bytes, path: str, cell: Sequence[int]
) -> list[ChunkCommit]:
    """Return the commits that wrote the chunk of one cell. See ``Repository.history.history_of``."""
    workspace = Workspace(context, snapshot)
    node = workspace.require_array(absolute(path))
    chunk = np.array([chunk_of_cell(node, cell)], np.uint32).reshape(1, -1)
    logs = ArrayLogs(context.assets, info, node.id)
    commits: dict[tuple[bytes, bool], ChunkCommit] = {}
    for entries in segments(info, info.snapshots.find_snapshot(snapshot)):
        sources = [log for entry in entries[::-1] for log in logs.logs_of(entry)]
        merged = [log for entry in entries[:1] for log in logs.merged_logs(entry)]
        every = [*merged, *sources]
        for log, coords in zip(every, logs.coordinates(every), strict=True):
            if coords is None or coords.shape[1] != chunk.shape[1] or not (coords == chunk).all(axis=1).any():
                continue
            entry = info.snapshots.entry(log.row)
            commits[entry.id, log.is_before] = _commit(entry, log.is_before)
    newest_first = sorted(
        commits.values(), key=lambda each: (each.written_at, not each.is_before), reverse=True
    )
    return ChunkHistory(newest_first)


def _commit(entry: SnapshotEntry, is_before: bool) -> ChunkCommit:
    author, record = entry.metadata.get(_AUTHOR), entry.metadata.get(JOB)
    job = None  # any program can write any value there
    if isinstance(record, Mapping):
        names = [record.get(key) for key in ("name", "id")]
        job = " ".join(each for each in names if isinstance(each, str)) or None
    return ChunkCommit(
        id_to_text(entry.id),
        to_datetime(entry.flushed_at),
        entry.message,
        author if isinstance(author, str) else None,
        job,
        is_before,
    )
