"""Functions that create a storage on this machine, with the names, arguments and defaults of the reference.

Processes that use local files need no clients of object stores and web servers, which ``constructors`` has.
"""

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
def local_filesystem_storage(path: str | PathLike[str], *, flush: bool = True) -> Storage:
    """Return a storage whose objects are files below a directory.

    The first write creates the directory. Any number of threads and processes on one machine can use it at
    the same time.

    Args:
        path: Path of the directory. ``~`` at its start means the home directory of the user.
        flush: Whether each write waits until its bytes are on the disk. Default: True.

            Warning: without it, a power cut or a crash of the operating system can lose or damage the last
            commits, although they were reported as done. It can also damage the file ``repo``, and then the
            repository does not open until it is repaired. The end of a process, even by ``kill -9``, loses
            nothing. Use it only for data that can be made again.

    Returns:
        The storage.

    Examples:
        >>> local_filesystem_storage("/scratch/ice", flush=False)
        <frazil.Storage>
        type: local filesystem
        path: /scratch/ice
        flush: False
        <BLANKLINE>
        >>> local_filesystem_storage("/data/ice")
        <frazil.Storage>
        type: local filesystem
        path: /data/ice
        <BLANKLINE>
    """
    return LocalStorage(os.path.expanduser(path), flush=flush)
