"""The messages of a GRIB file as bytes: their lengths, and the sections of a message of edition 2."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import IO, Final

from frazil.readers.file_errors import damaged
from frazil.readers.files import File

#: A message of edition 1 with this bit in its length is larger than its length. Only eccodes knows the size.
_LARGE: Final = 0x800000
#: The bytes of section 0, and (`_HEAD`) of the number and length of the other sections.
_FIRST: Final = 16
#: The last bytes of a message.
_END: Final = b"7777"
_HEAD: Final = 5
#: The bytes of section 5 that all templates of grid points share, and byte 23 of complex packing.
_REPRESENTATION: Final = 23


@dataclass(frozen=True, slots=True)
class Packing:
    """The packing of a field in a message of edition 2.

    ``grid`` is a digest of section 3. ``template`` is the number of the template of section 5. ``bits`` is
    the number of bits of a value. ``empty``: no point has a value. ``missing`` is the management of missing
    values in complex packing (0: none). ``bitmap`` is the indicator of section 6, ``fields`` the number of
    fields.
    """

    grid: bytes
    template: int
    bits: int
    empty: bool
    missing: int
    bitmap: int
    fields: int


def check_messages(file: File) -> None:
    """Follow the lengths of the messages to the end of the file."""
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
            if size < _FIRST + len(_END):
                raise damaged(file.url, f"message {count} of at least {_FIRST + len(_END)} bytes", size)
            last = end - len(_END)
            stream.seek(last)
            if stream.read(len(_END)) != _END:
                raise damaged(file.url, f"the end of message {count} (7777) at byte {last}", "other bytes")
            at, count = end, count + 1
    if not count:
        raise damaged(file.url, "a GRIB file", repr(file.head[:4]))


def edition(head: bytes) -> int:
    """Return the edition of the message with these first 16 bytes; 0 if it is not a message."""
    return head[7] if len(head) >= _FIRST and head[:4] == b"GRIB" else 0


def length(head: bytes) -> int:
    """Return the length in bytes of the message of edition 2 with these first 16 bytes."""
    return int.from_bytes(head[8:16], "big")


def packing(stream: IO[bytes], at: int, size: int) -> Packing | None:
    """Return the packing of the message of edition 2 at byte ``at``, of ``size`` bytes, without its values.

    Returns None if its sections do not follow each other to its end.
    """
    place, end = at + _FIRST, at + size - 4
    grid, template, bits, empty, missing, bitmap, fields = b"", -1, -1, False, 0, -1, 0
    while place + _HEAD <= end:
        stream.seek(place)
        head = stream.read(_HEAD)
        if len(head) < _HEAD:
            return None
        long, section = int.from_bytes(head[:4], "big"), head[4]
        if long < _HEAD or place + long > end:
            return None
        if section == 3:
            grid = hashlib.sha256(stream.read(long - _HEAD)).digest()
        elif section == 5:
            body = head + stream.read(min(long, _REPRESENTATION) - _HEAD)
            empty = not any(body[5:9])
            template = int.from_bytes(body[9:11], "big")
            bits = body[19] if len(body) > 19 else -1
            missing = body[22] if template in (2, 3) and len(body) > 22 else 0
        elif section == 6:
            bitmap = (stream.read(1) or b"\0")[0]
        elif section == 7:
            fields += 1
        place += long
    return Packing(grid, template, bits, empty, missing, bitmap, fields) if place == end and fields else None
