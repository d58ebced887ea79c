"""Retries: how often, and after what pause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil import host
from frazil.errors import ErrorKind, StorageError


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
        """Return the seconds to wait after an attempt, with jitter so that competing writers spread."""
        if attempt < self.eager:
            return host.random_between(0, 0.002 * (attempt + 1))
        backoff = self.initial_backoff_ms * 2.0 ** min(attempt - self.eager, 30)
        return host.random_between(0.5, 1.0) * min(backoff, self.max_backoff_ms) / 1000


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
