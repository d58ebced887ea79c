"""Files of a local storage: reads, durable writes and flushes, locks of objects, errors of the system.

**Links.** A folder from an untrusted source may contain links to any file of the reader's machine. Therefore
a file is inside a folder only if its real path is below the real path of the folder. The folder itself may be
a link, or below one, because its owner chose that. The check examines the open file, so that another process
cannot replace a link between the check and the read. A hard link looks like the file itself, but only a user
who can write to both folders can create one.

**Writers on one machine** share flushes of directories, and locks of objects. A local storage has one
``Flusher``: ``FLUSH`` makes writes durable, and is the default. ``NO_FLUSH`` leaves it to the operating
system when files reach the disk. The docstring of ``frazil.storage.local`` has the rules of writes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from frazil import host
from frazil.errors import ErrorKind, OutcomeUnknownError, StorageError
from frazil.storage import system
from frazil.storage.base import Version
from frazil.storage.checks import object_not_found, range_past_end
from frazil.threads import Purpose, after_fork, shared_pool

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence

# ---- errors

#: Errors of the operating system for a path without a file.
MISSING_FILE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_PERMISSION: Final = (
    ErrorKind.STORAGE_PERMISSION,
    "permission denied: check the owner and the mode of the file and of its directories",
)
_REASONS: Final = {
    errno.ENOENT: (ErrorKind.IO, "there is no such file or directory: check the path"),
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: (
        ErrorKind.STORAGE_PERMISSION,
        "the file system is read only: mount it for writing, or use another directory",
    ),
    errno.ENOSPC: (ErrorKind.STORAGE_FULL, "no space left: free some space, or use another file system"),
    errno.EDQUOT: (ErrorKind.STORAGE_FULL, "the quota is used up: free some space, or raise the quota"),
    errno.ENOTDIR: (
        ErrorKind.IO,
        "a part of the path is a file, not a directory: remove the file, or use another path",
    ),
    errno.EISDIR: (ErrorKind.IO, "it is a directory, not a file"),
    errno.ENAMETOOLONG: (ErrorKind.IO, "the path is too long for this file system: use a shorter one"),
    errno.EMFILE: (
        ErrorKind.PROCESS_LIMIT,
        "this process has too many open files: close some, or raise `ulimit -n`",
    ),
    errno.ENFILE: (ErrorKind.PROCESS_LIMIT, "this machine has too many open files: close some"),
    errno.ELOOP: (ErrorKind.IO, "its symbolic links form a loop"),
    errno.ESTALE: (ErrorKind.IO, "the file server has lost the file: mount the file system again"),
    errno.EIO: (ErrorKind.IO, "the device failed (EIO): see the log of the system"),
}


def reason_of(error: OSError) -> tuple[ErrorKind, str]:
    """Return the kind of an error of a file, and a text with the cause and the remedy."""
    return _REASONS.get(error.errno or 0) or (ErrorKind.IO, "the operating system refuses the request")


class file_errors:  # noqa: N801  # like contextlib.suppress; a generator would cost as much as a system call
    """Raise errors of the operating system in a block as ``StorageError`` about the object ``key``."""

    __slots__ = ("_key", "_verb")

    def __init__(self, key: str, verb: str) -> None:
        self._key = key
        self._verb = verb

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            if isinstance(error, MISSING_FILE) and self._verb == "read":
                raise object_not_found(self._key) from error
            kind, reason = reason_of(error)
            where = "" if error.filename is None else f" [{error.filename}]"
            text = f"could not {self._verb} {self._key!r}{where}: {reason} ({error.strerror})"
            raise StorageError(text, kind) from error


# ---- reads

#: Most bytes for one read or write system call. The kernel's own limit is just under 2 GiB.
CALL_BYTES: Final = 1 << 30


def read_range(descriptor: int, key: str, start: int, stop: int | None) -> bytes:
    """Return a range of an object from its open file. A range may end after the object."""
    if stop is not None and stop - start <= CALL_BYTES:
        data = system.files.read_at(descriptor, stop - start, start)
        if len(data) < stop - start:
            check_short_read(descriptor, key, start, len(data))
        return data
    size = os.fstat(descriptor).st_size
    end = size if stop is None else min(stop, size)
    if start >= size and (start > 0 or stop is not None):
        raise range_past_end(key, start, size)
    parts: list[bytes] = []
    while start < end:
        part = system.files.read_at(descriptor, min(end - start, CALL_BYTES), start)
        if not part:
            raise StorageError(f"object {key!r} must have {end} bytes, got {start}", ErrorKind.IO)
        parts.append(part)
        start += len(part)
    if not parts:
        system.files.read_at(
            descriptor, 1, 0
        )  # a directory can be opened and has a size, but this read fails
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_into(descriptor: int, start: int, out: memoryview) -> int:
    """Read bytes from byte ``start`` of a file into memory. Return their number."""
    length = 0
    while length < len(out):
        count = system.files.read_into(descriptor, [out[length : length + CALL_BYTES]], start + length)
        if not count:
            break
        length += count
    return length


def check_short_read(descriptor: int, key: str, start: int, length: int) -> None:
    """Raise ``StorageError`` unless the file ends after ``length`` bytes at ``start``."""
    size = os.fstat(descriptor).st_size
    if start >= size:
        raise range_past_end(key, start, size)
    if start + length != size:
        raise StorageError(f"short read of {key!r}: got {length} of {size} bytes, at {start}", ErrorKind.IO)


#: The bytes of a file that are compared at once.
_COMPARED: Final = 1 << 18


def version_of(*parts: Buffer) -> Version:
    """Return the version of an object with these bytes, in one or several parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Version(etag=digest.hexdigest())


def open_inside(path: str, folder: str) -> int:
    """Return a descriptor that reads the file at ``path``, which must be inside of ``folder``."""
    with ExitStack() as stack:
        descriptor = system.files.open(path, follow=True)
        stack.callback(system.files.close, descriptor)
        try:
            real = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # a system without /proc
            real = os.path.realpath(path)
            if not os.path.samestat(os.fstat(descriptor), os.stat(real)):
                raise StorageError(
                    f"another process replaced {path!r} during its open. Try again", ErrorKind.LINK_OUTSIDE
                ) from None
        # Most folders are not links, and `realpath` costs a system call for each part of the path.
        if not real.startswith(os.path.join(folder, "")) and not real.startswith(
            os.path.join(os.path.realpath(folder), "")
        ):
            raise StorageError(
                f"{path!r} must be a file inside {folder!r}, but it is a symbolic link, or below one, that "
                "leads out of it. If you trust the link, move the file into the folder, or pass the folder "
                "of the file",
                ErrorKind.LINK_OUTSIDE,
            )
        stack.pop_all()
    return descriptor


# ---- flushes

#: Number of files whose flushes the process remembers.
_MOST_STAMPS: Final = 64
#: Errors of a flush of a directory above the storage.
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})


class DirectoryFlush:
    """Flushes one directory. Writers that arrive during a flush share the next one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._requests = 0
        self._completed = 0

    def flush(self) -> None:
        """Return after a flush that began after this call."""
        with self._count:
            self._requests += 1
            ticket = self._requests
        with self._turn:
            if self._completed >= ticket:
                return
            with self._count:
                last_ticket = self._requests
            system.files.flush_directory(self._path)
            self._completed = last_ticket


#: What identifies the content of a file: its inode, size, and time of the last write.
_stamp: Final = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns")


class Flusher:
    """Flushes, which return when the data are durable. All writers of a process share them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with a new state. A forked child does so, because it has no threads of its parent."""
        self._guard = threading.Lock()
        self._directories: dict[str, DirectoryFlush] = {}
        #: Directories whose own names this process has made durable.
        self._named: set[str] = set()
        self._stamps: dict[str, object] = {}

    def flush_file(self, descriptor: int) -> None:
        """Make the bytes of an open file durable."""
        system.files.flush_file(descriptor)

    def flush_names(self, directory: str) -> None:
        """Make the names of the files in a directory durable. Threads that call it together share a flush.

        The first call of the process also makes the name of the directory durable. Another process may have
        created the directory, and may have been killed before its flush.
        """
        paths, above = [], directory
        while above not in self._named and os.path.dirname(above) != above:
            paths.append(above)
            above = os.path.dirname(above)
        for path in paths:
            try:
                system.files.flush_directory(os.path.dirname(path))
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    raise
                break  # this process could not have created a directory there
        self._named.update(paths)
        flush = self._directories.get(directory)
        if flush is None:
            flush = self._directories.setdefault(directory, DirectoryFlush(directory))
        flush.flush()

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents, with durable names."""
        if not os.path.isdir(path):
            parent = os.path.dirname(path)
            self.make_directory(parent)
            with suppress(FileExistsError):
                os.mkdir(path)
            system.files.flush_directory(parent)

    def flush_together(self, files: Iterable[tuple[str, int]], directories: Iterable[str]) -> None:
        """Flush open files, given with their keys, and names in directories, at the same time."""

        def flush(call: Callable[[Any], None], key: str, place: int | str) -> None:
            with file_errors(key, "write"):
                call(place)

        flushes: list[tuple[Callable[[Any], None], str, int | str]] = [
            *[(self.flush_file, key, descriptor) for key, descriptor in files],
            *[(self.flush_names, path, path) for path in dict.fromkeys(directories)],
        ]
        futures: list[Future[None]] = []
        try:
            futures.extend(shared_pool(Purpose.FLUSHES).submit(flush, *each) for each in flushes[1:])
            flush(*flushes[0])
        finally:
            wait(futures)
        for future in futures:
            future.result()

    def note_flushed(self, path: str, descriptor: int) -> None:
        """Record that the bytes of the open file at ``path`` are durable. An error costs a later flush."""
        with suppress(OSError), self._guard:
            stamp = _stamp(os.fstat(descriptor))
            self._stamps.pop(path, None)
            self._stamps[path] = stamp
            if len(self._stamps) > _MOST_STAMPS:
                del self._stamps[next(iter(self._stamps))]

    def is_flushed(self, path: str, descriptor: int) -> bool:
        """Return whether this process has made this content of the open file at ``path`` durable."""
        with suppress(OSError):
            return bool(self._stamps.get(path) == _stamp(os.fstat(descriptor)))
        return False


class _NoFlusher(Flusher):
    """Flushes that wait for no disk."""

    def flush_file(self, descriptor: int) -> None:
        """Raise the error of earlier writes: NFS sends them to its server when a descriptor is closed."""
        os.close(os.dup(descriptor))

    def flush_names(self, directory: str) -> None:
        pass

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def flush_together(self, files: Iterable[tuple[str, int]], directories: Iterable[str]) -> None:
        for key, descriptor in files:
            with file_errors(key, "write"):
                self.flush_file(descriptor)

    def note_flushed(self, path: str, descriptor: int) -> None:
        pass


FLUSH: Final = Flusher()
NO_FLUSH: Final = _NoFlusher()

# ---- locks

#: Seconds. No update takes this long, so a process that holds the lock longer is stopped.
LOCK_SECONDS: Final = 60.0
#: Seconds that a writer waits for its turn. Most commits take milliseconds.
TURN_SECONDS: Final = 1.0
#: The longest pause of a writer that waits for its turn, in seconds. With shorter pauses, the writers wake up
#: more often than commits end, and take processor time from the writer that has the turn. A writer that
#: returns with a new session usually finds the turn free, and sessions that are late by then wait.
_LONGEST_TURN_PAUSE: Final = 0.03
_LONGEST_LOCK_PAUSE: Final = 0.004

#: The locks between the threads of this process, by lock file.
_locks: dict[str, threading.Lock] = {}

after_fork(FLUSH.reset)
after_fork(_locks.clear)


@contextmanager
def object_lock(path: str, *, is_turn: bool = False) -> Iterator[None]:
    """Hold the lock of the object at ``path``. It excludes all other threads and processes.

    With ``is_turn``, the block is the turn of this writer among those that wait for a turn. A turn only saves
    work: without it, all writers but one would lose, and begin again. A writer that waits for more than
    ``TURN_SECONDS``, or that cannot create the lock file, continues without a turn.
    """
    lock_path = f"{os.path.realpath(path)}{'-turn' if is_turn else ''}#0"
    seconds = TURN_SECONDS if is_turn else LOCK_SECONDS
    deadline = host.monotonic_us() + round(seconds * 1e6)
    with ExitStack() as stack:
        is_locked = False
        thread_lock = _locks.get(lock_path) or _locks.setdefault(lock_path, threading.Lock())
        if thread_lock.acquire(timeout=seconds):
            stack.callback(thread_lock.release)
            try:
                descriptor = system.files.open(lock_path, os.O_RDWR | os.O_CREAT)
                stack.callback(system.files.close, descriptor)
                pause = _LONGEST_TURN_PAUSE if is_turn else _LONGEST_LOCK_PAUSE
                is_locked = _is_locked(descriptor, deadline, pause)
                if is_locked:
                    stack.callback(system.files.unlock, descriptor)
            except OSError:
                if not is_turn:
                    raise
        if not is_locked and not is_turn:
            raise _lock_timeout(lock_path)
        yield


def _is_locked(
    descriptor: int, deadline: int, longest_pause: float = _LONGEST_LOCK_PAUSE, *, by_process: bool = True
) -> bool:
    """Lock a file. Return False if another process still holds the lock at the deadline."""
    pause = 0.0001
    while not system.files.lock(descriptor, by_process=by_process):
        if host.monotonic_us() > deadline:
            return False
        # With a random pause, waiting processes do not try at the same moments.
        host.pause(pause * host.random_between(0.5, 1.5))
        pause = min(pause * 2, longest_pause)
    return True


@contextmanager
def locked_file(path: str) -> Iterator[int]:
    """Open the file at ``path``, and hold the lock of its inode. The caller holds the lock of the object.

    Other implementations lock the inode (``flock``), and replace the file under this lock. So after the lock
    the path may have another inode, and the lock of the old one means nothing. Where the file system has no
    such locks, the lock of the object remains.
    """
    deadline = host.monotonic_us() + round(LOCK_SECONDS * 1e6)
    while True:
        system.files.refresh_names(os.path.dirname(path))
        descriptor = system.files.open(path, follow=True)
        try:
            if system.files.renames_open_files and not _is_locked(descriptor, deadline, by_process=False):
                raise _lock_timeout(path)
            system.files.refresh_names(os.path.dirname(path))
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield descriptor
                return
        finally:
            if system.files.renames_open_files:  # a child that was forked meanwhile has the descriptor, too
                system.files.unlock(descriptor)
            system.files.close(descriptor)


def _lock_timeout(path: str) -> StorageError:
    return StorageError(
        f"could not lock {path!r} within {LOCK_SECONDS:.0f} s: another process holds it and may "
        "be stopped. Continue or end that process",
        ErrorKind.SEMAPHORE_ACQUIRE,
    )


# ---- writes

#: Errors of ``link`` on file systems without hard links. That of Windows is EINVAL.
NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK, errno.EINVAL}
)


#: Bytes of one write. With many MiB at once, Linux sometimes needs ten times the processor time.
_WRITE_BYTES: Final = 1 << 20


class NewFile:
    """A file of an object that has all its bytes, but still a temporary name next to its ``path``."""

    __slots__ = ("descriptor", "key", "path", "temporary")

    def __init__(self, key: str, path: str, parts: Iterable[memoryview], flusher: Flusher) -> None:
        self.key: Final = key
        self.path: Final = path
        # a hidden name that no other writer uses
        self.temporary = f"{path}#{int.from_bytes(host.random_bytes(8)) | 1 << 63}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self.descriptor = system.files.open(self.temporary, flags)
        except FileNotFoundError:
            flusher.make_directory(os.path.dirname(path))
            self.descriptor = system.files.open(self.temporary, flags)
        try:
            for part in parts:
                while part:
                    part = part[os.write(self.descriptor, part[:_WRITE_BYTES]) :]
        except BaseException:
            self.close()
            raise

    def rename(self) -> None:
        """Give the file its name."""
        if not system.files.renames_open_files:
            system.files.close(self.descriptor)
            self.descriptor = -1
        system.files.replace(self.temporary, self.path)
        self.temporary = ""
        if self.descriptor < 0:
            self.descriptor = system.files.open(self.path, system.files.flush_flags)

    def close(self) -> None:
        """Close the file, and remove its temporary name."""
        if self.descriptor >= 0:
            system.files.close(self.descriptor)
        if self.temporary:
            with suppress(OSError):
                system.files.unlink(self.temporary)


def flush_name(key: str, path: str, flusher: Flusher, undo: Callable[[], bool] = lambda: False) -> None:
    """Make the new name of an object durable. Try it again after an error.

    If the second flush fails, too, ``undo`` takes the name away, and the error is that of the flush. If
    ``undo`` returns False, a power failure decides whether the object stays: ``OutcomeUnknownError``.
    """
    folder = os.path.dirname(path)
    try:
        flusher.flush_names(folder)
    except OSError:
        try:
            flusher.flush_names(folder)
        except OSError as error:
            if undo():
                raise
            raise OutcomeUnknownError(
                f"{key!r} has its new content, but the disk refused twice to make its name durable: "
                f"{reason_of(error)[1]} ({error.strerror}). A power failure may lose the new content"
            ) from error


def write_file(
    key: str,
    path: str,
    parts: Iterable[memoryview],
    flusher: Flusher,
    set_name: Callable[[NewFile], None] = NewFile.rename,
    undo: Callable[[NewFile], bool] = lambda new: True,
) -> None:
    """Write a file, make it durable, give it its name, and make the name durable. See ``flush_name``."""
    with closing(NewFile(key, path, parts, flusher)) as new:
        flusher.flush_file(new.descriptor)
        set_name(new)
        flush_name(key, path, flusher, lambda: undo(new))


def create_file(key: str, path: str, parts: Sequence[memoryview], flusher: Flusher) -> bool:
    """Write a file under a free name. Return False if the name exists. After an error, the name is free."""

    def rename_if_free(new: NewFile) -> None:
        with object_lock(path):
            with suppress(*MISSING_FILE):
                os.lstat(path)  # its other errors do not mean that the name is free
                raise FileExistsError(path)
            new.rename()

    def remove(new: NewFile) -> bool:
        """Remove the name, unless another writer has replaced the file. Return whether the name is free."""
        is_removed = False
        with suppress(OSError, StorageError), object_lock(path), locked_file(path) as descriptor:
            if os.path.samestat(os.fstat(new.descriptor), os.fstat(descriptor)):
                system.files.unlink(path)
                is_removed = True
        return is_removed

    try:
        try:
            write_file(key, path, parts, flusher, lambda new: os.link(new.temporary, path), remove)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            write_file(key, path, parts, flusher, rename_if_free, remove)
    except FileExistsError:
        return False
    return True


def _has_bytes(descriptor: int, data: memoryview) -> bool:
    """Return whether an open file has these bytes. They are compared in blocks that fit in the cache."""
    if os.fstat(descriptor).st_size != len(data):
        return False
    for start in range(0, len(data), _COMPARED):
        # Python compares a memoryview byte by byte, and bytes with bytes at once.
        block = bytes(data[start : start + _COMPARED])
        if system.files.read_at(descriptor, len(block), start) != block:
            return False
    return True


def replace_file(path: str, version: Version, replace: Callable[[], None], old: Buffer | None = None) -> bool:
    """Call ``replace`` under the locks of an object if the object has this version. Return whether it had.

    ``old`` are the bytes of the version, if the caller has them: to compare them is faster than to hash them.
    """
    try:
        os.stat(path)  # its other errors do not mean that another writer was faster
    except MISSING_FILE:
        return False
    with object_lock(path):
        try:
            with ExitStack() as stack:
                descriptor = stack.enter_context(locked_file(path))
                is_same = old is not None and _has_bytes(descriptor, memoryview(old).cast("B"))
                is_same = is_same or version_of(read_range(descriptor, path, 0, None)) == version
                if not system.files.renames_open_files:
                    stack.close()
                if is_same:
                    replace()
                    return True
        except MISSING_FILE:
            return False
    return False


def link_file(stack: ExitStack, source: str, target: str, data: memoryview, flusher: Flusher) -> int | None:
    """Give a file with the bytes ``data`` the second name ``target``. Return its descriptor.

    None: the file has other bytes, or the file system has no links. The end of ``stack`` closes the file.
    """
    try:
        descriptor = system.files.open(source, system.files.flush_flags, follow=True)
        stack.callback(system.files.close, descriptor)
        if not _has_bytes(descriptor, data):
            return None
        name = ""
        while not name:
            try:
                os.link(source, target)
                name = target
            except FileNotFoundError:
                if os.path.isdir(os.path.dirname(target)):
                    raise  # the file itself is gone
                flusher.make_directory(os.path.dirname(target))
            except FileExistsError:
                if os.path.samestat(os.fstat(descriptor), os.stat(target)):
                    return descriptor  # this backup exists already
                if not system.files.renames_open_files:
                    return None
                name = f"{target}#{int.from_bytes(host.random_bytes(8)) | 1 << 63}"
                os.link(source, name)
        # Another writer may have replaced the file since. The inode of an open file is not reused.
        is_same = os.path.samestat(os.fstat(descriptor), os.stat(name))
        if is_same and name != target:
            os.replace(name, target)
        if not is_same or name != target:
            # A rename to another name of the same file has no effect, so the temporary name may still exist.
            with suppress(OSError):
                os.unlink(name)
        return descriptor if is_same else None
    except OSError as error:
        if error.errno not in NO_LINKS and not isinstance(error, MISSING_FILE):
            raise
    return None
