"""A sink for streams: one commit for each micro-batch, exactly once; and a whole pipeline for each batch.

The tasks send their rows, compressed, to the driver's machine, where one process writes them and commits.

A batch is named by its query (an id of Spark's, or the ``txnAppId`` of the user) and its number. The metadata
of its commit hold this stamp, so that data and stamp are one atomic step, and a retry finds that the batch is
done. The same update writes a record of it into the repository's metadata, which outlives the commit (not in
spec version 1). A version has a batch if the commit of the batch is in its history, even if the commit has
expired, was amended, merged or picked since.

Other writers may commit to the branch meanwhile, even a second driver of the same query. A late commit is
rebased onto the new tip, where the stamp is looked for again. If its rows conflict with the other commits,
the batch is written again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

import frazil.pipeline
from frazil import host
from frazil.arrow.row_jobs import dims_for
from frazil.arrow.target_arrays import WriteOptions, prepare
from frazil.arrow.write_layout import ArrowRows, flat_index, layout_if_any, message_of, write_rows
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, RebaseFailedError, RefNotFoundError
from frazil.format.ids import id_from_text
from frazil.format.repo_info import RepoInfo
from frazil.handle.repository import Repository, context_of
from frazil.jobs.job import Target
from frazil.repository.catalog.history_records import (
    BATCH,
    QUERY,
    BatchHistory,
    BatchRecord,
    BatchSet,
    with_records,
)
from frazil.repository.retries import RetryPolicy
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.session import Session, state_of
from frazil.spark.runtime.on_spark import causes_only
from frazil.spark.tables.options import Options, choice, flag, require_branch
from frazil.spark.tables.write_table import SentRows, received, sent, write_options

_log = logging.getLogger(__name__)

_RETRIES: Final = RetryPolicy(tries=20, initial_backoff_ms=50, max_backoff_ms=5_000, eager=0)
#: The property of Spark with the id of a query.
_QUERY_ID: Final = "sql.streaming.queryId"
#: How rows are written, and what happens to two rows of one cell. The first ones are the defaults.
MODES: Final = ("upsert", "append", "backfill", "insert")
DUPLICATES: Final = ("error", "last")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One micro-batch of one query."""

    query: str
    batch: int


def batches_done(repo: Repository, snapshot_id: str, query: str) -> BatchSet:
    """Return the batches that a version has. Raise ``SessionStateError`` (``not-allowed``) if unknown."""
    context = context_of(repo)
    return BatchHistory(context.catalog.repo_info(), id_from_text(snapshot_id), context.storage).done(query)


def commit_once(
    repo: Repository, branch: str, stamp: Stamp, write: Callable[[Session], None], message: str
) -> str | None:
    """Commit the changes of ``write`` to a session, unless the batch is done; return the id of the snapshot.

    ``write`` is called again, with another session, if its changes conflict with other commits.
    """

    def commit() -> str | None:
        session = repo.writable_session(branch)
        done = batches_done(repo, session.snapshot_id, stamp.query)
        if stamp.batch not in done:
            write(session)
        while stamp.batch not in done:
            try:
                return _stamped(session, branch, stamp, message, done)
            except ConflictError as error:
                if error.kind != ErrorKind.COMMIT_CONFLICT:
                    raise
            session.rebase(ConflictDetector())
            done = batches_done(repo, session.snapshot_id, stamp.query)
        return None

    return _retried(commit, RebaseFailedError)


def _stamped(session: Session, branch: str, stamp: Stamp, message: str, done: BatchSet) -> str:
    """Commit on exactly the version that the session has seen, else raise ``ConflictError``.

    ``branch`` is the branch of the batch, ``done`` are the batches of its query that this version has.
    """

    def note(info: RepoInfo, id_: bytes) -> dict[str, Any]:
        return with_records(info, {stamp.query: [BatchRecord(stamp.batch, id_, branch), *done.amended]})

    state_of(session).note = note
    metadata = {QUERY: stamp.query, BATCH: stamp.batch}
    return session.commit(message, metadata, rebase_with=ConflictDetector(), rebase_tries=0, allow_empty=True)


def _retried[R](attempt: Callable[[], R], conflict: type[Exception]) -> R:
    """Return the result of an attempt. The time before the next one is random, and longer each time."""
    for number in range(_RETRIES.tries - 1):
        with suppress(conflict):
            return attempt()
        host.pause(_RETRIES.pause(number))
    return attempt()


type Pipeline = Callable[[DataFrame, Target], object]


def foreach_batch(
    target: Target,
    pipeline: Pipeline,
    *,
    app_id: str | None = None,
    message: str | None = None,
    refresh: bool = False,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``df.writeStream.foreachBatch(...)`` that runs a pipeline once for each batch.

    The target that the pipeline gets is the given one, on a separate branch for the batch. Pass it to
    operations as ``to``, or open sessions on ``target.branch``. After the pipeline, the target's branch moves
    in one step. If other writers have committed meanwhile, or the driver dies, nothing was published, and the
    pipeline runs again.

    Args:
        target: The `Target` of the pipeline.
        pipeline: The function. It is called as ``pipeline(rows, target)``.
        app_id: A name for the query, instead of Spark's id. It is required through Spark Connect.
        message: The message of the commit of a batch. The default, None, is a message that names the batch.
        refresh: Whether derived arrays that are behind are refreshed after the pipeline, in the same
            publication. The default is False.

    Returns:
        The function, which takes the rows and the number of a batch. It raises ``ConflictError`` if other
        writers commit first at every attempt.

    Examples:
        >>> import frazil.spark
        >>> from frazil.spark import Target, foreach_batch, write_table
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> def pipeline(rows, target):
        ...     write_table(rows.toArrow(), target, dims=["x"])
        >>> run = foreach_batch(Target(repo), pipeline, app_id="rain")
        >>> rows = frazil.spark.get_spark().createDataFrame([(1, 2.0)], "x int, t double")
        >>> run(rows, 0)
        >>> run(rows, 0)  # the batch is done
        >>> [info.message for info in repo.ancestry(branch="main")][0]
        'Batch 0 of query rain: pipeline into main'
    """

    def steps(rows: DataFrame, to: Target) -> None:
        pipeline(rows, to)
        if refresh:
            frazil.pipeline.refresh(to.repo, branch=to.branch).apply()

    def run(rows: DataFrame, batch: int) -> None:
        context = getattr(rows.sparkSession, "_sc", None)
        query = app_id or (None if context is None else context.getLocalProperty(_QUERY_ID))
        if query is None:
            raise InvalidInputError("app_id must name the query where Spark does not give its id, got None")
        stamp = Stamp(str(query), batch)
        text = message or f"Batch {batch} of query {query}: pipeline into {target.branch}"

        def publish() -> None:
            tip = target.repo.lookup_branch(target.branch)
            done = batches_done(target.repo, tip, stamp.query)
            if batch not in done:
                _publish(rows, target, tip, steps, stamp, done, text)

        _retried(publish, ConflictError)

    return run


def _publish(
    rows: DataFrame, target: Target, tip: str, pipeline: Pipeline, stamp: Stamp, done: BatchSet, message: str
) -> None:
    """Run the pipeline on a branch from the tip, and move the target's branch there in one step."""
    repo = target.repo
    work = f"{target.branch}.{hashlib.sha256(stamp.query.encode()).hexdigest()[:12]}.{stamp.batch}"
    with suppress(RefNotFoundError):
        repo.delete_branch(work)  # it may be left from a driver that died
    repo.create_branch(work, tip)
    try:
        pipeline(rows, replace(target, branch=work))
        snapshot_id = _stamped(repo.writable_session(work), target.branch, stamp, message, done)
        repo.reset_branch(target.branch, snapshot_id, from_snapshot_id=tip)
    finally:
        with suppress(RefNotFoundError):
            repo.delete_branch(work)


@causes_only
class RowsWriter(DataSourceStreamArrowWriter):
    """The writer of a stream: see the module.

    It does nothing to abort a batch: Spark also aborts batches after their commit, if the query fails then.
    """

    def __init__(
        self, repo: Repository, options: Options, names: Sequence[str], overwrite: bool = False
    ) -> None:
        if overwrite:
            raise InvalidInputError('The output mode must be "append" or "update", got "complete"')
        self._repo = repo
        self._branch = require_branch(options)
        self._query = options.get("txnappid")
        self._message = options.get("message")
        self._options = write_options(options, MODES)
        if flag(options, "merge-schema", False):
            raise InvalidInputError(
                "Option `merge-schema` must not be true for a stream, whose columns are checked before its "
                "first batch. Add the arrays with one batch write of rows"
            )
        self._group = "/" + options.get("group", "/").strip("/")
        self._duplicates = choice(options, "duplicates", DUPLICATES)
        layout_if_any(repo.writable_session(self._branch), self._group, names, self._options.dims)

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Compress the rows of a task on an executor."""
        context = TaskContext.get()
        query = self._query or (None if context is None else context.getLocalProperty(_QUERY_ID))
        batches = [batch for batch in iterator if batch.num_rows]
        return SentRows(sent(pa.Table.from_batches(batches)) if batches else b"", query=query)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write the rows of a batch on the driver's machine. Spark may call it twice for a batch."""
        tables = received(messages)
        named = (each.query for each in messages if isinstance(each, SentRows) and each.query)
        query = self._query or next(named, None)
        if not tables:
            return
        if query is None:
            raise InvalidInputError("The tasks must know the query's id, got none. Set the option txnAppId")
        table = pa.concat_tables(tables)
        summary = message_of(len(table), table.column_names, self._group, self._options.mode)
        message = self._message or f"{summary}: batch {batchId} of query {query}"
        write = partial(
            write_batch, group=self._group, table=table, options=self._options, duplicates=self._duplicates
        )
        snapshot_id = commit_once(self._repo, self._branch, Stamp(query, batchId), write, message)
        _log.info("batch %d of %s: %s", batchId, query, snapshot_id or "done before")


def write_batch(
    session: Session, *, group: str, table: pa.Table, options: WriteOptions, duplicates: str = "error"
) -> None:
    """Write the rows of a batch through a session; arrays are created, or grow, before that."""
    dims = dims_for(session, group, table.schema, options.dims)
    rows = ArrowRows(table)
    layout = prepare(session, group, table.schema, rows.distinct(dims), options, rows.nulls)
    if duplicates == "last":
        # `unique` gives the first row of each cell: here of the rows in reverse
        cells = flat_index(layout.require_positions(table), layout.shape)
        last = len(cells) - 1 - np.unique(cells[::-1], return_index=True)[1]
        table = table.take(pa.array(last))
    write_rows(session, layout, table, layout.edges)
