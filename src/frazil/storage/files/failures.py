"""Why a call to the operating system failed: a cause and a remedy, and the error of a local storage."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.keys import object_not_found

#: What the operating system raises for a path without a file.
MISSING_FILE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_PERMISSION: Final = (
    ErrorKind.STORAGE_PERMISSION,
    "permission denied: check the owner and the mode of the file and of its directories",
)
_FULL: Final = (ErrorKind.STORAGE_FULL, "no space left: free some, or use another file system")
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
    errno.ELOOP: (ErrorKind.IO, "its symbolic links lead in a circle"),
    errno.ESTALE: (ErrorKind.IO, "the file server does not know the file any more: mount it again"),
    errno.EIO: (ErrorKind.IO, "the device failed (EIO): look into the log of the system"),
}


def reason_of(error: OSError) -> tuple[ErrorKind, str]:
    """The kind of an error of a file, and its cause with a remedy."""
    return _REASONS.get(error.errno or 0) or (ErrorKind.IO, "the operating system refuses it")


@contextmanager
def file_errors(key: str, verb: str) -> Iterator[None]:
    """Raise the errors of the operating system as ``StorageError`` about the object ``key``."""
    try:
        yield
    except MISSING_FILE as error:
        if verb == "read":
            raise object_not_found(key) from error
        raise _failure(key, verb, error) from error
    except OSError as error:
        raise _failure(key, verb, error) from error


def _failure(key: str, verb: str, error: OSError) -> StorageError:
    kind, reason = reason_of(error)
    where = "" if error.filename is None else f" [{error.filename}]"
    return StorageError(f"could not {verb} {key!r}{where}: {reason} ({error.strerror})", kind)
