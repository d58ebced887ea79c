"""Reads of files that a single system call may not complete, and the versions of their bytes."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import Version
from frazil.storage.keys import range_past_end

if TYPE_CHECKING:
    from collections.abc import Buffer

#: One read or write system call moves at most this much (the kernel's own limit is just under 2 GiB).
CALL_BYTES: Final = 1 << 30


def read_large(descriptor: int, key: str, start: int, stop: int | None) -> bytes:
    """A range to the end of the object, or one that a single system call may not fill."""
    size = os.fstat(descriptor).st_size
    end = size if stop is None else min(stop, size)
    if start >= size and (start > 0 or stop is not None):
        raise range_past_end(key, start, size)
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, min(end - start, CALL_BYTES), start)
        if not part:
            raise StorageError(f"object {key!r} ended at byte {start}, expected {end}", ErrorKind.IO)
        parts.append(part)
        start += len(part)
    if not parts:
        os.pread(descriptor, 1, 0)  # a directory opens and has a size, but does not read
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check_short_read(descriptor: int, key: str, start: int, length: int) -> None:
    """Raise ``StorageError`` unless ``length`` bytes at ``start`` are all that the file has."""
    size = os.fstat(descriptor).st_size
    if start >= size:
        raise range_past_end(key, start, size)
    if start + length != size:
        raise StorageError(
            f"short read of object {key!r}: {length} bytes at {start}, and it has {size}", ErrorKind.IO
        )


def version_of(data: Buffer) -> Version:
    """The version of an object with these bytes."""
    return Version(etag=hashlib.sha256(data).hexdigest())
