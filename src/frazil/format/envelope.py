"""The 39 bytes before every metadata file, and the compression behind them.

    12 bytes  magic          ICE🧊CHUNK
    24 bytes  implementation name, padded with spaces
     1 byte   spec version   1 or 2
     1 byte   file type
     1 byte   compression    1 = zstd

Specification, "Binary File Format". The table there allows compression 0 (none), but the reference refuses such files: they
are read here, and never written.
"""

from __future__ import annotations

from collections.abc import Buffer, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import zstandard

from frazil.errors import ErrorKind, FormatError

MAGIC: Final = "ICE🧊CHUNK".encode()
HEADER_BYTES: Final = 39
IMPLEMENTATION: Final = "frazil-0.1.0"
#: The format's readers accept no larger payload.
MAX_PAYLOAD_BYTES: Final = 1 << 31
_SPEC_VERSIONS: Final = (1, 2)
_STEP: Final = 1 << 20


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
            f"spec version {spec_version}, expected one of {_SPEC_VERSIONS}", ErrorKind.UNSUPPORTED_SPEC_VERSION
        )
    if file_type != expected:
        raise FormatError(
            f"file type {file_type}, expected {expected.value} ({expected.name})", ErrorKind.INVALID_FILE_FORMAT
        )
    if compression not in tuple(Compression):
        raise FormatError(f"compression {compression}, expected 0 or 1", ErrorKind.INVALID_FILE_FORMAT)
    name = raw[12:36].decode(errors="replace").rstrip(" \0")
    return Header(name, spec_version, FileType(file_type), Compression(compression))


def open_envelope(
    data: Buffer, expected: FileType, max_bytes: int = MAX_PAYLOAD_BYTES
) -> tuple[Header, Buffer]:
    """Header and payload of a file; the payload never grows beyond ``max_bytes``."""
    header = parse_header(data, expected)
    body = memoryview(data)[HEADER_BYTES:]
    if header.compression is Compression.NONE:
        return header, body
    return header, _decompress(body, max_bytes)


def _decompress(body: memoryview, max_bytes: int) -> Buffer:
    """One zstd frame or several. The size that a frame claims is only believed when it is small."""
    try:
        claimed = zstandard.frame_content_size(body) if len(body) else -1
        if 0 <= claimed <= min(max_bytes, 64 * len(body) + _STEP):
            whole = zstandard.ZstdDecompressor().decompressobj()
            first = whole.decompress(body)
            if not whole.unused_data:
                if not whole.eof:
                    raise FormatError("the compressed payload is cut off")
                return first
        out = bytearray()
        rest = body
        while len(rest):
            frame = zstandard.ZstdDecompressor().decompressobj()
            for start in range(0, len(rest), _STEP >> 4):
                out += frame.decompress(rest[start : start + (_STEP >> 4)])
                if len(out) > max_bytes:
                    raise FormatError(f"payload of more than {max_bytes} bytes")
                if frame.eof:
                    rest = rest[start + (_STEP >> 4) - len(frame.unused_data) :] if frame.unused_data else rest[start + (_STEP >> 4) :]
                    break
            else:
                raise FormatError("the compressed payload is cut off")
        return out
    except zstandard.ZstdError as error:
        raise FormatError(f"the payload is not zstd: {error}") from error


def seal(
    parts: Sequence[Any], file_type: FileType, *, spec_version: int = 2, level: int = 3
) -> bytes:
    """A whole file: header and the compressed parts of the payload."""
    name = IMPLEMENTATION.encode().ljust(24)
    header = MAGIC + name + bytes((spec_version, file_type, Compression.ZSTD))
    size = sum(len(part) for part in parts)
    compressor = zstandard.ZstdCompressor(level=level).compressobj(size=size)
    pieces = [header]
    pieces.extend(map(compressor.compress, parts))
    pieces.append(compressor.flush())
    return b"".join(pieces)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever goes wrong while a file is decoded becomes a ``FormatError`` that names the file."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{name}: {error.message}", error.kind) from error
    except (ValueError, IndexError, OverflowError, TypeError, MemoryError) as error:
        raise FormatError(f"{name}: damaged ({type(error).__name__}: {error})") from error
