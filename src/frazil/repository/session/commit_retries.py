"""The retries of a commit that lost against other commits.

Several writers commit to one branch. A commit is late if another writer has moved the branch first. A late
commit is rebased onto the new tip if there are no conflicts, or if a solver decides them. Then it is retried:

    commit ──> is the branch at the parent? ── yes ──> done
      ^                     no
      │                      v
      └── no ── conflicts with the other commits? ── yes ──> RebaseFailedError
                  (no attempt or no time is left: ConflictError)

In every round one of the writers succeeds, so all writers together make progress. On a local disk, a pause of
random length before each retry makes it likely that every writer succeeds. On an object store, a commit that
has lost several times joins a queue, and a commit of many arrays does so before its first attempt.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self, override

from frazil import host
from frazil.display import span
from frazil.errors import ConflictError, ErrorKind
from frazil.format.keys import REPO
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.turns import commit_queue
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver
from frazil.storage.local_commit import local_queue

#: The key of a commit's metadata that the format reserves.
RESERVED: Final = "__icechunk"
#: The number of attempts without a pause, and the longest pause between later attempts, in seconds.
_EAGER: Final = 3
_LONGEST: Final = 1.0
#: A commit to an object store that changes the chunks of this many arrays joins the queue at once.
_MANY_ARRAYS: Final = 8
#: After this many lost attempts, a commit to an object store joins the queue.
_LOSSES: Final = 2


@dataclass(frozen=True, slots=True)
class CommitRetryPolicy:
    """Which commits are retried, how often, for how long, and with which solver they are rebased.

    ``kinds`` has the kinds of errors after which a commit is retried. If ``max_retries`` is None, only
    ``timeout`` limits the retries; if ``timeout`` is None, only ``max_retries`` does. With ``records_all``,
    the metadata of a commit record the number of rebases even if it is 0.
    """

    solver: ConflictSolver = field(default_factory=ConflictDetector)
    kinds: frozenset[ErrorKind] = frozenset({ErrorKind.COMMIT_CONFLICT})
    max_retries: int | None = None
    timeout: timedelta | None = None
    records_all: bool = False


#: The policy of a plain commit, with one attempt.
NO_RETRIES: Final = CommitRetryPolicy(max_retries=0)


def fast_forward_policy(timeout: timedelta) -> CommitRetryPolicy:
    """Return the policy of a commit with ``fast_forward_timeout``. Zero allows one attempt."""
    if not timeout:
        return NO_RETRIES
    kinds = frozenset({ErrorKind.COMMIT_CONFLICT, ErrorKind.GARBAGE_COLLECTION_RUNNING})
    return CommitRetryPolicy(kinds=kinds, timeout=timeout)


def rebase_policy(solver: ConflictSolver, max_retries: int) -> CommitRetryPolicy:
    """Return the policy of a commit that is rebased with a solver, at most ``max_retries`` times."""
    return CommitRetryPolicy(solver, max_retries=max_retries, records_all=True)


class CommitRetries(ExitStack):
    """The retries of one commit, and its place among other commits to the branch. A context manager.

    The queues save work, and are no condition: local commits queue in the storage, for a second at most, and
    other commits queue once ``join_queue`` expects that a place in the queue is cheaper than lost attempts.
    The threads of one handle queue in its ``retry_lock``, and then for a ticket (``catalog.turns``).
    """

    def __init__(self, policy: CommitRetryPolicy, context: Context, branch: str | None) -> None:
        super().__init__()
        self.policy = policy
        self.count = 0
        self._context = context
        self._branch = branch
        self._started = host.monotonic_seconds()
        self._is_queued = False

    @override
    def __enter__(self) -> Self:
        self.enter_context(local_queue(self._context.storage, REPO))
        return self

    def metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the metadata of the next attempt, with the number of rebases before it."""
        if not self.count and not self.policy.records_all:
            return metadata
        reserved = metadata.get(RESERVED)
        return {
            **metadata,
            RESERVED: {**(reserved if isinstance(reserved, dict) else {}), "rebase_attempts": self.count},
        }

    def wait(self, error: ConflictError) -> None:
        """Pause until the next attempt should begin.

        Raises ``error`` if the policy allows no other attempt. If the timeout has expired, the error has the
        number of attempts.
        """
        policy = self.policy
        if error.kind not in policy.kinds or self.count == policy.max_retries:
            raise error
        self.count += 1
        if policy.timeout is not None:
            left = self._seconds_left() or 0.0
            if left <= 0:
                raise ConflictError(
                    error.expected_parent,
                    error.actual_parent,
                    f"{error.message}. {self.count} attempts failed within the fast_forward_timeout of "
                    f"{span(policy.timeout)}. Commit again, increase fast_forward_timeout, or let the "
                    "writers write to forks of one session",
                    error.kind,
                ) from error
            if self.count > _EAGER and not self._is_queued:
                longest = min(0.002 * 2.0 ** min(self.count - _EAGER, 20), _LONGEST, left)
                host.pause(host.random_between(0, longest))
        self.enter_context(self._context.assets.retry_lock)

    def join_queue(self, changed_arrays: int) -> bool:
        """Wait for other commits to the branch, if lost attempts cost more. Return whether there were some.

        A place costs three requests. It saves the files of lost attempts, one for each changed array and two
        more, and it is fair to a commit that has lost several times.
        """
        context = self._context
        if (
            self._is_queued
            or self._branch is None
            or context.storage.is_local
            or self.policy.max_retries == 0
        ):
            return False
        self._is_queued = changed_arrays >= _MANY_ARRAYS or self.count >= _LOSSES
        if not self._is_queued:
            return False
        self.enter_context(context.assets.retry_lock)
        return self.enter_context(commit_queue(context.storage, self._branch, self._seconds_left()))

    def _seconds_left(self) -> float | None:
        """Return the seconds until the timeout of the policy, or None without a timeout."""
        if self.policy.timeout is None:
            return None
        return self.policy.timeout.total_seconds() - (host.monotonic_seconds() - self._started)
