"""A whole pipeline for each micro-batch, exactly once.

The pipeline works on a separate branch, which starts at the tip of the target's branch, with any number of
jobs and commits. Then a commit with the stamp of the batch is added, and the target's branch moves there in
one step. If other writers have committed meanwhile, or the driver dies, nothing was published and the
pipeline runs again. A batch whose stamp is in the history is skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame

from frazil.errors import ConflictError, ErrorKind, InvalidInputError, RefNotFoundError
from frazil.jobs.versions import Target
from frazil.repository.catalog.stream_batches import BatchSet
from frazil.spark.streams.stamps import Stamp, batches_done, pauses, stamped

type Pipeline = Callable[[DataFrame, Target], object]


def foreach_batch(
    target: Target, pipeline: Pipeline, *, app_id: str | None = None, message: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``df.writeStream.foreachBatch(...)`` that runs a pipeline once for each batch.

    The target that the pipeline gets is the given one, on a separate branch for the batch. Pass it to
    operations as ``to``, or open sessions on ``target.branch``. After the pipeline, the target's branch moves
    in one step.

    Args:
        target: The `Target` of the pipeline.
        pipeline: The function. It is called as ``pipeline(rows, target)``.
        app_id: A name for the query, instead of Spark's id. It is required through Spark Connect.
        message: The message of the commit of a batch. The default, None, is a message that names the batch.

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

    def run(rows: DataFrame, batch: int) -> None:
        stamp = Stamp(app_id or _query_of(rows), batch)
        for pause in pauses():
            tip = target.repo.lookup_branch(target.branch)
            done = batches_done(target.repo, tip, stamp.query)
            if batch in done:
                return None
            try:
                return _publish(rows, target, tip, pipeline, stamp, done, message)
            except ConflictError as error:
                failed = error
            pause()
        raise failed

    return run


def _publish(
    rows: DataFrame,
    target: Target,
    tip: str,
    pipeline: Pipeline,
    stamp: Stamp,
    done: BatchSet,
    message: str | None,
) -> None:
    repo = target.repo
    work = f"{target.branch}.{hashlib.sha256(stamp.query.encode()).hexdigest()[:12]}.{stamp.batch}"
    with suppress(RefNotFoundError):
        repo.delete_branch(work)  # it may be left from a driver that died
    repo.create_branch(work, tip)
    try:
        pipeline(rows, replace(target, branch=work))
        session = repo.writable_session(work)
        message = message or f"Batch {stamp.batch} of query {stamp.query}: pipeline into {target.branch}"
        snapshot_id = stamped(session, target.branch, stamp, message, done)
        repo.reset_branch(target.branch, snapshot_id, from_snapshot_id=tip)
    finally:
        with suppress(RefNotFoundError):
            repo.delete_branch(work)


def _query_of(rows: DataFrame) -> str:
    context = getattr(rows.sparkSession, "_sc", None)
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise InvalidInputError(
            "app_id must be a name for the query where Spark does not give its id, got None",
            ErrorKind.INVALID_ARGUMENT,
        )
    return str(query)
