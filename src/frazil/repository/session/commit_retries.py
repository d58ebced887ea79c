"""When a commit that met other commits is tried again.

Writers that do not know of each other commit to one branch. A commit that comes too late is rebased onto the
new tip, if nothing conflicts or a solver decides the conflicts, and then tried again:

    commit ──> is the branch at the parent? ── yes ──> done
      ^                     no
      │                      v
      └── no ── conflicts with the other commits? ── yes ──> RebaseFailedError
                  (no attempt or no time is left: ConflictError)

In every round one of the writers succeeds, so all together make progress; a pause of random length gives
writers that have lost often a chance.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, Final

from frazil.display import span
from frazil.errors import ConflictError, ErrorKind
from frazil.repository.session.conflicts import ConflictDetector, ConflictSolver

#: The key of a commit's metadata that the format reserves.
RESERVED: Final = "__icechunk"
#: Attempts that follow one another at once, and the longest pause between later ones, in seconds.
_EAGER: Final = 3
_LONGEST: Final = 1.0


@dataclass(frozen=True, slots=True)
class CommitRetryPolicy:
    """Which commits are tried again, how often, how long, and how they are rebased before that.

    ``kinds`` are the kinds of errors that another attempt may not meet. ``max_retries`` None: as often as
    the ``timeout`` allows; ``timeout`` None: as long as it takes. ``records_all`` says that the metadata of a
    commit record the number of rebases also where there was none.
    """

    solver: ConflictSolver = field(default_factory=ConflictDetector)
    kinds: frozenset[ErrorKind] = frozenset({ErrorKind.COMMIT_CONFLICT})
    max_retries: int | None = None
    timeout: timedelta | None = None
    records_all: bool = False


#: A plain commit: one attempt.
NO_RETRIES: Final = CommitRetryPolicy(max_retries=0)


def fast_forward_policy(timeout: timedelta) -> CommitRetryPolicy:
    """The policy of a commit with ``fast_forward_timeout``: zero allows one attempt."""
    if not timeout:
        return NO_RETRIES
    kinds = frozenset({ErrorKind.COMMIT_CONFLICT, ErrorKind.GARBAGE_COLLECTION_RUNNING})
    return CommitRetryPolicy(kinds=kinds, timeout=timeout)


def rebase_policy(solver: ConflictSolver, max_retries: int) -> CommitRetryPolicy:
    """The policy of a commit that is rebased with a solver, at most ``max_retries`` times."""
    return CommitRetryPolicy(solver, max_retries=max_retries, records_all=True)


@dataclass(slots=True)
class CommitRetries:
    """Counts the retries of one commit."""

    policy: CommitRetryPolicy
    count: int = 0
    _started: float = field(default_factory=lambda: monotonic())

    def metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """The metadata of the next attempt: with the number of rebases before it."""
        if not self.count and not self.policy.records_all:
            return metadata
        reserved = metadata.get(RESERVED)
        return {
            **metadata,
            RESERVED: {**(reserved if isinstance(reserved, dict) else {}), "rebase_attempts": self.count},
        }

    def wait(self, error: ConflictError) -> None:
        """Return when the next attempt should begin. Raises ``error`` if the policy allows none; if the time
        is up, the error says how long the commit was tried.
        """
        policy = self.policy
        if error.kind not in policy.kinds or self.count == policy.max_retries:
            raise error
        self.count += 1
        if policy.timeout is None:
            return
        left = policy.timeout.total_seconds() - (monotonic() - self._started)
        if left <= 0:
            raise ConflictError(
                error.expected_parent,
                error.actual_parent,
                f"{error.message}. {self.count} attempts failed within fast_forward_timeout, "
                f"{span(policy.timeout)}: commit again, raise fast_forward_timeout, or let the writers be "
                "forks of one session",
                error.kind,
            ) from error
        if self.count > _EAGER:
            longest = min(0.002 * 2.0 ** min(self.count - _EAGER, 20), _LONGEST, left)
            sleep(random.uniform(0, longest))
