"""MessagePack as columns: all tokens of a value at once.

A *token* is a value, or the head of an array or map, whose members follow. The position of the next token can
be computed for every byte of a block, as if a token began there. The real tokens are found by jumping: one
gather leads from the first k tokens to the next k. The sum of the number of members, less one, of each token
falls by one, for the first time, at the end of each member of a container.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import I64, U8, U64, Ragged, windows
from frazil.format.msgpack import NUMBERS, SIZED

_BLOCK: Final = 1 << 15
#: Limits the memory for a hostile file. A reference has about ten tokens.
MAX_TOKENS: Final = 1 << 28
_PADDING: Final = 16

NIL: Final = 0xC0

# By first byte: the bytes of the token without its content; the bytes of the number that is its size.
_HEAD = np.ones(256, np.int32)
_SIZE = np.zeros(256, np.int8)
for _code, (_format, _) in SIZED.items():
    _SIZE[_code] = struct.calcsize(_format)
    _HEAD[_code] = 1 + _SIZE[_code]
for _code, _format in NUMBERS.items():
    _HEAD[_code] = 1 + struct.calcsize(_format)
_FIXED = np.zeros(256, np.int32)  # bytes of content, if the first byte defines them
_FIXED[0xA0:0xC0] = np.arange(32)
_IS_SUPPORTED = np.ones(256, np.bool_)
_IS_SUPPORTED[[0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9)]] = False
#: Kind -> whether a token with this first byte is of the kind.
_KINDS: Final = {
    kind: np.isin(np.arange(256), [*short, *(code for code, (_, other) in SIZED.items() if other == kind)])
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
