"""Functions that create a storage on this machine. They need no credentials and no client of a cloud."""

from __future__ import annotations

import os
from os import PathLike

from frazil.arguments import checked
from frazil.storage.base import Storage
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage


@checked
def in_memory_storage() -> Storage:
    """Return a new, empty storage in the memory of this process.

    For tests and examples. Threads of this process may share it. It cannot be unpickled in another process.

    Returns:
        The storage.

    Examples:
        >>> in_memory_storage()
        <frazil.Storage>
        type: in-memory
        <BLANKLINE>
    """
    return MemoryStorage()


@checked
def local_filesystem_storage(path: str | PathLike[str]) -> Storage:
    """Return a storage whose objects are files below a directory.

    The first write creates the directory. Any number of threads and processes on one machine can use it at
    the same time.

    Args:
        path: Path of the directory. ``~`` at its start means the home directory of the user.

    Returns:
        The storage.

    Examples:
        >>> local_filesystem_storage("/data/ice")
        <frazil.Storage>
        type: local filesystem
        path: /data/ice
        <BLANKLINE>
    """
    return LocalStorage(os.path.expanduser(path))
