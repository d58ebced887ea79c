"""Local files that virtual chunks refer to."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, override
from urllib.parse import unquote, urlsplit

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.files import reads
from frazil.storage.files.links import open_inside
from frazil.storage.foreign.base import ForeignObjects, ForeignRange, fetch_errors, outside_prefix
from frazil.storage.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Buffer


@dataclass(slots=True)
class ForeignFiles(ForeignObjects):
    """Local files below the path of ``url_prefix``, or otherwise below ``path``.

    Links to files outside of that folder are refused: see ``frazil.storage.files.links``.
    """

    url_prefix: str
    path: str

    @override
    def _read(self, byte_range: ForeignRange) -> Buffer:
        with fetch_errors(byte_range.url):
            descriptor = open_inside(*self._path_and_folder(byte_range.url))
            try:
                if byte_range.has_conditions:
                    status = os.fstat(descriptor)
                    byte_range.check_object(file_etag(status), status.st_mtime)
                return TRAFFIC.count_read(_read_all(descriptor, byte_range))
            finally:
                os.close(descriptor)

    @override
    async def _read_async(self, byte_range: ForeignRange) -> Buffer:
        return self._read(byte_range)

    @override
    def size(self, url: str) -> int:
        with fetch_errors(url):
            descriptor = open_inside(*self._path_and_folder(url))
            try:
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

    def _path_and_folder(self, url: str) -> tuple[str, str]:
        """Return the path of a file, and the folder that must contain it."""
        base = _url_path(self.url_prefix).rstrip("/") + "/"
        path = _url_path(url)
        if not path.startswith(base):
            raise outside_prefix(url, self.url_prefix)
        if self.path and not os.path.exists(path):
            folder = self.path.removeprefix("file://")
            return os.path.join(folder, path[len(base) :]), folder
        return path, base


def _url_path(url: str) -> str:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or "//" in path or "\0" in path:
        raise InvalidInputError(
            f"a file URL must be file:///path without empty segments, got {url!r}",
            ErrorKind.INVALID_VIRTUAL_REF,
        )
    return posixpath.normpath(path)


def file_etag(status: os.stat_result) -> str:
    """Return the etag of a file, as the object_store crate computes it: inode, time in us, and size."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


def _read_all(descriptor: int, byte_range: ForeignRange) -> bytes:
    parts: list[bytes] = []
    at = byte_range.start
    while at < byte_range.stop:
        part = os.pread(descriptor, min(byte_range.stop - at, reads.CALL_BYTES), at)
        if not part:
            raise byte_range.too_short(at)
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
