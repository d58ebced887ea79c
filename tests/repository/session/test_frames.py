"""Chunks that say that they are larger than their array allows are refused before they are decompressed."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

import frazil
from frazil.errors import FormatError
from frazil.repository.session.chunk_refs import claimed_bytes, largest_chunk

LARGE = 1 << 26
BOMB = zstandard.compress(bytes(LARGE))
#: The same without the content size in the header.
STREAM = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(LARGE))
SKIPPED = b"\x5a\x2a\x4d\x18\x04\x00\x00\x00skip"
BLOSC = struct.pack("<BBBBIII", 2, 1, 33, 4, LARGE, LARGE, 16)


def array_of(**arguments: Any) -> tuple[Any, Any]:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    store = repo.writable_session("main").store
    given: dict[str, Any] = {"shape": (2000,), "chunks": (1000,), "dtype": "f8", **arguments}
    return store, zarr.create_array(store, name="x", **given)


def put(store: Any, data: bytes) -> None:
    store.set_sync("x/c/0", default_buffer_prototype().buffer.from_bytes(data))


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (ZstdCodec(), BOMB),
        (ZstdCodec(), STREAM),
        (ZstdCodec(), zstandard.compress(b"") + STREAM),
        (ZstdCodec(), SKIPPED + STREAM),
        (ZstdCodec(), SKIPPED + BOMB + SKIPPED),
        (BloscCodec(), BLOSC),
        (BloscCodec(), BLOSC + b"and more"),
    ],
    ids=["zstd", "stream", "two frames", "skipped frame", "skipped frames", "blosc", "longer blosc"],
)
def test_bombs_are_refused(codec: Any, data: bytes) -> None:
    store, array = array_of(compressors=codec)
    array[:] = np.arange(2000)
    put(store, data)
    with pytest.raises(
        FormatError, match=f"x/c/0: the (zstd|blosc) data must have at most 8000 bytes.*{LARGE}"
    ):
        array[:1000]
    assert (array[1000:] == np.arange(1000, 2000)).all()


def test_bombs_behind_a_checksum_are_refused() -> None:
    store, array = array_of(compressors=[Crc32cCodec(), ZstdCodec()])
    put(store, BOMB)
    with pytest.raises(FormatError, match="at most 8004 bytes"):
        array[:1000]


@pytest.mark.parametrize("codec", [ZstdCodec(), BloscCodec(), GzipCodec(), None])
def test_large_chunks_that_compress_well_are_read(codec: Any) -> None:
    _, array = array_of(shape=(1 << 22,), chunks=(1 << 22,), compressors=codec)
    array[:] = 1
    assert (array[:] == 1).all()


def test_large_chunks_without_a_content_size_are_read() -> None:
    store, array = array_of(shape=(1 << 23,), chunks=(1 << 23,), dtype="f8", compressors=ZstdCodec())
    put(store, STREAM)
    assert not array[:].any()


def stream(data: bytes, size: int) -> bytes:
    """A frame without a content size, with a block for each so many bytes."""
    machine = zstandard.ZstdCompressor().compressobj()
    steps = (data[at : at + size] for at in range(0, len(data), size))
    flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
    return b"".join(machine.compress(step) + machine.flush(flush) for step in steps) + machine.flush()


def test_streams_whose_blocks_are_not_full_are_read() -> None:
    """Blocks that were full would hold more bytes than a chunk of the array has."""
    store, array = array_of(shape=(1 << 22,), chunks=(1 << 22,), compressors=ZstdCodec())
    expected = np.arange(1 << 22, dtype="f8")
    for data in (stream(expected.tobytes(), 50_000), SKIPPED + stream(expected.tobytes(), 50_000)):
        put(store, data)
        assert (array[:] == expected).all()


@pytest.mark.parametrize("size", [0, 255, 256, 65_791, 65_792, 1 << 20])
@pytest.mark.parametrize("checksum", [False, True])
def test_sizes_of_frames_are_added(size: int, checksum: bool) -> None:
    small = zstandard.ZstdCompressor(write_checksum=checksum).compress(bytes(size))
    assert claimed_bytes(small + BOMB) == ("zstd", size + LARGE)
    assert claimed_bytes(small) is None


def test_streams_that_are_a_little_too_long_are_refused() -> None:
    store, array = array_of(shape=(1 << 22,), chunks=(1 << 22,), compressors=ZstdCodec())
    put(store, stream(bytes(8 * (1 << 22) + 1), 50_000))
    with pytest.raises(FormatError, match=f"at most {8 << 22} bytes"):
        array[:]


def test_raw_bytes_that_look_like_a_bomb_are_read() -> None:
    store, array = array_of(compressors=None, dtype="u1", chunks=(len(BOMB),), shape=(len(BOMB),))
    put(store, BOMB)
    assert array[:].tobytes() == BOMB


DOCUMENT: dict[str, Any] = {
    "shape": [100, 100],
    "data_type": "float64",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 5]}},
    "codecs": [{"name": "bytes"}, {"name": "zstd"}],
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("zstd", 400)),
        ({"data_type": "bool"}, ("zstd", 50)),
        ({"data_type": "complex64"}, ("zstd", 400)),
        ({"data_type": "r24"}, ("zstd", 150)),
        ({"data_type": "string"}, None),
        ({"data_type": {"name": "numpy.datetime64"}}, None),
        ({"codecs": [{"name": "sharding_indexed"}]}, None),
        ({"codecs": [{"name": "vlen-utf8"}, {"name": "zstd"}]}, None),
        ({"codecs": [{"name": "bytes"}, {"name": "gzip"}, {"name": "zstd"}]}, None),
        ({"codecs": [{"name": "numcodecs.packbits"}, {"name": "bytes"}, {"name": "zstd"}]}, None),
        ({"codecs": [{"name": "transpose"}, {"name": "bytes"}, {"name": "zstd"}]}, ("zstd", 400)),
        ({"codecs": []}, None),
        ({"storage_transformers": [{"name": "x"}]}, None),
        ({"chunk_grid": {"name": "strange"}}, None),
    ],
)
def test_what_a_document_tells(changes: dict[str, Any], expected: Any) -> None:
    actual = largest_chunk(json.dumps(DOCUMENT | changes).encode())
    assert actual == expected or (expected is None and actual is not None and actual[0] != "zstd")


@pytest.mark.parametrize("document", [b"", b"[]", b"1", b"[" * 100_000, b"{}", b"\xff"])
def test_documents_that_are_none(document: bytes) -> None:
    assert largest_chunk(document) is None


@pytest.mark.parametrize(
    "data", [b"", b"\x28", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xff", BOMB[:9], BLOSC[:15]]
)
def test_what_is_cut_off_is_left_to_the_codec(data: bytes) -> None:
    claimed_bytes(data)
