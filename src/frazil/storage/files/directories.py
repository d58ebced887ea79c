"""Directories: a writer creates them when they are missing, and writers share the flushes of them."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from frazil.storage.files.process_state import flush_directory_now, process_state

if TYPE_CHECKING:
    from collections.abc import Callable

#: Errors of a flush of a directory above the storage.
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})


def flush_directory(directory: str) -> None:
    """Make the names of the files in a directory durable. Threads that call it together share a flush.

    The first call of the process also makes the name of the directory durable. Another process may have
    created the directory, and may have been killed before its flush.
    """
    state = process_state()
    if directory not in state.named_directories:
        _flush_name_of(directory)
    state.directory_flush(directory).flush()


def _flush_name_of(directory: str) -> None:
    """Make the names of a directory and of all directories above it durable, each once in this process."""
    named = process_state().named_directories
    paths = []
    while directory not in named and os.path.dirname(directory) != directory:
        paths.append(directory)
        directory = os.path.dirname(directory)
    for path in paths:
        try:
            flush_directory_now(os.path.dirname(path))
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            break  # this process could not have created a directory there
    named.update(paths)


def make_directory(path: str, flush: Callable[[str], None]) -> None:
    """Create ``path`` and its missing parents. ``flush`` makes each entry durable in its parent."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent, flush)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush(parent)
