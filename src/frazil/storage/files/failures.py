"""The cause and the remedy of a failed call to the operating system, and the error of a local storage."""

from __future__ import annotations

import errno
from typing import Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.keys import object_not_found

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
