"""Leases, with which sessions with forks and jobs protect their files from garbage collections.

A lease is a small object under ``leases/``. It has the greatest age of the chunk files that its holder needs
(``age``), and the time until the lease expires (``left``). Both count from the time when the lease was
stored. A collection moves its cut-off to an earlier time if a lease needs it. A session deletes its lease
with its commit. Otherwise the lease expires with the lifetime of the session.

A lease contains durations, not times. They start at the modification time of the object, which the storage's
clock sets, as for chunk files. A lease saves work, but safety does not depend on it. If a clock is changed,
or if a lease is broken, chunks may be collected. Then the commit that refers to them is refused
(``collection_guard``).
"""

from __future__ import annotations

import functools
import getpass
import hashlib
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from frazil.errors import StorageError
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.markers import new_key, put_marker, read_markers
from frazil.storage.base import ALWAYS, IfAbsent, Storage

_log = logging.getLogger(__name__)

LEASES: Final = "leases"

#: A tolerance in microseconds: storages report modification times in seconds, and answers take time.
ROUNDING: Final = 2_000_000
#: The longest time of a lease, even if a clock was wrong. Leases of jobs last longest.
LONGEST: Final = timedelta(days=8)

_LONGEST_US: Final = LONGEST // timedelta(microseconds=1)
#: In microseconds since 1970. A lease with an earlier ``since`` protects everything: no file is that old.
_ANCIENT_US: Final = timedelta(days=7300) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of this process."""

    key: str

    @staticmethod
    def take(
        storage: Storage,
        since: int,
        until: int,
        key: str | None = None,
        purpose: str = "fork",
        *,
        name: str = "",
        only_if_absent: bool = False,
    ) -> Lease:
        """Protect files that are not older than ``since`` until ``until``. This needs one request.

        Both times are microseconds since 1970, by this host's clock. A holder that must find the lease again
        passes ``key``. ``purpose`` and ``name`` describe the lease for people, together with the host, user
        and process. An existing lease under the key is replaced, or stays as it is with ``only_if_absent``.
        """
        now = now_us()
        lease = Lease(key or new_key(LEASES))
        content: dict[str, Any] = {
            "age": max(0, now - since),
            "left": max(0, until - now),
            "purpose": purpose,
        }
        content |= {"name": name, "host": socket.gethostname(), "user": _user(), "process": os.getpid()}
        content["machine"] = _machine()
        put_marker(storage, lease.key, content, IfAbsent() if only_if_absent else ALWAYS)
        return lease

    def give_back(self, storage: Storage) -> None:
        """Delete the lease, because all files of its holder belong to a version now."""
        with suppress(StorageError):  # the lease expires by itself
            storage.delete([self.key])


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease in the storage, which protects files that are not older than ``since`` until ``until``.

    ``taken`` is when it was stored. All times are microseconds since 1970, by the storage's clock.
    """

    key: str
    taken: int
    since: int
    until: int
    purpose: str
    name: str = ""
    host: str = ""
    user: str = ""
    process: int = 0
    machine: str = ""

    @property
    def is_running(self) -> bool | None:
        """Whether the process of the holder runs. None: it is on another machine, or nobody knows."""
        if not self.process or not self.machine or self.machine != _machine():
            return None
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except OSError:  # the process of another user
            return True
        return True

    @property
    def protects_all(self) -> bool:
        """Whether the lease protects files of any age, as that of a copy does."""
        return self.since < _ANCIENT_US


def leases(storage: Storage) -> list[StoredLease]:
    """Return all leases, the oldest first, expired leases included."""
    held = [
        StoredLease(
            marker.key,
            marker.modified,
            marker.modified - max(0, marker.number("age")) - ROUNDING,
            marker.modified + max(-_LONGEST_US, min(marker.number("left"), _LONGEST_US)) + ROUNDING,
            marker.text("purpose"),
            name=marker.text("name"),
            host=marker.text("host"),
            user=marker.text("user"),
            process=marker.number("process"),
            machine=marker.text("machine"),
        )
        for marker in read_markers(storage, LEASES)
    ]
    return sorted(held, key=lambda lease: (lease.taken, lease.key))


def lease_info(lease: StoredLease) -> LeaseInfo:
    """Return a lease as a value for people."""
    return LeaseInfo(
        lease.key.removeprefix(f"{LEASES}/"),
        lease.purpose,
        to_datetime(lease.taken),
        to_datetime(max(0, lease.since)),
        to_datetime(lease.until),
        lease.name,
        lease.host,
        lease.user,
        lease.process,
        lease.is_running,
    )


def _user() -> str:
    """Return the name of the user of this process. Empty if the host does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


@functools.cache
def _machine() -> str:
    """Return a text that the processes share that see each other: of one boot, and one container.

    The name of a host is not enough: several containers or machines may have the same. Empty if the system
    does not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}{processes}".encode()).hexdigest()[:16]


def in_force(storage: Storage, now: int) -> list[StoredLease]:
    """Return the leases that have not expired at ``now``, a time of the storage's clock."""
    return [lease for lease in leases(storage) if lease.until >= now]


def delete_ended(storage: Storage, now: int) -> None:
    """Delete the leases that have expired at ``now``, a time of the storage's clock."""
    storage.delete([lease.key for lease in leases(storage) if lease.until < now])


@dataclass(slots=True)
class LeaseLimit:
    """The cut-off of a garbage collection, moved to an earlier time by leases.

    The collection began at ``now``, and should delete files older than ``limit``. Both are times of the
    storage's clock. ``leases`` has the leases that protect older files. ``own`` is the key of a lease of the
    collection itself, which does not count.
    """

    storage: Storage
    now: int
    limit: int
    leases: dict[str, StoredLease] = field(default_factory=dict)
    own: str = ""

    @property
    def older_than(self) -> int:
        """The cut-off that the leases allow."""
        return min((self.limit, *(lease.since for lease in self.leases.values())))

    @property
    def protects_all(self) -> bool:
        """Whether a lease protects files of any age."""
        return any(lease.protects_all for lease in self.leases.values())

    def refresh(self) -> int:
        """Read the leases again, because some may be new. Return ``older_than``."""
        for lease in in_force(self.storage, self.now):
            if lease.since < self.limit and lease.key != self.own and lease.key not in self.leases:
                holder = lease_info(lease).holder()
                _log.info("%s has a lease, so only files older than the lease are collected", holder)
                self.leases[lease.key] = lease
        return self.older_than
