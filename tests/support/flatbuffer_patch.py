"""Changes of single fields in a metadata file, which the encoders of Frazil would never write.

A patch takes a valid file, changes bytes of the flatbuffer, and seals the file again with a right checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from frazil.format.envelope import FileType, open_envelope, parse_header, seal


class Patch:
    """The payload of a file, by positions."""

    def __init__(self, data: Any, file_type: FileType) -> None:
        self.file_type = file_type
        self.version = parse_header(data, file_type).spec_version
        self.payload = bytearray(bytes(open_envelope(data, file_type)[1]))
        self.root = self.number("<I", 0)

    def sealed(self) -> bytes:
        return seal([np.frombuffer(self.payload, np.uint8)], self.file_type, spec_version=self.version)

    def number(self, kind: str, at: int) -> int:
        value: int = struct.unpack_from(kind, self.payload, at)[0]
        return value

    def put(self, kind: str, at: int, *values: int) -> None:
        struct.pack_into(kind, self.payload, at, *values)

    def field(self, table: int, slot: int) -> int:
        """The position of a field. 0 if it is absent."""
        vtable = table - self.number("<i", table)
        place = 4 + 2 * slot
        distance = self.number("<H", vtable + place) if place < self.number("<H", vtable) else 0
        return table + distance if distance else 0

    def drop(self, table: int, slot: int) -> None:
        """Make a field absent, in all tables with the same vtable."""
        self.put("<H", table - self.number("<i", table) + 4 + 2 * slot, 0)

    def drop_once(self, table: int, slot: int) -> None:
        """Make a field absent in one table, which gets a vtable of its own at the end of the payload."""
        vtable = table - self.number("<i", table)
        at = len(self.payload)
        self.payload += self.payload[vtable : vtable + self.number("<H", vtable)]
        self.put("<i", table, table - at)
        self.drop(table, slot)

    def rename(self, table: int, slot: int, other: int) -> None:
        """Make a field one with another slot, which the table does not have."""
        vtable = table - self.number("<i", table)
        distance, size = self.number("<H", vtable + 4 + 2 * slot), self.number("<H", vtable)
        if size < 6 + 2 * other:  # the NULs after a short vtable become a part of it
            assert not any(self.number("<H", vtable + at) for at in range(size, 6 + 2 * other, 2))
            self.put("<H", vtable, 6 + 2 * other)
        self.drop(table, slot)
        self.put("<H", vtable + 4 + 2 * other, distance)

    def follow(self, at: int) -> int:
        return at + self.number("<I", at)

    def vector(self, table: int, slot: int) -> tuple[int, int]:
        """The position of the first element, and the number of elements."""
        at = self.follow(self.field(table, slot))
        return at + 4, self.number("<I", at)

    def tables(self, table: int, slot: int) -> list[int]:
        start, count = self.vector(table, slot)
        return [self.follow(start + 4 * row) for row in range(count)]

    def resize(self, table: int, slot: int, count: int) -> None:
        self.put("<I", self.follow(self.field(table, slot)), count)

    def swap(self, table: int, slot: int, width: int = 0) -> None:
        """Exchange the first two elements of a vector: offsets, or numbers and structs of ``width`` bytes."""
        start, count = self.vector(table, slot)
        assert count > 1
        if width:
            one, two = (bytes(self.payload[at : at + width]) for at in (start, start + width))
            self.payload[start : start + 2 * width] = two + one
            return
        first, second = self.follow(start), self.follow(start + 4)
        self.put("<2I", start, second - start, first - start - 4)

    def text(self, table: int, slot: int, text: bytes) -> None:
        """Replace a text by another one of the same length or shorter."""
        start, count = self.vector(table, slot)
        assert len(text) <= count
        self.payload[start : start + len(text)] = text
        self.put("<I", start - 4, len(text))


def patched(data: Any, file_type: FileType, change: Callable[[Patch], object]) -> bytes:
    patch = Patch(data, file_type)
    change(patch)
    return patch.sealed()
