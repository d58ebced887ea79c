"""The protection of uncommitted files from garbage collections: leases, staged files, and checks of commits.

A lease, a small object under ``leases/``, has the greatest age of the files that its holder needs, and the
time until it expires, both from its modification time by the storage's clock. A collection moves its cut-off
to an earlier time if a lease needs it. A lease saves work, but safety does not depend on it:

A collection puts a record under ``collections/`` before it lists files, then a list of all files that it is
going to delete, then its entry into the ops log. It then deletes the files and the record. Its entry and a
commit are conditional writes of the same file. If the commit is first, the collection makes its list again.
If the entry is first, the commit finds it in the ops log, after the newest entry when the session was opened.
Then the commit reads the lists of all running collections, and requests each file that it refers to. If a
file is missing, the commit is refused for good. If it is in a list, the commit can be retried later.

Spec version 1 has no ops log. There a collection writes every branch again after its list, so a commit that
has read its branch before must check again. A flush checks once more after its snapshot is stored. The last
record stays as a mark: while there is one, every commit makes the check. Other implementations leave an entry
in the ops log, but no list. After such an entry, a commit requests its files.

The results of the tasks of a job are under ``staging/<place>/``, so that another process can continue. Only
these files refer to the chunks of the job. Before the job writes a file, it takes a lease,
``leases/job.<place>``: with it, garbage collections spare all files that are not older than the job. Without
it, the staged files are garbage. A lease is longer than a job can be resumed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from frazil.display import counted
from frazil.errors import ConflictError, ErrorKind, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import (
    CHUNKS,
    ID_TEXT_LENGTH,
    MANIFESTS,
    OBJECT_ID_BYTES,
    id_from_text,
    id_keys,
    id_matrix,
    id_to_text,
    ids_to_text,
    is_id_text,
)
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.repository.attribution import current_user
from frazil.repository.catalog.repo_update import newest_update, older_ops_backup
from frazil.repository.catalog.version_info import FLUSH_LEASE, JOB_LEASE, LeaseInfo
from frazil.repository.clock import MICROSECOND, from_datetime, now_us, to_datetime
from frazil.repository.ids import new_object_id
from frazil.storage.base import ALWAYS, IfAbsent, ObjectInfo, Storage
from frazil.storage.checks import skip_missing
from frazil.threads import Purpose, map_bounded, thread_pool

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


def read_markers(storage: Storage, folder: str, ignored: str = "") -> Iterator[Marker]:
    """Read all markers of a folder, except those with keys that end in ``ignored``."""
    objects = [info for info in storage.list(folder) if not (ignored and info.key.endswith(ignored))]
    with thread_pool(Purpose.MARKER_READS) as pool:
        yield from filter(None, pool.map(partial(_read, storage), objects))


def _read(storage: Storage, info: ObjectInfo) -> Marker | None:
    with skip_missing():
        content: Any = None
        data = bytes(storage.get(info.key)) if info.size <= _LARGEST else b""
        with suppress(ValueError, RecursionError):
            content = json.loads(data)
        fields = content if isinstance(content, dict) else {}
        return Marker(info.key, from_datetime(info.modified), fields)
    return None


_log = logging.getLogger(__name__)

LEASES: Final = "leases"

#: A tolerance in microseconds: storages report modification times in seconds, and answers take time.
ROUNDING: Final = 2_000_000
#: The longest time of a lease, even if a clock was wrong. Leases of jobs last longest.
LONGEST: Final = timedelta(days=8)

_LONGEST_US: Final = LONGEST // MICROSECOND
#: In microseconds since 1970. A lease with an earlier ``since`` protects everything: no file is that old.
_ANCIENT_US: Final = timedelta(days=7300) // MICROSECOND


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

        Both times are of this host's clock. ``purpose`` and ``name`` describe the lease for people. A lease
        that exists under ``key`` is replaced, or stays as it is with ``only_if_absent``.
        """
        lease = Lease(key or new_key(LEASES))
        condition = IfAbsent() if only_if_absent else ALWAYS
        storage.put(lease.key, lease_file(since, until, purpose, name), condition)
        return lease

    def give_back(self, storage: Storage) -> None:
        """Delete the lease, because all files of its holder belong to a version now."""
        with suppress(StorageError):  # the lease expires by itself
            storage.delete([self.key])


def lease_file(since: int, until: int, purpose: str, name: str) -> bytes:
    """Return the content of a lease that is stored now. See ``Lease.take``."""
    now = now_us()
    content = {
        "age": max(0, now - since),
        "left": max(0, until - now),
        "purpose": purpose,
        "name": name,
        "host": socket.gethostname(),
        "user": current_user(),
        "process": os.getpid(),
        "machine": _machine(),
    }
    return json.dumps(content).encode()


def flush_lease(snapshot_id: bytes) -> str:
    """Return the key of the lease of a detached snapshot."""
    return f"{LEASES}/{FLUSH_LEASE}{id_to_text(snapshot_id)}"


def flushed_snapshots(storage: Storage) -> U8:
    """Return the ids of the detached snapshots with a lease, shape (k, 12), expired leases included."""
    names = (info.key.rpartition(FLUSH_LEASE)[2] for info in storage.list(LEASES))
    return id_matrix(
        [id_from_text(name) for name in names if len(name) == ID_TEXT_LENGTH and is_id_text(name)]
    )


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease in the storage, which protects files that are not older than ``since`` until ``until``.

    ``taken`` is when it was stored. All times are microseconds since 1970, by the storage's clock.
    """

    key: str
    taken: int
    since: int
    until: int
    info: LeaseInfo


def leases(storage: Storage) -> list[StoredLease]:
    """Return all leases, the oldest first, expired leases included."""
    held = []
    for marker in read_markers(storage, LEASES):
        taken, process = marker.modified, marker.number("process")
        since = taken - max(0, marker.number("age")) - ROUNDING
        until = taken + max(-_LONGEST_US, min(marker.number("left"), _LONGEST_US)) + ROUNDING
        info = LeaseInfo(
            marker.key.removeprefix(f"{LEASES}/"),
            marker.text("purpose"),
            to_datetime(taken),
            to_datetime(max(0, since)),
            to_datetime(until),
            marker.text("name"),
            marker.text("host"),
            marker.text("user"),
            process,
            _is_running(process, marker.text("machine")),
        )
        held.append(StoredLease(marker.key, taken, since, until, info))
    return sorted(held, key=lambda lease: (lease.taken, lease.key))


def _is_running(process: int, machine: str) -> bool | None:
    """Return whether the process of a holder runs. None: it is on another machine, or nobody knows."""
    if not process or not machine or machine != _machine():
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process of another user
        return True
    return True


@functools.cache
def _machine() -> str:
    """Return a text that processes of one boot and container share. Empty if it is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}{processes}".encode()).hexdigest()[:16]


def in_force(storage: Storage, now: int) -> list[StoredLease]:
    """Return the leases that have not expired at ``now``, a time of the storage's clock."""
    return [lease for lease in leases(storage) if lease.until >= now]


#: The purpose of the lease of a copy of the repository.
COPY: Final = "copy"


def is_copied(storage: Storage) -> bool:
    """Return whether a lease says that a copy of the repository runs, which needs backups of ``repo``."""
    return any(lease.info.purpose == COPY for lease in leases(storage))


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
        """Whether a lease protects files of any age, as that of a copy does."""
        return any(lease.since < _ANCIENT_US for lease in self.leases.values())

    def refresh(self) -> int:
        """Read the leases again, because some may be new. Return ``older_than``."""
        for lease in in_force(self.storage, self.now):
            if lease.since < self.limit and lease.key != self.own and lease.key not in self.leases:
                holder = lease.info.holder()
                _log.info("%s has a lease, so only files older than the lease are collected", holder)
                self.leases[lease.key] = lease
        return self.older_than


COLLECTIONS: Final = "collections"

#: The suffix of the key of a record's list. The list has ids of 12 bytes each.
_LIST: Final = ".garbage"


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """The record of a collection.

    ``is_listed`` says that its list is complete, ``is_done`` that all files in the list are deleted.
    """

    key: str
    is_listed: bool = False
    is_done: bool = False

    def put(self, storage: Storage) -> None:
        """Store the record."""
        content = {"listed": self.is_listed, "done": self.is_done}
        storage.put(self.key, json.dumps(content).encode())

    def with_list(self, storage: Storage, garbage: U8) -> CollectionRecord:
        """Store the list of the chunk files and manifests to delete, ids of shape (k, 12)."""
        storage.put(self.key + _LIST, np.ascontiguousarray(garbage).tobytes())
        record = replace(self, is_listed=True)
        record.put(storage)
        return record

    def garbage(self, storage: Storage) -> U8:
        """Return the ids in the list, shape (k, 12). Empty if the collection has ended in the meantime."""
        data = np.zeros(0, np.uint8)
        with skip_missing():
            data = np.frombuffer(storage.get(self.key + _LIST), np.uint8)
        return data[: len(data) // OBJECT_ID_BYTES * OBJECT_ID_BYTES].reshape(-1, OBJECT_ID_BYTES)

    def end(self, storage: Storage, *, leaves_mark: bool) -> None:
        """End the collection, which deletes no more files. With ``leaves_mark``, one record stays as a mark.

        It is the one whose key sorts last, so collections that end together keep each other's marks.
        """
        if not leaves_mark:
            storage.delete([self.key, self.key + _LIST])
            return
        replace(self, is_done=True).put(storage)
        marks = sorted(other.key for other in collection_records(storage) if other.is_done)
        storage.delete([self.key + _LIST, *marks[:-1]])


def announce(storage: Storage) -> tuple[CollectionRecord, int, int]:
    """Store the record of a new collection. Its modification time is the time of the storage's clock."""
    record = CollectionRecord(new_key(COLLECTIONS))
    before = now_us()
    record.put(storage)
    after = now_us()
    head = storage.head(record.key)
    stored = before if head is None else from_datetime(head.modified)
    ahead = stored - before if stored < before - ROUNDING else 0
    return record, stored, stored - after if stored > after + ROUNDING else ahead


def collection_records(storage: Storage) -> list[CollectionRecord]:
    """Return the records of collections that run, were killed, or have left a mark."""
    return [
        CollectionRecord(marker.key, bool(marker.content.get("listed")), bool(marker.content.get("done")))
        for marker in read_markers(storage, COLLECTIONS, ignored=_LIST)
    ]


def delete_killed_records(storage: Storage, now: int, *, with_marks: bool = False) -> None:
    """Delete the records of collections that were killed long before ``now``, a time of the storage's clock.

    ``with_marks`` also deletes old marks of spec version 1, which an upgrade leaves behind.
    """
    records = [] if with_marks else collection_records(storage)
    marks = {record.key for record in records if record.is_done}
    old = [info.key for info in storage.list(COLLECTIONS) if from_datetime(info.modified) + _LONGEST_US < now]
    if killed := [key for key in old if key not in marks]:
        storage.delete(killed)


def is_collecting(storage: Storage) -> bool:
    """Return whether a collection has announced itself and has not ended. It may delete files at any time."""
    return any(not record.is_done for record in collection_records(storage))


def require_none_running(storage: Storage) -> None:
    """Raise ``ConflictError`` (``garbage-collection-running``) while a collection runs."""
    if running := [record.key for record in collection_records(storage) if not record.is_done]:
        raise ConflictError(
            message="a garbage collection is running, and may delete files that this operation needs. Repeat "
            f"the operation when the collection has ended. If it was killed, delete `{running[0]}` first",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )


# The ops log


def has_collected(info: RepoInfo, update: int) -> bool | None:
    """Return whether a garbage collection ran after the update at the time ``update``.

    None: the log in ``info`` does not have exactly this time, for example after a restoration from a backup.
    """
    at = np.flatnonzero(info.ops.updated_at == update)
    newer = info.ops.kinds[: int(at[-1]) if len(at) else len(info.ops)]
    if (newer == UpdateKind.GC_RAN).any():
        return True
    return False if len(at) else None


# Commits


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The start of a session, in microseconds since 1970.

    ``update`` is the time of the newest update of the repository when the session was opened. No chunk file
    of the session is older than ``since``, by this host's clock.
    """

    update: int
    since: int


@dataclass(frozen=True, slots=True, eq=False)
class CommitReferences:
    """The ids of older chunk files and manifests that a commit refers to, shape (k, 12)."""

    chunks: U8
    manifests: U8

    def keys(self) -> list[str]:
        """Return the keys of all files."""
        return [
            *(f"{CHUNKS}/{name}" for name in ids_to_text(self.chunks)),
            *(f"{MANIFESTS}/{name}" for name in ids_to_text(self.manifests)),
        ]


def is_uncollected(
    storage: Storage, info: RepoInfo, update: int, files: Callable[[], CommitReferences]
) -> bool:
    """Check that no garbage collection has deleted, or will delete, the files of a commit.

    Return True if there was no collection since ``update``, the newest update when the session was opened.
    Return False if there was one, or if the log does not tell: it may have deleted files that earlier
    attempts have stored. ``files`` makes the files of the commit durable and returns them.

    Raises ``SessionStateError`` (``garbage-collected``) if a file was deleted, and ``ConflictError``
    (``garbage-collection-running``) if a collection will delete a file; the commit can be retried later.
    """
    if info.spec_version > 1:
        part: RepoInfo | None = info
        with skip_missing():
            while part is not None and (collected := has_collected(part, update)) is None:
                part = older_ops_backup(storage, part)
            if part is not None and not collected:
                return True
    elif not collection_records(storage):
        return True
    needed = files()
    # The lists come first. A collection that ends in between has deleted its files before the requests below.
    running = [
        each.garbage(storage) for each in collection_records(storage) if each.is_listed and not each.is_done
    ]
    keys = needed.keys()
    exists = map_bounded(Purpose.FILE_CHECKS, lambda key: storage.head(key) is not None, keys)
    if not all(exists):
        lost = [key for key, is_stored in zip(keys, exists, strict=True) if not is_stored]
        raise SessionStateError(
            f"garbage collection deleted {counted(len(lost), 'file')} that this session refers to, such as "
            f"`{lost[0]}`. Its cut-off was later than the start of the session, or the version of the files "
            "was expired or dropped. Write the data again in a new session",
            ErrorKind.GARBAGE_COLLECTED,
        )
    ids = id_keys(np.concatenate([needed.chunks, needed.manifests]))
    if any(np.isin(ids, id_keys(garbage)).any() for garbage in running):
        raise ConflictError(
            message="a garbage collection is running, and is going to delete files that this session refers "
            "to. The session keeps its changes. Commit again when the collection has ended. If the "
            "collection was killed, write the data again in a new session",
            kind=ErrorKind.GARBAGE_COLLECTION_RUNNING,
        )
    return False


@dataclass(slots=True)
class CollectionWatch:
    """A function that tells whether a garbage collection was running since its last call.

    A call looks for announced collections, then calls ``read`` for the repo info. The order matters: a later
    collection also lists files later, and a collection that has ended has an entry in the ops log.
    """

    read: Callable[[], RepoInfo]
    storage: Storage
    _until: int | None = None

    def __reduce__(self) -> tuple[type[CollectionWatch], tuple[Callable[[], RepoInfo], Storage]]:
        return (CollectionWatch, (self.read, self.storage))

    def __call__(self) -> bool:
        """Return True if there certainly was no collection."""
        under_way = is_collecting(self.storage)
        info = self.read()
        if not len(info.ops):  # spec version 1 has no ops log
            return False
        since, self._until = self._until, newest_update(info)
        # A log that does not reach back to the last call does not count.
        return not under_way and (since is None or has_collected(info, since) is False)


# Staged files of jobs, and their leases

STAGING: Final = "staging"
#: The time after its start in which a job can be resumed.
LIFETIME: Final = timedelta(days=7)
#: The time after its start in which garbage collections spare the staged files and the chunks of a job.
RETENTION: Final = LONGEST

#: Two drivers may begin the same job within this time. Each takes a lease, and the later lease stays.
_MARGIN_US: Final = timedelta(hours=1) // MICROSECOND
_log = logging.getLogger(__name__)


def place_of(branch: str, job: str) -> str:
    """Return the folder of a job below ``staging/``, a hash, because the id of a job can be any text."""
    return hashlib.sha256(f"{branch}\0{job}".encode()).hexdigest()[:24]


def take_lease(
    storage: Storage,
    place: str,
    since: int,
    started: int,
    purpose: str,
    *,
    name: str = "",
    resumes: bool = False,
) -> Lease:
    """Protect files that are not older than ``since`` until ``RETENTION`` after ``started``.

    Both times are microseconds since 1970, by this host's clock. ``purpose`` and ``name`` describe the job
    for people.

    A new job replaces the lease of an earlier job. A job that ``resumes`` only takes a lease if there is
    none, because the existing lease has the clock of the host that began the job.
    """
    until = started + RETENTION // MICROSECOND
    key = _lease_key(place)
    return Lease.take(storage, since - _MARGIN_US, until, key, purpose, name=name, only_if_absent=resumes)


def give_up(storage: Storage, place: str) -> None:
    """Delete the lease and all staged files of a job."""
    storage.delete([_lease_key(place)])
    storage.delete([info.key for info in storage.list(f"{STAGING}/{place}")])


def clean_up(storage: Storage, place: str) -> None:
    """Call ``give_up``. Files that the storage fails to delete become garbage."""
    with suppress(StorageError):
        give_up(storage, place)


def delete_abandoned(storage: Storage, older_than: int) -> int:
    """Delete the old staged files of jobs without a lease. Return the number of bytes."""
    files = abandoned(storage, older_than)
    if files:
        _log.info("deleted %d staged files of abandoned jobs", len(files))
        with suppress(StorageError):  # the next collection finds them again
            storage.delete([info.key for info in files])
    return sum(info.size for info in files)


def abandoned(storage: Storage, older_than: int) -> Sequence[ObjectInfo]:
    """Return the files that ``delete_abandoned`` would delete."""
    old = [info for info in storage.list(STAGING) if from_datetime(info.modified) < older_than]
    if not old:
        return []
    held = {info.key for info in storage.list(LEASES)}
    return [info for info in old if _lease_key(info.key.split("/")[1]) not in held]


def ends(started: int) -> int:
    """Return the time after which a job that started at ``started`` cannot be resumed, in microseconds."""
    return started + LIFETIME // MICROSECOND


def _lease_key(place: str) -> str:
    return f"{LEASES}/{JOB_LEASE}{place}"
