"""The answers of ``Repository.history.blame`` and ``history_of``: commits of chunks, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from frazil.display import Record, Shown, counted, literal, utc
from frazil.extras import needs
from frazil.format.columns import I64, U32
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.job_entry import JOB
from frazil.repository.clock import to_datetime
from frazil.repository.history.cells import chunk_of_cell
from frazil.repository.history.chunk_origins import ArrayLogs, chunk_origins, segments
from frazil.repository.paths import absolute
from frazil.repository.session.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

#: The item of the metadata of a commit that names its author.
_AUTHOR: Final = "author"


@dataclass(frozen=True, slots=True, repr=False)
class ChunkCommit(Record):
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

    shown_as: ClassVar[str] = "snapshots.ChunkCommit"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "before" if self.is_before else "snapshot_id", self.snapshot_id
        yield "written_at", utc(self.written_at)
        yield "message", self.message
        yield "author", str(self.author)
        yield "job", str(self.job)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Blame(Record):
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

    shown_as: ClassVar[str] = "snapshots.Blame"

    def grid(self) -> I64:
        """Return the positions of the commits on the chunk grid.

        Returns:
            An int64 array with one cell for each chunk: the position in ``commits``, -1 for a missing chunk.

        Examples:
            >>> index = np.array([[0], [2]], np.uint32)
            >>> Blame("/t", (3,), index, np.array([1, 0]), []).grid().tolist()
            [1, -1, 0]
        """
        grid = np.full(self.num_chunks, -1, np.int64)
        flat = grid.reshape(-1)  # a scalar has one chunk, without coordinates
        rows: Any = slice(len(self.number))
        if self.num_chunks:
            rows = np.ravel_multi_index(tuple(self.index.T), self.num_chunks)
        flat[rows] = self.number
        return grid

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
    assert node.array is not None
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
    return Blame(node.path, node.array.num_chunks, table.index, place[number.reshape(-1)], commits)


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
    return sorted(commits.values(), key=lambda each: (each.written_at, not each.is_before), reverse=True)


def _commit(entry: SnapshotEntry, is_before: bool) -> ChunkCommit:
    author = entry.metadata.get(_AUTHOR)
    return ChunkCommit(
        id_to_text(entry.id),
        to_datetime(entry.flushed_at),
        entry.message,
        author if isinstance(author, str) else None,
        _job(entry.metadata),
        is_before,
    )


def _job(metadata: Mapping[str, Any]) -> str | None:
    """Return the name and the id of the job that made a commit. Any program can write any value there."""
    record = metadata.get(JOB)
    if not isinstance(record, Mapping):
        return None
    names = [record.get(key) for key in ("name", "id")]
    return " ".join(each for each in names if isinstance(each, str)) or None
