"""The replacement of a file: new files, a backup and the new bytes are flushed together.

A replacement waits for the disk twice, one after the other:

1. The new files, the backup and the new bytes of the file, which have a temporary name. All are written first
   and flushed at the same time, with their directories.
2. The directory of the file, after a rename has replaced the file.

A rename may become durable before its flush. The first step has flushed everything that the new bytes refer
to, so a power failure leaves either the old state or the new one.

The lock is held only for the comparison and the rename, not for a flush. So another writer may replace the
file before the second flush of the first writer. Its replacement contains the first one, and its backup is
the inode that the first writer has flushed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from frazil.storage.base import Refused, Storage, Stored
from frazil.storage.files.failures import MISSING_FILE, file_errors
from frazil.storage.files.locks import object_lock
from frazil.storage.files.process_state import FileStamp
from frazil.storage.files.reads import read_large, version_of
from frazil.storage.files.writes import NO_LINKS, UnnamedFile, temporary_name
from frazil.storage.local_commit import OpenReplacement, Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from frazil.storage.files.flusher import Flusher


class FileReplacement(OpenReplacement):
    """A replacement whose new bytes are durable in a file beside the old one."""

    __slots__ = ("_files", "_flusher", "_new")

    def __init__(
        self,
        storage: Storage,
        replacement: Replacement,
        files: ExitStack,
        new: UnnamedFile,
        flusher: Flusher,
    ) -> None:
        super().__init__(storage, replacement)
        self._files = files
        self._new = new
        self._flusher = flusher

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def finish(self) -> Stored | Refused:
        """See ``OpenReplacement.finish``."""
        replacement, path = self._replacement, self._new.path
        with file_errors(replacement.key, "write"):
            if not os.path.isfile(path):
                return Refused()
            with object_lock(path):
                if not _is_current(path, replacement):
                    return Refused()
                self._new.set_name()
            self._flusher.flush_names(os.path.dirname(path))
        self._flusher.note_flushed(path, self._new.stamp())
        return Stored(version_of(replacement.data))


def _is_current(path: str, replacement: Replacement) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except MISSING_FILE:
        return False
    try:
        current = read_large(descriptor, replacement.key, 0, None)
    finally:
        os.close(descriptor)
    return current == replacement.old or version_of(current) == replacement.version


def flush_all(
    files: Iterable[UnnamedFile],
    others: Iterable[Callable[[], None]],
    directories: Iterable[str],
    flusher: Flusher,
) -> None:
    """Flush files, and the names in directories, at the same time. ``others`` are further flushes."""
    flushes = [file.flush for file in files]
    flushes += others
    flushes += [partial(flush_names, directory, flusher) for directory in dict.fromkeys(directories)]
    flusher.flush_together(flushes)


def flush_names(directory: str, flusher: Flusher) -> None:
    """Make the names in a directory durable, with errors as ``StorageError``."""
    with file_errors(directory, "write"):
        flusher.flush_names(directory)


class BackupLink:
    """A second name for a file that has the expected bytes.

    ``is_linked`` is False if the file has other bytes, or if the file system has no links.
    """

    def __init__(self, source: str, target: str, data: memoryview, flusher: Flusher) -> None:
        self._flusher = flusher
        self._source = source
        self._descriptor = -1
        self.is_linked = False
        try:
            self._descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            self._status = os.fstat(self._descriptor)
            if self._status.st_size == len(data) and read_large(self._descriptor, source, 0, None) == data:
                self.is_linked = self._link(target)
        except OSError as error:
            if error.errno not in NO_LINKS and not isinstance(error, MISSING_FILE):
                self.__exit__()
                raise

    def __enter__(self) -> BackupLink:
        return self

    def __exit__(self, *error: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _link(self, target: str) -> bool:
        try:
            self._link_to(target)
        except FileExistsError:
            return self._replace(target)
        if self._is_open_file(target):
            return True
        os.unlink(target)
        return False

    def _is_open_file(self, name: str) -> bool:
        """Return whether ``name`` is the file that was compared. The inode of an open file is not reused."""
        return os.path.samestat(self._status, os.stat(name))

    def _replace(self, target: str) -> bool:
        """Link under a temporary name, and rename it to ``target``."""
        temporary = temporary_name(target)
        self._link_to(temporary)
        try:
            if not self._is_open_file(temporary):
                return False
            os.replace(temporary, target)
        finally:
            # A rename to another name of the same file has no effect, so the temporary name may still exist.
            with suppress(OSError):
                os.unlink(temporary)
        return True

    def _link_to(self, name: str) -> None:
        try:
            os.link(self._source, name)
        except FileNotFoundError:
            self._flusher.make_directory(os.path.dirname(name))
            os.link(self._source, name)

    def flushes(self) -> list[Callable[[], None]]:
        """Return the flush of the bytes.

        Another program may have written the file without a flush. No flush is needed for a file that this
        process has flushed.
        """
        stamp = FileStamp.of(self._status)
        is_flushed = self._flusher.is_flushed(self._source, stamp)
        return [] if is_flushed else [partial(self._flusher.flush_file, self._descriptor)]
