"""MessagePack: the metadata values of snapshots of spec version 1.

One value fills the whole buffer. JSON-like values have no extension types, so these are refused. Map keys are
text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError, InvalidMetadataError

_MAX_DEPTH: Final = 128

#: First byte -> struct format of the following number.
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: First byte -> struct format of the following length, and the kind of the value.
_SIZED: Final = {
    0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"),
    0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"),
    0xDC: (">H", "array"), 0xDD: (">I", "array"),
    0xDE: (">H", "map"), 0xDF: (">I", "map"),
}  # fmt: skip


def loads(data: bytes) -> Any:
    """Decode a value. Raise ``FormatError`` if the bytes are not exactly one value.

    >>> loads(bytes.fromhex("9301a17881a16bf9"))
    [1, 'x', {'k': -7}]
    """
    value, end = _value(data, 0, 0)
    if end != len(data):
        raise FormatError(f"{len(data) - end} bytes after a MessagePack value")
    return value


def loads_json(data: bytes) -> Any:
    """Decode a value, with None for numbers that JSON does not have, as in the reference implementation.

    >>> loads_json(bytes.fromhex("9201cb7ff8000000000000"))
    [1, None]
    """
    return _as_json(loads(data))


def _as_json(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return list(map(_as_json, value))
        case dict():
            return {name: _as_json(item) for name, item in value.items()}
    return value


def dumps(value: Any) -> bytes:
    """Encode a JSON-like value, in the shortest form.

    >>> dumps([1, "x", {"k": -7}]).hex()
    '9301a17881a16bf9'
    """
    out = bytearray()
    _write(out, value, 0)
    return bytes(out)


def _write(out: bytearray, value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _unwritable(f"at most {_MAX_DEPTH} levels of nesting")
    if isinstance(value, np.ndarray | np.bool_ | np.integer | np.floating):
        value = value.tolist()
    if value is None or isinstance(value, bool):
        out.append({None: 0xC0, False: 0xC2, True: 0xC3}[value])
    elif isinstance(value, int):
        _write_int(out, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _unwritable(f"a finite number, got {value}. Store None or text instead")
        out += struct.pack(">Bd", 0xCB, value)
    elif isinstance(value, np.bool_ | np.integer | np.floating):
        _write(out, value.item(), depth)
    elif isinstance(value, str):
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise _unwritable(f"text that UTF-8 can encode, got {value!r:.80}") from None
        _write_size(out, len(data), 0xA0, 0x20, _TEXT_SIZES)
        out += data
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        _write_size(out, len(value), 0x90, 0x10, _ARRAY_SIZES)
        for item in value:
            _write(out, item, depth + 1)
    elif isinstance(value, Mapping):
        _write_size(out, len(value), 0x80, 0x10, _MAP_SIZES)
        for key, item in sorted(value.items(), key=lambda each: _text_key(each[0])):
            _write(out, key, depth + 1)
            _write(out, item, depth + 1)
    else:
        raise _unwritable(
            f"None, bool, int, float, str, or a list or dict of these, as in JSON, got {type(value).__name__}"
        )


def _unwritable(expected: str) -> InvalidMetadataError:
    return InvalidMetadataError(f"expected {expected}")


def _text_key(key: Any) -> str:
    if not isinstance(key, str):
        raise _unwritable(f"text as keys, got {key!r:.80}")
    return key


def _write_int(out: bytearray, value: int) -> None:
    if -0x20 <= value < 0x80:
        out.append(value & 0xFF)
        return
    for limits, code, format_ in _POSITIVE if value >= 0 else _NEGATIVE:
        if limits <= value if value < 0 else value < limits:
            out += struct.pack(f">B{format_}", code, value)
            return
    raise _unwritable(f"an integer of 64 bits, got {value}. Store text instead")


def _write_size(
    out: bytearray, size: int, small: int, small_end: int, sizes: tuple[tuple[int, int, str], ...]
) -> None:
    if size < small_end:
        out.append(small | size)
        return
    for end, code, format_ in sizes:
        if size < end:
            out += struct.pack(f">B{format_}", code, size)
            return
    raise _unwritable(f"values of up to 4 GiB, got one of {size} bytes or items")


# (end, first byte, format) of the forms for a number or a size, shortest first.
_POSITIVE: Final = ((1 << 8, 0xCC, "B"), (1 << 16, 0xCD, "H"), (1 << 32, 0xCE, "I"), (1 << 64, 0xCF, "Q"))
_NEGATIVE: Final = (
    (-(1 << 7), 0xD0, "b"),
    (-(1 << 15), 0xD1, "h"),
    (-(1 << 31), 0xD2, "i"),
    (-(1 << 63), 0xD3, "q"),
)
_TEXT_SIZES: Final = ((1 << 8, 0xD9, "B"), (1 << 16, 0xDA, "H"), (1 << 32, 0xDB, "I"))
_ARRAY_SIZES: Final = ((1 << 16, 0xDC, "H"), (1 << 32, 0xDD, "I"))
_MAP_SIZES: Final = ((1 << 16, 0xDE, "H"), (1 << 32, 0xDF, "I"))


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
        raise FormatError(f"a JSON-like value must not have MessagePack type 0x{first:02x}")
    # Every element needs at least one byte, so a length cannot exceed the remaining bytes.
    if length > len(data) - at:
        raise FormatError(f"a MessagePack {kind} of length {length} in {len(data) - at} bytes")
    if depth >= _MAX_DEPTH:
        raise FormatError(f"MessagePack values must have at most {_MAX_DEPTH} levels of nesting, got more")
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
        raise FormatError(f"MessagePack text is not UTF-8: {error}") from error


def _bytes(data: bytes, at: int, length: int, depth: int) -> tuple[Any, int]:
    # JSON has no bytes. A vector of bytes becomes a list of numbers.
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
            raise FormatError(f"a MessagePack map key must be text, got {key!r}")
        out[key], at = _value(data, at, depth)
    return out, at


_READERS: Final[dict[str, Callable[[bytes, int, int, int], tuple[Any, int]]]] = {
    "text": _text,
    "bytes": _bytes,
    "array": _array,
    "map": _map,
}
