"""What differs between operating systems: opens, reads, locks, renames and flushes of files, and their names.

Every call whose meaning differs goes through ``files``, which has the functions of this system.

**Windows.** The C library opens files without ``FILE_SHARE_DELETE``. So nobody can rename, replace or delete
a file that a process has open: the call fails with ``PermissionError``. Frazil opens files for milliseconds,
and repeats such a call until the file is free. It closes its own descriptor before a rename. A lock is that
of one byte, which no other program can read or write meanwhile, so the byte is far behind the end of the
file. Nothing flushes a directory.

**macOS.** ``fsync`` does not empty the cache of the disk. ``F_FULLFSYNC`` does.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, override
from urllib.parse import quote

from frazil import host
from frazil.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Sequence

#: Seconds that a call waits for other processes to close a file on Windows.
PATIENCE_SECONDS: Final = 3.0


class System:
    """The functions of one operating system. Errors are ``OSError``, as of the functions of ``os``."""

    #: Whether a file can be renamed, replaced and deleted while it is open.
    renames_open_files: bool = True
    #: Flags that open a file so that ``flush_file`` accepts it.
    flush_flags: int = os.O_RDONLY
    #: Whether the URL of a file may name another machine: ``file://server/share``.
    has_remote_files: bool = False

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666, *, follow: bool = False) -> int:
        """Open a file. Without ``follow``, a link raises ``ELOOP``. A named pipe does not block."""
        raise NotImplementedError

    def read_at(self, descriptor: int, length: int, position: int) -> bytes:
        """Return bytes of a file from a position. No other thread may use the descriptor."""
        raise NotImplementedError

    def read_into(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Read bytes of a file into buffers. Return their number."""
        raise NotImplementedError

    def write_at(self, descriptor: int, data: Buffer, position: int) -> int:
        """Write bytes at a position of a file. Return their number."""
        raise NotImplementedError

    def lock(self, descriptor: int, *, by_process: bool = False) -> bool:
        """Lock a file against other descriptors or processes. Return False if another one has the lock.

        True also means that the file system has no locks of descriptors.
        """
        raise NotImplementedError

    def unlock(self, descriptor: int) -> None:
        """Release a lock before the descriptor is closed, where the system does not do so at once."""

    def replace(self, source: str, target: str) -> None:
        """Rename a file. The target may exist."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Delete a file."""
        os.unlink(path)

    def close(self, descriptor: int) -> None:
        """Close a file. An error means nothing: written bytes were flushed, and the descriptor is free."""
        with suppress(OSError):
            os.close(descriptor)

    def flush_file(self, descriptor: int) -> None:
        """Make the bytes of a file durable."""
        os.fsync(descriptor)

    def flush_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def refresh_names(self, path: str) -> None:
        """Let a network file system ask its server whether the names in a directory have changed."""

    def disk_bytes(self, status: os.stat_result) -> int:
        """Return an upper bound of the bytes that a file takes on the disk."""
        return status.st_size

    def make_sparse(self, descriptor: int) -> None:
        """Let the parts of an empty file that nobody writes take no space."""

    def check_name(self, key: str) -> None:
        """Raise ``InvalidInputError`` if no file of this system can have the name ``key``."""

    def file_url(self, path: str) -> str:
        """Return the URL of an absolute path."""
        return f"file://{quote(path)}"

    def path_of_url(self, server: str, path: str) -> str:
        """Return the path of a file from the server and the decoded path of its URL."""
        return path


#: A lock is on this byte of a file. The C library locks only bytes below 2 GiB.
_LOCK_BYTE: Final = 1 << 30
#: Arguments of ``msvcrt.locking``: ``LK_NBLCK`` and ``LK_UNLCK``.
_LOCK: Final = 2
_UNLOCK: Final = 0
#: Errors of ``flock`` on a file system that has no such locks, or only for files that are open for writing.
_NO_FLOCK: Final = frozenset(
    {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
)
#: Errors of a lock that another descriptor holds.
_HELD: Final = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
#: Names that no file of Windows can have, and characters with another meaning there.
_FORBIDDEN: Final = re.compile(
    r'[<>:"|?*\\\x00-\x1f]|[. ](?:/|\Z)|'
    r"(?:\A|/)(?:con|prn|aux|nul|con(?:in|out)\$|(?:com|lpt)[1-9¹²³]) *(?:[./]|\Z)",
    re.IGNORECASE,
)
_DRIVE: Final = re.compile(r"/([A-Za-z]:)(?:[/\\]|\Z)")
#: Prefixes of paths that may be longer than 260 characters -> those of the same short paths.
_LONG_PATHS: Final = {"//?/UNC/": "//", "//?/": ""}


class WindowsSystem(System):
    """Windows, with ``msvcrt.locking``."""

    renames_open_files = False
    flush_flags: int = os.O_RDWR  # FlushFileBuffers needs the right to write
    has_remote_files = True

    def __init__(
        self, locking: Callable[[int, int, int], object], set_sparse: Callable[[int], object] = id
    ) -> None:
        self._locking = locking
        self._set_sparse = set_sparse

    @override
    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666, *, follow: bool = False) -> int:
        if not follow and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link", path)
        flags |= getattr(os, "O_BINARY", 0)  # without it, the C library changes the ends of lines
        try:
            return os.open(path, flags, mode)
        except PermissionError:
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, "it is a directory", path) from None
        # Another process has deleted or is replacing the file.
        return _patiently(lambda: os.open(path, flags, mode))

    @override
    def read_at(self, descriptor: int, length: int, position: int) -> bytes:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, length)

    @override
    def read_into(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        total = 0
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            file.seek(position)
            for buffer in buffers:
                size = file.readinto(buffer)
                total += size
                if size < len(buffer):
                    break
        return total

    @override
    def write_at(self, descriptor: int, data: Buffer, position: int) -> int:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, data)

    @override
    def lock(self, descriptor: int, *, by_process: bool = False) -> bool:
        os.lseek(descriptor, _LOCK_BYTE, os.SEEK_SET)
        return _is_free(lambda: self._locking(descriptor, _LOCK, 1))

    @override
    def unlock(self, descriptor: int) -> None:
        os.lseek(descriptor, _LOCK_BYTE, os.SEEK_SET)
        self._locking(descriptor, _UNLOCK, 1)

    @override
    def replace(self, source: str, target: str) -> None:
        _patiently(lambda: os.replace(source, target))

    @override
    def unlink(self, path: str) -> None:
        _patiently(lambda: os.unlink(path))

    @override
    def make_sparse(self, descriptor: int) -> None:
        self._set_sparse(descriptor)

    @override
    def check_name(self, key: str) -> None:
        if _FORBIDDEN.search(key) is not None:
            raise InvalidInputError(
                f"{key!r} must be the name of a file on Windows: without the characters "
                '< > : " | ? * and \\, without a dot or a space at the end of a part, and without names of '
                "devices such as CON and NUL. Use another name, or an object store",
                ErrorKind.BAD_KEY_PREFIX,
            )

    @override
    def file_url(self, path: str) -> str:
        path = path.replace("\\", "/")
        for prefix, short in _LONG_PATHS.items():
            path = short + path.removeprefix(prefix) if path.startswith(prefix) else path
        place = quote(path, safe="/:")
        return f"file:{place}" if path.startswith("//") else f"file:///{place.removeprefix('/')}"

    @override
    def path_of_url(self, server: str, path: str) -> str:
        if server not in ("", "localhost"):
            return f"//{server}{path}"
        return path[1:] if _DRIVE.match(path) else path


def _patiently[T](call: Callable[[], T]) -> T:
    """Call a function again while another process has the file open, for ``PATIENCE_SECONDS`` at most."""
    deadline = host.monotonic_us() + round(PATIENCE_SECONDS * 1e6)
    pause = 0.0005
    while True:
        try:
            return call()
        except PermissionError:
            if host.monotonic_us() > deadline:
                raise
        host.pause(pause * host.random_between(0.5, 1.5))
        pause = min(pause * 2, 0.03)


def _is_free(lock: Callable[[], object]) -> bool:
    """Call the function ``lock``. Return False if another descriptor holds the lock."""
    try:
        lock()
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True


if sys.platform == "win32":
    import ctypes
    import msvcrt

    def _set_sparse(descriptor: int) -> None:
        """Send ``FSCTL_SET_SPARSE``. File systems without sparse files refuse it, which does no harm."""
        size = ctypes.c_uint32()
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        ctypes.WinDLL("kernel32").DeviceIoControl(
            handle, ctypes.c_uint32(0x900C4), None, 0, None, 0, ctypes.byref(size), None
        )

    files: System = WindowsSystem(msvcrt.locking, _set_sparse)
else:
    import fcntl

    class Posix(System):
        """Linux, and other systems with the calls of POSIX."""

        @override
        def open(
            self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666, *, follow: bool = False
        ) -> int:
            # Without O_NONBLOCK, opening a named pipe blocks until another process writes to it.
            return os.open(path, flags | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW), mode)

        @override
        def read_at(self, descriptor: int, length: int, position: int) -> bytes:
            return os.pread(descriptor, length, position)

        @override
        def read_into(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
            return os.preadv(descriptor, buffers, position)

        @override
        def write_at(self, descriptor: int, data: Buffer, position: int) -> int:
            return os.pwrite(descriptor, data, position)

        @override
        def lock(self, descriptor: int, *, by_process: bool = False) -> bool:
            call = fcntl.lockf if by_process else fcntl.flock
            try:
                return _is_free(lambda: call(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except OSError as error:
                if by_process or error.errno not in _NO_FLOCK:
                    raise
            return True

        @override
        def unlock(self, descriptor: int) -> None:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)

        @override
        def flush_directory(self, path: str) -> None:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self.flush_file(descriptor)
            finally:
                self.close(descriptor)

        @override
        def refresh_names(self, path: str) -> None:
            # A client of NFS trusts the names that it has for 30 s and more, unless the directory is opened.
            with suppress(OSError):
                os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

        @override
        def disk_bytes(self, status: os.stat_result) -> int:
            return status.st_blocks * 512

    class MacOS(Posix):
        """macOS."""

        @override
        def flush_file(self, descriptor: int) -> None:
            try:
                fcntl.fcntl(descriptor, _FULL_FLUSH)
            except OSError:  # a file system on another machine
                os.fsync(descriptor)

    #: ``F_FULLFSYNC``, which the module ``fcntl`` of other systems does not have.
    _FULL_FLUSH: Final = 51

    files: Final = MacOS() if sys.platform == "darwin" else Posix()
