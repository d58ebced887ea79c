"""Objects as files under a directory, safe between threads, between processes, and across ``kill -9``.

*Appearing whole.* Bytes go to a temporary file beside the object, are flushed to disk (``fsync``), and
then take the object's name in one step: ``os.replace``, or ``os.link`` if the name must be free. Last,
the directory is flushed, so that the name survives a power cut as well. No file is rewritten in place.

*Conditional create* is ``os.link``: the kernel refuses a name that is taken.

*Conditional update* must compare and replace as one act, and no system call does that. So there is a
permanent lock file beside the object, locked with ``fcntl.lockf``: the kernel drops that lock when its
owner dies, in whatever way, and it also works over NFS. It excludes processes only, hence a lock between
the threads of this process around it (closing *any* descriptor of a file drops the process's locks on it,
so no two threads may have it open).

*Versions* are SHA-256 of the bytes. Inode, time and size together are not enough: file systems reuse an
inode at once and their clocks tick in milliseconds.

*Hidden names.* Temporary and lock files are called ``<object>#<digits>``. The object_store crate, which
the reference lists directories with, takes such names for its own unfinished uploads and does not show
them either. What a killed writer leaves behind is such a file, and harmless.

*Links.* The root, and folders below it, may be symbolic links: administrators link folders to other disks. An
object that is a link is read if its target is a file below the root, and refused otherwise: a repository
from an untrusted source cannot make its reader open other files. A write replaces the link, never its target.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import threading
import time
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import batched
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.base import (
    ALWAYS,
    Always,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Storage,
    Stored,
    Version,
)
from frazil.storage.counted import COUNTS
from frazil.storage.file_failures import reason_of
from frazil.storage.keys import check_key, check_prefix, check_range, object_not_found, range_past_end
from frazil.storage.links import open_inside
from frazil.storage.settings import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
)
from frazil.threads import Purpose, shared_pool

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence

#: One read or write system call moves at most this much (the kernel's own limit is just under 2 GiB).
_CALL_BYTES: Final = 1 << 30
#: Hashing runs at 2 GB/s: for a pack of chunks, which nobody conditions on, that would be wasted.
_LARGEST_HASHED_ALWAYS: Final = 256 << 10
#: Files that are written before the first of them is flushed.
_OPEN_FILES: Final = 64
#: Longer than any update takes; a lock held this long belongs to a stopped process.
_LOCK_SECONDS: Final = 60.0

_is_hidden = re.compile(r".*#\d+", re.DOTALL).fullmatch
_NOT_THERE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
#: Errors of ``open`` with ``O_NOFOLLOW`` for a link.
_IS_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK})
#: What file systems without hard links answer to ``link``.
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
)


class LocalStorage(Storage):
    """Objects in the directory ``root``, which is made at the first write.

    >>> import tempfile
    >>> storage = LocalStorage(tempfile.mkdtemp())
    >>> stored = storage.put("repo", b"first", IfAbsent())
    >>> storage.put("repo", b"second", IfVersion(stored.version)) != Refused()
    True
    >>> storage.put("repo", b"third", IfVersion(stored.version))
    Refused()
    """

    is_local = True

    def encodes_names(self) -> bool:
        return True

    def __init__(self, root: str | os.PathLike[str], settings: StorageSettings | None = None) -> None:
        # Absolute once and for all: the process may change its working directory later.
        self._root = os.path.abspath(os.fspath(root))
        self._base = self._root.rstrip("/") + "/"
        self._settings = settings

    @property
    def root(self) -> Path:
        """The directory that holds the objects."""
        return Path(self._root)

    def __repr__(self) -> str:
        return f"<frazil.Storage>\ntype: local filesystem\npath: {self._root}\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return (LocalStorage, (self._root, self._settings))

    def place(self) -> str:
        if os.path.isdir(self._root):
            return f"the directory {self._root}"
        found = "is a file, not a directory" if os.path.exists(self._root) else "does not exist"
        return f"{self._root}, which {found}"

    def _path(self, key: str) -> str:
        check_key(key)
        if "#" in key and any(map(_is_hidden, key.split("/"))):
            raise InvalidInputError(
                f"{key!r} is not a key of a local storage: names that end in '#' and digits are reserved for "
                "unfinished files",
                ErrorKind.BAD_KEY_PREFIX,
            )
        return self._base + key

    # reading

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        check_range(start, stop)
        COUNTS.request()
        with _errors(key, "read"):
            descriptor = self._open(self._path(key))
            try:
                if stop is None or stop - start > _CALL_BYTES:
                    return COUNTS.read(_read_large(descriptor, key, start, stop))
                data = os.pread(descriptor, stop - start, start)
                if len(data) < stop - start:
                    _check_short_read(descriptor, key, start, len(data))
                return COUNTS.read(data)
            finally:
                os.close(descriptor)

    def _open(self, path: str) -> int:
        """Open an object. It may be a link to a file below the root; the kernel detects links at no cost."""
        try:
            # Without O_NONBLOCK, to open a named pipe waits until somebody writes to it.
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        return open_inside(path, self._root)

    def get_versioned(self, key: str) -> tuple[Buffer, Version]:
        data = self.get(key)
        return data, _version(data)

    def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        COUNTS.request()
        with _errors(key, "look up"):
            try:
                status = os.stat(path)
            except _NOT_THERE:
                return None
        return _info(key, status) if S_ISREG(status.st_mode) else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        path = check_prefix(prefix)
        COUNTS.request()
        return self._walk(f"{path}/" if path else "")

    def _walk(self, start: str) -> Iterator[ObjectInfo]:
        for inside, entry in self._files(start):
            if not _is_hidden(entry.name):
                with _errors(inside + entry.name, "list"):
                    try:
                        status = entry.stat()
                    except FileNotFoundError:  # deleted since the directory was read
                        continue
                if S_ISREG(status.st_mode):
                    yield _info(inside + entry.name, status)

    def _files(self, start: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        todo = [start]
        while todo:
            inside = todo.pop()
            with _errors(inside, "list"):
                try:
                    with os.scandir(self._base + inside) as scan:
                        entries = [*scan]
                except _NOT_THERE:
                    continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(f"{inside}{entry.name}/")
                else:
                    yield inside, entry

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        return self.get(key, start, stop)

    # writing

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        """Write a whole object.

        The version of an unconditional write of more than 256 KiB has no etag (it would have to be hashed);
        ``get_versioned`` tells it.
        """
        path = self._path(key)
        view = memoryview(data).cast("B")
        COUNTS.request()
        COUNTS.written(view)
        with _errors(key, "write"):
            match condition:
                case Always():
                    _write_and_name(path, view, os.replace)
                    hashed = len(view) <= _LARGEST_HASHED_ALWAYS
                    return Stored(_version(view) if hashed else Version())
                case IfAbsent():
                    created = not os.path.lexists(path) and _create(path, view)
                    return Stored(_version(view)) if created else Refused()
                case IfVersion(version):
                    return _update(path, view, version)

    def put_many(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        """All files are written and named, and then all are flushed at once.

        After a power cut in between, one may be there in part, under a name that nobody refers to.
        """
        for batch in batched(objects, _OPEN_FILES):
            self._put_batch(batch)

    def _put_batch(self, objects: Iterable[tuple[str, Buffer]]) -> None:
        with ExitStack() as opened:
            files = [opened.enter_context(_Unnamed(self._path(key), key, data)) for key, data in objects]
            for _, data in objects:
                COUNTS.request()
                COUNTS.written(data)
            for file in files:
                file.take_name()
            directories = {os.path.dirname(file.path): None for file in files}
            flushes = [file.flush for file in files]
            flushes += [partial(_flush_names, directory) for directory in directories]
            _process.flush_together(flushes)

    def backup(self, key: str, version: Version, data: Buffer, to: str) -> None:
        """See ``Storage.backup``: a second name for the same file, if that holds ``data``; else a copy."""
        target = self._path(to)
        view = memoryview(data).cast("B")
        COUNTS.request()
        with _errors(to, "write"):
            if not _link_if_equal(self._path(key), target, view):
                _write_and_name(target, view, os.replace)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            COUNTS.request()
            with _errors(key, "delete"), suppress(*_NOT_THERE):
                os.unlink(self._path(key))

    def delete_abandoned(self, before: datetime) -> int:
        """Delete the temporary files of writers that died before that time; how many there were."""
        count = 0
        for inside, entry in self._files(""):
            if _is_hidden(entry.name) and not entry.name.endswith("#0"):
                with _errors(inside + entry.name, "delete"), suppress(FileNotFoundError):
                    if entry.stat().st_mtime < before.timestamp():
                        os.unlink(entry.path)
                        count += 1
        return count

    async def put_async(self, key: str, data: Buffer) -> Stored:
        stored = self.put(key, data)
        assert isinstance(stored, Stored)  # nothing refuses an unconditional write
        return stored

    # settings

    def default_settings(self) -> StorageSettings:
        return StorageSettings(
            concurrency=StorageConcurrencySettings(
                max_concurrent_requests_for_object=5, ideal_concurrent_request_size=4096
            ),
            retries=StorageRetriesSettings(max_tries=1, initial_backoff_ms=0, max_backoff_ms=0),
            unsafe_use_conditional_update=False,
            unsafe_use_metadata=False,
        )

    def with_settings(self, settings: StorageSettings) -> LocalStorage:
        return LocalStorage(self._root, settings)


# reading


def _read_large(descriptor: int, key: str, start: int, stop: int | None) -> bytes:
    """A range to the end of the object, or one that a single system call may not fill."""
    size = os.fstat(descriptor).st_size
    end = size if stop is None else min(stop, size)
    if start >= size and (start > 0 or stop is not None):
        raise range_past_end(key, start, size)
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, min(end - start, _CALL_BYTES), start)
        if not part:
            raise StorageError(f"object {key!r} ended at byte {start}, expected {end}", ErrorKind.IO)
        parts.append(part)
        start += len(part)
    if not parts:
        os.pread(descriptor, 1, 0)  # a directory opens and has a size, but does not read
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_short_read(descriptor: int, key: str, start: int, found: int) -> None:
    size = os.fstat(descriptor).st_size
    if start >= size:
        raise range_past_end(key, start, size)
    if start + found != size:
        raise StorageError(
            f"short read of object {key!r}: {found} bytes at {start}, and it has {size}", ErrorKind.IO
        )


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _version(data: Buffer) -> Version:
    return Version(etag=hashlib.sha256(data).hexdigest())


# writing


def _write_and_name(path: str, data: memoryview, take_name: Callable[[str, str], None]) -> None:
    """Write ``data`` beside ``path``, make it durable, give it the name, make that durable."""
    temporary = _temporary_name(path)
    try:
        descriptor = _create_file(temporary)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        take_name(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(os.path.dirname(path))


class _Unnamed:
    """A file that is written, and waits for its name."""

    def __init__(self, path: str, key: str, data: Buffer) -> None:
        self.path = path
        self._key = key
        self._temporary = _temporary_name(path)
        self._is_named = False
        with _errors(key, "write"):
            self._descriptor = _create_file(self._temporary)
            try:
                _write_all(self._descriptor, memoryview(data).cast("B"))
            except BaseException:
                self.__exit__()
                raise

    def __enter__(self) -> _Unnamed:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
        if not self._is_named:
            with suppress(OSError):
                os.unlink(self._temporary)

    def flush(self) -> None:
        with _errors(self._key, "write"):
            os.fsync(self._descriptor)

    def take_name(self) -> None:
        with _errors(self._key, "write"):
            os.replace(self._temporary, self.path)
            self._is_named = True


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data[:_CALL_BYTES]) :]


def _create(path: str, data: memoryview) -> bool:
    """Whether the name was free."""

    def link(temporary: str, name: str) -> None:
        os.link(temporary, name)
        os.unlink(temporary)

    def rename_if_free(temporary: str, name: str) -> None:
        with _locked(name):
            if os.path.lexists(name):
                raise FileExistsError(name)
            os.replace(temporary, name)

    try:
        try:
            _write_and_name(path, data, link)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write_and_name(path, data, rename_if_free)
    except FileExistsError:
        return False
    return True


def _update(path: str, data: memoryview, version: Version) -> Stored | Refused:
    if not os.path.isfile(path):
        return Refused()
    with _locked(path):
        try:
            now = Path(path).read_bytes()
        except _NOT_THERE:
            return Refused()
        if _version(now) != version:
            return Refused()
        _write_and_name(path, data, os.replace)
    return Stored(_version(data))


def _link_if_equal(source: str, target: str, data: memoryview) -> bool:
    """Give the file ``source`` the second name ``target`` if its bytes are ``data``."""
    temporary = _temporary_name(target)
    try:
        _make_directory(os.path.dirname(target))
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            equal = status.st_size == len(data) and _read_large(descriptor, source, 0, None) == bytes(data)
            if equal:
                # Another program may have written it without. Before the link, which would make it dirty.
                os.fsync(descriptor)
                os.link(source, temporary)
                # The name may be another file by now. While this one is open, its inode is its own.
                equal = os.path.samestat(status, os.stat(temporary))
        finally:
            os.close(descriptor)
        if equal:
            os.replace(temporary, target)
    except OSError as error:
        if error.errno in _NO_LINKS or isinstance(error, _NOT_THERE):
            return False
        raise
    finally:
        # Renaming onto another name of the same file does nothing, so the temporary name may still be there.
        with suppress(OSError):
            os.unlink(temporary)
    if equal:
        _sync_directory(os.path.dirname(target))
    return equal


def _temporary_name(path: str) -> str:
    return f"{path}#{secrets.randbits(63) + (1 << 63)}"


def _create_file(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        _make_directory(os.path.dirname(path))
        return os.open(path, flags, 0o666)


# directories: made when missing, and flushed once for all the writers that wait for it


class _DirectorySync:
    """Flushes one directory. Writers that arrive while a flush runs share the next one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._asked = 0
        self._done = 0

    def sync(self) -> None:
        with self._count:
            self._asked += 1
            mine = self._asked
        with self._turn:
            if self._done >= mine:
                return
            with self._count:
                covered = self._asked
            _flush(self._path)
            self._done = covered


def _flush(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_names(directory: str) -> None:
    with _errors(directory, "write"):
        _sync_directory(directory)


def _make_directory(path: str) -> None:
    """Make ``path`` and its missing parents, each entry durable."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    _flush(parent)


def _sync_directory(path: str) -> None:
    with _process.guard:
        sync = _process.syncs.get(path)
        if sync is None:
            sync = _process.syncs[path] = _DirectorySync(path)
    sync.sync()


# locks


class _Process:
    """What the threads of this process share. A forked child begins with a new one."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.syncs: dict[str, _DirectorySync] = {}
        self.locks: dict[str, threading.Lock] = {}

    def flush_together(self, flushes: Sequence[Callable[[], None]]) -> None:
        """Flushes that wait for a disk at the same time take hardly longer than one."""
        if len(flushes) < 2:
            for flush in flushes:
                flush()
            return
        flushers = shared_pool(Purpose.FLUSHES)
        running = [flushers.submit(flush) for flush in flushes[1:]]
        try:
            flushes[0]()
        finally:
            wait(running)
        for each in running:
            each.result()


_process = _Process()


def _renew_process() -> None:
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_renew_process)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Alone with the object at ``path``, among all threads and processes that ask for the same."""
    lock_path = f"{os.path.realpath(path)}#0"
    with _process.guard:
        within = _process.locks.setdefault(lock_path, threading.Lock())
    deadline = time.monotonic() + _LOCK_SECONDS
    if not within.acquire(timeout=_LOCK_SECONDS):
        raise _lock_timeout(lock_path)
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            _lock_file(descriptor, lock_path, deadline)
            yield
        finally:
            os.close(descriptor)
    finally:
        within.release()


def _lock_file(descriptor: int, path: str, deadline: float) -> None:
    pause = 0.0001
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
        else:
            return
        if time.monotonic() > deadline:
            raise _lock_timeout(path)
        # A little chance keeps waiting processes from knocking in step.
        time.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
        pause = min(pause * 2, 0.004)


def _lock_timeout(path: str) -> StorageError:
    return StorageError(
        f"could not lock {path!r} within {_LOCK_SECONDS:.0f} s: another process holds it, and may be "
        "stopped. Continue or end that process",
        ErrorKind.SEMAPHORE_ACQUIRE,
    )


@contextmanager
def _errors(key: str, verb: str) -> Iterator[None]:
    """Turn what the operating system raises into errors of the contract."""
    try:
        yield
    except _NOT_THERE as error:
        if verb == "read":
            raise object_not_found(key) from error
        raise _failed(key, verb, error) from error
    except OSError as error:
        raise _failed(key, verb, error) from error


def _failed(key: str, verb: str, error: OSError) -> StorageError:
    kind, reason = reason_of(error)
    where = "" if error.filename is None else f" [{error.filename}]"
    return StorageError(f"could not {verb} {key!r}{where}: {reason} ({error.strerror})", kind)
