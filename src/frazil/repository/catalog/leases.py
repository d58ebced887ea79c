"""Leases, with which sessions with forks and jobs protect their files from garbage collections.

A lease is a small object under ``leases/``. It has the greatest age of the chunk files that its holder needs
(``age``), and the time until the lease expires (``left``). Both count from the time when the lease was
stored. A collection moves its cut-off to an earlier time if a lease needs it. A session deletes its lease
with its commit. Otherwise the lease expires with the lifetime of the session.

A lease contains durations, not times. They start at the modification time of the object, which the storage's
clock sets, as for chunk files. A lease saves work, but safety does not depend on it. If a clock is changed,
or if a lease is broken, chunks may be collected. Then the commit that refers to them is refused
(``collection_guard``).

Leases and records of garbage collections are markers. The format does not define them, and other
implementations ignore them.
"""

from __future__ import annotations

import functools
import getpass
import hashlib
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import id_to_text
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.storage.base import ALWAYS, Condition, IfAbsent, ObjectInfo, Storage
from frazil.threads import Purpose, thread_pool

#: The size of the largest marker that is read, in bytes. Frazil writes less than one KiB.
_LARGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker as it is stored. ``modified`` is in microseconds since 1970, by the clock of the storage."""

    key: str
    modified: int
    content: Mapping[str, Any]

    def number(self, name: str) -> int:
        """Return a field as an integer; 0 if it is missing or not an integer."""
        value = self.content.get(name)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        """Return a field as text; empty if it is missing or not text."""
        value = self.content.get(name)
        return value if isinstance(value, str) else ""


def new_key(folder: str) -> str:
    """Return a random key in a folder."""
    return f"{folder}/{id_to_text(new_object_id())}"


def put_marker(storage: Storage, key: str, content: Mapping[str, Any], condition: Condition = ALWAYS) -> None:
    """Write a marker."""
    storage.put(key, json.dumps(content).encode(), condition)


def read_markers(storage: Storage, folder: str, ignored: str = "") -> Iterator[Marker]:
    """Read all markers of a folder, except those with keys that end in ``ignored``.

    A marker that is damaged or too large has no fields. A marker that is deleted during the call is left out.
    """
    objects = [info for info in storage.list(folder) if not (ignored and info.key.endswith(ignored))]
    with thread_pool(Purpose.MARKER_READS) as pool:
        yield from filter(None, pool.map(partial(_read, storage), objects))


def _read(storage: Storage, info: ObjectInfo) -> Marker | None:
    try:
        content = json.loads(bytes(storage.get(info.key))) if info.size <= _LARGEST else None
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None
    except (ValueError, RecursionError):
        content = None
    fields = content if isinstance(content, dict) else {}
    return Marker(info.key, from_datetime(info.modified), fields)


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
