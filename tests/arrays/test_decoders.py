"""Decoders of chunks in bulk, with damaged bytes."""

from __future__ import annotations

import zlib
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from numcodecs.fletcher32 import Fletcher32 as Fletcher32Sum  # type: ignore[import-untyped]
from tests.arrays.test_array import same
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.codecs.numcodecs import Fletcher32, Shuffle, Zlib

import frazil
from frazil.arrays.encoding import decoder_of, zstd


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


#: The filters of HDF5 in all orders that files have: the checksum is the last filter, or comes before zlib.
PIPELINES: list[tuple[type, ...]] = [
    (Zlib,),
    (Shuffle, Zlib),
    (Shuffle,),
    (Fletcher32,),
    (Shuffle, Fletcher32),
    (Shuffle, Zlib, Fletcher32),
    (Shuffle, Fletcher32, Zlib),
    (Fletcher32, Zlib),
    (Shuffle, GzipCodec),
    (Shuffle, ZstdCodec, Fletcher32),
    (Shuffle, BloscCodec),
]
DTYPES = ["u1", "<i2", ">f4", "<f8", "<c16"]


def codecs_of(pipeline: tuple[type, ...], width: int) -> list[Any]:
    return [codec(elementsize=width) if codec is Shuffle else codec() for codec in pipeline]


@pytest.fixture
def session() -> frazil.Session:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    return frazil.Repository.create(frazil.in_memory_storage(), config).writable_session("main")


@pytest.mark.usefixtures("in_bulk")
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda codecs: "-".join(c.__name__ for c in codecs))
def test_filters_of_hdf5_are_decoded_as_by_zarr(session: frazil.Session, pipeline: tuple[type, ...]) -> None:
    for number, dtype in enumerate(DTYPES):
        codecs = codecs_of(pipeline, np.dtype(dtype).itemsize)
        values = np.random.default_rng(number).integers(0, 100, (23, 8)).astype(dtype)
        options: dict[str, Any] = {"chunks": (5, 3), "compressors": codecs, "filters": None}
        zarr.create_array(session.store, name=f"t{number}", data=values, **options)
        array = zarr.open_array(session.store, path=f"t{number}")
        values = values.astype(array.dtype)  # zarr chooses the byte order in memory
        ours = frazil.Array(session, f"t{number}")
        same(ours[:], array[:])
        same(ours[3:19:4, 2], values[3:19:4, 2])
        same(ours[[22, 0], [7, 1]], values[[22, 0], [7, 1]])


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda codecs: "-".join(c.__name__ for c in codecs))
def test_no_damaged_byte_is_decoded_unnoticed(session: frazil.Session, pipeline: tuple[type, ...]) -> None:
    """A checksum, or that of zlib, detects each change. Without one, the decoder returns or raises."""
    is_checked = {Zlib, Fletcher32, GzipCodec} & set(pipeline)
    decode = decoder_of(codecs_of(pipeline, 4), 4)
    assert decode is not None
    values = np.arange(10, dtype="<i4")
    options: dict[str, Any] = {"compressors": codecs_of(pipeline, 4), "filters": None, "chunks": (10,)}
    zarr.create_array(session.store, name="t", data=values, **options)
    buffer = session.store.get_sync("t/c/0")
    assert buffer is not None
    chunk = buffer.to_bytes()
    place = np.zeros(1, np.int64), np.array([len(chunk)])
    assert decode(np.frombuffer(chunk, np.uint8), *place, 40).tobytes() == values.tobytes()
    for at, change in product(range(len(chunk)), (1, 128)):
        data = np.frombuffer(chunk, np.uint8).copy()
        data[at] ^= change
        try:
            decoded = decode(data, *place, 40)
        except Exception:
            continue
        assert decoded.shape == (1, 40)
        # gzip has a time and flags in its header
        assert not is_checked or decoded.tobytes() == values.tobytes()


def test_a_wrong_checksum_below_zlib() -> None:
    decode, values = decoder_of([Fletcher32(), Zlib()], 4), bytes(range(40))
    assert decode is not None
    for checked, is_right in ((Fletcher32Sum().encode(values), True), (values + b"\0sum", False)):
        stream = np.frombuffer(zlib.compress(bytes(checked)), np.uint8)
        place = np.zeros(1, np.int64), np.array([len(stream)])
        with nullcontext() if is_right else pytest.raises(RuntimeError, match="checksum"):
            assert decode(stream, *place, 40).tobytes() == values


def test_codecs_without_a_decoder() -> None:
    """zarr reads them: widths that do not divide an element, unknown codecs, and two compressors."""
    for codecs in ([Shuffle(elementsize=3), Zlib()], [Zlib(), Shuffle(elementsize=4)], [Zlib(), Zlib()]):
        assert decoder_of(codecs, 4) is None
