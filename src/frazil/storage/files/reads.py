"""Reads of files: large ones, those behind symbolic links, and the errors of the operating system.

A folder from an untrusted source may contain links to any file of the reader's machine. Therefore a file is
inside a folder only if its real path is below the real path of the folder. The folder itself may be a link,
or below one, because its owner chose that. The check examines the open file, so that another process cannot
replace a link between the check and the read. A hard link looks like the file itself, but only a user who can
write to both folders can create one.
"""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import Version
from frazil.storage.checks import object_not_found, range_past_end

if TYPE_CHECKING:
    from collections.abc import Buffer


#: Errors of the operating system for a path without a file.
MISSING_FILE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_PERMISSION: Final = (
    ErrorKind.STORAGE_PERMISSION,
    "permission denied: check the owner and the mode of the file and of its directories",
)
_FULL: Final = (ErrorKind.STORAGE_FULL, "no space left: free some space, or use another file system")
_REASONS: Final = {
    errno.ENOENT: (ErrorKind.IO, "there is no such file or directory: check the path"),
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: (
        ErrorKind.STORAGE_PERMISSION,
        "the file system is read only: mount it for writing, or use another directory",
    ),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: (ErrorKind.STORAGE_FULL, "the quota is used up: free some space, or raise the quota"),
    errno.ENOTDIR: (
        ErrorKind.IO,
        "a part of the path is a file, not a directory: remove the file, or use another path",
    ),
    errno.EISDIR: (ErrorKind.IO, "it is a directory, not a file"),
    errno.ENAMETOOLONG: (ErrorKind.IO, "the path is too long for this file system: use a shorter one"),
    errno.EMFILE: (ErrorKind.IO, "this process has too many open files: close some, or raise `ulimit -n`"),
    errno.ELOOP: (ErrorKind.IO, "its symbolic links form a loop"),
    errno.ESTALE: (ErrorKind.IO, "the file server has lost the file: mount the file system again"),
    errno.EIO: (ErrorKind.IO, "the device failed (EIO): see the log of the system"),
}


def reason_of(error: OSError) -> tuple[ErrorKind, str]:
    """Return the kind of an error of a file, and a text with the cause and the remedy."""
    return _REASONS.get(error.errno or 0) or (ErrorKind.IO, "the operating system refuses the request")


class FileErrors:
    """The context that ``file_errors`` returns. A generator would cost as much as the system call."""

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
            raise file_failure(self._key, self._verb, error) from error


def file_errors(key: str, verb: str) -> FileErrors:
    """Return a context that raises errors of the operating system as ``StorageError`` about ``key``."""
    return FileErrors(key, verb)


def file_failure(key: str, verb: str, error: OSError) -> StorageError:
    """Return the error about the object ``key`` for an error of the operating system."""
    kind, reason = reason_of(error)
    where = "" if error.filename is None else f" [{error.filename}]"
    return StorageError(f"could not {verb} {key!r}{where}: {reason} ({error.strerror})", kind)


#: Most bytes for one read or write system call. The kernel's own limit is just under 2 GiB.
CALL_BYTES: Final = 1 << 30


def read_large(descriptor: int, key: str, start: int, stop: int | None) -> bytes:
    """Return a range to the end of the object, or a range that one system call may not fill."""
    size = os.fstat(descriptor).st_size
    end = size if stop is None else min(stop, size)
    if start >= size and (start > 0 or stop is not None):
        raise range_past_end(key, start, size)
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, min(end - start, CALL_BYTES), start)
        if not part:
            raise StorageError(
                f"object {key!r} must have {end} bytes, but it ends at byte {start}", ErrorKind.IO
            )
        parts.append(part)
        start += len(part)
    if not parts:
        os.pread(descriptor, 1, 0)  # a directory can be opened and has a size, but this read fails
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_into(descriptor: int, start: int, out: memoryview) -> int:
    """Read bytes from byte ``start`` of a file into memory. Return their number."""
    length = 0
    while length < len(out):
        count = os.preadv(descriptor, [out[length : length + CALL_BYTES]], start + length)
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
        raise StorageError(
            f"short read of object {key!r}: got {length} bytes at byte {start} of {size} bytes",
            ErrorKind.IO,
        )


def version_of(*parts: Buffer) -> Version:
    """Return the version of an object with these bytes, in one or several parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Version(etag=digest.hexdigest())


def open_inside(path: str, folder: str) -> int:
    """Return a descriptor that reads the file at ``path``."""
    # Without O_NONBLOCK, opening a named pipe blocks until another process writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _require_inside(descriptor, path, folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_inside(descriptor: int, path: str, folder: str) -> None:
    real = _real_path(descriptor, path)
    # Most folders are not links, and `realpath` costs a system call for each part of the path.
    if not real.startswith(os.path.join(folder, "")) and not real.startswith(
        os.path.join(os.path.realpath(folder), "")
    ):
        raise StorageError(
            f"{path!r} must be a file inside {folder!r}, but it is a symbolic link, or below one, that leads "
            "out of it. If you trust the link, move the file into the folder, or pass the folder of the file",
            ErrorKind.LINK_OUTSIDE,
        )


def _real_path(descriptor: int, path: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # a system without /proc
        real = os.path.realpath(path)
        if not os.path.samestat(os.fstat(descriptor), os.stat(real)):
            raise StorageError(
                f"another process replaced {path!r} while Frazil opened it. Try again",
                ErrorKind.LINK_OUTSIDE,
            ) from None
        return real
