"""Directories: made when they are missing, and flushed once for all writers that wait for it."""

from __future__ import annotations

import os
from contextlib import suppress

from frazil.storage.files.failures import file_errors
from frazil.storage.files.process_state import flush_directory_now, process_state


def flush_directory(directory: str) -> None:
    """Make the names of the files in a directory durable. Threads that ask at the same time share a flush."""
    process_state().directory_flush(directory).flush()


def flush_names(directory: str) -> None:
    """``flush_directory``, which raises ``StorageError``."""
    with file_errors(directory, "write"):
        flush_directory(directory)


def make_directory(path: str) -> None:
    """Make ``path`` and its missing parents, each entry durable."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush_directory_now(parent)
