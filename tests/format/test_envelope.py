"""The header and the compressed payload behind it, honest and hostile."""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc

import numpy as np
import pytest
import zstandard

from frazil.errors import ErrorKind, FormatError
from frazil.format.envelope import HEADER_BYTES, MAGIC, FileType, open_envelope, seal

PAYLOAD = b"0123456789" * 1000


def _file(body: bytes, *, version: int = 2, kind: int = 2, compression: int = 1) -> bytes:
    return MAGIC + b"somebody".ljust(24) + bytes((version, kind, compression)) + body


def _stream(data: bytes) -> bytes:
    """One frame that does not say how large its content is."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


def _checked(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


BODIES = {
    "size known": zstandard.compress(PAYLOAD),
    "size unknown": _stream(PAYLOAD),
    "checksum": _checked(PAYLOAD),
    "two frames": zstandard.compress(PAYLOAD[:400]) + zstandard.compress(PAYLOAD[400:]),
    "mixed frames": _checked(PAYLOAD[:10]) + _stream(PAYLOAD[10:5000]) + zstandard.compress(PAYLOAD[5000:]),
    "an empty frame": zstandard.compress(b"") + _stream(PAYLOAD),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
class TestBodies:
    def test_is_read_from_any_buffer(self, body: bytes) -> None:
        for file in (_file(body), memoryview(bytearray(_file(body)))):
            assert bytes(open_envelope(file, FileType.MANIFEST)[1]) == PAYLOAD
        with pytest.raises(FormatError):
            open_envelope(_file(body + b"junk"), FileType.MANIFEST)

    def test_limit(self, body: bytes) -> None:
        assert len(bytes(open_envelope(_file(body), FileType.MANIFEST, len(PAYLOAD))[1])) == len(PAYLOAD)
        with pytest.raises(FormatError, match="more than 9999 bytes"):
            open_envelope(_file(body), FileType.MANIFEST, 9999)

    def test_cut_off_anywhere(self, body: bytes) -> None:
        whole = _file(body)
        unnoticed = 0
        for end in range(len(whole)):
            with contextlib.suppress(FormatError):
                open_envelope(whole[:end], FileType.MANIFEST)
                unnoticed += 1
        # Only between frames is there nothing to notice.
        assert unnoticed == body.count(zstandard.FRAME_HEADER) - 1


def test_uncompressed_payload() -> None:
    assert bytes(open_envelope(_file(b"plain", compression=0), FileType.MANIFEST)[1]) == b"plain"


@pytest.mark.parametrize(
    ("file", "kind", "words"),
    [
        (b"", ErrorKind.INVALID_FILE_FORMAT, "0 bytes of header"),
        (_file(b"")[:38], ErrorKind.INVALID_FILE_FORMAT, "38 bytes of header"),
        (b"x" + _file(b"")[1:], ErrorKind.INVALID_FILE_FORMAT, "not an Icechunk metadata file"),
        (_file(b"", version=3), ErrorKind.UNSUPPORTED_SPEC_VERSION, "spec version 3"),
        (_file(b"", version=0), ErrorKind.UNSUPPORTED_SPEC_VERSION, "spec version 0"),
        (_file(b"", kind=1), ErrorKind.INVALID_FILE_FORMAT, "expected 2"),
        (_file(b"", kind=99), ErrorKind.INVALID_FILE_FORMAT, "file type 99"),
        (_file(b"", compression=2), ErrorKind.INVALID_FILE_FORMAT, "compression 2"),
        (_file(b""), ErrorKind.DESERIALIZATION, "zstd"),
        (_file(b"no zstd at all"), ErrorKind.DESERIALIZATION, "zstd"),
    ],
)
def test_errors_name_the_fault(file: bytes, kind: ErrorKind, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        open_envelope(file, FileType.MANIFEST)
    assert caught.value.kind == kind


def test_a_bomb_stops_at_the_limit() -> None:
    # 64 MiB of zeros take 2 KiB; blocks that repeat one byte take four bytes for 128 KiB.
    bomb = _stream(bytes(1 << 26))
    repeated = zstandard.FRAME_HEADER + b"\0\x80" + b"\x02\x00\x10\0" * 20_000 + b"\x03\x00\x10\0"
    claims = zstandard.FRAME_HEADER + b"\xe0" + (1 << 40).to_bytes(8, "little") + b"\1\0\0"
    for body in (bomb, repeated, claims):
        tracemalloc.start()
        with pytest.raises(FormatError):
            open_envelope(_file(body), FileType.MANIFEST, 1 << 22)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 << 22


def test_a_flipped_bit_is_noticed() -> None:
    payload = b'{"attributes": "text of which every change is text again"}' * 3
    file = seal([payload], FileType.SNAPSHOT)
    assert bytes(open_envelope(file, FileType.SNAPSHOT)[1]) == payload
    read = set()
    for at in range(HEADER_BYTES, len(file)):
        for bit in range(8):
            damaged = bytearray(file)
            damaged[at] ^= 1 << bit
            with contextlib.suppress(FormatError):
                read.add(bytes(open_envelope(damaged, FileType.SNAPSHOT)[1]))
    # Without the checksum's flag there is no checksum, but four bytes too many.
    assert read <= {payload}


@pytest.mark.parametrize("numbers", [1 << 16, 1 << 18])
@pytest.mark.parametrize("level", [1, 3, 4])
def test_damage_of_a_large_payload_is_noticed(level: int, numbers: int) -> None:
    payload = np.arange(numbers, dtype="<u4").tobytes()
    file = seal([payload], FileType.MANIFEST, level=level)
    _, content = open_envelope(file, FileType.MANIFEST)
    assert bytes(content) == payload
    assert memoryview(content).readonly
    # The checksum is the last four bytes. The header says the size.
    for damaged in (file[:-1] + bytes([file[-1] ^ 1]), file[:-1], file[: len(file) // 2], file + b"x"):
        with pytest.raises(FormatError):
            open_envelope(damaged, FileType.MANIFEST)
    frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(payload)
    for size in (len(payload) - 4, len(payload) + 4):
        wrong = frame.replace(len(payload).to_bytes(4, "little"), size.to_bytes(4, "little"), 1)
        assert wrong != frame
        with pytest.raises(FormatError):
            open_envelope(_file(wrong), FileType.MANIFEST)


def test_every_envelope_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows compress so well that the file would look like a bomb: it is compressed less."""
    monkeypatch.setattr("frazil.format.envelope.FREE_PAYLOAD_BYTES", 1 << 20)
    for payload in (bytes(1 << 24), b"equal rows" * (1 << 20)):
        for level in (1, 3, 19):
            file = seal([payload], FileType.MANIFEST, level=level)
            assert bytes(open_envelope(file, FileType.MANIFEST)[1]) == payload
            assert len(file) < len(payload) // 50


def test_files_leave_no_objects_behind() -> None:
    parts = [np.random.default_rng(1).integers(0, 255, 40_000, np.uint8)]

    def blocks() -> int:
        for _ in range(100):
            seal(parts, FileType.REPO_INFO)
        gc.collect()
        return sys.getallocatedblocks()

    before = max(blocks(), blocks())
    assert blocks() - before < 50
