"""What a key is, and what a range is: checked once, here, for every storage.

A key is a relative path with ``/``: no empty, ``.`` or ``..`` segment, no NUL. A range is
``start <= i < stop`` with ``0 <= start < stop``; an open ``stop`` reads to the end, and only that form may
read an object with no bytes.
"""

from __future__ import annotations

import re
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError, StorageError

# One segment is anything without "/" and NUL that is not "." or "..".
_SEGMENT: Final = r"(?!\.{1,2}(?:/|\Z))[^/\0]+"
_is_key = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.DOTALL).fullmatch


def check_key(key: str) -> str:
    """``key`` itself, or ``InvalidInputError`` of kind ``bad-key-prefix``.

    >>> check_key("chunks/1CECHNKREP0F1RSTCMT0")
    'chunks/1CECHNKREP0F1RSTCMT0'
    >>> check_key("../secret")
    Traceback (most recent call last):
    frazil.errors.InvalidInputError: '../secret' is not a key: expected a relative path ...
    """
    if _is_key(key) is None:
        raise InvalidInputError(
            f"{key!r} is not a key: expected a relative path with no empty, '.' or '..' segment",
            ErrorKind.BAD_KEY_PREFIX,
        )
    return key


def check_prefix(prefix: str) -> str:
    """The prefix of a listing without its closing slash; '' is everything."""
    path = prefix.removesuffix("/")
    return check_key(path) if path else ""


def check_range(start: int, stop: int | None) -> None:
    """``InvalidInputError`` of kind ``invalid-byte-range`` unless ``0 <= start < stop``."""
    if start < 0 or (stop is not None and stop <= start):
        raise InvalidInputError(
            f"invalid byte range [{start}, {stop}): expected 0 <= start < stop",
            ErrorKind.INVALID_BYTE_RANGE,
        )


def object_not_found(key: str) -> StorageError:
    """The error of every storage for an object that is not there."""
    return StorageError(f"object {key!r} not found", ErrorKind.OBJECT_NOT_FOUND)


def range_past_end(key: str, start: int, size: int | None = None) -> StorageError:
    """The error of every storage for a range that begins at the object's end or after it."""
    length = "" if size is None else f" of {size} bytes"
    return StorageError(
        f"object {key!r}{length} has no byte at {start}: the range starts past its end",
        ErrorKind.OBJECT_STORE,
    )
