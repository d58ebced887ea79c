"""A cache on disk for the files of remote repositories: bounded, shared by processes, safe after ``kill -9``.

**What.** The files of the format below ``chunks/``, ``manifests/``, ``transactions/`` and ``snapshots/`` have
random ids and never change, so entries are never invalid. Expiration rewrites snapshots of spec version 1:
these are not cached. Every other key, and every other request, goes to the storage.

**Files.** A file of the cache has the blocks of one object, of 64 KiB each, and is sparse::

    0         size of the object in bytes, and its record; zeros if the size is not known
    16        one record for each block: zero if the block is not in the file, else its CRC-32 and ``_MARK``
    1 MiB     the blocks, each at its position in the object

A read that does not find all its blocks gets all of them from the storage, with one request, and writes them
before their records. All writers write the same bytes, so they need no lock. A block that does not match its
record is not used: the file is deleted, and the storage is read. So a power failure, a writer that was
killed, and a damaged disk cost a request and never an error. The checksums begin with that of the name of the
file, so the file of another object is noticed, too.

**Trust.** A process uses a folder that belongs to its user, and that no other user can write. It checks this
once, and files that belong to another user are not read. Without the folder, the storage is read.

A process compares a block again only if the time of the last change of the file differs. Each write, and the
stamp of the last use, which a read sets once in ten minutes, change this time.

**Limit.** Each writer appends a byte for each 16 KiB to the file ``usage``. Its length is an upper bound of
the bytes in the cache. The writer that exceeds the limit lists the files, deletes those that were not used
for longest down to 7/8 of the limit, and corrects ``usage``. A reader still has a deleted file open.
"""

from __future__ import annotations

import builtins
import hashlib
import logging
import os
import re
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, override

import numpy as np

from frazil import host
from frazil.arguments import checked, parse_bytes
from frazil.errors import InvalidInputError
from frazil.storage import system
from frazil.storage.base import ALWAYS, Condition, ObjectInfo, Refused, Storage, Stored, Version
from frazil.storage.checks import check_range, range_past_end
from frazil.storage.files import CALL_BYTES, file_errors

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from frazil.storage.settings import StorageSettings

#: Keys of files with ids. A name such as ``chunks/c/0``, which a Zarr store may have, is none.
_is_immutable: Final = re.compile(
    r"(?:chunks|manifests|transactions|snapshots)/[0-9A-HJKMNP-TV-Z]{20}"
).fullmatch
_SNAPSHOTS: Final = "snapshots/"
#: The byte of a file of the format that has its spec version.
_SPEC_VERSION: Final = 36
#: Names of files of the cache: a hash of the storage, and the key.
_is_entry: Final = re.compile(
    r"[0-9a-f]{16}-(?:chunks|manifests|transactions|snapshots)-[0-9A-HJKMNP-TV-Z]{20}"
).fullmatch
_USAGE: Final = "usage"
#: Files of another format have other names. They are deleted when they were not used for longest.
_FORMAT: Final = 2

_BLOCK: Final = 64 << 10
_RECORDS: Final = 16
_BLOCKS: Final = 1 << 20
#: The end of the last block that has a record, 8 GiB. Reads behind it are not cached.
_LARGEST: Final = (_BLOCKS - _RECORDS) // 8 * _BLOCK
#: A record of zeros would be that of no block.
_MARK: Final = 0x1CEB0C << 32
#: Bytes for each byte of the file ``usage``.
_UNIT: Final = 16 << 10
#: The time of the last use has this resolution, so that most reads write nothing.
_STAMP_SECONDS: Final = 600

#: Seconds. The clock of a file system may not tell two changes apart that follow each other at once.
_SETTLED_SECONDS: Final = 0.1
#: Files whose checked blocks a process remembers.
_MOST_CHECKED: Final = 10_000
_DEFAULT_LIMIT: Final = "10GB"
_log: Final = logging.getLogger(__name__)


class CachedStorage(Storage):
    """A storage whose immutable files are cached on disk, as ``cached_storage`` returns it.

    Args:
        inner: Storage that has the objects. It is also an attribute.
        folder: Folder of the cache. It is also an attribute.
        limit: Most bytes on disk. It is also an attribute.
    """

    def __init__(self, inner: Storage, folder: str, limit: int) -> None:
        self.inner = inner
        self.folder: Final = os.path.abspath(folder)
        self.limit = limit
        self.is_read_only: bool = inner.is_read_only
        self.is_whole_bucket: bool = inner.is_whole_bucket
        # The text has the place and the server, and no secrets.
        identity = hashlib.sha256(f"{_FORMAT}{inner!r}".encode()).hexdigest()[:16]
        self._stem = os.path.join(self.folder, f"{identity}-")
        self._process = 0
        #: Path -> the time of the last change of the file, and the blocks that were right since, as bits.
        self._checked: dict[str, tuple[int, int]] = {}
        self._is_warned = False

    def __repr__(self) -> str:
        return f"{self.inner!r}cache: {self.folder}\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return (CachedStorage, (self.inner, self.folder, self.limit))

    @override
    def label(self) -> str:
        return self.inner.label()

    @override
    def origin(self) -> Storage:
        return self.inner.origin()

    @override
    def encodes_names(self) -> bool:
        return self.inner.encodes_names()

    # reading

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        if not self._is_cached(key, start, stop):
            return self.inner.get(key, start, stop)
        data = self._read(key, start, stop)
        return (
            self._add(key, start, stop, self.inner.get(key, *_aligned(start, stop))) if data is None else data
        )

    @override
    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        if not self._is_cached(key, start, stop):
            return await self.inner.get_async(key, start, stop)
        data = self._read(key, start, stop)
        if data is not None:
            return data
        return self._add(key, start, stop, await self.inner.get_async(key, *_aligned(start, stop)))

    @override
    def get_into(self, key: str, start: int, out: memoryview) -> int:
        stop = start + len(out)
        if not self._is_cached(key, start, stop):
            return self.inner.get_into(key, start, out)
        data = self._read(key, start, stop, out)
        if data is None:
            data = self._add(key, start, stop, self.inner.get(key, *_aligned(start, stop)))
            out[: len(data)] = data
        return len(data)

    @override
    def is_at_hand(self, key: str, start: int, stop: int) -> bool:
        if not self._is_cached(key, start, stop):
            return self.inner.is_at_hand(key, start, stop)
        path = self._path(key)
        with suppress(OSError), _opened(path) as descriptor:
            size = _size(descriptor, _seed(path))
            return _stored_records(descriptor, start, stop, size) is not None
        return False

    def _is_cached(self, key: str, start: int, stop: int | None) -> bool:
        """Return whether a read may use the cache. In a forked child, the storage itself decides."""
        check_range(start, stop)
        process = os.getpid()
        self._process = self._process or process
        return (
            self._process == process
            and _is_immutable(key) is not None
            and (start if stop is None else stop) <= _LARGEST
            and (stop is None or stop - start <= CALL_BYTES)
            and _is_usable(self.folder)
        )

    def _path(self, key: str) -> str:
        return self._stem + key.replace("/", "-")

    def _read(
        self, key: str, start: int, stop: int | None, out: memoryview | None = None
    ) -> memoryview | None:
        """Return a range from the cache, read into ``out`` if there is one, or None."""
        path = self._path(key)
        is_right: bool | None = None
        with suppress(OSError), _opened(path) as descriptor:
            seed = _seed(path)
            size = _size(descriptor, seed)
            if size is not None:
                if start >= size and (start or stop is not None):
                    raise range_past_end(key, start, size)
                stop = size if stop is None else min(stop, size)
            if stop is None or stop - start > CALL_BYTES:
                return None
            out = memoryview(np.empty(stop - start, np.uint8)) if out is None else out[: stop - start]
            status = os.fstat(descriptor)
            age = host.time_us() / 1e6 - status.st_mtime
            blocks = (1 << -(-stop // _BLOCK)) - (1 << start // _BLOCK)
            stamp, checked = self._checked.get(path, (0, 0))
            if not _is_own(status):
                is_right = False
            elif stamp == status.st_mtime_ns and checked & blocks == blocks:
                is_right = system.files.read_into(descriptor, [out], _BLOCKS + start) == len(out)
            else:
                is_right = _read_blocks(descriptor, start, out, size, seed)
                if is_right and age > _SETTLED_SECONDS:
                    checked = checked if stamp == status.st_mtime_ns else 0
                    self._checked[path] = status.st_mtime_ns, checked | blocks
                    if len(self._checked) > _MOST_CHECKED:
                        self._checked.clear()
            if is_right and age > _STAMP_SECONDS:
                with suppress(OSError):  # the folder may be read only
                    os.utime(path)
        if is_right:
            return out
        if is_right is False:
            _log.warning("the cache file %s is damaged, or of another user. The storage is read", path)
            with suppress(OSError):
                system.files.unlink(path)
        return None

    def _add(self, key: str, start: int, stop: int | None, data: Buffer) -> memoryview:
        """Write blocks from the storage into the cache. Return the bytes of the range."""
        low, high = _aligned(start, stop)
        view = memoryview(data).cast("B")
        is_end = high is None or len(view) < high - low
        if start - low >= len(view) and (start or stop is not None):
            raise range_past_end(key, start, low + len(view))
        if not key.startswith(_SNAPSHOTS) or (
            not low and view[_SPEC_VERSION : _SPEC_VERSION + 1].tobytes() >= b"\2"
        ):
            try:
                self._write(self._path(key), low, view, is_end=is_end)
            except OSError as error:
                # once, because a full disk would give a warning for each read
                level, self._is_warned = logging.DEBUG if self._is_warned else logging.WARNING, True
                _log.log(level, "cannot write to the cache %s: %s", self.folder, error.strerror)
        return view[start - low : None if stop is None else stop - low]

    def _write(self, path: str, low: int, data: memoryview, *, is_end: bool) -> None:
        if low + len(data) > _LARGEST:
            return
        os.makedirs(self.folder, 0o700, exist_ok=True)
        self._count(len(data))
        seed = _seed(path)
        with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
            system.files.make_sparse(descriptor)
            _write_at(descriptor, _BLOCKS + low, data)
            blocks = (data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK))
            _write_at(
                descriptor,
                _RECORDS + low // _BLOCK * 8,
                _records(zlib.crc32(block, seed) for block in blocks),
            )
            if is_end:
                _write_at(descriptor, 0, _size_record(low + len(data), seed))

    # limit

    def _count(self, size: int) -> None:
        """Count bytes that are about to be written, and delete old files if they exceed the limit."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with _opened(os.path.join(self.folder, _USAGE), flags) as descriptor:
            os.write(descriptor, bytes(1 + -(-size // _UNIT)))
            is_full = os.fstat(descriptor).st_size * _UNIT > self.limit
            if is_full and system.files.lock(descriptor):  # otherwise another writer deletes files
                most = self.limit - self.limit // 8 - size
                os.ftruncate(descriptor, (size + _shrink(self.folder, most)) // _UNIT)
                system.files.unlock(descriptor)

    # other requests

    @override
    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        return self.inner.get_versioned(key)

    @override
    def head(self, key: str) -> ObjectInfo | None:
        return self.inner.head(key)

    @override
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix)

    @override
    def folders(self) -> builtins.list[str]:
        return self.inner.folders()

    @override
    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        return self._dropped(self.inner.put(key, data, condition), key)

    @override
    def put_parts(self, key: str, parts: Sequence[Buffer], condition: Condition = ALWAYS) -> Stored | Refused:
        return self._dropped(self.inner.put_parts(key, parts, condition), key)

    @override
    async def put_async(self, key: str, data: Buffer) -> Stored:
        return self._dropped(await self.inner.put_async(key, data), key)

    @override
    async def put_parts_async(self, key: str, parts: Sequence[Buffer]) -> Stored:
        return self._dropped(await self.inner.put_parts_async(key, parts), key)

    @override
    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        self.inner.backup(key, version, data, to)

    @override
    def delete(self, keys: Iterable[str]) -> None:
        every = [*keys]
        self.inner.delete(every)
        self._dropped(None, *every)

    def _dropped[T](self, answer: T, *keys: str) -> T:
        """Return an answer after a write. A repair writes a damaged file again, under its key."""
        for key in filter(_is_immutable, keys):
            with suppress(OSError):
                system.files.unlink(self._path(key))
        return answer

    @override
    def default_settings(self) -> StorageSettings:
        return self.inner.default_settings()

    @override
    def with_settings(self, settings: StorageSettings) -> CachedStorage:
        return CachedStorage(self.inner.with_settings(settings), self.folder, self.limit)

    @override
    def with_user_agent(self, user_agent: str) -> CachedStorage:
        return CachedStorage(self.inner.with_user_agent(user_agent), self.folder, self.limit)


@contextmanager
def _opened(path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = system.files.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        system.files.close(descriptor)


def _seed(path: str) -> int:
    """Return the checksum of the name of a file, with which the checksums of its blocks begin."""
    return zlib.crc32(os.path.basename(path).encode())


def _aligned(start: int, stop: int | None) -> tuple[int, int | None]:
    """Return the range of the blocks of a range."""
    return start // _BLOCK * _BLOCK, None if stop is None else -(-stop // _BLOCK) * _BLOCK


def _records(checksums: Iterable[int]) -> NDArray[np.uint64]:
    return np.array([*checksums], "<u8") | np.uint64(_MARK)


def _size_record(size: int, seed: int) -> bytes:
    data = size.to_bytes(8, "little")
    return data + _records([zlib.crc32(data, seed)]).tobytes()


def _size(descriptor: int, seed: int) -> int | None:
    """Return the size of the object of a file, or None if it is not known."""
    record = system.files.read_at(descriptor, _RECORDS, 0)
    size = int.from_bytes(record[:8], "little")
    return size if record == _size_record(size, seed) else None


def _stored_records(descriptor: int, start: int, stop: int, size: int | None) -> NDArray[np.uint64] | None:
    """Return the records of the blocks of a range, or None if one is missing."""
    first, last = start // _BLOCK, -(-min(stop, size or stop) // _BLOCK)
    data = system.files.read_at(descriptor, 8 * (last - first), _RECORDS + first * 8) if last > first else b""
    records = np.frombuffer(data, "<u8", len(data) // 8)
    return records if len(records) == last - first and records.all() else None


def _read_blocks(descriptor: int, start: int, out: memoryview, size: int | None, seed: int) -> bool | None:
    """Fill ``out`` with the bytes from ``start``. Return False for a damaged block, None for a missing one.

    The blocks are read whole, because each has one checksum; the bytes around the range go to other memory.
    """
    if not out:
        return True
    stop = start + len(out)
    if (records := _stored_records(descriptor, start, stop, size)) is None:
        return None
    low, count = start // _BLOCK * _BLOCK, len(records)
    high = min(low + count * _BLOCK, size or _LARGEST)
    before, after = bytearray(start - low), bytearray(high - stop)
    if system.files.read_into(descriptor, [before, out, after], _BLOCKS + low) < high - low:
        return False
    checksums = [zlib.crc32(before, seed)] + [seed] * (count - 1)
    for number, first in enumerate(range(low - start, len(out), _BLOCK)):
        checksums[number] = zlib.crc32(out[max(first, 0) : first + _BLOCK], checksums[number])
    checksums[-1] = zlib.crc32(after, checksums[-1])
    return bool((records == _records(checksums)).all())


def _write_at(descriptor: int, position: int, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        written = system.files.write_at(descriptor, view[:CALL_BYTES], position)
        view, position = view[written:], position + written


# ---- the folder


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file belongs to the user of this process. Windows has no numbers of users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


@cache
def _is_usable(folder: str) -> bool:
    """Create the folder, and return whether it can be trusted. It warns once in a process if not."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        status = os.stat(folder)
        problem = ""
        has_modes = hasattr(os, "geteuid")
        if not _is_own(status):
            problem = f"it belongs to another user ({status.st_uid}). Use another folder"
        elif status.st_mode & 0o022 and has_modes:
            problem = "other users can write to it, and may have changed files. Delete it, or use another"
        elif status.st_mode & 0o055 and has_modes:
            os.chmod(folder, 0o700)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        _log.warning("the cache folder %s is not used, and the storage is read: %s", folder, problem)
    return not problem


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """The number of objects in a cache, and its bytes on disk."""

    objects: int
    size_bytes: int


def cache_limit(size: int | str | None = None) -> int:
    """Return the most bytes of a cache. The environment has the default."""
    return parse_bytes(size if size is not None else os.environ.get("FRAZIL_CACHE_SIZE") or _DEFAULT_LIMIT)


def cache_usage(folder: str) -> CacheUsage:
    """Return what a folder of a cache contains."""
    with file_errors(folder, "list"):
        files = _files(folder)
    return CacheUsage(len(files), sum(size for _, size, _ in files))


def clear_cache(folder: str) -> CacheUsage:
    """Delete all files of a cache, and no others. Return what it contained. Readers need no notice."""
    usage = cache_usage(folder)
    with file_errors(folder, "delete"), suppress(FileNotFoundError):
        _shrink(folder, -1)
        os.truncate(os.path.join(folder, _USAGE), 0)
    return usage


def _files(folder: str) -> list[tuple[int, int, str]]:
    """Return the time of the last use, the bytes on disk, and the path of each file of a cache."""
    files: list[tuple[int, int, str]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as scan:
        for entry in scan:
            if _is_entry(entry.name):
                with suppress(FileNotFoundError):  # another process deletes files, too
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime_ns, system.files.disk_bytes(status), entry.path))
    return files


def _shrink(folder: str, most: int) -> int:
    """Delete the files that were not used for longest, down to ``most`` bytes. Return the rest."""
    files = _files(folder)
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            break
        with suppress(FileNotFoundError):
            system.files.unlink(path)
        total -= size
    return total


@checked
def cached_storage(storage: Storage, folder: str | PathLike[str], size: int | str | None = None) -> Storage:
    """Return a storage that keeps the files which it reads in a folder on this machine.

    The cache has the parts of chunk files, manifests, transaction logs and snapshots that were read. These
    files never change. Everything else, and every write, goes to the storage. Many processes and storages can
    share one folder, and pickles use the folder of the same path. The environment variable ``FRAZIL_CACHE``
    names the folder for all URLs.

    Args:
        storage: Storage that has the objects. A storage on this machine is returned as it is.
        folder: Folder of the cache, which is created at the first read. Only the user can read it. ``~`` at
            its start means the home directory. A folder that cannot be created, that belongs to another
            user, or to which others can write, is not used: each process warns once, and reads the storage.
        size: Most bytes on disk, as a number or a text such as ``"50GB"``. The files that were not used for
            longest are deleted. Default: the variable ``FRAZIL_CACHE_SIZE``, or 10 GB.

    Returns:
        The storage.

    Raises:
        InvalidInputError: ``invalid-argument`` if ``folder`` is a file, or for another size.

    Examples:
        >>> from frazil.storage import s3_storage
        >>> remote = s3_storage(bucket="ice", prefix="a", region="eu-west-1", anonymous=True)
        >>> cached_storage(remote, "cache", "50GB").label()
        's3://ice/a'
    """
    limit, path = cache_limit(size), os.path.abspath(os.path.expanduser(folder))
    if storage.is_local:
        return storage
    if os.path.isfile(path):
        raise InvalidInputError(f"the folder of a cache must be a directory, got the file {path!r}")
    return CachedStorage(storage.origin(), path, limit)
