"""The header and the compression of metadata files of the older formats.

M5 to M8 have the header of the later formats, 39 bytes, with the same file types. M4 compresses its manifests
without a header. Earlier formats have neither.
"""

from __future__ import annotations

from typing import Any, Final

import zstandard

from frazil.errors import ErrorKind, FormatError
from frazil.format.envelope import MAGIC, FileType, largest_payload, open_envelope

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
#: The file identifier of flatbuffers. Files of spec version 1 have it after the same header.
_LATER: Final = b"Ichk"
#: More than any writer of these formats could build in memory as objects.
MAX_PAYLOAD_BYTES: Final = 1 << 30
_STEP: Final = 1 << 20


def has_header(data: Any) -> bool:
    """Return whether a file begins with the header."""
    return bytes(memoryview(data)[: len(MAGIC)]) == MAGIC


def payload(data: Any, kind: FileType) -> bytes:
    """Return the MessagePack or JSON of a file. Raise ``FormatError`` if the file has another format."""
    if has_header(data):
        body = bytes(open_envelope(data, kind, MAX_PAYLOAD_BYTES)[1])
        if body[4:8] == _LATER:
            raise FormatError(
                "expected a file of an older format, got one of spec version 1", ErrorKind.INVALID_FILE_FORMAT
            )
        return body
    raw = bytes(data)
    return _decompressed(raw) if raw.startswith(_ZSTD) else raw


def _decompressed(data: bytes) -> bytes:
    machine = zstandard.ZstdDecompressor().decompressobj()
    out = bytearray()
    most = min(MAX_PAYLOAD_BYTES, largest_payload(len(data)))
    view = memoryview(data)
    try:
        for start in range(0, len(data), 1 << 12):
            out += machine.decompress(view[start : start + (1 << 12)])
            if len(out) > most:
                raise FormatError(f"the payload must have at most {most} bytes, got more")
            if machine.eof:
                break
    except zstandard.ZstdError as error:
        raise FormatError(f"the payload is not zstd: {error}") from error
    if not machine.eof:
        raise FormatError("the compressed payload is cut off")
    return bytes(out)
