"""Directories: a writer creates them when they are missing, and writers share the flushes of them."""

from __future__ import annotations

import os
from contextlib import suppress

from frazil.storage.files.failures import file_errors
from frazil.storage.files.process_state import flush_directory_now, process_state


def flush_directory(directory: str) -> None:
    """Make the names of the files in a directory durable. Threads that call it together share a flush."""
    process_state().directory_flush(directory).flush()


def flush_names(directory: str) -> None:
    """Do the same as ``flush_directory``, with errors as ``StorageError``."""
    with file_errors(directory, "write"):
        flush_directory(directory)


def make_directory(path: str) -> None:
    """Create ``path`` and its missing parents, each entry durable."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush_directory_now(parent)
