"""Files that are reached through symbolic links.

A folder from an untrusted source may hold links to any file of the reader's machine. So a file counts as
inside of a folder only if its real path is below the real path of the folder. The folder itself may be a
link, or be below one: its owner chose that. The check examines the open file, so that another process cannot
replace a link between the check and the read. A hard link cannot be distinguished from the file itself; only
a user who can write to both folders can make one.
"""

from __future__ import annotations

import os

from frazil.errors import ErrorKind, StorageError


def open_inside(path: str, folder: str) -> int:
    """A descriptor that reads the file at ``path``.

    Raises ``StorageError`` (``link-outside``) if links lead out of ``folder``, and what ``os.open`` raises.
    """
    # Without O_NONBLOCK, to open a named pipe waits until somebody writes to it.
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
            f"{path!r} is a symbolic link, or below one, that leads out of {folder!r}: expected a file "
            "inside. If you trust the link, move the file into the folder, or give the folder of the file",
            ErrorKind.LINK_OUTSIDE,
        )


def _real_path(descriptor: int, path: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # a system without /proc
        real = os.path.realpath(path)
        if not os.path.samestat(os.fstat(descriptor), os.stat(real)):
            raise StorageError(
                f"another process replaced {path!r} while it was opened: expected the same file, found two",
                ErrorKind.LINK_OUTSIDE,
            ) from None
        return real
