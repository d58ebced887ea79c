"""How a micro-batch is known to be done: its stamp.

A batch is named by its query (an id of Spark's, or the ``txnAppId`` that the user gives) and its number.
The commit that does it says so in its metadata, so that data and stamp are one atomic step: whatever
happens to the driver afterwards, and whatever Spark's own log says, the batch is found done when it is
tried again.

Commits expire, and with them their metadata. So the same update of the repository that makes the commit
writes the last two stamps of the query into the repository's metadata, under ``frazil.streams``. Such a
record counts if its snapshot is, or was before it expired, in the history of the branch: a branch that is
reset to before a batch has not done it, and one that was created from another has done what that had done.
(Spec version 1 has no such metadata: there the stamp lives as long as the commit.)

Others commit to the branch meanwhile, perhaps even a second driver of the same query. So a commit that
comes too late is taken to the new tip, where the stamp is looked for again; if its rows conflict with what
was committed there, the batch is written anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from frazil.errors import ConflictError, ErrorKind, RebaseFailedError
from frazil.format.columns import I64
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository import mutations
from frazil.repository.conflicts import ConflictDetector
from frazil.repository.repository import Repository
from frazil.repository.session import Session

#: In the metadata of a commit.
QUERY: Final = "spark.query"
BATCH: Final = "spark.batch"
#: In the metadata of a repository.
STREAMS: Final = "frazil.streams"

_TRIES: Final = 20
# Queries that are no more leave their records: the oldest go.
_QUERIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Stamp:
    """One micro-batch of one query."""

    query: str
    batch: int

    @property
    def metadata(self) -> dict[str, Any]:
        """For its commit."""
        return {QUERY: self.query, BATCH: self.batch}

    def note(self, metadata: dict[str, Any], id_: bytes) -> dict[str, Any]:
        """The metadata of the repository, with this stamp on the snapshot ``id_``."""
        streams = dict(metadata.get(STREAMS, {}))
        earlier = streams.pop(self.query, [])
        record = {"batch": self.batch, "snapshot": id_to_text(id_)}
        known = [*streams.items(), (self.query, [record, *earlier[:1]])]
        return {**metadata, STREAMS: dict(known[-_QUERIES:])}


def last_batch(info: RepoInfo, tip: bytes, query: str) -> int:
    """The newest batch of a query that is done in a history; -1 if there is none."""
    snapshots = info.snapshots
    chain = snapshots.chain(mutations.require_snapshot(info, tip))
    records = info.metadata.get(STREAMS, {}).get(query, []) if info.spec_version > 1 else []
    for record in records:
        if _was_in(info, chain, id_from_text(record["snapshot"])):
            return int(record["batch"])
    for entry in snapshots.entries(snapshots.mentioning(chain, QUERY)):
        if entry.metadata[QUERY] == query:
            return int(entry.metadata[BATCH])
    return -1


def _was_in(info: RepoInfo, chain: I64, id_: bytes) -> bool:
    row = info.snapshots.find(id_)
    if row >= 0:
        return bool(np.isin(row, chain))
    return any(id_ in entry.pruned_ancestor_tx_logs for entry in info.snapshots.entries(chain))


def is_done(repo: Repository, snapshot_id: str, stamp: Stamp) -> bool:
    """Whether a version has this batch, or a later one of its query."""
    info = repo._context.repo_info()
    return last_batch(info, id_from_text(snapshot_id), stamp.query) >= stamp.batch


def commit_once(
    repo: Repository,
    branch: str,
    stamp: Stamp,
    write: Callable[[Session], None],
    message: str,
) -> str | None:
    """What ``write`` does to a session, as one commit, unless the batch is done; the snapshot's id.

    ``write`` is called again, with another session, if what it wrote conflicts with other commits. Raises
    ``RebaseFailedError`` if it always does.
    """
    for pause in pauses():
        session = repo.writable_session(branch)
        if is_done(repo, session.snapshot_id, stamp):
            return None
        write(session)
        try:
            return _committed(repo, session, stamp, message)
        except RebaseFailedError as error:
            failed = error
        pause()
    raise failed


def _committed(repo: Repository, session: Session, stamp: Stamp, message: str) -> str | None:
    while True:
        try:
            return stamped(session, stamp, message)
        except ConflictError as error:
            if error.kind != ErrorKind.COMMIT_CONFLICT:
                raise
        session.rebase(ConflictDetector())
        if is_done(repo, session.snapshot_id, stamp):
            return None


def stamped(session: Session, stamp: Stamp, message: str) -> str:
    """Commit on the very version that the session has seen: ``ConflictError`` if there is a newer one."""
    session._state.note = stamp.note
    return session.commit(
        message, stamp.metadata, rebase_with=ConflictDetector(), rebase_tries=0, allow_empty=True
    )


def pauses() -> Iterator[Callable[[], None]]:
    """What to do between attempts: wait, a while longer each time, and not all for the same time."""
    return (partial(_pause, min(0.05 * 2**n, 5.0)) for n in range(_TRIES))


def _pause(seconds: float) -> None:
    time.sleep(random.uniform(0.5, 1) * seconds)
