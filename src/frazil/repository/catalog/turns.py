"""Turns: commits with many files wait for each other, instead of writing their files again and again.

A writer puts a small object, a **ticket**, under ``turns/BRANCH/``, and commits when no older ticket of its
first listing is left. The name of a ticket begins with the time of its writer. Turns only save work: safety
is in the conditional write of ``repo``. Waiting writers renew their tickets, so a ticket that is much older
than the newest one is dead, by the storage's own clock. If the holder of the turn keeps it for
``_LONGEST_TURN_S``, the next writer deletes its ticket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from frazil import host
from frazil.errors import StorageError
from frazil.format.ids import id_to_text
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.storage.base import Storage

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
    ticket = f"{folder}/{now_us() // 1000:014d}-{id_to_text(new_object_id())}"
    try:
        has_waited = False
        with suppress(StorageError):
            has_waited = _wait(storage, folder, ticket, longest_s)
        yield has_waited
    finally:
        with suppress(StorageError):  # the next writer deletes it
            storage.delete([ticket])


def delete_dead(storage: Storage, now: int) -> None:
    """Delete the tickets of writers that died long before ``now``, a time of the storage's clock."""
    if not storage.is_local:
        limit = to_datetime(now) - _DEAD_AFTER
        storage.delete([each.key for each in storage.list(TURNS) if each.modified < limit])


def _wait(storage: Storage, folder: str, ticket: str, longest_s: float | None) -> bool:
    """Return when no older ticket is left, or after ``longest_s`` seconds. True if there was one."""
    begin = renewed = oldest_since = host.monotonic_seconds()
    end = None if longest_s is None else begin + longest_s
    queue: frozenset[str] | None = None  # the older tickets in the first listing
    oldest, most, has_waited = "", 0, False
    storage.put(ticket, b"{}")
    while True:
        start = host.monotonic_seconds()
        tickets = {each.key: each.modified for each in storage.list(folder)}
        newest = max(tickets.values(), default=None)
        dead = [key for key, time in tickets.items() if newest is not None and newest - time > _DEAD_AFTER]
        if queue is None:
            queue = frozenset(key for key in tickets if key < ticket)
        ahead = sorted((queue & tickets.keys()).difference(dead))
        now = host.monotonic_seconds()
        if not ahead or ahead[0] != oldest:
            oldest, oldest_since = (ahead or [""])[0], now
        elif len(ahead) == 1 and now - oldest_since > _LONGEST_TURN_S:
            dead += ahead
            ahead = []
        if dead:
            storage.delete([key for key in dead if key != ticket])
        if not ahead or (end is not None and now >= end):
            return has_waited
        has_waited = True
        most = max(most, len(ahead))
        passed = most - len(ahead)
        # A turn takes as long as the turns that have passed, or some requests if none has passed yet.
        turn_s = (now - begin) / passed if passed else (now - start) * _REQUESTS
        longest = max(2 * (now - start), turn_s / 10, (len(ahead) - 1) * turn_s)
        pause = host.random_between(0.5, 1.0) * min(longest, _LONGEST_TURN_S / 3)
        host.pause(pause if end is None else min(pause, max(0.0, end - now)))
        if host.monotonic_seconds() - renewed > _RENEWAL_S:
            storage.put(ticket, b"{}")
            renewed = host.monotonic_seconds()
