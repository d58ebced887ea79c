"""Micro-batches exactly once: the stamp of a batch in its commit, and a whole pipeline for each batch.

A batch is named by its query (an id of Spark's, or the ``txnAppId`` of the user) and its number. The
metadata of its commit hold the stamp, so that data and stamp are one atomic step. If the driver dies
afterwards, or Spark's own log lacks the batch, a retry finds that the batch is done. The same update of
the repository writes a record of it into the repository's metadata, which outlives the commit. A version
has a batch if the commit of the batch is in its history, even if the commit has expired, was amended,
merged or picked since. So a branch that is reset to before a batch does not have the batch, and a branch
that was created from another has the batches of the other. Spec version 1 has no such metadata: there the
stamp lives as long as the commit.

Other writers may commit to the branch meanwhile, even a second driver of the same query. A late commit is
rebased onto the new tip, where the stamp is looked for again. If its rows conflict with the other
commits, the batch is written again.

A pipeline works on a separate branch, which starts at the tip of the target's branch, with any number of
jobs and commits. Then a commit with the stamp of the batch is added, and the target's branch moves there
in one step. If other writers have committed meanwhile, or the driver dies, nothing was published, and the
pipeline runs again.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame

from frazil.errors import ConflictError, ErrorKind, InvalidInputError, RebaseFailedError, RefNotFoundError
from frazil.format.ids import id_from_text
from frazil.format.repo_info import RepoInfo
from frazil.jobs.job import Target
from frazil.repository.catalog.history_records import (
    BATCH,
    QUERY,
    STREAMS,
    BatchHistory,
    BatchRecord,
    BatchSet,
    with_records,
)
from frazil.repository.handle.repository import Repository, context_of
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.session import Session, state_of

_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """One micro-batch of one query."""

    query: str
    batch: int

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the stamp for the metadata of a commit."""
        return {QUERY: self.query, BATCH: self.batch}


def batches_done(repo: Repository, snapshot_id: str, query: str) -> BatchSet:
    """Return the batches of a query that a version has.

    Raises ``SessionStateError`` (``not-allowed``) if that is unknown.
    """
    context = context_of(repo)
    return BatchHistory(context.catalog.repo_info(), id_from_text(snapshot_id), context.storage).done(query)


def is_done(repo: Repository, snapshot_id: str, stamp: Stamp) -> bool:
    """Return whether a version has this batch, or a later batch of its query."""
    return stamp.batch in batches_done(repo, snapshot_id, stamp.query)


def commit_once(
    repo: Repository,
    branch: str,
    stamp: Stamp,
    write: Callable[[Session], None],
    message: str,
) -> str | None:
    """Commit the changes of ``write`` to a session, unless the batch is done; return the id of the snapshot.

    ``write`` is called again, with another session, if its changes conflict with other commits. Raises
    ``RebaseFailedError`` if they conflict at every attempt, ``SessionStateError`` (``not-allowed``) if it is
    unknown whether the batch is done.
    """
    for pause in pauses():
        session = repo.writable_session(branch)
        done = batches_done(repo, session.snapshot_id, stamp.query)
        if stamp.batch in done:
            return None
        write(session)
        try:
            return _committed(repo, session, branch, stamp, message, done)
        except RebaseFailedError as error:
            failed = error
        pause()
    raise failed


def _committed(
    repo: Repository, session: Session, branch: str, stamp: Stamp, message: str, done: BatchSet
) -> str | None:
    while stamp.batch not in done:
        try:
            return stamped(session, branch, stamp, message, done)
        except ConflictError as error:
            if error.kind != ErrorKind.COMMIT_CONFLICT:
                raise
        session.rebase(ConflictDetector())
        done = batches_done(repo, session.snapshot_id, stamp.query)
    return None


def stamped(session: Session, branch: str, stamp: Stamp, message: str, done: BatchSet) -> str:
    """Commit on exactly the version that the session has seen.

    ``branch`` is the branch of the batch, ``done`` are the batches of its query that this version has. Raises
    ``ConflictError`` if there is a newer version.
    """

    def note(info: RepoInfo, id_: bytes) -> dict[str, Any]:
        return with_records(info, {stamp.query: [BatchRecord(stamp.batch, id_, branch), *done.amended]})

    state_of(session).note = note
    return session.commit(
        message, stamp.metadata, rebase_with=ConflictDetector(), rebase_tries=0, allow_empty=True
    )


def pauses() -> Iterator[Callable[[], None]]:
    """Yield the pauses between attempts: functions that wait, longer each time, for a random time."""
    return (partial(_pause, min(0.05 * 2**n, 5.0)) for n in range(_TRIES))


def _pause(seconds: float) -> None:
    time.sleep(random.uniform(0.5, 1) * seconds)


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


__all__ = [
    "BATCH",
    "QUERY",
    "STREAMS",
    "Stamp",
    "batches_done",
    "commit_once",
    "is_done",
    "pauses",
    "stamped",
]
