"""Flushes of a local storage: files, names in directories, and several of them together.

A local storage has one ``Flusher``. ``FLUSH`` makes writes durable, and is the default. ``NO_FLUSH`` leaves
it to the operating system when files reach the disk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from frazil.storage.files.directories import flush_directory, make_directory
from frazil.storage.files.process_state import FileStamp, flush_directory_now, process_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Flusher:
    """Flushes, which return when the data are durable."""

    __slots__ = ()

    def flush_file(self, descriptor: int) -> None:
        """Make the bytes of an open file durable."""
        os.fsync(descriptor)

    def flush_names(self, directory: str) -> None:
        """Make the names of the files in a directory durable, and the name of the directory itself."""
        flush_directory(directory)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents, with durable names."""
        make_directory(path, flush_directory_now)

    def flush_together(self, flushes: Sequence[Callable[[], None]]) -> None:
        """Run flushes at the same time."""
        process_state().flush_together(flushes)

    def note_flushed(self, path: str, stamp: FileStamp) -> None:
        """Record that the bytes of the file at ``path`` are durable."""
        process_state().note_flushed(path, stamp)

    def is_flushed(self, path: str, stamp: FileStamp) -> bool:
        """Return whether this content of the file at ``path`` is durable, as far as this process knows."""
        return process_state().is_flushed(path, stamp)


class _NoFlusher(Flusher):
    """Flushes that do nothing."""

    __slots__ = ()

    def flush_file(self, descriptor: int) -> None:
        pass

    def flush_names(self, directory: str) -> None:
        pass

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def flush_together(self, flushes: Sequence[Callable[[], None]]) -> None:
        pass

    def note_flushed(self, path: str, stamp: FileStamp) -> None:
        pass


FLUSH: Final = Flusher()
NO_FLUSH: Final = _NoFlusher()
