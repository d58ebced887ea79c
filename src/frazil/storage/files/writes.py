"""Writes of whole files: durable, under their name in one step, and with conditions.

The docstring of ``frazil.storage.local`` has the rules.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frazil import host
from frazil.storage.base import Refused, Stored
from frazil.storage.files import reads
from frazil.storage.files.failures import MISSING_FILE, file_errors
from frazil.storage.files.locks import object_lock
from frazil.storage.files.process_state import FileStamp
from frazil.storage.files.reads import version_of

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Iterable, Sequence

    from frazil.storage.base import Version
    from frazil.storage.files.flusher import Flusher

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
