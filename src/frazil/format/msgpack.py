"""MessagePack: the metadata values of spec version 1."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError, InvalidMetadataError

_MAX_DEPTH: Final = 128

#: First byte -> struct format of the following number.
NUMBERS: Final = dict(zip(range(0xCA, 0xD4), (f">{code}" for code in "fdBHIQbhiq"), strict=True))
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: First byte -> struct format of the following length, and the kind of the value.
SIZED: Final = {
    0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"),
    0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"),
    0xDC: (">H", "array"), 0xDD: (">I", "array"),
    0xDE: (">H", "map"), 0xDF: (">I", "map"),
}  # fmt: skip


def loads(data: bytes) -> Any:
    """Decode a value. Raise ``FormatError`` if the bytes are not exactly one value."""
    value, end = _value(data, 0, 0)
    if end != len(data):
        raise FormatError(f"{len(data) - end} bytes after a MessagePack value")
    return value


def loads_json(data: bytes) -> Any:
    """Decode a value, with None for numbers that JSON does not have, as in the reference implementation."""
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
    """Encode a JSON-like value, in the shortest form."""
    out = bytearray()
    _write(out, value, 0)
    return bytes(out)


def _write(out: bytearray, value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise unwritable(f"at most {_MAX_DEPTH} levels of nesting")
    if isinstance(value, np.ndarray | np.bool_ | np.integer | np.floating):
        value = value.tolist()
    if value is None or isinstance(value, bool):
        out.append({None: 0xC0, False: 0xC2, True: 0xC3}[value])
    elif isinstance(value, int):
        if -0x20 <= value < 0:
            out.append(value & 0xFF)
        else:
            kind = "int" if value < 0 else "uint"
            _write_head(out, value, 0, 0x80, kind, f"an integer of 64 bits, got {value}. Store text instead")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise unwritable(f"a finite number, got {value}. Store None or text instead")
        out += struct.pack(">Bd", 0xCB, value)
    elif isinstance(value, str):
        data = utf8(value)
        _write_head(out, len(data), 0xA0, 0x20, "text")
        out += data
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        _write_head(out, len(value), 0x90, 0x10, "array")
        for item in value:
            _write(out, item, depth + 1)
    elif isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise unwritable(f"text as keys, got {wrong[0]!r:.80}")
        _write_head(out, len(value), 0x80, 0x10, "map")
        for key in sorted(value):
            _write(out, key, depth + 1)
            _write(out, value[key], depth + 1)
    else:
        raise unwritable(
            f"None, bool, int, float, str, or a list or dict of these, as in JSON, got {type(value).__name__}"
        )


def utf8(text: str) -> bytes:
    """Return the bytes of text in metadata."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise unwritable(f"text that UTF-8 can encode, got {text!r:.80}") from None


def unwritable(expected: str) -> InvalidMetadataError:
    """Return the error for a value that metadata cannot contain."""
    return InvalidMetadataError(f"expected {expected}")


#: Kind -> the forms of a number or a size, shortest first: first byte and format.
_FORMS: Final = {
    "uint": ((0xCC, "B"), (0xCD, "H"), (0xCE, "I"), (0xCF, "Q")),
    "int": ((0xD0, "b"), (0xD1, "h"), (0xD2, "i"), (0xD3, "q")),
    "text": ((0xD9, "B"), (0xDA, "H"), (0xDB, "I")),
    "array": ((0xDC, "H"), (0xDD, "I")),
    "map": ((0xDE, "H"), (0xDF, "I")),
}


def _write_head(out: bytearray, number: int, small: int, end: int, kind: str, expected: str = "") -> None:
    """Write a number or a size: in the first byte if it is less than ``end``, or in the shortest form."""
    if 0 <= number < end:
        out.append(small | number)
        return
    for code, format_ in _FORMS[kind]:
        with suppress(struct.error):
            out += struct.pack(f">B{format_}", code, number)
            return
    raise unwritable(expected or f"values of up to 4 GiB, got one of {number} bytes or items")


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
    if first in NUMBERS:
        return _unpack(NUMBERS[first], data, at)
    if first < 0x90:
        length, kind = first & 0x0F, "map"
    elif first < 0xA0:
        length, kind = first & 0x0F, "array"
    elif first < 0xC0:
        length, kind = first & 0x1F, "text"
    elif first in SIZED:
        format_, kind = SIZED[first]
        length, at = _unpack(format_, data, at)
    else:
        raise FormatError(f"a JSON-like value must not have MessagePack type 0x{first:02x}")
    # Every element needs at least one byte, so a length cannot exceed the remaining bytes.
    if length > len(data) - at:
        raise FormatError(f"a MessagePack {kind} of length {length} in {len(data) - at} bytes")
    if depth >= _MAX_DEPTH:
        raise FormatError(f"MessagePack values must have at most {_MAX_DEPTH} levels of nesting, got more")
    if kind == "text":
        try:
            return data[at : at + length].decode(), at + length
        except UnicodeDecodeError as error:
            raise FormatError(f"MessagePack text is not UTF-8: {error}") from error
    if kind == "bytes":
        # JSON has no bytes. A vector of bytes becomes a list of numbers.
        return list(data[at : at + length]), at + length
    values = []
    for place in range(length if kind == "array" else 2 * length):
        value, at = _value(data, at, depth + 1)
        if kind == "map" and place % 2 == 0 and not isinstance(value, str):
            raise FormatError(f"a MessagePack map key must be text, got {value!r}")
        values.append(value)
    return values if kind == "array" else dict(zip(values[::2], values[1::2], strict=True)), at


def _unpack(format_: str, data: bytes, at: int) -> tuple[Any, int]:
    end = at + struct.calcsize(format_)
    if end > len(data):
        raise FormatError("a MessagePack number is cut off")
    return struct.unpack_from(format_, data, at)[0], end
