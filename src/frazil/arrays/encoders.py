"""Encoders of many chunks of one size at once. The bytes of each chunk are those of zarr's encoder.

Only the header of gzip differs: zarr writes the time of the compression into it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import zstandard
from numcodecs.blosc import Blosc  # type: ignore[import-untyped]  # zarr requires it
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from frazil.format.columns import I64, U8

#: Returns the encoded bytes of m chunks, one after the other, and their lengths. The argument has the bytes
#: of the chunks, uint8 of shape (m, size), without gaps.
type Encoder = Callable[[U8], tuple[U8, I64]]

#: The size of a block of zstd, in bytes. The compressed form of larger chunks depends on the version of zstd.
_BLOCK: Final = 128 << 10
_SHUFFLES: Final[Mapping[str, int]] = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


def uncompressed(chunks: U8) -> tuple[U8, I64]:
    """Return chunks without compression. They are not copied."""
    return chunks.reshape(-1), np.full(len(chunks), chunks.shape[1], np.int64)


def encoder_of(codecs: Sequence[Any]) -> Encoder | None:
    """Return the encoder of an array, or None for codecs without an encoder."""
    if not codecs:
        return uncompressed
    create = _ENCODERS.get(type(codecs[0])) if len(codecs) == 1 else None
    return None if create is None else create(codecs[0])


def _zstd(codec: ZstdCodec) -> Encoder:
    def encode(chunks: U8) -> tuple[U8, I64]:
        count, size = chunks.shape
        if size > _BLOCK:  # the version of zstd that zarr uses, so that the bytes are equal
            return _encoded_parts(map(Zstd(level=codec.level, checksum=codec.checksum).encode, chunks))
        places = np.stack([size * np.arange(count), np.full(count, size)], axis=1).astype(np.uint64)
        compressor = zstandard.ZstdCompressor(level=codec.level, write_checksum=codec.checksum)
        source = zstandard.BufferWithSegments(chunks.reshape(-1).data, places.tobytes())
        frames = compressor.multi_compress_to_buffer(source, threads=1)
        return _encoded_parts(map(frames.__getitem__, range(count)))

    return encode


def _blosc(codec: BloscCodec) -> Encoder:
    blosc = Blosc(
        cname=codec.cname,
        clevel=codec.clevel,
        shuffle=_SHUFFLES[codec.shuffle],
        blocksize=codec.blocksize,
        typesize=codec.typesize,
    )
    return lambda chunks: _encoded_parts(map(blosc.encode, chunks))


def _gzip(codec: GzipCodec) -> Encoder:
    compress = partial(zlib.compress, level=codec.level, wbits=31)
    return lambda chunks: _encoded_parts(map(compress, chunks))


def _encoded_parts(parts: Iterable[Any]) -> tuple[U8, I64]:
    encoded = list(parts)
    return np.frombuffer(b"".join(encoded), np.uint8), np.fromiter(map(len, encoded), np.int64, len(encoded))


_ENCODERS: Final[Mapping[type, Callable[[Any], Encoder]]] = {
    ZstdCodec: _zstd,
    BloscCodec: _blosc,
    GzipCodec: _gzip,
}
