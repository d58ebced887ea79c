"""Checks of keys and ranges, for all storages.

A key is a relative path with ``/``, without an empty, ``.`` or ``..`` segment and without NUL. A range is
``start <= i < stop`` with ``0 <= start < stop``. If ``stop`` is None, the range ends at the end of the
object. Only such a range can be read from an object without bytes.

Specification: *File Layout*.
"""

from __future__ import annotations

import re
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError, StorageError

# A segment is any text without "/" and NUL, except "." and "..".
_SEGMENT: Final = r"(?!\.{1,2}(?:/|\Z))[^/\0]+"
_is_key = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.DOTALL).fullmatch


def check_key(key: str) -> str:
    """Return ``key`` if it is valid."""
    if _is_key(key) is None:
        raise InvalidInputError(
            f"{key!r} is not a key: a key must be a relative path without empty, '.' and '..' segments",
            ErrorKind.BAD_KEY_PREFIX,
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix of a listing without the slash at its end. The empty string means all objects."""
    path = prefix.removesuffix("/")
    return check_key(path) if path else ""


def check_range(start: int, stop: int | None) -> None:
    """Raise ``InvalidInputError`` (``invalid-byte-range``) unless ``0 <= start < stop``."""
    if start < 0 or (stop is not None and stop <= start):
        raise InvalidInputError(
            f"a byte range must have 0 <= start < stop, got [{start}, {stop})",
            ErrorKind.INVALID_BYTE_RANGE,
        )


def object_not_found(key: str) -> StorageError:
    """Return the error that every storage raises for a missing object."""
    return StorageError(f"object {key!r} not found", ErrorKind.OBJECT_NOT_FOUND)


def range_past_end(key: str, start: int, size: int | None = None) -> StorageError:
    """Return the error that every storage raises for a range that begins at the object's end or after it."""
    length = "" if size is None else f" of {size} bytes"
    return StorageError(
        f"object {key!r}{length} has no byte at {start}: the range starts after its end",
        ErrorKind.OBJECT_STORE,
    )
