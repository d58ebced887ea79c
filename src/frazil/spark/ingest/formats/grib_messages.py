"""The messages of a GRIB file as bytes: their ends, and the sections of one of edition 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frazil.spark.ingest.formats.files import File, damaged

#: A message of edition 1 whose length has this bit is larger than it says: eccodes knows by how much.
_LARGE: Final = 0x800000


@dataclass(frozen=True, slots=True)
class Packing:
    """How a message of edition 2 keeps its field. ``fields`` is how many the message has.

    ``template`` is that of the data representation (section 5), ``bitmap`` the indicator of section 6, ``missing``
    how complex packing manages missing values (0: not at all), ``grid`` the template of section 3.
    """

    grid: int
    template: int
    bitmap: int
    missing: int
    fields: int


def check_messages(file: File) -> None:
    """Follow the lengths of the messages to the end of the file. Raises ``FormatError`` if one is cut off."""
    at, count = 0, 0
    with file.open() as stream:
        while True:
            stream.seek(at)
            head = stream.read(16) or b""
            if head[:4] != b"GRIB":
                break  # padding, or the end
            size = int.from_bytes(head[8:16] if head[7:8] == b"\2" else head[4:7], "big")
            if head[7:8] != b"\2" and size & _LARGE:
                break
            end = at + size
            if end > file.size or len(head) < 16:
                raise damaged(
                    file.url, f"message {count} of {size} bytes", f"{file.size - at} bytes: it is truncated"
                )
            stream.seek(end - 4)
            if stream.read(4) != b"7777":
                raise damaged(file.url, f"the end of message {count} (7777) at byte {end - 4}", "other bytes")
            at, count = end, count + 1
    if not count:
        raise damaged(file.url, "a GRIB file", repr(file.head[:4]))


def edition(head: bytes) -> int:
    """The edition of the message with these first bytes, 0 if it is no message."""
    return head[7] if len(head) >= 16 and head[:4] == b"GRIB" else 0


def length(head: bytes) -> int:
    """The length in bytes of the message of edition 2 with these first 16 bytes."""
    return int.from_bytes(head[8:16], "big")


def packing(message: bytes) -> Packing | None:
    """How a whole message of edition 2 is packed; None if its sections do not follow each other as they should.

    >>> packing(b"GRIB") is None
    True
    """
    at, end = 16, len(message) - 4
    grid = template = missing = -1
    bitmap, fields = 255, 0
    while at + 5 <= end:
        size, section = int.from_bytes(message[at : at + 4], "big"), message[at + 4]
        if size < 5 or at + size > end:
            return None
        body = message[at : at + size]
        if section == 3:
            grid = int.from_bytes(body[12:14], "big")
        elif section == 5:
            template = int.from_bytes(body[9:11], "big")
            missing = body[22] if template in (2, 3) and size > 22 else 0
        elif section == 6:
            bitmap = body[5] if size > 5 else -1
        elif section == 7:
            fields += 1
        at += size
    return Packing(grid, template, bitmap, missing, fields) if at == end and fields else None
