"""The 39 bytes before every metadata file, and the compression behind them.

    12 bytes  magic          ICE🧊CHUNK
    24 bytes  implementation name, padded with spaces
     1 byte   spec version   1 or 2
     1 byte   file type
     1 byte   compression    1 = zstd

Specification, "Binary File Format". The table there allows compression 0 (none), but the reference
refuses such files: they are read here, and never written.
"""

from __future__ import annotations

from collections.abc import Buffer, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import Any, Final

import zstandard

from frazil.about import __version__
from frazil.errors import ErrorKind, FormatError

MAGIC: Final = "ICE🧊CHUNK".encode()
HEADER_BYTES: Final = 39
IMPLEMENTATION: Final = f"frazil-{__version__}"
#: The format's readers accept no larger payload.
MAX_PAYLOAD_BYTES: Final = 1 << 31
_SPEC_VERSIONS: Final = (1, 2)
_STEP: Final = 1 << 20
_PLAUSIBLE_RATIO: Final = 256
#: A payload may grow to so many bytes, and beyond that to so many times the size of its file. Tables of a
#: million rows that are as equal as they can be reach 100: each row has a coordinate or an id of its own.
FREE_PAYLOAD_BYTES: Final = 1 << 28
MAX_RATIO: Final = 2048
#: Blocks of 1 KiB, none of which takes less than 4 bytes.
_SMALL_BLOCKS: Final = zstandard.ZstdCompressionParameters.from_level(3, window_log=10, write_checksum=1)
#: Block type of zstd: a block's one byte, repeated.
_REPEATED_BYTE: Final = 1


class FileType(IntEnum):
    SNAPSHOT = 1
    MANIFEST = 2
    TRANSACTION_LOG = 4
    REPO_INFO = 6


class Compression(IntEnum):
    NONE = 0
    ZSTD = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What the 39 bytes say. ``implementation`` names the writer and means nothing to a reader."""

    implementation: str
    spec_version: int
    file_type: FileType
    compression: Compression


def parse_header(data: Buffer, expected: FileType) -> Header:
    """The header of a file; ``FormatError`` if it is not one of type ``expected``."""
    raw = bytes(memoryview(data)[:HEADER_BYTES])
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        raise FormatError(
            f"no Icechunk metadata file: {len(raw)} bytes of header, beginning with {raw[:12]!r}",
            ErrorKind.INVALID_FILE_FORMAT,
        )
    spec_version, file_type, compression = raw[36:]
    if spec_version not in _SPEC_VERSIONS:
        raise FormatError(
            f"spec version {spec_version}, expected one of {_SPEC_VERSIONS}",
            ErrorKind.UNSUPPORTED_SPEC_VERSION,
        )
    if file_type != expected:
        raise FormatError(
            f"file type {file_type}, expected {expected.value} ({expected.name})",
            ErrorKind.INVALID_FILE_FORMAT,
        )
    if compression not in tuple(Compression):
        raise FormatError(f"compression {compression}, expected 0 or 1", ErrorKind.INVALID_FILE_FORMAT)
    name = raw[12:36].decode(errors="replace").rstrip(" \0")
    return Header(name, spec_version, FileType(file_type), Compression(compression))


def open_envelope(
    data: Buffer, expected: FileType, max_bytes: int = MAX_PAYLOAD_BYTES
) -> tuple[Header, Buffer]:
    """Header and payload of a file.

    The payload never grows beyond ``max_bytes``, nor beyond what is plausible for the size of the file: more
    than ``FREE_PAYLOAD_BYTES`` only up to ``MAX_RATIO`` times that size.
    """
    header = parse_header(data, expected)
    body = memoryview(data)[HEADER_BYTES:]
    if header.compression is Compression.NONE:
        return header, body
    return header, _decompress(body, min(max_bytes, largest_payload(len(body))))


def largest_payload(compressed: int) -> int:
    """To how many bytes so many compressed ones may grow."""
    return max(FREE_PAYLOAD_BYTES, MAX_RATIO * compressed)


def _decompress(body: memoryview, max_bytes: int) -> Buffer:
    """One zstd frame or several. The size that a frame claims is only believed when it is plausible."""
    try:
        claimed = zstandard.frame_content_size(body)
        if 0 <= claimed <= min(max_bytes, _PLAUSIBLE_RATIO * len(body) + _STEP):
            end = _end_of_frames(body, frames=1)
            if end == len(body):
                return zstandard.ZstdDecompressor().decompress(body, max_output_size=max_bytes)
        _end_of_frames(body)
        out = bytearray()
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
            while step := stream.read(_STEP):
                out += step
                if len(out) > max_bytes:
                    raise FormatError(
                        f"expected a payload of a plausible size in {len(body)} compressed bytes, found more "
                        f"than {max_bytes} bytes"
                    )
        return out
    except zstandard.ZstdError as error:
        raise FormatError(f"the payload is not zstd: {error}") from error


def _end_of_frames(body: memoryview, frames: int = -1) -> int:
    """Where the first so many frames (all by default) end, by the sizes of their blocks.

    A stream of zstd that is cut off reads as a shorter one: only the block headers tell.
    """
    at = 0
    while at < len(body) and frames:
        frames -= 1
        has_checksum = zstandard.get_frame_parameters(body[at : at + 18]).has_checksum
        at += zstandard.frame_header_size(body[at : at + 18])
        last = 0
        while not last:
            block = int.from_bytes(body[at : at + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            at += 3 + (1 if kind == _REPEATED_BYTE else size)
            if at > len(body):
                raise FormatError("the compressed payload is cut off")
        at += 4 * has_checksum
    if at > len(body) or not at:
        raise FormatError("the compressed payload is cut off")
    return at


def seal(parts: Sequence[Any], file_type: FileType, *, spec_version: int = 2, level: int = 3) -> bytes:
    """A whole file: header and the compressed parts of the payload, which are never joined uncompressed.

    zstd adds a checksum: documents and metadata are text, in which a flipped bit would go unnoticed. A
    payload that compresses so well that a reader would refuse it is compressed less.
    """
    head = MAGIC + IMPLEMENTATION.encode().ljust(24) + bytes((spec_version, file_type, Compression.ZSTD))
    size = sum(len(part) for part in parts)
    file = _compressed(head, parts, size, zstandard.ZstdCompressor(level=level, write_checksum=True))
    if size > largest_payload(len(file) - len(head)):
        file = _compressed(head, parts, size, zstandard.ZstdCompressor(compression_params=_SMALL_BLOCKS))
    return file


def _compressed(head: bytes, parts: Sequence[Any], size: int, compressor: zstandard.ZstdCompressor) -> bytes:
    file = BytesIO()
    file.write(head)
    with compressor.stream_writer(file, size=size, closefd=False) as stream:
        for part in parts:
            stream.write(part)
    return file.getvalue()


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever goes wrong while a file is decoded becomes a ``FormatError`` that names the file."""
    try:
        yield
    except FormatError as error:
        if error.message.startswith(f"{name}: "):
            raise  # a part of the file was read for itself
        raise FormatError(f"{name}: {error.message}", error.kind) from error
    except (ValueError, IndexError, OverflowError, TypeError, MemoryError, RecursionError) as error:
        raise FormatError(f"{name}: damaged ({type(error).__name__}: {error})") from error
