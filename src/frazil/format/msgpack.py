"""MessagePack: the metadata values of spec version 1, as values, and the files of older formats, as columns.

A *token* is a value, or the head of an array or map, whose members follow. The position of the next token can
be computed for every byte of a block, as if a token began there. The real tokens are found by jumping: one
gather leads from the first k tokens to the next k. The sum of the number of members, less one, of each token
falls by one, for the first time, at the end of each member of a container.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError, InvalidMetadataError
from frazil.format.columns import I64, U8, U64, Ragged, windows

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


_BLOCK: Final = 1 << 15
#: Limits the memory for a hostile file. A reference has about ten tokens.
MAX_TOKENS: Final = 1 << 28
_PADDING: Final = 16

NIL: Final = 0xC0

# By first byte: the bytes of the token without its content; the bytes of the number that is its size.
_HEAD = np.ones(256, np.int32)
_SIZE = np.zeros(256, np.int8)
for _code, _head, _size in (
    *((code, 1 + width, width) for code, width in zip(range(0xC4, 0xC7), (1, 2, 4), strict=True)),
    *((code, 1 + width, width) for code, width in zip(range(0xD9, 0xDC), (1, 2, 4), strict=True)),
    *((code, 1 + width, width) for code, width in zip(range(0xDC, 0xE0), (2, 4, 2, 4), strict=True)),
    *((code, 1 + width, 0) for code, width in ((0xCA, 4), (0xCB, 8))),
    *((code, 1 + width, 0) for code, width in zip(range(0xCC, 0xD4), (1, 2, 4, 8) * 2, strict=True)),
):
    _HEAD[_code], _SIZE[_code] = _head, _size
_FIXED = np.zeros(256, np.int32)  # bytes of content, if the first byte defines them
_FIXED[0xA0:0xC0] = np.arange(32)
_IS_SUPPORTED = np.ones(256, np.bool_)
_IS_SUPPORTED[[0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9)]] = False
_IS_BYTES = np.isin(np.arange(256), [0xC4, 0xC5, 0xC6])
_IS_TEXT = np.isin(np.arange(256), [*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])
_IS_ARRAY = np.isin(np.arange(256), [*range(0x90, 0xA0), 0xDC, 0xDD])
_IS_MAP = np.isin(np.arange(256), [*range(0x80, 0x90), 0xDE, 0xDF])
_HAS_CONTENT = _IS_BYTES | _IS_TEXT
#: Unsigned numbers: first byte -> bytes of the number.
_WIDTHS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


class Tokens:
    """All n tokens of one value, by their position. Damaged values raise ``FormatError``.

    Attributes:
        code: uint8 (n,), the first byte.
        members: int64 (n,), the number of members of an array, twice the number of keys of a map, 0 for a
            plain value.
    """

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data + bytes(_PADDING), np.uint8)
        self._starts = _starts(self._data, len(data))
        self.code: U8 = self._data[self._starts]
        if not _IS_SUPPORTED[self.code].all():
            strange = int(self.code[~_IS_SUPPORTED[self.code]][0])
            raise FormatError(f"MessagePack type 0x{strange:02x} is not used in these formats")
        self.members = self._members()
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

    def is_array(self, tokens: I64 | int) -> NDArray[np.bool_]:
        """Return whether the tokens are arrays."""
        return self._is(_IS_ARRAY, tokens)

    def is_map(self, tokens: I64 | int) -> NDArray[np.bool_]:
        """Return whether the tokens are maps."""
        return self._is(_IS_MAP, tokens)

    def is_bytes(self, tokens: I64 | int) -> NDArray[np.bool_]:
        """Return whether the tokens are byte strings."""
        return self._is(_IS_BYTES, tokens)

    def is_text(self, tokens: I64 | int) -> NDArray[np.bool_]:
        """Return whether the tokens are texts."""
        return self._is(_IS_TEXT, tokens)

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
        rows = np.flatnonzero(_IS_TEXT[self.code[tokens]])
        content = self.content(tokens[rows])
        same = content.lengths == len(word)
        letters = windows(self._data, len(word))[content.starts[same]]
        characters = np.ascontiguousarray(letters).view(np.uint8).reshape(-1, len(word))
        out[rows[same]] = (characters == np.frombuffer(word.encode(), np.uint8)).all(axis=1)
        return out

    def _is(self, table: NDArray[np.bool_], tokens: I64 | int) -> NDArray[np.bool_]:
        out: NDArray[np.bool_] = table[self.code[tokens]]
        return out

    def _members(self) -> I64:
        codes = self.code
        out = np.where((codes & 0xF0) == 0x90, codes & 0x0F, 0).astype(np.int64)
        out += np.where((codes & 0xF0) == 0x80, 2 * (codes & 0x0F).astype(np.int64), 0)
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
