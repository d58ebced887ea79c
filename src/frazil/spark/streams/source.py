"""The change feed of a branch as a source of streams: a row for each changed chunk and node.

A transaction log names the touched chunks, and the manifests of both versions show how they changed. Only
manifests that may have one of these chunks are read. A chunk that is in neither version (written and
deleted by commits that have expired) has no row.

An offset is the id of the last snapshot that was read. A commit is in one batch, whole. An offset stays
valid when snapshots expire: the format keeps the ids of expired snapshots, and their transaction logs,
with the next snapshot that stayed. A stream gets their changes as one step. An offset is lost if the
branch was reset, or its commit was amended.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from frazil import errors
from frazil.arguments import conflicting
from frazil.changes.change_set import union_of_chunks
from frazil.changes.diff import compose_logs
from frazil.format.columns import I64
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.format.transaction_log import TransactionLog
from frazil.handle.repository import Repository, context_of
from frazil.repository.catalog import repo_changes
from frazil.repository.catalog.ancestry import at_time
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.repository.clock import from_datetime, to_datetime
from frazil.repository.session.workspace import Workspace
from frazil.spark.runtime.on_spark import causes_only
from frazil.spark.tables.options import Options, count, flag, require_branch, timestamp
from frazil.spark.tables.repository_tables import chunk_changes, columns, node_changes, paths_by_id

#: Whether Spark asks a source for a part of the available data. Spark 4.1 does not: there a batch takes all
#: available commits, and the stand-ins below only keep this module importable.
HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
    from pyspark.sql.streaming.datasource import ReadMaxFiles as ReadMaxFiles
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
else:
    ReadLimit = SupportsTriggerAvailableNow = object
    ReadAllAvailable, ReadMaxFiles, ReadMaxRows = (type(name, (), {}) for name in ("All", "Files", "Rows"))


@dataclass(frozen=True, slots=True)
class CommitRange:
    """One commit, or several of which all but the last have expired.

    ``logs`` are ids of transaction logs, oldest first. ``before`` and ``after`` are the snapshots before the
    first commit and after the last one. Only the id of an expired commit is left.
    """

    id: bytes
    before: bytes
    after: bytes
    logs: tuple[bytes, ...]
    committed_at: datetime | None = None
    message: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommits:
    """The commits after a position, oldest first; ``read``: logs of the first one that were read before."""

    info: RepoInfo
    rows: I64
    read: frozenset[bytes] = frozenset()

    def ranges(self) -> Iterator[CommitRange]:
        """Yield the steps of these commits, oldest first."""
        for entry in self.info.snapshots.entries(self.rows):
            logs = tuple(id_ for id_ in entry.logs if id_ not in self.read)
            time = to_datetime(entry.flushed_at)
            before = entry.parent or entry.id
            yield CommitRange(entry.id, before, entry.id, logs, time, entry.message, entry.metadata)


def commits_after(info: RepoInfo, tip: bytes, start: bytes, *, fail: bool = True) -> PendingCommits:
    """Return the commits after ``start``, up to ``tip``; without ``fail``, after the last common snapshot."""
    row = info.snapshots.find_snapshot(start)
    parts: list[I64] = []
    for part in info.snapshots.parts(info.snapshots.find_snapshot(tip)):
        if row >= 0 and len(rows := np.flatnonzero(part == row)):
            return PendingCommits(info, np.concatenate([*parts, part[: rows[0]]])[::-1])
        parts.append(part)
    chain = np.concatenate(parts)
    for at, entry in enumerate(info.snapshots.entries(chain)):
        if start in entry.pruned_ancestor_tx_logs:
            read = entry.pruned_ancestor_tx_logs[: entry.pruned_ancestor_tx_logs.index(start) + 1]
            return PendingCommits(info, chain[: at + 1][::-1], frozenset(read))
    if fail:
        raise errors.SessionStateError(
            f"The history of {id_to_text(tip)} must have snapshot {id_to_text(start)}, the last one that the "
            "stream has read. The branch was reset, or the commit was amended. Start with a new checkpoint, "
            "or set the option stream-fail-on-data-loss to false to continue after the last common snapshot"
        )
    other_chain = info.snapshots.chain(row) if row >= 0 else chain[-1:]
    return PendingCommits(info, chain[: int(np.argmax(np.isin(chain, other_chain)))][::-1])


def commits_between(
    info: RepoInfo, tip: bytes, start: bytes, end: bytes, *, fail: bool = True
) -> list[CommitRange]:
    """Return the steps after ``start`` up to ``end``, which may have expired meanwhile."""
    if start == end:
        return []
    if info.snapshots.find_snapshot(end) >= 0:
        return list(commits_after(info, end, start, fail=fail).ranges())
    ranges: list[CommitRange] = []
    for commits in commits_after(info, tip, start, fail=fail).ranges():
        if end in commits.logs:
            logs = commits.logs[: commits.logs.index(end) + 1]
            return [*ranges, CommitRange(end, commits.before, commits.after, logs)]
        ranges.append(commits)
    raise errors.SessionStateError(
        f"The history of {id_to_text(tip)} must have snapshot {id_to_text(end)}, the end of a planned batch. "
        "Start with a new checkpoint"
    )


SCHEMA: Final = columns(
    "snapshot_id, parent_id, written_at time, message, metadata, change, path, node_id, from_path, "
    "chunk numbers"
)

#: The table of the data source that has these columns.
FEED: Final = "feed"


@dataclass(frozen=True, slots=True)
class CommitSlice:
    """A part of a commit: its chunks from ``first`` up to ``last``. The first slice also has its nodes."""

    commits: CommitRange
    first: int
    last: int


def logs_of(assets: Assets, commits: CommitRange) -> list[TransactionLog]:
    """Return the transaction logs of commits, except those of expired commits that are deleted."""
    logs = []
    for id_ in commits.logs:
        try:
            logs.append(assets.transaction_log(id_))
        except errors.StorageError as error:
            if error.kind != errors.ErrorKind.OBJECT_NOT_FOUND or id_ == commits.after:
                raise
    return logs


def count_chunks(logs: Sequence[TransactionLog]) -> int:
    """Return how many chunks the logs name."""
    return sum(map(len, chain.from_iterable(log.updated_chunks.values() for log in logs)))


def read(context: Context, slice_: CommitSlice) -> pa.Table:
    """Return the rows of a slice."""
    commits = slice_.commits
    logs = logs_of(context.assets, commits)
    before, after = Workspace(context, commits.before), Workspace(context, commits.after)
    old, new = paths_by_id(before.base), paths_by_id(after.base)
    of_changes = pa.schema(list(SCHEMA)[5:])
    rows: list[dict[str, Any]] = []
    if slice_.first == 0:
        deleted = {path: id_to_text(id_) for id_, path in old.items()}
        ids = deleted | {path: id_to_text(id_) for id_, path in new.items()}
        for each in node_changes(compose_logs(logs, before.base, after.base)):
            of_change = deleted if each["change"].startswith("deleted") else ids
            rows.append({**each, "node_id": of_change.get(each["path"])})
    parts = [pa.Table.from_pylist(rows, of_changes)]
    touched = union_of_chunks([log.updated_chunks for log in logs])
    start = 0
    # of an array that was deleted since, the only row is its deletion
    for id_ in filter(new.__contains__, sorted(touched)):
        index = touched[id_][max(slice_.first - start, 0) : max(slice_.last - start, 0)]
        start += len(touched[id_])
        if not len(index):
            continue
        part = chunk_changes(before, after, old.get(id_), new[id_], index)
        node_ids = pa.repeat(id_to_text(id_), len(part))
        parts.append(part.append_column("node_id", node_ids).select(of_changes.names))
    table = pa.concat_tables(parts)
    commit = (
        id_to_text(commits.id),
        id_to_text(commits.before),
        commits.committed_at,
        commits.message,
        None if commits.metadata is None else json.dumps(commits.metadata, sort_keys=True),
    )
    columns = [
        pa.repeat(pa.scalar(value, field.type), len(table))
        for value, field in zip(commit, SCHEMA, strict=False)
    ]
    return pa.table([*columns, *table.columns], schema=SCHEMA)


#: The most chunks of one task, and the most commits.
_ROWS, _COMMITS = 500_000, 64


@causes_only
class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of the change feed, for Spark. ``names`` are the columns that are read."""

    def __init__(self, repo: Repository, options: Options, names: Sequence[str] = SCHEMA.names) -> None:
        self._context = context_of(repo)
        self._names = list(names)
        self._branch = require_branch(options)
        self._from = options.get("stream-from", "earliest")
        self._since = options.get("stream-from-timestamp")
        self._fail = flag(options, "stream-fail-on-data-loss", True)
        self._commits = count(options, "stream-max-commits")
        self._rows = count(options, "stream-max-rows")
        self._target: bytes | None = None
        unknown = set(self._names) - set(SCHEMA.names)
        if unknown:
            raise errors.InvalidInputError(
                f"The columns must be those of the table {FEED} "
                f"({', '.join(SCHEMA.names)}), got {', '.join(sorted(unknown))}. Set the option "
                f"table={FEED} to read commits"
            )
        if not HAS_LIMITS and (self._commits is not None or self._rows is not None):
            raise errors.InvalidInputError(
                "Spark must be 4.2 or newer for stream-max-commits and stream-max-rows, got an older "
                "version, where a batch takes all available commits",
                errors.ErrorKind.NOT_ALLOWED,
            )
        if self._since is not None and "stream-from" in options:
            raise conflicting("Only one of stream-from and stream-from-timestamp is allowed, got both")

    @property
    def schema(self) -> pa.Schema:
        """The columns of its batches."""
        return pa.schema([SCHEMA.field(name) for name in self._names])

    def _tip(self, info: RepoInfo) -> bytes:
        return self._target or repo_changes.branch_tip(info, self._branch)

    # Offsets, on the driver's machine

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's names
        """Return the position where a new query begins."""
        info = self._context.catalog.repo_info()
        tip = repo_changes.branch_tip(info, self._branch)
        first = info.snapshots.id_of(int(info.snapshots.chain(info.snapshots.find_snapshot(tip))[-1]))
        if self._since is not None:
            since = "stream-from-timestamp"
            try:
                return _offset(at_time(info, tip, from_datetime(timestamp(self._since, since), since)))
            except errors.SnapshotNotFoundError:
                return _offset(first)
        if self._from in ("earliest", "latest"):
            return _offset(first if self._from == "earliest" else tip)
        start = info.tags.get(self._from) or id_from_text(self._from)
        repo_changes.require_snapshot(info, start)
        commits_after(info, tip, start, fail=self._fail)
        return _offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch that the options set."""
        if self._commits is not None:
            return ReadMaxFiles(self._commits)
        return ReadAllAvailable() if self._rows is None else ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the tip of the branch up to which the query reads."""
        self._target = repo_changes.branch_tip(self._context.catalog.repo_info(), self._branch)

    def latestOffset(  # noqa: N802
        self, start: dict[str, str] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, str]:
        """Return the position after the next batch."""
        info = self._context.catalog.repo_info()
        if start is None:  # Spark 4.1
            return _offset(self._tip(info))
        pending = commits_after(info, self._tip(info), _id(start), fail=self._fail)
        number = len(pending.rows)
        if isinstance(limit, ReadMaxFiles):
            number = min(limit.max_files, number)
        elif isinstance(limit, ReadMaxRows):
            left = limit.max_rows
            for at, commits in enumerate(pending.ranges()):
                left -= count_chunks(logs_of(self._context.assets, commits))
                if left < 0:
                    number = max(at, 1)  # at least one commit
                    break
        return _offset(info.snapshots.id_of(int(pending.rows[number - 1]))) if number else start

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802
        """Return the position of the tip of the branch, for the progress of the query."""
        return _offset(repo_changes.branch_tip(self._context.catalog.repo_info(), self._branch))

    # Rows

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        info = self._context.catalog.repo_info()
        ranges = commits_between(info, self._tip(info), _id(start), _id(end), fail=self._fail)
        tasks: list[list[CommitSlice]] = []
        size = _ROWS
        for commits in ranges:
            number = max(count_chunks(logs_of(self._context.assets, commits)), 1)
            for first in range(0, number, _ROWS):
                last = min(first + _ROWS, number)
                if size >= _ROWS or len(tasks[-1]) == _COMMITS:
                    tasks.append([])
                    size = 0
                tasks[-1].append(CommitSlice(commits, first, last))
                size += last - first
        return [InputPartition(pickle.dumps(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        for slice_ in pickle.loads(partition.value):
            yield from read(self._context, slice_).select(self._names).to_batches(1 << 17)


def _offset(id_: bytes) -> dict[str, str]:
    return {"snapshot": id_to_text(id_)}


def _id(offset: dict[str, Any]) -> bytes:
    return id_from_text(offset["snapshot"])


@causes_only
class RefusedReader(FeedReader):
    """A reader of a query that cannot start. Each of its methods raises the error of the query.

    Spark (4.1 to 4.3) shows its own ``UnboundLocalError`` for an error that ``streamReader`` raises.
    """

    def __init__(self, error: errors.IcechunkError) -> None:
        self._error = error

    def _refuse(self, *args: Any) -> Any:
        raise self._error

    initialOffset = _refuse  # noqa: N815  # Spark's names
    latestOffset = partitions = _refuse  # type: ignore[assignment]  # noqa: N815
    getDefaultReadLimit = prepareForTriggerAvailableNow = reportLatestOffset = _refuse  # noqa: N815
