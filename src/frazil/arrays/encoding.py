"""The encoding of the chunks of an array: its grid, dtype, fill value and codecs, from ``zarr.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec
from zarr.core.metadata.v3 import ArrayV3Metadata

from frazil.arrays.decoders import DECODERS, Decoder
from frazil.arrays.shard_layout import ShardLayout
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.format.columns import I64

#: The largest size of a document in the cache of small documents, in bytes.
_SMALL_DOCUMENT: Final = 1 << 16
#: The largest length of a dimension or chunk. Sums of such lengths are numbers of 64 bits with a sign.
_LONGEST: Final = 1 << 61


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """The encoding of an array whose chunks are decoded in bulk.

    Attributes:
        shape: The shape of the array.
        lengths: For each dimension, the length of all chunks, or the bounds of the chunks as
            ``chunks_of_slice`` takes them.
        dtype: The dtype of the elements in memory.
        stored: The dtype of the decoded bytes, which may have another byte order.
        order: The dimensions of the array in the order in which they are stored.
        decoder: The decoder of the bytes of chunks.
        fill: The value of the elements of missing chunks, an array of shape ().
        shards: The layout of shards; then all other attributes are those of the inner chunks.
        codecs: The codecs of the array, as zarr has them.
    """

    shape: tuple[int, ...]
    lengths: tuple[int | I64, ...]
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    order: tuple[int, ...]
    decoder: Decoder
    fill: NDArray[Any]
    shards: ShardLayout | None
    codecs: tuple[Any, ...]

    @property
    def num_chunks(self) -> tuple[int, ...]:
        """The number of chunks along each dimension."""
        return tuple(
            -(-n // each) if isinstance(each, int) else len(each) - 1
            for n, each in zip(self.shape, self.lengths, strict=True)
        )

    @property
    def is_in_c_order(self) -> bool:
        """Whether chunks are stored in C order."""
        return self.order == tuple(range(len(self.shape)))

    @property
    def codecs_of_bytes(self) -> tuple[Any, ...]:
        """The codecs of zarr after ``bytes``."""
        types = [type(codec) for codec in self.codecs]
        return self.codecs[types.index(BytesCodec) + 1 :] if BytesCodec in types else ()

    def decoded(self, data: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return chunks of one shape, from their decoded bytes of shape (m, bytes)."""
        if self.is_in_c_order:
            return data.view(self.stored).reshape(len(data), *shape)
        pieces = data.view(self.stored).reshape(len(data), *(shape[d] for d in self.order))
        return pieces.transpose(0, *(1 + self.order.index(d) for d in range(len(shape))))

    def chunk_bytes(self, shape: tuple[int, ...]) -> int:
        """Return the number of bytes of a decoded chunk."""
        return prod(shape) * self.stored.itemsize


def encoding_of(document: bytes) -> Encoding | None:
    """Return the encoding of an array, or None if its chunks cannot be decoded in bulk.

    The results of the documents that were used last are cached.
    """
    return (_of_small if len(document) <= _SMALL_DOCUMENT else _of_large)(document)


def _encoding(document: bytes) -> Encoding | None:
    metadata = ArrayV3Metadata.from_dict(json.loads(document))
    dtype = metadata.dtype.to_native_dtype()
    if metadata.storage_transformers or dtype.hasobject or not dtype.itemsize:
        return None
    lengths: Sequence[int | list[int]] = chunk_lengths(document)
    codecs, shards = metadata.codecs, None
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        shards = _shards(codecs[0], lengths)
        if shards is None:
            return None
        lengths, codecs = codecs[0].chunk_shape, codecs[0].codecs
    if any(isinstance(each, int) and each > _LONGEST for each in (*lengths, *metadata.shape)):
        return None
    chain = _chain(codecs, len(metadata.shape), dtype)
    if chain is None:
        return None
    fill = np.array(metadata.fill_value, dtype)
    return Encoding(
        metadata.shape, tuple(map(_bounds, lengths)), dtype, *chain, fill, shards, metadata.codecs
    )


def _shards(codec: ShardingCodec, lengths: Sequence[int | list[int]]) -> ShardLayout | None:
    """Return the layout of shards, or None for an index with other codecs than usual."""
    if [type(each) for each in codec.index_codecs] != [BytesCodec, Crc32cCodec]:
        return None
    if _text(getattr(codec.index_codecs[0], "endian", None)) != "little":
        return None
    counts = []
    for length, inner in zip(lengths, codec.chunk_shape, strict=True):
        if isinstance(length, list):
            return None
        counts.append(length // inner)
    return ShardLayout(tuple(counts), _text(codec.index_location) == "start")


def _chain(
    codecs: Sequence[Any], ndim: int, dtype: np.dtype[Any]
) -> tuple[np.dtype[Any], tuple[int, ...], Decoder] | None:
    """Return the stored dtype, the stored order of dimensions, and the decoder. None for other codecs."""
    order = tuple(range(ndim))
    if codecs and isinstance(codecs[0], TransposeCodec):
        order, codecs = tuple(codecs[0].order), codecs[1:]
    if not codecs or type(codecs[0]) is not BytesCodec:
        return None
    decoder = DECODERS.get(tuple(type(codec) for codec in codecs[1:]))
    if decoder is None:
        return None
    endian = codecs[0].endian
    stored = dtype if endian is None else dtype.newbyteorder("<" if _text(endian) == "little" else ">")
    return stored, order, decoder


def _text(value: Any) -> str:
    """Return the text of an option of a codec, which older versions of zarr have as an enum."""
    return str(getattr(value, "value", value))


def _bounds(lengths: int | list[int]) -> int | I64:
    return lengths if isinstance(lengths, int) else np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


_of_small = lru_cache(256)(_encoding)
_of_large = lru_cache(2)(_encoding)
