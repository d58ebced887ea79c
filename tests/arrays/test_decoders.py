"""Decoders of chunks in bulk, with damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard

from frazil.arrays.encoding import zstd


def decoded(*frames: bytes, size: int) -> np.ndarray:
    length = np.array([len(frame) for frame in frames])
    offset = np.cumsum(length) - length
    return zstd(np.frombuffer(b"".join(frames), np.uint8), offset, length, size)


@pytest.mark.parametrize("count", [1, 2])
def test_frames_of_zstd(count: int) -> None:
    compressor = zstandard.ZstdCompressor()
    frames = [compressor.compress(bytes([number] * 40)) for number in range(count)]
    assert decoded(*frames, size=40).tolist() == [[number] * 40 for number in range(count)]
    streamed = zstandard.ZstdCompressor(write_content_size=False)
    assert decoded(*[streamed.compress(b"a" * 40)] * count, size=40).shape == (count, 40)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", [39, 41, 1 << 40])
def test_frames_of_another_size_are_refused(count: int, size: int) -> None:
    """The size that a frame claims is no reason to allocate memory."""
    frame = zstandard.ZstdCompressor().compress(b"a" * size if size < 1 << 20 else b"a")
    if size == 1 << 40:  # the field of the size, with eight bytes
        frame = frame[:4] + b"\xe0" + size.to_bytes(8, "little") + frame[6:]
        assert zstandard.frame_content_size(frame) == size
    with pytest.raises(zstandard.ZstdError):
        decoded(*[frame] * count, size=40)


def test_two_frames_in_a_chunk_are_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(b"a" * 40)
    with pytest.raises((zstandard.ZstdError, ValueError)):
        decoded(frame + frame, size=40)
