"""A source of commits: ``spark.readStream.format("frazil").option("table", "feed")``.

    branch                      the branch; the default is ``main``
    stream-from                 where a new query begins: ``earliest`` (the default), ``latest`` (with the
                                next commit), or after a tag or snapshot id
    stream-from-timestamp       or with the commits after a time: ISO 8601 (UTC without a zone), or
                                milliseconds since 1970
    stream-max-commits          the most commits of a batch
    stream-max-rows             or the most changed chunks (at least one commit)
    stream-fail-on-data-loss    ``false`` to continue after the branch was reset: see `commit_order`

An offset is the id of the last snapshot that was read. A commit is in one batch, whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, SnapshotNotFoundError
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.history import at_time
from frazil.repository.clock import from_datetime
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.spark.streams import change_feed, commit_order
from frazil.spark.streams.limits import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from frazil.spark.tables.location import Options, count, flag, require_branch, timestamp
from frazil.spark.tables.process_errors import causes_only

#: The most chunks of one task, and the most commits.
_ROWS, _COMMITS = 500_000, 64


@causes_only
class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of the change feed, for Spark. ``names`` are the columns that are read."""

    def __init__(
        self, repo: Repository, options: Options, names: Sequence[str] = change_feed.SCHEMA.names
    ) -> None:
        self._repo = repo
        self._names = list(names)
        self._branch = require_branch(options)
        self._from = options.get("stream-from", "earliest")
        self._since = options.get("stream-from-timestamp")
        self._fail = flag(options, "stream-fail-on-data-loss", True)
        self._commits = count(options, "stream-max-commits")
        self._rows = count(options, "stream-max-rows")
        self._target: bytes | None = None
        unknown = set(self._names) - set(change_feed.SCHEMA.names)
        if unknown:
            raise InvalidInputError(
                f"The columns must be those of the table {change_feed.FEED} "
                f"({', '.join(change_feed.SCHEMA.names)}), got {', '.join(sorted(unknown))}. Set the option "
                f"table={change_feed.FEED} to read commits",
                ErrorKind.INVALID_ARGUMENT,
            )
        if not HAS_LIMITS and (self._commits is not None or self._rows is not None):
            raise InvalidInputError(
                "Spark must be 4.2 or newer for stream-max-commits and stream-max-rows, got an older "
                "version, where a batch takes all available commits",
                ErrorKind.NOT_ALLOWED,
            )
        if self._since is not None and "stream-from" in options:
            raise InvalidInputError(
                "Only one of the options stream-from and stream-from-timestamp is allowed, got both",
                ErrorKind.CONFLICTING_ARGUMENTS,
            )

    @property
    def schema(self) -> pa.Schema:
        """The columns of its batches."""
        return pa.schema([change_feed.SCHEMA.field(name) for name in self._names])

    @property
    def _context(self) -> Context:
        return context_of(self._repo)

    def _tip(self, info: RepoInfo) -> bytes:
        return self._target or repo_requirements.branch_tip(info, self._branch)

    # Offsets, on the driver's machine

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's names
        """Return the position where a new query begins."""
        info = self._context.catalog.repo_info()
        return _offset(self._begin(info, repo_requirements.branch_tip(info, self._branch)))

    def _begin(self, info: RepoInfo, tip: bytes) -> bytes:
        first = info.snapshots.id_of(int(info.snapshots.chain(info.snapshots.find_snapshot(tip))[-1]))
        if self._since is not None:
            since = "stream-from-timestamp"
            try:
                return at_time(info, tip, from_datetime(timestamp(self._since, since), since))
            except SnapshotNotFoundError:
                return first
        if self._from in ("earliest", "latest"):
            return {"earliest": first, "latest": tip}[self._from]
        start = info.tags.get(self._from) or id_from_text(self._from)
        repo_requirements.require_snapshot(info, start)
        commit_order.commits_after(info, tip, start, fail=self._fail)
        return start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch that the options set."""
        if self._commits is not None:
            return ReadMaxFiles(self._commits)
        return ReadAllAvailable() if self._rows is None else ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the tip of the branch up to which the query reads."""
        self._target = repo_requirements.branch_tip(self._context.catalog.repo_info(), self._branch)

    def latestOffset(  # noqa: N802
        self, start: dict[str, str] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, str]:
        """Return the position after the next batch."""
        info = self._context.catalog.repo_info()
        if start is None:  # Spark 4.1
            return _offset(self._tip(info))
        pending = commit_order.commits_after(info, self._tip(info), _id(start), fail=self._fail)
        if isinstance(limit, ReadMaxFiles):
            pending = pending.first(limit.max_files)
        elif isinstance(limit, ReadMaxRows):
            pending = pending.first(self._within(pending, limit.max_rows))
        return _offset(pending.end) if len(pending) else start

    def _within(self, pending: commit_order.PendingCommits, rows: int) -> int:
        """Return how many of the commits have at most ``rows`` rows together; at least one."""
        for number, commits in enumerate(pending.ranges()):
            rows -= change_feed.count_chunks(change_feed.logs_of(self._context.assets, commits))
            if rows < 0:
                return max(number, 1)
        return len(pending)

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802
        """Return the position of the tip of the branch, for the progress of the query."""
        return _offset(repo_requirements.branch_tip(self._context.catalog.repo_info(), self._branch))

    # Rows

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        info = self._context.catalog.repo_info()
        ranges = commit_order.commits_between(info, self._tip(info), _id(start), _id(end), fail=self._fail)
        tasks: list[list[change_feed.CommitSlice]] = []
        size = _ROWS
        for slice_ in change_feed.commit_slices(self._context.assets, ranges, _ROWS):
            if size >= _ROWS or len(tasks[-1]) == _COMMITS:
                tasks.append([])
                size = 0
            tasks[-1].append(slice_)
            size += slice_.last - slice_.first
        return [InputPartition(pickle.dumps(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        for slice_ in pickle.loads(partition.value):
            yield from change_feed.read(self._context, slice_).select(self._names).to_batches(1 << 17)

    def commit(self, end: dict[str, str]) -> None:
        """Do nothing: the repository keeps the history."""


def _offset(id_: bytes) -> dict[str, str]:
    return {"snapshot": id_to_text(id_)}


def _id(offset: dict[str, Any]) -> bytes:
    return id_from_text(offset["snapshot"])


@causes_only
class RefusedReader(FeedReader):
    """A reader of a query that cannot start. Each of its methods raises the error of the query.

    Spark (4.1 to 4.3) shows its own ``UnboundLocalError`` for an error that ``streamReader`` raises.
    """

    def __init__(self, error: IcechunkError) -> None:
        self._error = error

    def _refuse(self, *args: Any) -> Any:
        raise self._error

    initialOffset = _refuse  # noqa: N815  # Spark's names
    latestOffset = partitions = _refuse  # type: ignore[assignment]  # noqa: N815
    getDefaultReadLimit = prepareForTriggerAvailableNow = reportLatestOffset = _refuse  # noqa: N815


def stream_reader(repo: Repository, options: Options, schema: StructType) -> FeedReader:
    """Return the reader of a data source.

    The names of ``options`` are in lower case, and ``schema`` has the columns that Spark reads.
    """
    table = options.get("table")
    if table != change_feed.FEED:
        source = "rows of arrays" if table is None else f"the table {table}"
        raise InvalidInputError(
            f"A stream must read commits, the table {change_feed.FEED}, got {source}. Set the option "
            f"table={change_feed.FEED}, or read {source} with a batch query (spark.read)",
            ErrorKind.INVALID_ARGUMENT,
        )
    return FeedReader(repo, options, schema.names)
