"""How the content of a stored file is packed, so that a change of the content gets a correct package.

A mutation of a compressed file is nearly always refused by the checksum. The decoder behind it gets tested
only if the content is changed and then sealed again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

from frazil.errors import FormatError
from frazil.format.chunk_trailer import crc32c
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.jobs.task_results import joined, split

#: No seed grows beyond this size, so a larger content is a bomb. The decoder of the package has to refuse it.
LARGEST_CONTENT = 1 << 22


@dataclass(frozen=True, slots=True)
class Form:
    """A package: ``open`` returns its content, or None for damaged packages; ``close`` makes a package."""

    open: Callable[[bytes], bytes | None]
    close: Callable[[bytes], bytes]


def _same(data: bytes) -> bytes:
    return data


PLAIN = Form(_same, _same)


def sealed(kind: FileType, spec_version: int = 2) -> Form:
    """A metadata file: the header of 39 bytes, and a compressed payload."""

    def open_(data: bytes) -> bytes | None:
        try:
            return bytes(open_envelope(data, kind, LARGEST_CONTENT)[1])
        except FormatError:
            return None

    return Form(open_, lambda content: seal([content], kind, spec_version=spec_version, level=1))


def _decompressed(data: bytes) -> bytes | None:
    try:
        if zstandard.frame_content_size(data) > LARGEST_CONTENT:  # it would be allocated
            return None
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=LARGEST_CONTENT)
    except zstandard.ZstdError:
        return None


#: One frame of zstd.
ZSTD = Form(_decompressed, zstandard.ZstdCompressor(level=1, write_checksum=True).compress)


def part(number: int, count: int, inner: Form = PLAIN) -> Form:
    """One of the parts of a result of a task. The other parts stay empty when a package is made."""
    width = 8

    def open_(data: bytes) -> bytes | None:
        sizes = [int.from_bytes(data[width * at : width * (at + 1)], "little") for at in range(count)]
        start = width * count + sum(sizes[:number])
        return inner.open(data[start : start + sizes[number]])

    def close(content: bytes) -> bytes:
        parts = [b""] * count
        parts[number] = inner.close(content)
        return b"".join([*(len(each).to_bytes(width, "little") for each in parts), *parts])

    return Form(open_, close)


_TRAILER_END = 24


def _with_checksum(content: bytes) -> bytes:
    """Return a chunk file with the right checksum of its trailer, and the mark at its end."""
    size = int.from_bytes(content[-12:-4], "little")
    start = max(0, len(content) - max(0, size - _TRAILER_END // 2))
    return content + crc32c(content[start:]).to_bytes(4, "little") + b"]:FRAZIL"


#: A chunk file with a trailer.
TRAILER = Form(lambda data: data[: -_TRAILER_END // 2] or None, _with_checksum)


def parts_of_changes(message: bytes) -> tuple[Form, Form]:
    """The header and the columns of a change set. The other parts are those of this message."""
    header, _, file, frame = split(message, 4)

    def part_of(number: int, data: bytes) -> bytes | None:
        try:
            return split(data, 4)[number]
        except FormatError:
            return None

    def message_of(text: bytes, columns: bytes) -> bytes:
        return joined([text, zlib.crc32(text).to_bytes(4), file, columns])

    return (
        Form(lambda data: part_of(0, data), lambda content: message_of(content, frame)),
        Form(
            lambda data: None if (part := part_of(3, data)) is None else ZSTD.open(part),
            lambda content: message_of(header, ZSTD.close(content)),
        ),
    )
