"""Arrays of every kind through zarr: written, committed, read from a new handle.

The same program runs on zarr's MemoryStore, with both of zarr's codec pipelines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

import frazil

Reopened = Callable[[frazil.Session], frazil.IcechunkStore]
PIPELINES = ["BatchedCodecPipeline", "FusedCodecPipeline"]


@pytest.fixture(params=PIPELINES, autouse=True)
def pipeline(request: pytest.FixtureRequest) -> Iterator[str]:
    with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{request.param}"}):
        yield request.param


def numbers(dtype: str, n: int = 35) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).integers(0, 100, n)
    if dtype == "bool":
        return values > 50
    return values.astype(dtype)


POINT = np.dtype([("x", "<i4"), ("y", ">f8"), ("name", "S3")])
VALUES = {
    **{dtype: numbers(dtype) for dtype in ("bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")},
    **{dtype: numbers(dtype) for dtype in (">i2", ">f4", ">c16")},
    **{dtype: numbers("i8").view(dtype) for dtype in ("M8[ns]", "M8[D]", "m8[s]", "m8[10us]")},
    "text": np.array(["a", "", "ü\n", "long " * 99] * 9, np.dtypes.StringDType()),
    "fixed text": np.array(["a", "", "üß", "four"] * 9, "U4"),
    "fixed bytes": np.array([b"a", b"", b"four"] * 12, "S4"),
    "raw bytes": np.array([b"abc", b"\0\1\2"] * 18, "V3"),
    "structured": np.array([(i, i / 2, b"abc"[: i % 4]) for i in range(36)], POINT),
    "nan": np.array([np.nan, np.inf, -np.inf, -0.0] * 9),
    "not a time": np.array(["NaT", "2001-01-01"] * 18, "M8[s]"),
}


@pytest.mark.parametrize("name", VALUES)
def test_types(session: frazil.Session, reopened: Reopened, name: str) -> None:
    data = VALUES[name]
    array = zarr.create_array(session.store, name="a", shape=data.shape, chunks=(10,), dtype=data.dtype)
    array[:] = data
    array[3:5] = data[5:7]
    data = data.copy()
    data[3:5] = data[5:7]
    for store in (session.store, reopened(session)):
        found = zarr.open_array(store, path="a", mode="r")
        # zarr gives back its own byte order
        assert (found.dtype.kind, found.dtype.itemsize) == (data.dtype.kind, data.dtype.itemsize)
        np.testing.assert_array_equal(np.asarray(found[:]), data)
        np.testing.assert_array_equal(np.asarray(found[7:23:3]), data[7:23:3])


@pytest.mark.parametrize(("shape", "chunks"), [((), ()), ((0,), (1,)), ((3, 0, 2), (2, 1, 2)), ((1,), (5,))])
def test_shapes(session: frazil.Session, reopened: Reopened, shape: Any, chunks: Any) -> None:
    array = zarr.create_array(session.store, name="a", shape=shape, chunks=chunks, dtype="i2", fill_value=4)
    assert (array[...] == 4).all()
    array[...] = 7
    for store in (session.store, reopened(session)):
        found = zarr.open_array(store, path="a", mode="r")[...]
        np.testing.assert_array_equal(found, np.full(shape, 7, "i2"))


@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize("shards", [(8, 8), (16, 8)])
def test_shards(session: frazil.Session, reopened: Reopened, shards: Any, index_location: Any) -> None:
    data = np.random.default_rng(0).integers(0, 1000, (20, 30))
    array = zarr.create_array(
        session.store,
        name="a",
        shape=data.shape,
        chunks=shards,
        dtype="i4",
        serializer=ShardingCodec(
            chunk_shape=(4, 4), codecs=[BytesCodec(), ZstdCodec()], index_location=index_location
        ),
        compressors=None,
    )
    array[:] = data
    array[3:7, 5:21] = data[3:7, 5:21] = 5
    array[8:16, 8:16] = data[8:16, 8:16] = 0  # a shard of fill values
    for store in (session.store, reopened(session)):
        found = zarr.open_array(store, path="a", mode="r")
        np.testing.assert_array_equal(found[:], data)
        np.testing.assert_array_equal(found[2:19:5, ::7], data[2:19:5, ::7])
        np.testing.assert_array_equal(found.oindex[[0, 19, 7], :], data[[0, 19, 7], :])


GRIDS: dict[str, Any] = {
    "edges": [[3, 4, 5], [1, 2, 7, 2]],
    "runs": [[4, 4, 4], [1, 1, 1, 1, 8]],
    "integer": [5, [1, 2, 9]],
}


@pytest.mark.parametrize("name", GRIDS)
def test_rectilinear_grids(session: frazil.Session, reopened: Reopened, name: str) -> None:
    data = np.arange(144).reshape(12, 12)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array(
            session.store, name="a", shape=data.shape, chunks=GRIDS[name], dtype="i4", fill_value=-1
        )
        array[:] = data
        array[2:5, 3:11] = data[2:5, 3:11] = 0
        for store in (session.store, reopened(session)):
            np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], data)


@pytest.mark.parametrize("write_empty_chunks", [False, True])
def test_empty_chunks(session: frazil.Session, reopened: Reopened, write_empty_chunks: bool) -> None:
    array = zarr.create_array(
        session.store,
        name="a",
        shape=(6,),
        chunks=(2,),
        dtype="f8",
        fill_value=np.nan,
        config={"write_empty_chunks": write_empty_chunks},
    )
    array[:] = [1, 2, np.nan, np.nan, np.nan, 3]
    array[:2] = np.nan
    store = reopened(session)
    assert store.session.chunk_table("a").index.ravel().tolist() == [[2], [0, 1, 2]][write_empty_chunks]
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], [np.nan] * 5 + [3])


def test_groups_and_attributes(session: frazil.Session, reopened: Reopened) -> None:
    attributes = {"a": {"b": [1, 2.5, None, "ü", {"c": True}]}, "big": 2**53}
    root = zarr.create_group(session.store, attributes=attributes)
    root.create_group("x/y/c").create_array("0", shape=(2,), dtype="i1", attributes=attributes)[:] = 1
    root["x/y"].attrs["later"] = attributes
    del root["x/y"].attrs["later"]
    root["x"].update_attributes(attributes)
    found = zarr.open_group(reopened(session), mode="r")
    assert found.attrs.asdict() == found["x"].attrs.asdict() == found["x/y/c/0"].attrs.asdict() == attributes
    assert found["x/y"].attrs.asdict() == {}
    assert [path for path, _ in found.members(max_depth=None)] == ["x", "x/y", "x/y/c", "x/y/c/0"]
    assert found["x/y/c/0"][:].tolist() == [1, 1]


def test_resize_and_append(session: frazil.Session, reopened: Reopened, repo: frazil.Repository) -> None:
    for store in (session.store, MemoryStore()):
        array = zarr.create_array(store, name="a", shape=(5, 4), chunks=(2, 3), dtype="i4", fill_value=-1)
        array[:] = np.arange(20).reshape(5, 4)
        array.append(np.full((4, 4), 9))
        array.resize((3, 7))
        array.resize((6, 7))
        array[4:, 5:] = 3
        expected = array[:]
    np.testing.assert_array_equal(zarr.open_array(reopened(session), path="a", mode="r")[:], expected)
    # Chunks that a committed array lost must not come back when it grows again.
    shrunk = repo.writable_session("main")
    zarr.open_array(shrunk.store, path="a", mode="r+").resize((2, 2))
    shrunk.commit("shrunk")
    grown = repo.writable_session("main")
    zarr.open_array(grown.store, path="a", mode="r+").resize((6, 7))
    expected[2:], expected[:, 3:] = -1, -1
    for store in (grown.store, reopened(grown)):
        np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], expected)


def test_overwrite_and_delete(session: frazil.Session, repo: frazil.Repository) -> None:
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    session.commit("one")
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(6,), chunks=(2,), dtype="f4", overwrite=True)
    assert array[:].tolist() == [0] * 6  # not the chunks of the one before
    array[2:4] = 5
    session.commit("two")
    session = repo.writable_session("main")
    assert zarr.open_array(session.store, path="a")[:].tolist() == [0, 0, 5, 5, 0, 0]
    del zarr.open_group(session.store)["a"]
    session.commit("three")
    assert "a" not in zarr.open_group(repo.readonly_session("main").store, mode="r")


def test_threads_write_at_once(session: frazil.Session, reopened: Reopened) -> None:
    data = np.random.default_rng(0).random((32, 4096))
    array = zarr.create_array(session.store, name="a", shape=data.shape, chunks=(1, 1024), dtype="f8")
    failures: list[BaseException] = []

    def write(first: int) -> None:
        try:
            mine = zarr.open_array(session.store, path="a", mode="r+")
            for row in range(first, 32, 8):
                mine[row] = data[row]
                np.testing.assert_array_equal(mine[row], data[row])
                zarr.create_group(session.store, path=f"g{row}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    np.testing.assert_array_equal(array[:], data)
    store = reopened(session)
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], data)
    assert len(list(zarr.open_group(store, mode="r").groups())) == 32


@pytest.mark.parametrize("packed", [True, False])
def test_sizes_around_the_thresholds(storage: Any, packed: bool) -> None:
    config = frazil.RepositoryConfig(
        packing=frazil.PackingConfig(enabled=packed, threshold_bytes=4096, pack_size_bytes=8192)
    )
    repo = frazil.Repository.create(storage, config=config)
    session = repo.writable_session("main")
    lengths = [1, 511, 512, 513, 4095, 4096, 4097, 8192, 20_000]
    values = {f"a{n}": np.random.default_rng(n).integers(0, 256, 3 * n).astype("u1") for n in lengths}
    for (name, data), n in zip(values.items(), lengths, strict=True):
        array = zarr.create_array(
            session.store, name=name, shape=data.shape, chunks=(n,), dtype="u1", compressors=None
        )
        array[:] = data
        np.testing.assert_array_equal(array[:], data)
    session.commit("all")
    store = frazil.Repository.open(storage).readonly_session("main").store
    for name, data in values.items():
        np.testing.assert_array_equal(zarr.open_array(store, path=name, mode="r")[:], data)
