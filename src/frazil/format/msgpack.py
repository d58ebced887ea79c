"""MessagePack: the metadata values of spec version 1, as values, and the files of older formats, as columns.

A *token* is a value, or the head of an array or map, whose members follow. The position of the next token can
be computed for every byte of a block, as if a token began there. The real tokens are found by jumping: one
gather leads from the first k tokens to the next k. The sum of the number of members, less one, of each token
falls by one, for the first time, at the end of each member of a container.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError, InvalidMetadataError
from frazil.format.columns import I64, U8, U64, Ragged, windows

_MAX_DEPTH: Final = 128

#: First byte -> struct format of the following number.
_NUMBERS: Final = dict(zip(range(0xCA, 0xD4), (f">{code}" for code in "fdBHIQbhiq"), strict=True))
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: First byte -> struct format of the following length, and the kind of the value.
_SIZED: Final = {
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


_BLOCK: Final = 1 << 15
#: Limits the memory for a hostile file. A reference has about ten tokens.
MAX_TOKENS: Final = 1 << 28
_PADDING: Final = 16

NIL: Final = 0xC0

# By first byte: the bytes of the token without its content; the bytes of the number that is its size.
_HEAD = np.ones(256, np.int32)
_SIZE = np.zeros(256, np.int8)
for _code, (_format, _) in _SIZED.items():
    _SIZE[_code] = struct.calcsize(_format)
    _HEAD[_code] = 1 + _SIZE[_code]
for _code, _format in _NUMBERS.items():
    _HEAD[_code] = 1 + struct.calcsize(_format)
_FIXED = np.zeros(256, np.int32)  # bytes of content, if the first byte defines them
_FIXED[0xA0:0xC0] = np.arange(32)
_IS_SUPPORTED = np.ones(256, np.bool_)
_IS_SUPPORTED[[0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9)]] = False
#: Kind -> whether a token with this first byte is of the kind.
_KINDS: Final = {
    kind: np.isin(np.arange(256), [*short, *(code for code, (_, other) in _SIZED.items() if other == kind)])
    for kind, short in (
        ("bytes", ()), ("text", range(0xA0, 0xC0)), ("array", range(0x90, 0xA0)), ("map", range(0x80, 0x90)),
    )
}  # fmt: skip
_HAS_CONTENT = _KINDS["bytes"] | _KINDS["text"]
#: Unsigned numbers: first byte -> bytes of the number.
_WIDTHS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


class Tokens:
    """All n tokens of one value, by their position. Damaged values raise ``FormatError``."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data + bytes(_PADDING), np.uint8)
        self._starts = _starts(self._data, len(data))
        #: uint8 (n,), the first byte.
        self.code: U8 = self._data[self._starts]
        if not _IS_SUPPORTED[self.code].all():
            strange = int(self.code[~_IS_SUPPORTED[self.code]][0])
            raise FormatError(f"MessagePack type 0x{strange:02x} is not used in these formats")
        #: int64 (n,), the members of an array, twice the number of keys of a map, 0 for a plain value.
        self.members: Final = self._members()
        self._balance = np.cumsum(self.members - 1)
        if not len(self) or self._balance[-1] != -1 or (self._balance[:-1] < 0).any():
            raise FormatError("expected one whole MessagePack value")

    def __len__(self) -> int:
        return len(self._starts)

    def children(self, token: int, end: int | None = None) -> I64:
        """Return the first token of each member. ``end`` is a token after all members, if one is known."""
        count = int(self.members[token])
        if not count:
            return np.zeros(0, np.int64)
        low = np.minimum.accumulate(self._balance[token:end])
        ends = np.flatnonzero(low[1:] < low[:-1])[: count - 1]
        return token + 1 + np.concatenate(([0], ends + 1))

    def children_of_each(self, tokens: I64) -> list[I64]:
        """Return ``children`` of containers that follow one another and are not nested."""
        ends = [*tokens[1:].tolist(), len(self)][: len(tokens)]
        return list(map(self.children, tokens.tolist(), ends))

    def of_kind(self, kind: str, tokens: I64 | int) -> NDArray[np.bool_]:
        """Return which of the tokens are of a kind: ``array``, ``map``, ``bytes`` or ``text``."""
        out: NDArray[np.bool_] = _KINDS[kind][self.code[tokens]]
        return out

    def numbers(self, tokens: I64) -> U64:
        """Return the values of the tokens. Raise ``FormatError`` if one is not a whole number from 0."""
        codes = self.code[tokens]
        out = codes.astype(np.uint64)
        plain = codes < 0x80
        for code, width in _WIDTHS.items():
            rows = np.flatnonzero(codes == code)
            plain[rows] = True
            if len(rows):
                raw = windows(self._data, width)[self._starts[tokens[rows]] + 1]
                out[rows] = raw.view(f">u{width}").astype(np.uint64)
        if not plain.all():
            raise FormatError("expected a whole number from 0")
        return out

    def content(self, tokens: I64) -> Ragged:
        """Return the bytes of texts and byte strings."""
        codes = self.code[tokens]
        if not _HAS_CONTENT[codes].all():
            raise FormatError("expected text or bytes")
        starts = self._starts[tokens].astype(np.int64) + _HEAD[codes]
        return Ragged(self._data, starts, _content_sizes(self._data, self._starts[tokens], codes))

    def fixed(self, tokens: I64, size: int) -> U8:
        """Return the contents of tokens that all have ``size`` bytes, (n, size)."""
        rows = self.content(tokens)
        if (rows.lengths != size).any():
            raise FormatError(f"expected {size} bytes or characters")
        return np.ascontiguousarray(windows(self._data, size)[rows.starts]).view(np.uint8).reshape(-1, size)

    def says(self, tokens: I64, word: str) -> NDArray[np.bool_]:
        """Return which of the tokens are the text ``word``."""
        out = np.zeros(len(tokens), np.bool_)
        rows = np.flatnonzero(_KINDS["text"][self.code[tokens]])
        content = self.content(tokens[rows])
        same = content.lengths == len(word)
        letters = windows(self._data, len(word))[content.starts[same]]
        characters = np.ascontiguousarray(letters).view(np.uint8).reshape(-1, len(word))
        out[rows[same]] = (characters == np.frombuffer(word.encode(), np.uint8)).all(axis=1)
        return out

    def _members(self) -> I64:
        codes = self.code
        is_short = (codes & 0xE0) == 0x80
        out: I64 = np.where(is_short, codes & 0x0F, 0).astype(np.int64) << (is_short & (codes < 0x90))
        for code, times in ((0xDC, 1), (0xDD, 1), (0xDE, 2), (0xDF, 2)):
            rows = np.flatnonzero(codes == code)
            out[rows] = times * _read_sizes(self._data, self._starts[rows], int(_SIZE[code]))
        return out


def _read_sizes(data: U8, at: NDArray[Any], width: int) -> I64:
    sizes: I64 = windows(data, width)[at + 1].view(f">u{width}").astype(np.int64)
    return sizes


def _content_sizes(data: U8, at: NDArray[Any], codes: U8) -> I64:
    """Return the number of bytes after the heads of tokens that begin at the positions ``at``."""
    out = _FIXED[codes].astype(np.int64)
    for width in (1, 2, 4):
        rows = np.flatnonzero((_SIZE[codes] == width) & _HAS_CONTENT[codes])
        if len(rows):
            out[rows] = _read_sizes(data, at[rows], width)
    return out


def _starts(data: U8, size: int) -> NDArray[np.uint32]:
    """Return the positions of the tokens in the first ``size`` bytes."""
    parts: list[NDArray[np.uint32]] = []
    at = total = 0
    while at < size:
        starts, behind = _block(data, at, min(at + _BLOCK, size))
        parts.append(starts)
        total += len(starts)
        at = behind
        if total > MAX_TOKENS:
            raise FormatError(f"more than {MAX_TOKENS} values in one file")
    if at != size:
        raise FormatError("a MessagePack value is cut off")
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


def _block(data: U8, low: int, high: int) -> tuple[NDArray[np.uint32], int]:
    """Return the positions of the tokens in a block, the first at ``low``, and of the next token."""
    codes = data[low:high]
    count = len(codes)
    places = np.arange(count, dtype=np.int64)
    steps = places + _HEAD[codes] + _content_sizes(data, places + low, codes)
    # All positions after the block count as one place.
    jump = np.append(np.minimum(steps, count), count).astype(np.int32)
    rows = np.zeros(1, np.int32)
    while rows[-1] != count:
        rows = np.concatenate((rows, jump[rows]))
        jump = jump[jump]
    inside = rows[rows < count]
    return (inside + low).astype(np.uint32), low + int(steps[inside[-1]])
