"""A whole pipeline for each micro-batch, done once.

The pipeline works on a branch of its own, made from the tip of the target's, with as many jobs and commits
as it likes. At its end a commit with the stamp of the batch goes on top, and the target's branch goes there
in one step. If others have committed meanwhile, or the driver dies on the way, nothing was published and
the pipeline runs again; a batch whose stamp is there is skipped.
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
    """For ``df.writeStream.foreachBatch(...)``: ``pipeline(rows, target)`` for each batch, once.

    The target that the pipeline gets is the given one, on the branch of the batch: give it to operations as
    ``to``, or open sessions on ``target.branch``. ``app_id`` names the query in place of Spark's id; through
    Spark Connect it has to be given.

    Raises ``ConflictError`` if others always commit first.
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
        repo.delete_branch(work)  # of a driver that died
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
            "expected a name for the query, which Spark does not tell here: give app_id",
            ErrorKind.INVALID_ARGUMENT,
        )
    return str(query)
