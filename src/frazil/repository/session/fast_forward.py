"""How long a commit that meets others is tried again.

Writers that do not know of each other commit to one branch. Who comes too late looks at what the others did;
if it has nothing to do with his changes, they go on top of it as they are, and the same is tried again:

    commit ──> branch where we started ── yes ──> done
      ^                     no
      │                      v
      └── no ── conflicts with what came meanwhile? ── yes ──> RebaseFailedError
                  (time is up: ConflictError)

Every round one of the competitors succeeds, so all together make progress; a pause of random length lets
those through who have lost often.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, sleep
from typing import Final

from frazil.display import span
from frazil.errors import ConflictError, ErrorKind

#: Attempts that follow one another at once, and the longest pause between later ones, in seconds.
_EAGER: Final = 3
_LONGEST: Final = 1.0
#: What another attempt may not meet.
_PASSING: Final = {ErrorKind.COMMIT_CONFLICT, ErrorKind.GARBAGE_COLLECTION_RUNNING}


@dataclass(slots=True)
class Patience:
    """Counts the attempts of one commit; ``timeout`` of zero leaves it at one."""

    timeout: timedelta
    attempts: int = 0
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = monotonic()

    def wait(self, error: ConflictError) -> None:
        """Return when the next attempt should be made. Raises ``error`` if it cannot be helped by one, or,
        told how long it was tried, when the time is up.
        """
        if error.kind not in _PASSING or not self.timeout:
            raise error
        left = self.timeout.total_seconds() - (monotonic() - self._began)
        if left <= 0:
            raise ConflictError(
                error.expected_parent,
                error.actual_parent,
                f"{error.message}. {self.attempts + 1} attempts failed within fast_forward_timeout, "
                f"{span(self.timeout)}: commit again, raise fast_forward_timeout, or let the writers be "
                "forks of one session",
                error.kind,
            ) from error
        self.attempts += 1
        if self.attempts > _EAGER:
            longest = min(0.002 * 2.0 ** min(self.attempts - _EAGER, 20), _LONGEST, left)
            sleep(random.uniform(0, longest))
