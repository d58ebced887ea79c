"""Files behind symbolic links.

A folder from an untrusted source may contain links to any file of the reader's machine. Therefore a file is
inside a folder only if its real path is below the real path of the folder. The folder itself may be a link,
or below one, because its owner chose that. The check examines the open file, so that another process cannot
replace a link between the check and the read. A hard link looks like the file itself, but only a user who can
write to both folders can create one.
"""

from __future__ import annotations

import os

from frazil.errors import ErrorKind, StorageError


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
