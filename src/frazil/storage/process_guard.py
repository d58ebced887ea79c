"""Notices a process that was forked after obstore was used.

obstore runs its requests on threads of one runtime per process. ``os.fork()`` copies the runtime but not
its threads, so every call in the child would wait for ever, on any store, even a new one. Hence the mark
is of the process, not of a store: the first use writes down the process id, and a later use under another
id raises. A process that forked before any use, or that was started by spawn or forkserver, is fine.
"""

from __future__ import annotations

import os

from frazil.errors import ErrorKind, StorageError

_used_by: int | None = None


def enter_runtime() -> None:
    """Call before every use of obstore.

    Raises ``StorageError`` of kind ``forked-process`` in a child forked after the parent's first use.
    """
    global _used_by
    process = os.getpid()
    if _used_by != process:
        if _used_by is not None:
            raise forked_process(_used_by)
        _used_by = process


def forked_process(parent: int) -> StorageError:
    """The error of a storage that cannot work in this child of ``parent``."""
    return StorageError(
        f"this storage was used in process {parent} and then forked into process {os.getpid()}, where it "
        "cannot work: start child processes with the 'spawn' or 'forkserver' method",
        ErrorKind.FORKED_PROCESS,
    )
