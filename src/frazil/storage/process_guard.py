"""Detects a process that was forked after its parent had used obstore.

obstore runs its requests on threads of one runtime per process. ``os.fork()`` copies the runtime but not its
threads. A call in the child would therefore wait forever, on any store, also on a new one. For this reason
the mark belongs to the process and not to a store. The first use saves the process id, and a later use under
another id raises an error. A process that forks before the first use can use obstore, and so can a process
that was started by spawn or forkserver.
"""

from __future__ import annotations

import os

from frazil.errors import ErrorKind, StorageError

_used_by: int | None = None


def enter_runtime() -> None:
    """Check the process. Every use of obstore calls this function first."""
    global _used_by
    process = os.getpid()
    if _used_by != process:
        if _used_by is not None:
            raise forked_process(_used_by)
        _used_by = process


def forked_process(parent: int) -> StorageError:
    """Return the error of a storage that cannot work in this child of the process ``parent``."""
    return StorageError(
        f"this storage was used in process {parent} and then forked into process {os.getpid()}, where it "
        "cannot work. Start child processes with the 'spawn' or 'forkserver' method",
        ErrorKind.FORKED_PROCESS,
    )
