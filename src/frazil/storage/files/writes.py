"""Writes of whole files: durable, under their name in one step, with conditions, and several together.

The docstring of ``frazil.storage.local`` has the rules.

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

import errno
import os
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frazil import host
from frazil.storage.base import Refused, Storage, Stored
from frazil.storage.files import reads
from frazil.storage.files.flushes import FileStamp, object_lock
from frazil.storage.files.reads import MISSING_FILE, file_errors, read_large, version_of
from frazil.storage.local_commit import OpenReplacement, Replacement

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Iterable, Sequence

    from frazil.storage.base import Version
    from frazil.storage.files.flushes import Flusher


#: Errors of ``link`` on file systems without hard links.
NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
)


def write_and_name(
    path: str, parts: Iterable[memoryview], set_name: Callable[[str, str], None], flusher: Flusher
) -> None:
    """Write ``parts`` beside ``path``, make it durable, give it the name, and make the name durable."""
    temporary = temporary_name(path)
    try:
        descriptor = _open_new(temporary, flusher)
        try:
            for part in parts:
                _write_all(descriptor, part)
            flusher.flush_file(descriptor)
        finally:
            os.close(descriptor)
        set_name(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    flusher.flush_names(os.path.dirname(path))


class UnnamedFile:
    """A file that has all its bytes but not its name yet."""

    def __init__(self, path: str, key: str, data: Buffer, flusher: Flusher) -> None:
        self.path = path
        self._flusher = flusher
        self._key = key
        self._temporary = temporary_name(path)
        self._is_named = False
        with file_errors(key, "write"):
            self._descriptor = _open_new(self._temporary, flusher)
            try:
                _write_all(self._descriptor, memoryview(data).cast("B"))
            except BaseException:
                self.__exit__()
                raise

    def __enter__(self) -> UnnamedFile:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
        if not self._is_named:
            with suppress(OSError):
                os.unlink(self._temporary)

    def flush(self) -> None:
        """Make the bytes durable."""
        with file_errors(self._key, "write"):
            self._flusher.flush_file(self._descriptor)

    def set_name(self) -> None:
        """Give the file its name."""
        with file_errors(self._key, "write"):
            os.replace(self._temporary, self.path)
            self._is_named = True

    def stamp(self) -> FileStamp:
        """Return the stamp of the file."""
        return FileStamp.of(os.fstat(self._descriptor))


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data[: reads.CALL_BYTES]) :]


def create_file(path: str, parts: Sequence[memoryview], flusher: Flusher) -> bool:
    """Write a file under a free name. Return False if the name exists."""

    def link_name(temporary: str, name: str) -> None:
        os.link(temporary, name)
        os.unlink(temporary)

    def rename_if_free(temporary: str, name: str) -> None:
        with object_lock(name):
            if os.path.lexists(name):
                raise FileExistsError(name)
            os.replace(temporary, name)

    try:
        try:
            write_and_name(path, parts, link_name, flusher)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            write_and_name(path, parts, rename_if_free, flusher)
    except FileExistsError:
        return False
    return True


def update_file(
    path: str, parts: Sequence[memoryview], version: Version, flusher: Flusher
) -> Stored | Refused:
    """Replace a file if its bytes have this version."""
    if not os.path.isfile(path):
        return Refused()
    with object_lock(path):
        try:
            current = Path(path).read_bytes()
        except MISSING_FILE:
            return Refused()
        if version_of(current) != version:
            return Refused()
        write_and_name(path, parts, os.replace, flusher)
    return Stored(version_of(*parts))


def temporary_name(path: str) -> str:
    """Return a hidden name beside ``path`` that no other writer uses."""
    return f"{path}#{int.from_bytes(host.random_bytes(8)) | 1 << 63}"


def _open_new(path: str, flusher: Flusher) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        flusher.make_directory(os.path.dirname(path))
        return os.open(path, flags, 0o666)


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
