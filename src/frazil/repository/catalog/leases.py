"""Leases: a session with forks, or a job that can be resumed, asks garbage collections to spare its files.

A lease is a small object under ``leases/``. It says how old the oldest chunk file can be that its holder
relies on (``age``), and how long the lease lasts (``left``), both counted from the moment when the lease was
stored. A collection brings its limit forward to the oldest lease. A session deletes its lease with its
commit. A lease that nobody deletes ends with the lifetime of the session.

A lease contains durations and no times: they start at the modification time of the object, which the
storage's clock sets, as it sets the modification times of chunk files. A lease saves work, and safety does
not depend on it. If a clock is changed, or if a lease is broken, chunks may be collected: then the commit
that refers to them is refused (``collection_guard``).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from frazil.errors import StorageError
from frazil.repository.clock import now_us
from frazil.repository.markers import new_key, put_marker, read_markers
from frazil.storage.base import ALWAYS, IfAbsent, Storage

_log = logging.getLogger(__name__)

LEASES: Final = "leases"

#: Storages report modification times in whole seconds, and answers take time.
ROUNDING: Final = 2_000_000
#: No lease lasts longer, whatever the clock said when it was taken: the longest are those of jobs.
LONGEST: Final = timedelta(days=8)

_LONGEST_US: Final = LONGEST // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as its holder knows it."""

    key: str

    @staticmethod
    def take(
        storage: Storage,
        since: int,
        until: int,
        key: str | None = None,
        purpose: str = "fork",
        *,
        only_if_absent: bool = False,
    ) -> Lease:
        """Ask for files not older than ``since`` to be spared until ``until``: microseconds since 1970, by
        this host's clock. One request.

        ``key`` is for a holder that has to find the lease again, ``purpose`` for people. An existing lease
        under the key is replaced, or stays as it is with ``only_if_absent``.
        """
        now = now_us()
        lease = Lease(key or new_key(LEASES))
        content = {"age": max(0, now - since), "left": max(0, until - now), "purpose": purpose}
        put_marker(storage, lease.key, content, IfAbsent() if only_if_absent else ALWAYS)
        return lease

    def give_back(self, storage: Storage) -> None:
        """Delete the lease: all files of its holder belong to a version now."""
        with suppress(StorageError):  # it ends by itself
            storage.delete([self.key])


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease as it is stored: files not older than ``since`` are in use until ``until``. Microseconds since
    1970, by the storage's clock; ``taken`` is when it was stored.
    """

    key: str
    taken: int
    since: int
    until: int
    purpose: str


def leases(storage: Storage) -> list[StoredLease]:
    """Return all leases, the oldest first, those that have ended included."""
    held = [
        StoredLease(
            marker.key,
            marker.modified,
            marker.modified - max(0, marker.number("age")) - ROUNDING,
            marker.modified + max(-_LONGEST_US, min(marker.number("left"), _LONGEST_US)) + ROUNDING,
            marker.text("purpose"),
        )
        for marker in read_markers(storage, LEASES)
    ]
    return sorted(held, key=lambda lease: (lease.taken, lease.key))


def in_force(storage: Storage, now: int) -> list[StoredLease]:
    """Return the leases that have not ended at ``now``, a time of the storage's clock."""
    return [lease for lease in leases(storage) if lease.until >= now]


def delete_ended(storage: Storage, now: int) -> None:
    """Delete the leases that have ended at ``now``, a time of the storage's clock."""
    storage.delete([lease.key for lease in leases(storage) if lease.until < now])


@dataclass(slots=True)
class LeaseLimit:
    """The age limit of a collection, brought forward by leases. The collection began at ``now``, and was
    asked to delete files older than ``limit``: times of the storage's clock. ``leases`` has the leases that
    are older than the limit.
    """

    storage: Storage
    now: int
    limit: int
    leases: dict[str, StoredLease] = field(default_factory=dict)

    @property
    def older_than(self) -> int:
        """The limit that the leases leave."""
        return min((self.limit, *(lease.since for lease in self.leases.values())))

    def refresh(self) -> int:
        """Read the leases again, some may be new; ``older_than`` after that."""
        for lease in in_force(self.storage, self.now):
            if lease.since < self.limit and lease.key not in self.leases:
                _log.info("%s holds a lease: only files older than it are collected", lease.purpose)
                self.leases[lease.key] = lease
        return self.older_than
