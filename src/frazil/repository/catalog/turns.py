"""Turns: commits with many files wait for each other, instead of writing their files again and again.

A writer puts a small object, a **ticket**, under ``turns/BRANCH/``, and commits when no older ticket of its
first listing is left. The name of a ticket begins with the time of its writer. Turns only save work: safety
is in the conditional write of ``repo``. Waiting writers renew their tickets, so a ticket that is much older
than the newest one is dead, by the storage's own clock. If the holder of the turn keeps it for
``_LONGEST_TURN_S``, the next writer deletes its ticket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from frazil import host
from frazil.errors import StorageError
from frazil.format.ids import id_to_text
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.storage.base import ObjectInfo, Storage

TURNS: Final = "turns"

#: How long a writer may keep its turn while others wait, in seconds.
_LONGEST_TURN_S: Final = 30.0
#: A waiting writer renews its ticket after this time, in seconds.
_RENEWAL_S: Final = 20.0
#: A ticket that was not renewed for this time is ignored.
_DEAD_AFTER: Final = timedelta(seconds=60)
#: About how many requests a commit makes one after the other.
_REQUESTS: Final = 8


@contextmanager
def commit_queue(storage: Storage, branch: str, longest_s: float | None = None) -> Iterator[bool]:
    """Wait until no other writer has an older ticket for ``branch``, and hold the turn during the block.

    Yields whether other writers were first. After ``longest_s`` seconds, or an error of the storage, the
    commit is tried without a turn.
    """
    folder = f"{TURNS}/{blake2b(branch.encode(), digest_size=8).hexdigest()}"
    ticket = _Ticket(storage, folder)
    try:
        has_waited = False
        with suppress(StorageError):
            has_waited = ticket.wait(longest_s)
        yield has_waited
    finally:
        with suppress(StorageError):  # the next writer deletes it
            storage.delete([ticket.key])


def delete_dead(storage: Storage, now: int) -> None:
    """Delete the tickets of writers that died long before ``now``, a time of the storage's clock."""
    if not storage.is_local:
        limit = to_datetime(now) - _DEAD_AFTER
        storage.delete([each.key for each in storage.list(TURNS) if each.modified < limit])


@dataclass(slots=True)
class _Ticket:
    """The ticket of one writer in the folder of a branch."""

    storage: Storage
    folder: str
    key: str = ""
    _renewed: float = 0.0
    #: When the wait began, and the largest number of older tickets since then.
    _begin: float = field(default_factory=host.monotonic_seconds)
    _most: int = 0
    #: The oldest ticket in the last listing, and since when it has been the oldest.
    _oldest: str = ""
    _oldest_since: float = field(default_factory=host.monotonic_seconds)
    #: The older tickets in the first listing.
    _queue: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.key = f"{self.folder}/{now_us() // 1000:014d}-{id_to_text(new_object_id())}"

    def wait(self, longest_s: float | None) -> bool:
        """Return when no older ticket is left, or after ``longest_s`` seconds. True if there was one."""
        has_waited = False
        end = None if longest_s is None else host.monotonic_seconds() + longest_s
        self._renew()
        while True:
            start = host.monotonic_seconds()
            ahead = self._ahead(list(self.storage.list(self.folder)))
            now = host.monotonic_seconds()
            if not ahead or (end is not None and now >= end):
                return has_waited
            has_waited = True
            pause = self._pause(len(ahead), now - start)
            host.pause(pause if end is None else min(pause, max(0.0, end - now)))
            if host.monotonic_seconds() - self._renewed > _RENEWAL_S:
                self._renew()

    def _renew(self) -> None:
        self.storage.put(self.key, b"{}")
        self._renewed = host.monotonic_seconds()

    def _ahead(self, tickets: Sequence[ObjectInfo]) -> list[str]:
        """Return the older tickets of other writers, without the dead ones, which it deletes."""
        newest = max((each.modified for each in tickets), default=None)
        dead = [each.key for each in tickets if newest is not None and newest - each.modified > _DEAD_AFTER]
        keys = {each.key for each in tickets}
        if self._queue is None:
            self._queue = frozenset(key for key in keys if key < self.key)
        ahead = sorted((self._queue & keys).difference(dead))
        now = host.monotonic_seconds()
        if not ahead or ahead[0] != self._oldest:
            self._oldest, self._oldest_since = (ahead or [""])[0], now
        elif len(ahead) == 1 and now - self._oldest_since > _LONGEST_TURN_S:
            dead += ahead
            ahead = []
        if dead:
            self.storage.delete([key for key in dead if key != self.key])
        return ahead

    def _pause(self, ahead: int, request_s: float) -> float:
        """Return how long to wait for ``ahead`` other commits, if a request takes ``request_s``."""
        self._most = max(self._most, ahead)
        passed = self._most - ahead
        turn_s = (host.monotonic_seconds() - self._begin) / passed if passed else request_s * _REQUESTS
        longest = max(2 * request_s, turn_s / 10, (ahead - 1) * turn_s)
        return host.random_between(0.5, 1.0) * min(longest, _LONGEST_TURN_S / 3)
