"""Retries: how often, and after what pause.

After an error of the storage, pauses grow up to the limit of the settings: the storage needs rest. After a
lost race, pauses grow only until the writers are spread, and then become shorter with each loss. So a writer
that has lost many races has better chances than one that has just begun. Otherwise a squash beside ten
processes that commit all the time loses many races, and waits longer after each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from frazil import host
from frazil.errors import ErrorKind, StorageError

#: The longest pause after a lost race, in milliseconds.
_LONGEST_MS: Final = 5_000.0
#: The number of losses after which the longest pause becomes shorter, by a factor for each, down to a limit.
_SPREAD: Final = 12
_DECAY: Final = 0.9
_SHORTEST_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after what pause, an update is retried when another writer was first."""

    tries: int = 100
    initial_backoff_ms: int = 50
    max_backoff_ms: int = 30_000
    #: How many attempts are made without a pause.
    eager: int = 5
    #: After how many errors of the storage the last one is raised.
    errors: int = 5

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt that failed, with jitter so that clients spread."""
        if attempt < self.eager:
            return host.random_between(0, 0.002 * (attempt + 1))
        return host.random_between(0.5, 1.0) * min(self._backoff(attempt), self.max_backoff_ms) / 1000

    def pause_after_loss(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt in which another writer was first."""
        if attempt < self.eager:
            return self.pause(attempt)
        longest = max(_LONGEST_MS * _DECAY ** max(0, attempt - _SPREAD), _SHORTEST_MS)
        return host.random_between(0, min(self._backoff(attempt), longest, self.max_backoff_ms)) / 1000

    def _backoff(self, attempt: int) -> float:
        return self.initial_backoff_ms * 2.0 ** min(attempt - self.eager, 30)


def retried[T](read: Callable[[], T], policy: RetryPolicy) -> T:
    """Return the result of ``read``, and retry it after errors of the storage.

    ``object-not-found`` is not retried.
    """
    for failures in range(1, max(policy.errors, 1)):
        try:
            return read()
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                raise
        host.pause(policy.pause(policy.eager + failures - 1))
    return read()
