"""The encoding of the chunks of an array, and the decoders and encoders of many chunks at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
import zstandard
from numcodecs import blosc  # type: ignore[import-untyped]  # zarr requires it
from numcodecs.blosc import Blosc  # type: ignore[import-untyped]  # zarr requires it
from numcodecs.fletcher32 import Fletcher32 as Fletcher32Sum  # type: ignore[import-untyped]
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]
from numcodecs.zstd import decompress as decompress_zstd
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

from frazil.errors import FormatError, InvalidInputError, MissingExtraError
from frazil.format.chunk_trailer import crc32c_rows
from frazil.format.columns import I64, U8, copy_rows
from frazil.zarr_names import Fletcher32, RectilinearChunkGridMetadata, Shuffle, Zlib
from frazil.zarr_store.array_metadata import array_metadata

#: What ``isbuiltin`` of a dtype says if a package has registered it.
_OF_PACKAGE: Final = 2
#: The bytes of an entry of the index of a shard: an offset and a length.
ENTRY_BYTES: Final = 16
#: The bytes of the checksum after the entries.
CRC_BYTES: Final = 4
#: The offset and the length of a missing inner chunk.
MISSING: Final = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """The layout of the shards of an array."""

    counts: tuple[int, ...]
    is_index_first: bool

    @property
    def index_bytes(self) -> int:
        """The number of bytes of the index of a shard."""
        return prod(self.counts) * ENTRY_BYTES + CRC_BYTES

    def split(self, shards: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """Return the inner chunks of shards of a shape, one after the other: (m, n) to (m * count, -)."""
        inner = [size // count for size, count in zip(shape, self.counts, strict=True)]
        pairs = chain.from_iterable(zip(self.counts, inner, strict=True))
        ndim = len(inner)
        order = (0, *range(1, 2 * ndim, 2), *range(2, 2 * ndim + 1, 2))
        parts = shards.reshape(len(shards), *pairs).transpose(order)
        return np.ascontiguousarray(parts).reshape(len(shards) * prod(self.counts), prod(inner))

    def join(self, data: U8, length: I64) -> tuple[U8, I64]:
        """Return the bytes of shards, from those of their inner chunks. The length of an absent one is -1."""
        stored = np.maximum(length, 0)
        ends = np.cumsum(stored, axis=1)
        entries = np.stack([ends - stored, stored], axis=-1).astype("<u8")
        entries[..., 0] += np.uint64(self.index_bytes if self.is_index_first else 0)
        entries[length < 0] = MISSING
        entries = entries.reshape(len(length), 2 * length.shape[1]).view(np.uint8)
        crc = crc32c_rows(entries.reshape(-1), np.full(len(entries), entries.shape[1])).astype("<u4")
        index = np.concatenate([entries, crc.view(np.uint8).reshape(-1, CRC_BYTES)], axis=1)
        size = ends[:, -1]
        stops = np.cumsum(size)
        chunks: Iterable[U8] = map(data.__getitem__, map(slice, (stops - size).tolist(), stops.tolist()))
        pairs = zip(index, chunks, strict=True) if self.is_index_first else zip(chunks, index, strict=True)
        return np.frombuffer(b"".join(chain.from_iterable(pairs)), np.uint8), size + self.index_bytes


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


def _deflated(wbits: int, data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks with one stream of zlib each. ``wbits`` says which header the streams have."""
    out = np.empty((len(offset), size), np.uint8)
    for row, (start, count) in enumerate(zip(offset.tolist(), length.tolist(), strict=True)):
        stream = zlib.decompressobj(wbits=wbits)
        chunk = stream.decompress(data[start : start + count], size + 1)
        if len(chunk) != size or not stream.eof or stream.unused_data:
            raise FormatError(f"a chunk must be one stream of zlib with {size} bytes")
        out[row] = np.frombuffer(chunk, np.uint8)
    return out


def _unshuffled(shuffled: Decoder, width: int, data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks whose elements of ``width`` bytes are stored byte by byte: all first bytes, and so on."""
    chunks = shuffled(data, offset, length, size).reshape(len(offset), width, size // width)
    out = np.empty((len(offset), size // width, width), np.uint8)
    for byte in range(width):  # several times as fast as a transposed copy
        out[:, :, byte] = chunks[:, byte]
    return out.reshape(len(offset), size)


#: The bytes of a Fletcher-32 checksum, after the bytes that it is the sum of.
_SUM_BYTES: Final = 4
_checked_bytes: Final = Fletcher32Sum().decode


def _summed_before(compressed: Decoder, data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks that were compressed with their checksum. Raises an error for a wrong checksum."""
    chunks = compressed(data, offset, length, size + _SUM_BYTES)
    for chunk in chunks:
        _checked_bytes(chunk)
    return chunks[:, :size]


def _summed_after(decoder: Decoder, data: U8, offset: I64, length: I64, size: int) -> U8:
    """Return chunks with a checksum of their stored bytes. Raises an error for a wrong checksum."""
    for start, count in zip(offset.tolist(), length.tolist(), strict=True):
        _checked_bytes(data[start : start + count])
    return decoder(data, offset, length - _SUM_BYTES, size)


#: The decoders of compressed chunks by the class of the codec.
_DECOMPRESSORS: Final[Mapping[type, Decoder]] = {
    ZstdCodec: zstd,
    BloscCodec: blosc_chunks,
    GzipCodec: partial(_deflated, 31),
    Zlib: partial(_deflated, 15),
}


def decoder_of(codecs: Sequence[Any], size: int) -> Decoder | None:
    """Return the decoder for the codecs after ``bytes``, or None if there is none.

    The codecs are at most one compressor, and the filters of HDF5: ``shuffle`` and ``fletcher32``. Elements
    have ``size`` bytes.
    """
    decoder: Decoder = plain
    is_summed = bool(codecs) and type(codecs[-1]) is Fletcher32
    for codec in reversed(codecs[:-1] if is_summed else codecs):
        match codec:
            case Shuffle():
                width = codec.codec_config.get("elementsize", _SHUFFLE_WIDTH)
                if not isinstance(width, int) or width < 1 or size % width:
                    return None
                decoder = partial(_unshuffled, decoder, width)
            case Fletcher32() if decoder is not plain:
                decoder = partial(_summed_before, decoder)
            case _ if decoder is plain and type(codec) in _DECOMPRESSORS:
                decoder = _DECOMPRESSORS[type(codec)]
            case _:
                return None
    return partial(_summed_after, decoder) if is_summed else decoder


#: The width of elements for a codec ``shuffle`` that does not say it.
_SHUFFLE_WIDTH: Final = 4


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
    """Return the encoder for the codecs of an array after ``bytes``, or None if one has no encoder."""
    types = [type(codec) for codec in codecs]
    codecs = codecs[types.index(BytesCodec) + 1 :] if BytesCodec in types else ()
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
    # Only the header differs from zarr's: zarr writes the time of the compression into it.
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


#: The largest size of a document in the cache of small documents, in bytes.
_SMALL_DOCUMENT: Final = 1 << 16
#: The largest length of a dimension or chunk. Sums of such lengths are numbers of 64 bits with a sign.
_LONGEST: Final = 1 << 61


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """The encoding of an array whose chunks are decoded in bulk.

    Attributes:
        lengths: For each dimension, the length of all chunks, or the bounds of the chunks as
            ``chunks_of_slice`` takes them.
        dtype: The dtype of the elements in memory.
        stored: The dtype of the decoded bytes, which may have another byte order.
        order: The dimensions of the array in the order in which they are stored.
        is_in_c_order: Whether this is C order.
        fill: The value of the elements of missing chunks, an array of shape ().
        shards: The layout of shards; then all other attributes are those of the inner chunks.
        codecs: The codecs of the array, as zarr has them.
    """

    shape: tuple[int, ...]
    lengths: tuple[int | I64, ...]
    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    order: tuple[int, ...]
    is_in_c_order: bool
    decoder: Decoder
    fill: NDArray[Any]
    shards: ShardLayout | None
    codecs: tuple[Any, ...]

    def decoded(self, data: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return chunks of one shape, from their decoded bytes of shape (m, bytes)."""
        if self.is_in_c_order:
            return data.view(self.stored).reshape(len(data), *shape)
        pieces = data.view(self.stored).reshape(len(data), *(shape[d] for d in self.order))
        return pieces.transpose(0, *(1 + self.order.index(d) for d in range(len(shape))))

    def chunk_bytes(self, shape: tuple[int, ...]) -> int:
        """Return the number of bytes of a decoded chunk."""
        return prod(shape) * self.stored.itemsize


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Return whether another package than numpy has a dtype. It has any kind, and no strides of its own."""
    return dtype.isbuiltin == _OF_PACKAGE


def tiles_of_chunks(counts: Sequence[int], index: NDArray[np.integer]) -> I64:
    """Return the coordinates of the inner chunks of shards, ``counts`` of each: shape (m * count, ndim)."""
    ndim = len(counts)
    inner = np.indices(counts).reshape(ndim, prod(counts)).T
    tiles = index[:, None].astype(np.int64) * np.array(counts, np.int64) + inner
    return tiles.reshape(len(index) * len(inner), ndim)


def encoding_of(document: bytes) -> Encoding | None:
    """Return the encoding of an array, or None if its chunks cannot be decoded in bulk. It is cached.

    It is None also for metadata that no installed package reads: who opens the array gets the error.
    """
    try:
        return (_of_small if len(document) <= _SMALL_DOCUMENT else _of_large)(document)
    except (InvalidInputError, MissingExtraError):
        return None


def _encoding(document: bytes) -> Encoding | None:
    metadata = array_metadata(document, "")
    dtype = metadata.dtype.to_native_dtype()
    if dtype.hasobject or not dtype.itemsize or is_extension(dtype):
        return None
    grid = metadata.chunk_grid
    lengths: Sequence[int | Sequence[int]] = (
        grid.chunk_shapes if isinstance(grid, RectilinearChunkGridMetadata) else grid.chunk_shape
    )
    codecs, shards = metadata.codecs, None
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        shards = _shards(codecs[0], lengths)
        if shards is None:
            return None
        lengths, codecs = codecs[0].chunk_shape, codecs[0].codecs
    if any(isinstance(each, int) and each > _LONGEST for each in (*lengths, *metadata.shape)):
        return None
    order: tuple[int, ...] = tuple(range(len(metadata.shape)))
    if codecs and isinstance(codecs[0], TransposeCodec):
        order, codecs = tuple(codecs[0].order), codecs[1:]
    decoder = decoder_of(codecs[1:], dtype.itemsize)
    if not codecs or type(codecs[0]) is not BytesCodec or decoder is None:
        return None
    endian = codecs[0].endian
    stored = dtype if endian is None else dtype.newbyteorder("<" if _text(endian) == "little" else ">")
    bounds = tuple(
        [
            each if isinstance(each, int) else np.concatenate([[0], np.cumsum(each, dtype=np.int64)])
            for each in lengths
        ]
    )
    return Encoding(
        shape=metadata.shape,
        lengths=bounds,
        dtype=dtype,
        stored=stored,
        order=order,
        is_in_c_order=order == tuple(range(len(metadata.shape))),
        decoder=decoder,
        fill=np.array(metadata.fill_value, dtype),
        shards=shards,
        codecs=metadata.codecs,
    )


def _shards(codec: ShardingCodec, lengths: Sequence[int | Sequence[int]]) -> ShardLayout | None:
    """Return the layout of shards, or None for an index with other codecs than usual."""
    if [type(each) for each in codec.index_codecs] != [BytesCodec, Crc32cCodec]:
        return None
    if _text(getattr(codec.index_codecs[0], "endian", None)) != "little":
        return None
    counts = []
    for length, inner in zip(lengths, codec.chunk_shape, strict=True):
        if not isinstance(length, int):
            return None
        counts.append(length // inner)
    return ShardLayout(tuple(counts), _text(codec.index_location) == "start")


def _text(value: Any) -> str:
    """Return the text of an option of a codec, which older versions of zarr have as an enum."""
    return str(getattr(value, "value", value))


_of_small = lru_cache(256)(_encoding)
_of_large = lru_cache(2)(_encoding)
