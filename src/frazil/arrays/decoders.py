"""Decoders of many chunks of one size at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import zstandard
from numcodecs import blosc  # type: ignore[import-untyped]  # zarr requires it
from numcodecs.zstd import decompress as decompress_zstd  # type: ignore[import-untyped]
from numpy.lib.stride_tricks import as_strided
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from frazil.errors import FormatError
from frazil.format.columns import I64, U8, copy_rows

#: Returns the decoded bytes of m chunks, uint8 of shape (m, size). Arguments: the bytes that contain the
#: chunks, the first byte and the length of each chunk, and the size of a decoded chunk. It raises any error
#: for chunks that it cannot decode.
type Decoder = Callable[[U8, I64, I64, int], U8]


def plain(data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks without compression. Chunks with equal distances are not copied."""
    if (length != size).any():
        raise FormatError(f"a chunk must have {size} bytes, got {length[length != size][0]}")
    first = int(offset[0])
    if len(offset) == 1:
        return data[first : first + size].reshape(1, size)
    distance = np.diff(offset)
    if (distance == distance[0]).all() and distance[0] >= 0:
        last = int(offset[-1])
        return as_strided(
            data[first : last + size], (len(offset), size), (int(distance[0]), 1), writeable=False
        )
    out = np.empty(len(offset) * size, np.uint8)
    copy_rows(out, np.arange(len(offset)) * size, data, offset, length)
    return out.reshape(len(offset), size)


def zstd(data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks with one zstd frame each. The frames have no Python object."""
    if len(offset) == 1:
        frame = data[int(offset[0]) : int(offset[0] + length[0])].data
        # The decoder allocates as many bytes as the frame says.
        if zstandard.frame_content_size(frame) == size:
            chunk = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
            return np.frombuffer(chunk, np.uint8).reshape(1, size)
    frames = zstandard.BufferWithSegments(
        data.data, np.stack([offset, length], axis=1).astype(np.uint64).tobytes()
    )
    sizes = np.full(len(offset), size, np.uint64).tobytes()
    chunks = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
        frames, decompressed_sizes=sizes, threads=1
    )
    return _joined(chunks, size)


def zstd_into(frame: U8, out: memoryview) -> None:
    """Decode one zstd frame into memory, and fill all of it. Raises any error for another frame."""
    size = zstandard.frame_content_size(frame.data)
    if size != len(out):
        raise FormatError(f"a chunk must be one zstd frame of {len(out)} bytes, got {size}")
    decompress_zstd(frame, out)


def _joined(chunks: Any, size: int) -> U8:
    """Return the chunks of a collection, without a copy if one allocation has all of them."""
    count = len(chunks)
    first, last = (np.frombuffer(chunks[row], np.uint8) for row in (0, count - 1))
    begin = [each.ctypes.data - chunks[row].offset for each, row in ((first, 0), (last, count - 1))]
    if begin[0] == begin[1] and chunks[count - 1].offset == (count - 1) * size:
        return as_strided(first, (count, size), (size, 1), writeable=False)
    return np.frombuffer(b"".join(chunks), np.uint8).reshape(count, size)


def blosc_chunks(data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks that blosc has compressed."""
    out = np.empty((len(offset), size), np.uint8)
    for row, (start, count) in enumerate(zip(offset.tolist(), length.tolist(), strict=True)):
        source = data[start : start + count]
        claim, stored = (int.from_bytes(source[at : at + 4].tobytes(), "little") for at in (4, 12))
        if claim != size or stored > count:
            raise FormatError(f"a chunk must have {size} bytes in {count}, got {claim} in {stored}")
        blosc.decompress(source, out[row])
    return out


def gzip(data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks with one gzip member each."""
    out = np.empty((len(offset), size), np.uint8)
    for row, (start, count) in enumerate(zip(offset.tolist(), length.tolist(), strict=True)):
        member = zlib.decompressobj(wbits=31)
        chunk = member.decompress(data[start : start + count], size + 1)
        if len(chunk) != size or not member.eof or member.unused_data:
            raise FormatError(f"a chunk must be one gzip member of {size} bytes")
        out[row] = np.frombuffer(chunk, np.uint8)
    return out


#: The decoders by the classes of the codecs after `bytes`.
DECODERS: Final[Mapping[tuple[type, ...], Decoder]] = {
    (): plain,
    (ZstdCodec,): zstd,
    (BloscCodec,): blosc_chunks,
    (GzipCodec,): gzip,
}
