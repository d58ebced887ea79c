"""How often, and after how long, something is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from frazil.errors import ErrorKind, StorageError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, an update is tried again when another writer was first."""

    tries: int = 100
    initial_backoff_ms: int = 50
    max_backoff_ms: int = 30_000
    #: So many attempts follow one another at once.
    eager: int = 5
    #: So many errors of the storage are borne before the last one is raised.
    errors: int = 5

    def pause(self, attempt: int) -> float:
        """Seconds to wait after an attempt, with jitter so that competitors spread."""
        if attempt < self.eager:
            return random.uniform(0, 0.002 * (attempt + 1))
        backoff = self.initial_backoff_ms * 2.0 ** min(attempt - self.eager, 30)
        return random.uniform(0.5, 1.0) * min(backoff, self.max_backoff_ms) / 1000


def retried[T](read: Callable[[], T], policy: RetryPolicy) -> T:
    """What ``read`` returns; it is tried again after errors of the storage, but not where that says that
    there is no such object.
    """
    for failures in range(1, max(policy.errors, 1)):
        try:
            return read()
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                raise
        time.sleep(policy.pause(policy.eager + failures - 1))
    return read()
