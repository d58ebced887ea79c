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
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

from tests.hostile.schema import Place, places

from frazil.format import flexbuffer, msgpack

type Mutation = Callable[[bytes, random.Random], bytes]

_NUMBERS = (0, 1, 2, 4, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31)
_WORDS = (*_NUMBERS, (1 << 32) - 8, (1 << 32) - 1)
_LONG_WORDS = (*_WORDS, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_STEPS = (-8, -4, -2, -1, 1, 2, 4, 8)
#: More fields than a seed has. A walk ends there.
_MOST_PLACES = 5000


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """One to eight changes of bytes at any place."""
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        _change_place(changed, chance)
        if not changed:
            break
    return bytes(changed)


_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


def _change_place(data: bytearray, chance: random.Random) -> None:
    at, other = chance.randrange(len(data)), chance.randrange(len(data))
    width, order = chance.choice((1, 2, 4, 4, 8)), chance.choice(_ORDERS)
    start = at // width * width
    match chance.randrange(9):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.randrange(256)
        case 2 | 3:
            value = chance.choice((*_LONG_WORDS, len(data), len(data) - start)) % (1 << 8 * width)
            data[start : start + width] = value.to_bytes(width, order)[: len(data) - start]
        case 4:
            part = data[start : start + width]
            value = int.from_bytes(part, order) + chance.choice(_STEPS)
            data[start : start + width] = (value % (1 << 8 * len(part))).to_bytes(len(part), order)
        case 5:
            size = chance.choice((1, 4, 8, 16, 64))
            data[other : other + size] = data[at : at + size]
        case 6:
            data[other:other] = data[at : at + chance.choice((1, 4, 8, 64))]
        case 7:
            del data[at : at + chance.choice((1, 1, 2, 4, 8, 64))]
        case _:
            del data[at:]


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


def change_flatbuffer(data: bytes, chance: random.Random, table: str) -> bytes:
    """One to three changes of vtables, offsets and counts. ``table`` is the name of the root table."""
    found: list[Place] = []
    with suppress(struct.error):  # the walk ends at damage
        found.extend(islice(places(data, table), _MOST_PLACES))
    if not found:
        return change_bytes(data, chance)
    tables = [each.at - _number_at(data, each.entry, 2) for each in found if each.entry]
    vtables = [each - _number_at(data, each, 4) for each in tables]
    entries = [each.entry for each in found if each.entry] + vtables + [each + 2 for each in vtables]
    counts = [each.start - 4 for each in found if each.is_vector]
    offsets = [0, *(each.at for each in found if not each.is_number and (each.is_vector or not each.width))]
    for each in found:
        if each.is_vector and each.width == 4 and each.type != "[u4]":
            offsets += range(each.start, each.start + 4 * min(each.count, 64), 4)
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        match chance.randrange(4):
            case 0:
                at = chance.choice(entries)
                other = _number_at(data, chance.choice(entries), 2)
                changed[at : at + 2] = chance.choice((0, other, other, 2, 3, 0xFFFF)).to_bytes(2, "little")
            case 1:
                at, other = chance.choice(offsets), chance.choice(offsets)
                target = other + _number_at(data, other, 4)
                value = chance.choice((target - at, target - at, 0, 4, len(data) - at - 4, *_WORDS))
                changed[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
            case 2 if counts:
                at = chance.choice(counts)
                count = _number_at(data, at, 4)
                most = (len(data) - at - 4) // 4
                value = chance.choice((0, count - 1, count + 1, 2 * count, most, *_WORDS))
                changed[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
            case _:
                at = chance.choice(tables)
                changed[at : at + 4] = ((at - chance.choice(vtables)) % (1 << 32)).to_bytes(4, "little")
    return bytes(changed)


def _number_at(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


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
