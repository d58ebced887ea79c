"""Checks of what callers and storages do, and counts of requests.

Some servers accept the conditions of writes and ignore them. This stays hidden until two writers commit at
the same time: then one commit is lost although its writer gets a success. Therefore a new repository probes
its storage. Specification: *File Layout*, *Storage Operations*.
"""

from __future__ import annotations

import os
import re
from collections.abc import Buffer
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Final, override

from frazil import host
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, ReadOnlyError, StorageError
from frazil.storage.base import Condition, IfAbsent, IfVersion, Refused, Storage, Stored, Version
from frazil.threads import Purpose, map_bounded

# A segment is any text without "/" and NUL, except "." and "..".
_SEGMENT: Final = r"(?!\.{1,2}(?:/|\Z))[^/\0]+"
_is_key = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.DOTALL).fullmatch


def check_key(key: str) -> str:
    """Return ``key`` if it is valid."""
    if _is_key(key) is None:
        raise InvalidInputError(
            f"{key!r} is not a key: a key must be a relative path without empty, '.' and '..' segments",
            ErrorKind.BAD_KEY_PREFIX,
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix of a listing without the slash at its end. The empty string means all objects."""
    path = prefix.removesuffix("/")
    return check_key(path) if path else ""


def check_range(start: int, stop: int | None) -> None:
    """Raise ``InvalidInputError`` (``invalid-byte-range``) unless ``0 <= start < stop``."""
    if start < 0 or (stop is not None and stop <= start):
        raise InvalidInputError(
            f"a byte range must have 0 <= start < stop, got [{start}, {stop})", ErrorKind.INVALID_BYTE_RANGE
        )


def object_not_found(key: str) -> StorageError:
    """Return the error that every storage raises for a missing object."""
    return StorageError(f"object {key!r} not found", ErrorKind.OBJECT_NOT_FOUND)


def range_past_end(key: str, start: int, size: int | None = None) -> StorageError:
    """Return the error that every storage raises for a range that begins at the object's end or after it."""
    length = "" if size is None else f" of {size} bytes"
    return StorageError(f"object {key!r}{length} has no byte at {start}: the range starts after its end")


def read_only(storage: Storage) -> ReadOnlyError:
    """Return the error that every storage raises for a write to a storage that is read only."""
    return ReadOnlyError(f"{storage.label()} is read only. Use another storage", ErrorKind.READ_ONLY_STORAGE)


#: The kinds of errors of a storage that say something about the object.
_ABOUT_OBJECTS: Final = frozenset({ErrorKind.OBJECT_NOT_FOUND, ErrorKind.INVALID_BYTE_RANGE})


def is_outage(error: BaseException) -> bool:
    """Return whether an error says only that the storage did not answer a request."""
    return isinstance(error, StorageError) and error.kind not in _ABOUT_OBJECTS


class skip_damage(AbstractContextManager[None, bool]):  # noqa: N801  # like contextlib.suppress
    """Suppress the errors of missing and damaged objects in a block. Errors of ``is_outage`` pass."""

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return isinstance(error, IcechunkError) and not is_outage(error)


class skip_missing(AbstractContextManager[None, bool]):  # noqa: N801  # like contextlib.suppress
    """End a block quietly if an object does not exist (``object-not-found``)."""

    @override
    def __exit__(self, type_: object, error: object, traceback: object) -> bool:
        return isinstance(error, StorageError) and error.kind == ErrorKind.OBJECT_NOT_FOUND


def require_whole(storage: Storage, key: str, data: Buffer, version: Version | None = None) -> None:
    """Check that an answer has all bytes of an object. Callers do this before they call an object damaged."""
    info, size = storage.head(key), memoryview(data).nbytes
    if info is None or info.size == size:
        return
    if version is None or storage.get_versioned(key)[1] == version:
        raise StorageError(
            f"`{key}` has {info.size} bytes, got {size}. Read it again", ErrorKind.INVALID_OBJECT_SIZE
        )


_used_by: int | None = None


def enter_runtime() -> None:
    """Check the process. Every use of obstore calls this function first.

    obstore runs its requests on threads of one runtime per process. ``os.fork()`` copies the runtime but not
    its threads, so a call in the child would wait forever, on any store. A process that forks before the
    first use can use obstore, and so can a process that was started by spawn or forkserver.
    """
    global _used_by
    process = os.getpid()
    if _used_by != process:
        if _used_by is not None:
            raise forked_process(_used_by)
        _used_by = process


def forked_process(parent: int) -> StorageError:
    """Return the error of a storage that cannot work in this child of the process ``parent``."""
    return StorageError(
        f"this storage was used in process {parent} and then forked into process {os.getpid()}, where it "
        "cannot work. Start child processes with the 'spawn' or 'forkserver' method",
        ErrorKind.FORKED_PROCESS,
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """The number of requests, and of bytes as they are in the storage."""

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class TrafficCounter:
    """Counts of requests and bytes, which many threads can increase.

    All storages of a process share the counts. At its end, a task takes them and sends them to the driver, so
    that a job can report its cost. One request to a server counts once, without the retries of the client.
    One access to the file system also counts as one request.
    """

    __slots__ = ("_lock", "_read", "_requests", "_written")

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = self._read = self._written = 0

    def count(self, requests: int = 1, *, written: int = 0) -> None:
        """Count a request, and bytes that go to a storage."""
        with self._lock:
            self._requests += requests
            self._written += written

    def count_read[Data: Buffer](self, data: Data) -> Data:
        """Count bytes that came from a storage, and return them."""
        size = memoryview(data).nbytes
        with self._lock:
            self._read += size
        return data

    def take_counts(self) -> Traffic:
        """Return the counts since the last call of this method."""
        with self._lock:
            traffic = Traffic(self._requests, self._read, self._written)
            self._requests = self._read = self._written = 0
        return traffic


#: The counter of this process.
TRAFFIC: Final = TrafficCounter()


#: Prefix of the probe's objects.
PROBES: Final = "probe"


def probe_conditions(storage: Storage, prefix: str = PROBES) -> None:
    """Test whether a storage supports conditional writes.

    The function creates an object twice and then updates it twice with the same version. The storage must
    refuse the second create and the second update. The object is deleted at the end.

    Args:
        storage: Storage to test.
        prefix: Prefix of the key of the object. Default: ``probe``.

    Raises:
        StorageError: ``conditions-not-supported`` if the storage accepts a write that it must refuse, or
            refuses one that it must accept; another kind if a request fails.

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> probe_conditions(in_memory_storage())
    """
    offence = ""
    for _ in range(_PROBE_TRIES):
        offence = _refused_wrongly(storage, f"{prefix}/{host.random_bytes(10).hex()}")
        if not offence:
            return
    raise _not_supported(storage, f"{offence}, in each of {_PROBE_TRIES} attempts")


#: A proxy or a busy server may refuse a write by mistake. A server without conditions does so each time.
_PROBE_TRIES: Final = 8


def _refused_wrongly(storage: Storage, key: str) -> str:
    """Probe a storage with one object. Return what it refused by mistake, or an empty text."""

    def send(data: bytes, condition: Condition) -> Version | None:
        """Write the object. Return its version, or None if the write was refused."""
        answer = storage.put(key, data, condition)
        if isinstance(answer, Stored):
            return answer.version
        with skip_missing():  # the client repeats a write without an answer, and finds that of its first try
            stored, version = storage.get_versioned(key)
            return version if bytes(stored) == data else None
        return None

    try:
        first = send(b"first", IfAbsent())
        if first is None:
            return "the first create of a new object was refused"
        if isinstance(storage.put(key, b"second", IfAbsent()), Stored):
            raise _not_supported(storage, "a second conditional create of the same object succeeded")
        if send(b"third", IfVersion(first)) is None:
            return "the conditional update of a new object was refused"
        if isinstance(storage.put(key, b"fourth", IfVersion(first)), Stored):
            raise _not_supported(storage, "a conditional update with a stale version succeeded")
        return ""
    finally:
        storage.delete([key])


def create_and_probe(storage: Storage, first: tuple[str, bytes], second: tuple[str, bytes]) -> bool:
    """Create two files, and test by the first one whether a storage supports conditional writes.

    The function creates both files at the same time. Then it sends the first file twice again, at the same
    time: as a new object, and with the version of the second file. The storage must refuse both writes. A
    storage that accepts one of them stores the same bytes again.
    """

    def put(write: tuple[str, bytes, Condition]) -> Stored | Refused:
        return storage.put(*write)

    send = partial(map_bounded, Purpose.CATALOG_WRITES, put)
    match send([(*first, IfAbsent()), (*second, IfAbsent())]):
        case [Stored(version), Stored(other)] if other not in (version, Version()):
            stale = IfVersion(other)
        case _:
            return False
    again, replaced = send([(*first, IfAbsent()), (*first, stale)])
    if isinstance(again, Stored):
        raise _not_supported(storage, "a second conditional create of the same object succeeded")
    if isinstance(replaced, Stored):
        raise _not_supported(storage, "a conditional update with a stale version succeeded")
    return True


def _not_supported(storage: Storage, offence: str) -> StorageError:
    return StorageError(
        "the storage does not support conditional writes, so concurrent commits would be lost: "
        f"{offence}. Use another storage instead of {storage.label()}",
        ErrorKind.CONDITIONS_NOT_SUPPORTED,
    )
