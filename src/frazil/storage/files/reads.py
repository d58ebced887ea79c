"""Reads of files that one system call may not complete, and the versions of bytes."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import Version
from frazil.storage.keys import range_past_end

if TYPE_CHECKING:
    from collections.abc import Buffer

#: Most bytes for one read or write system call. The kernel's own limit is just under 2 GiB.
CALL_BYTES: Final = 1 << 30


def read_large(descriptor: int, key: str, start: int, stop: int | None) -> bytes:
    """Return a range to the end of the object, or a range that one system call may not fill."""
    size = os.fstat(descriptor).st_size
    end = size if stop is None else min(stop, size)
    if start >= size and (start > 0 or stop is not None):
        raise range_past_end(key, start, size)
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, min(end - start, CALL_BYTES), start)
        if not part:
            raise StorageError(
                f"object {key!r} must have {end} bytes, but it ends at byte {start}", ErrorKind.IO
            )
        parts.append(part)
        start += len(part)
    if not parts:
        os.pread(descriptor, 1, 0)  # a directory can be opened and has a size, but this read fails
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_into(descriptor: int, start: int, out: memoryview) -> int:
    """Read bytes from byte ``start`` of a file into memory. Return their number."""
    length = 0
    while length < len(out):
        count = os.preadv(descriptor, [out[length : length + CALL_BYTES]], start + length)
        if not count:
            break
        length += count
    return length


def check_short_read(descriptor: int, key: str, start: int, length: int) -> None:
    """Raise ``StorageError`` unless the file ends after ``length`` bytes at ``start``."""
    size = os.fstat(descriptor).st_size
    if start >= size:
        raise range_past_end(key, start, size)
    if start + length != size:
        raise StorageError(
            f"short read of object {key!r}: got {length} bytes at byte {start} of {size} bytes",
            ErrorKind.IO,
        )


def version_of(*parts: Buffer) -> Version:
    """Return the version of an object with these bytes, in one or several parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Version(etag=digest.hexdigest())
