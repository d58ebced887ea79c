"""The stamp of a micro-batch, which shows that the batch is done.

A batch is named by its query (an id of Spark's, or the ``txnAppId`` of the user) and its number. The metadata
of its commit hold the stamp, so that data and stamp are one atomic step. If the driver dies afterwards, or
Spark's own log lacks the batch, a retry finds that the batch is done. The same update of the repository
writes a record of it into the repository's metadata, which outlives the commit
(`frazil.repository.catalog.stream_records`).

A version has a batch if the commit of the batch is in its history, even if the commit has expired, was
amended, merged or picked since (`frazil.repository.catalog.stream_batches`). So a branch that is reset to
before a batch does not have the batch, and a branch that was created from another has the batches of the
other. Spec version 1 has no such metadata: there the stamp lives as long as the commit.

Other writers may commit to the branch meanwhile, even a second driver of the same query. A late commit is
rebased onto the new tip, where the stamp is looked for again. If its rows conflict with the other commits,
the batch is written again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from frazil.errors import ConflictError, ErrorKind, RebaseFailedError
from frazil.format.ids import id_from_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.stream_batches import BatchHistory, BatchSet
from frazil.repository.catalog.stream_records import BATCH, QUERY, STREAMS, BatchRecord, with_records
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.conflicts import ConflictDetector
from frazil.repository.session.interior import state_of
from frazil.repository.session.session import Session

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
