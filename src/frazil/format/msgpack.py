"""MessagePack, reading only: metadata values of snapshots of spec version 1.

One value fills the whole buffer. Extension types do not occur in JSON-like values and are refused. Map
keys are text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from frazil.errors import FormatError

_MAX_DEPTH: Final = 128

#: First byte -> struct format of a number that follows.
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: First byte -> struct format of the length that follows, and the kind of thing that has it.
_SIZED: Final = {
    0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"),
    0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"),
    0xDC: (">H", "array"), 0xDD: (">I", "array"),
    0xDE: (">H", "map"), 0xDF: (">I", "map"),
}  # fmt: skip


def loads(data: bytes) -> Any:
    """The value; ``FormatError`` if the bytes are not exactly one.

    >>> loads(bytes.fromhex("9301a17881a16bf9"))
    [1, 'x', {'k': -7}]
    """
    value, end = _value(data, 0, 0)
    if end != len(data):
        raise FormatError(f"{len(data) - end} bytes behind a MessagePack value")
    return value


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if at >= len(data):
        raise FormatError("a MessagePack value is cut off")
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        return _unpack(_NUMBERS[first], data, at)
    if first < 0x90:
        length, kind = first & 0x0F, "map"
    elif first < 0xA0:
        length, kind = first & 0x0F, "array"
    elif first < 0xC0:
        length, kind = first & 0x1F, "text"
    elif first in _SIZED:
        format_, kind = _SIZED[first]
        length, at = _unpack(format_, data, at)
    else:
        raise FormatError(f"MessagePack type 0x{first:02x} in a JSON-like value")
    # Every element needs a byte at least: a length cannot promise more than there is.
    if length > len(data) - at:
        raise FormatError(f"a MessagePack {kind} of length {length} in {len(data) - at} bytes")
    if depth >= _MAX_DEPTH:
        raise FormatError(f"MessagePack nested deeper than {_MAX_DEPTH}")
    return _READERS[kind](data, at, length, depth + 1)


def _unpack(format_: str, data: bytes, at: int) -> tuple[Any, int]:
    end = at + struct.calcsize(format_)
    if end > len(data):
        raise FormatError("a MessagePack number is cut off")
    return struct.unpack_from(format_, data, at)[0], end


def _text(data: bytes, at: int, length: int, depth: int) -> tuple[Any, int]:
    try:
        return data[at : at + length].decode(), at + length
    except UnicodeDecodeError as error:
        raise FormatError(f"MessagePack text that is not UTF-8: {error}") from error


def _bytes(data: bytes, at: int, length: int, depth: int) -> tuple[Any, int]:
    # JSON has no bytes; a list of numbers is what a byte vector means there.
    return list(data[at : at + length]), at + length


def _array(data: bytes, at: int, length: int, depth: int) -> tuple[Any, int]:
    out = []
    for _ in range(length):
        value, at = _value(data, at, depth)
        out.append(value)
    return out, at


def _map(data: bytes, at: int, length: int, depth: int) -> tuple[Any, int]:
    out = {}
    for _ in range(length):
        key, at = _value(data, at, depth)
        if not isinstance(key, str):
            raise FormatError(f"a MessagePack map key that is no text: {key!r}")
        out[key], at = _value(data, at, depth)
    return out, at


_READERS: Final[dict[str, Callable[[bytes, int, int, int], tuple[Any, int]]]] = {
    "text": _text,
    "bytes": _bytes,
    "array": _array,
    "map": _map,
}
