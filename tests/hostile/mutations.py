"""Changes of valid content that lead deep into a decoder.

bytes         bits, bytes, numbers that are dangerous as sizes and offsets, parts that are moved or removed
flatbuffers   entries of vtables, offsets and counts of vectors, which are found by following the offsets
words         parts of YAML at the places of values and keys
documents     one value in JSON, MessagePack or FlexBuffers becomes another value
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

from frazil.format import flexbuffer, msgpack

type Mutation = Callable[[bytes, random.Random], bytes]

_NUMBERS = (0, 1, 2, 4, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31)
_WORDS = (*_NUMBERS, (1 << 32) - 8, (1 << 32) - 1)
_LONG_WORDS = (*_WORDS, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_STEPS = (-8, -4, -2, -1, 1, 2, 4, 8)
#: More tables than a seed has. A walk ends there.
_MOST_TABLES = 500


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """One to eight changes of bytes at any place."""
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        _BYTE_CHANGES[chance.randrange(len(_BYTE_CHANGES))](changed, chance)
        if not changed:
            break
    return bytes(changed)


def _one_bit(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _one_byte(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] = chance.randrange(256)


def _number(data: bytearray, chance: random.Random) -> None:
    width = chance.choice((1, 2, 4, 4, 8))
    order = chance.choice(("little", "big"))
    at = chance.randrange(len(data)) // width * width
    value = chance.choice((*_LONG_WORDS, len(data), len(data) - at)) % (1 << 8 * width)
    data[at : at + width] = value.to_bytes(width, order)[: len(data) - at]


def _step(data: bytearray, chance: random.Random) -> None:
    width = chance.choice((1, 2, 4, 8))
    order = chance.choice(("little", "big"))
    at = chance.randrange(len(data)) // width * width
    part = data[at : at + width]
    value = int.from_bytes(part, order) + chance.choice(_STEPS)
    data[at : at + width] = (value % (1 << 8 * len(part))).to_bytes(len(part), order)


def _copy(data: bytearray, chance: random.Random) -> None:
    start, size, to = (
        chance.randrange(len(data)),
        chance.choice((1, 4, 8, 16, 64)),
        chance.randrange(len(data)),
    )
    data[to : to + size] = data[start : start + size]


def _insert(data: bytearray, chance: random.Random) -> None:
    start, size, at = chance.randrange(len(data)), chance.choice((1, 4, 8, 64)), chance.randrange(len(data))
    data[at:at] = data[start : start + size]


def _remove(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.choice((1, 1, 2, 4, 8, 64))]


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


_BYTE_CHANGES = (_one_bit, _one_byte, _number, _number, _step, _copy, _insert, _remove, _cut)


#: Parts of YAML that a writer of configurations does not use.
_WORDS_OF_YAML = (
    *(b"!!int ", b"!!float ", b"!!bool ", b"!!null ", b"!!str ", b"!!seq ", b"!!map ", b"!!binary ", b"!x "),
    *(b"&a ", b"*a ", b"<<: ", b"? ", b"- ", b": ", b"[", b"{", b"}", b", ", b"|\n  ", b">\n  ", b"'", b'"'),
    *(b"1:1", b":1" * 300, b"0x", b"0o7", b".inf", b"1e999", b"~", b"%TAG ! x\n", b"---\n", b"...\n", b"\t"),
)


def change_yaml(data: bytes, chance: random.Random) -> bytes:
    """One to four words of YAML, after a space or at the end of a line."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = [at + 1 for at, byte in enumerate(data) if byte in b" \n"] or [0]
        at = chance.choice(places)
        data = data[:at] + chance.choice(_WORDS_OF_YAML) + data[at:]
    return data


# Flatbuffers


class FlatbufferPlaces:
    """The positions of the numbers by which readers find their way in a flatbuffer.

    The walk knows no schema. It takes a number for an offset if it leads to something that looks like a
    table, a vector or a text.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.entries: list[int] = []
        self.offsets: list[int] = [0]
        self.counts: list[int] = []
        self.tables: list[int] = []
        if len(data) > 8:
            self._walk(self._u32(0))

    def _u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.data, at)[0]) if 0 <= at <= len(self.data) - 4 else 0

    def _u16(self, at: int) -> int:
        return int(struct.unpack_from("<H", self.data, at)[0]) if 0 <= at <= len(self.data) - 2 else 0

    def _vtable(self, table: int) -> tuple[int, int] | None:
        """Return the position and the size of the vtable, or None if there is no table."""
        if not 0 < table <= len(self.data) - 4:
            return None
        at = table - struct.unpack_from("<i", self.data, table)[0]
        size = self._u16(at)
        plausible = (
            0 < at < len(self.data) - 4 and 4 <= size <= 64 and size % 2 == 0 and self._u16(at + 2) >= 4
        )
        return (at, size) if plausible else None

    def _walk(self, root: int) -> None:
        waiting, seen = [root], set()
        while waiting and len(seen) < _MOST_TABLES:
            table = waiting.pop()
            vtable = self._vtable(table)
            if table in seen or vtable is None:
                continue
            seen.add(table)
            self.tables.append(table)
            at, size = vtable
            self.entries += range(at, at + size, 2)
            for entry in range(at + 4, at + size, 2):
                if field := self._u16(entry):
                    waiting += self._field(table + field)

    def _field(self, at: int) -> list[int]:
        """Return the tables to which a field leads."""
        target = at + self._u32(at)
        if target == at or target > len(self.data) - 4:
            return []
        if self._vtable(target) is not None:
            self.offsets.append(at)
            return [target]
        count = self._u32(target)
        if not count or target + 4 + count > len(self.data):
            return []
        self.offsets.append(at)
        self.counts.append(target)
        elements = [target + 4 + 4 * number for number in range(min(count, 64))]
        tables = [each + self._u32(each) for each in elements]
        if all(self._vtable(table) is not None for table in tables):
            self.offsets += elements
            return tables
        return []


def change_flatbuffer(data: bytes, chance: random.Random) -> bytes:
    """One to three changes of vtables, offsets and counts."""
    places = FlatbufferPlaces(data)
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.randrange(4)
        if kind == 0 and places.entries:
            at = chance.choice(places.entries)
            other = int.from_bytes(data[(o := chance.choice(places.entries)) : o + 2], "little")
            changed[at : at + 2] = chance.choice((0, other, other, 2, 3, 0xFFFF)).to_bytes(2, "little")
        elif kind == 1 and len(places.offsets) > 1:
            at, other = chance.choice(places.offsets), chance.choice(places.offsets)
            target = other + int.from_bytes(data[other : other + 4], "little")
            value = chance.choice((target - at, target - at, 0, 4, len(data) - at - 4, *_WORDS))
            changed[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
        elif kind == 2 and places.counts:
            at = chance.choice(places.counts)
            count = int.from_bytes(data[at : at + 4], "little")
            value = chance.choice((0, count - 1, count + 1, 2 * count, (len(data) - at - 4) // 4, *_WORDS))
            changed[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
        elif places.tables:
            at = chance.choice(places.tables)
            other = chance.choice(places.tables)
            vtable = other - struct.unpack_from("<i", data, other)[0]
            changed[at : at + 4] = struct.pack("<I", (at - vtable) % (1 << 32))
    return bytes(changed)


# Documents

#: A text that becomes JSON that JSON libraries refuse, or read in different ways.
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 255, 1 << 31, (1 << 32) - 1, 1 << 63, 1 << 64, 1 << 200, -(1 << 63)),
    *(0.5, 1e308, float("inf"), float("nan"), "", "x", "/", "é" * 30, "\0", "..", "1CECHNKREP0F1RSTCMT0"),
    *([], {}, [[]], {"": None}, [None] * 40, {str(number): number for number in range(40)}),
    *("inf", "1e999", "9" * 30, "\ud800", "2024-99-99T00:00:00Z", "0001-01-01T00:00:00+23:59"),
    *([1, [2, [3, [4]]]], [[1, (1 << 32) - 1]], {"a": {"a": {"a": {}}}}),
)


def change_document(value: Any, chance: random.Random) -> Any:
    """Return a document with one to three other values, without a key, or with one more key."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        value = _changed(value, chance)
    return value


def _changed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        match chance.randrange(8):
            case 0:
                return {other: each for other, each in value.items() if other != name}
            case 1:
                return value | {str(chance.choice(_VALUES)): chance.choice(_VALUES)}
            case _:
                return value | {name: _changed(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        match chance.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return (
                    value[:at] + [value[chance.randrange(len(value))]] * chance.randrange(1, 9) + value[at:]
                )
            case _:
                return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.3:
        return value + chance.choice(_STEPS)
    return chance.choice(_VALUES)


def change_json(data: bytes, chance: random.Random) -> bytes:
    """Another value in a JSON document."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return change_bytes(data, chance)
    return json.dumps(change_document(value, chance)).encode()


def _encoder_of(module: Any) -> Mutation:
    def change(data: bytes, chance: random.Random) -> bytes:
        try:
            return bytes(module.dumps(change_document(module.loads(data), chance)))
        except (Exception, RecursionError):  # a value that the encoder refuses
            return change_bytes(data, chance)

    return change


change_msgpack: Mutation = _encoder_of(msgpack)
change_flexbuffer: Mutation = _encoder_of(flexbuffer)
