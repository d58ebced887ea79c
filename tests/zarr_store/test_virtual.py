"""Virtual references: set one by one, some at a time, or as columns; read; listed."""

from __future__ import annotations

import asyncio
import pickle
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil import IcechunkStore, VirtualChunkSpec
from frazil.credentials import LocalFileSystemAccess
from frazil.errors import ChangedFileWarning

DATA = np.arange(4 * 6 * 4, dtype="<i4").reshape(4, 6, 4)
NBYTES = 4 * 2 * 4  # of a chunk of (1, 2, 4)


@pytest.fixture
def files(tmp_path: Path) -> str:
    """A directory with one file for each first index of DATA, in C order."""
    directory = tmp_path / "files"
    directory.mkdir()
    for i, part in enumerate(DATA):
        (directory / f"{i}.bin").write_bytes(part.tobytes())
    return f"file://{directory}/"


@pytest.fixture
def open_repo(storage: Any, files: str) -> Callable[[], frazil.Repository]:
    config = frazil.RepositoryConfig.default()
    prefix = files.removeprefix("file://")
    config.set_virtual_chunk_container(
        frazil.VirtualChunkContainer(files, frazil.local_filesystem_store(prefix), name="files")
    )
    config.set_virtual_chunk_container(
        frazil.VirtualChunkContainer("s3://bucket/data/", frazil.s3_store(region="eu-west-1"))
    )
    access = {files: LocalFileSystemAccess}
    return lambda: frazil.Repository.open_or_create(
        storage, config=config, authorize_virtual_chunk_access=access
    )


@pytest.fixture
def store(open_repo: Callable[[], frazil.Repository]) -> IcechunkStore:
    store = open_repo().writable_session("main").store
    root = zarr.create_group(store)
    root.create_array("a", shape=(4, 6, 4), chunks=(1, 2, 4), dtype="<i4", compressors=None, fill_value=-1)
    root.create_group("g")
    return store


def columns(files: str) -> tuple[list[str], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    locations = [f"{files}{i}.bin" for i in range(4) for _ in range(3)]
    return locations, np.tile(np.arange(3, dtype=np.uint64) * NBYTES, 4), np.full(12, NBYTES, np.uint64)


def read(store: IcechunkStore) -> np.ndarray[Any, Any]:
    return np.asarray(zarr.open_array(store, path="a", mode="r")[:])


def batches(store: IcechunkStore, *args: Any) -> list[Any]:
    async def collect() -> list[Any]:
        return [batch async for batch in store.array_chunk_iterator(*args)]

    return asyncio.run(collect())


def test_one(store: IcechunkStore, files: str, open_repo: Callable[[], frazil.Repository]) -> None:
    store.set_virtual_ref("a/c/2/1/0", f"{files}./2.bin", offset=NBYTES, length=NBYTES)
    asyncio.run(store.set_virtual_ref_async("a/c/0/0/0", "vcc://files/0.bin", offset=0, length=NBYTES))
    expected = np.full_like(DATA, -1)
    expected[2, 2:4], expected[0, :2] = DATA[2, 2:4], DATA[0, :2]
    np.testing.assert_array_equal(read(store), expected)
    store.session.commit("two")
    reader = open_repo().readonly_session("main")
    np.testing.assert_array_equal(read(reader.store), expected)
    assert reader.chunk_type("a", [2, 1, 0]) == frazil.ChunkType.virtual
    assert reader.all_virtual_chunk_locations() == [f"{files}0.bin", f"{files}2.bin"]
    assert batches(reader.store, "a")[0][2] == [f"{files}0.bin", f"{files}2.bin"]


MANY = ["set_virtual_refs", "set_virtual_refs_async", "set_virtual_refs_arr", "set_virtual_refs_arr_async"]


@pytest.mark.parametrize("how", MANY)
def test_many(store: IcechunkStore, files: str, how: str, open_repo: Callable[[], frazil.Repository]) -> None:
    locations, offsets, lengths = columns(files)
    index = np.indices((4, 3, 1)).reshape(3, -1).T.tolist()
    rows = zip(index, locations, offsets.tolist(), lengths.tolist(), strict=True)
    chunks = [VirtualChunkSpec(*row) for row in rows][::-1]
    given: tuple[Any, ...] = ((4, 3, 1), locations, offsets, lengths) if "arr" in how else (chunks,)
    done = getattr(store, how)("/a", *given)
    assert (asyncio.run(done) if how.endswith("async") else done) is None
    np.testing.assert_array_equal(read(store), DATA)
    store.session.commit("all")
    np.testing.assert_array_equal(read(open_repo().readonly_session("main").store), DATA)


def test_holes_offsets_and_failures(store: IcechunkStore, files: str) -> None:
    locations = [f"{files}1.bin", "", "s3://elsewhere/x", f"{files}../files/2.bin"]
    zeros, lengths = np.zeros(4, np.uint64), np.full(4, NBYTES, np.uint64)
    failed = store.set_virtual_refs_arr("a", (4, 1, 1), locations, zeros, lengths, arr_offset=(0, 2, 0))
    assert failed == [(2, 2, 0)]
    expected = np.full_like(DATA, -1)
    expected[0, 4:], expected[3, 4:] = DATA[1, :2], DATA[2, :2]
    np.testing.assert_array_equal(read(store), expected)
    chunks = [VirtualChunkSpec([0, 0, 0], locations[0], 0, 4), VirtualChunkSpec([3, 0, 0], "s3://no/x", 0, 4)]
    assert store.set_virtual_refs("a", chunks) == [(3, 0, 0)]
    assert store.session.chunk_table("a").index.tolist() == [[0, 0, 0], [0, 2, 0], [3, 2, 0]]
    # Without validation all are kept.
    assert store.set_virtual_refs("a", chunks, validate_containers=False) is None
    options: dict[str, Any] = {"arr_offset": (0, 1, 0), "validate_containers": False}
    assert store.set_virtual_refs_arr("a", (4, 1, 1), locations, zeros, lengths, **options) is None
    assert len(store.session.chunk_table("a")) == 7


def test_a_container_that_allows_changes_warns_once_for_each_file(storage: Any, files: str) -> None:
    def opened(on_changed: str | None) -> frazil.Repository:
        config = frazil.RepositoryConfig.default()
        place = frazil.local_filesystem_store(files.removeprefix("file://"))
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer(files, place, on_changed=on_changed))
        return frazil.Repository.open_or_create(storage, config, {files: LocalFileSystemAccess})

    repo = opened("warn")
    session = repo.writable_session("main")
    zarr.create_array(
        session.store, name="a", shape=(4, 6, 4), chunks=(1, 2, 4), dtype="<i4", compressors=None
    )
    session.store.set_virtual_refs_arr("a", (4, 3, 1), *columns(files), checksum="recorded")
    session.commit("files that change")
    with warnings.catch_warnings(record=True, action="always") as caught:
        store = pickle.loads(pickle.dumps(repo.readonly_session("main"))).store
        np.testing.assert_array_equal(read(store), DATA)  # by the event loop
        np.testing.assert_array_equal(frazil.Array(store.session, "a")[:], DATA)  # by columns
    changed = [str(each.message) for each in caught if each.category is ChangedFileWarning]
    assert sorted(each.partition("files/")[2][:5] for each in changed) == [
        f"{number}.bin" for number in range(4)
    ]
    lost = [each for each in repo.upkeep.verify("exists").findings if each.check == "virtual-modified"]
    assert len(lost) == 4
    repo.save_config()
    for refuses in (opened(None), frazil.Repository.open(storage, None, {files: LocalFileSystemAccess})):
        with pytest.raises(frazil.StorageError, match="has changed"):
            read(refuses.readonly_session("main").store)
    with pytest.raises(frazil.InvalidInputError, match="on_changed must be"):
        opened("ignore")


ONE: dict[str, Any] = {"offset": 0, "length": 4}
SINGLE = [
    ("a/zarr.json", "s3://bucket/data/x", {}, frazil.SessionStateError, "not-allowed"),
    (".zarray", "s3://bucket/data/x", {}, frazil.SessionStateError, "not-allowed"),
    ("foo", "s3://bucket/data/x", {}, frazil.InvalidInputError, "invalid-key"),
    ("a/c/0/0/0", "s3://other/x", {}, frazil.InvalidInputError, "no-container-for-virtual-chunk"),
    ("a/c/0/0/0", "x", {}, frazil.InvalidInputError, "invalid-virtual-ref"),
    ("a/c/0/0/0", "x", {"validate_container": False}, frazil.InvalidInputError, "invalid-virtual-ref"),
    ("a/c/0/0/0", "s3://bucket/data/x", {"offset": -1}, frazil.InvalidInputError, "invalid-virtual-ref"),
    ("a/c/0/0/0", "s3://bucket/data/x", {"length": 0}, frazil.InvalidInputError, "zero-length-chunk"),
    ("a/c/0/0", "s3://bucket/data/x", {}, frazil.InvalidInputError, "invalid-chunk-index"),
    ("a/c/9/0/0", "s3://bucket/data/x", {}, frazil.InvalidInputError, "invalid-chunk-index"),
    ("g/c/0", "s3://bucket/data/x", {}, frazil.InvalidInputError, "not-an-array"),
    ("nope/c/0", "s3://bucket/data/x", {}, frazil.NodeNotFoundError, "node-not-found"),
]


@pytest.mark.parametrize(("key", "location", "changed", "error", "kind"), SINGLE)
def test_single_failures(
    store: IcechunkStore, key: str, location: str, changed: Any, error: type[Exception], kind: str
) -> None:
    with pytest.raises(error) as raised:
        store.set_virtual_ref(key, location, **{**ONE, **changed})
    assert raised.value.kind == kind  # type: ignore[attr-defined]


X = "s3://bucket/data/x"
GRIDS: list[tuple[Any, ...]] = [
    ("a", (1, 2, 1), [X, X], [0, 1], [4, 4], {"arr_offset": (0, 0)}, "invalid-chunk-index"),
    ("a", (2,), [X, X], [0, 1], [4, 4], {}, "invalid-chunk-index"),
    ("a", (1, 1, 2), [X, X], [0, 1], [4, 4], {}, "invalid-chunk-index"),
    ("a", (1, 2, 1), [X, X], [0, 1], [4, 4], {"arr_offset": (-1, 0, 0)}, "invalid-chunk-index"),
    ("a", (1, 3, 1), [X, X], [0, 1], [4, 4], {}, "invalid-virtual-ref"),
    ("a", (1, -2, -1), [X, X], [0, 1], [4, 4], {}, "invalid-virtual-ref"),
    ("a", (1, 2, 1), [X, X], [0], [4, 4], {}, "invalid-virtual-ref"),
    ("a", (1, 2, 1), [X, X], [0, -1], [4, 4], {}, "invalid-virtual-ref"),
    ("a", (1, 2, 1), [X, X], [0, 1.5], [4, 4], {}, "invalid-virtual-ref"),
    ("a", (1, 2, 1), [X, X], [0, 2**64 - 1], [4, 4], {}, "invalid-virtual-ref"),
    ("a", (1, 2, 1), [X, "y"], [0, 1], [4, 4], {"validate_containers": False}, "invalid-virtual-ref"),
    ("a", (1, 2, 1), [X, X], [0, 1], [4, 0], {}, "zero-length-chunk"),
    ("g", (2,), [X, X], [0, 1], [4, 4], {}, "not-an-array"),
    ("nope", (2,), [X, X], [0, 1], [4, 4], {}, "node-not-found"),
]


@pytest.mark.parametrize("case", GRIDS)
def test_grid_failures(store: IcechunkStore, case: tuple[Any, ...]) -> None:
    path, grid, locations, offsets, lengths, options, kind = case
    with pytest.raises((frazil.InvalidInputError, frazil.NodeNotFoundError)) as raised:
        store.set_virtual_refs_arr(path, grid, locations, np.array(offsets), np.array(lengths), **options)
    assert raised.value.kind == kind
    assert len(store.session.chunk_table("a")) == 0


def test_more_failures(store: IcechunkStore) -> None:
    with pytest.raises(TypeError, match="time zone"):
        store.set_virtual_ref("a/c/0/0/0", X, checksum=datetime(2001, 1, 1), **ONE)
    with pytest.raises(frazil.InvalidInputError) as raised:
        store.set_virtual_refs("a", [VirtualChunkSpec([0, 0], X, 0, 4)])
    assert raised.value.kind == "invalid-chunk-index"
    store.session.commit("done")
    with pytest.raises(frazil.ReadOnlyError) as raised_:
        store.set_virtual_refs("a", [])
    assert raised_.value.kind == "read-only-store"


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_chunk_iterator(
    store: IcechunkStore, files: str, committed: bool, size: int, open_repo: Callable[[], frazil.Repository]
) -> None:
    store.set_virtual_refs_arr("a", (4, 3, 1), *columns(files))
    array = zarr.open_array(store, path="a")
    array[1, :2] = 7  # 32 bytes: inline
    zarr.create_array(store, name="big", data=np.ones(9000, "u1"), chunks=(9000,), compressors=None)
    if committed:
        store.session.commit("all")
        store = open_repo().readonly_session("main").store
    chunks = batches(store, "/a", size)
    assert [len(batch[0]) for batch in chunks] == [size] * (12 // size) + [12 % size] * (12 % size > 0)
    rows = [
        (tuple(coords), kind, location, offset, length, inlined.get(row))
        for index, *columns_, inlined in chunks
        for row, (coords, kind, location, offset, length) in enumerate(
            zip(index.tolist(), *columns_, strict=True)
        )
    ]
    expected: list[Any] = [
        ((i, j, 0), 2, f"{files}{i}.bin", j * NBYTES, NBYTES, None) for i in range(4) for j in range(3)
    ]
    expected[3] = ((1, 0, 0), 3, "", 0, NBYTES, np.full(8, 7, "<i4").tobytes())
    assert rows == expected
    ((index, kinds, locations, _, lengths, inlined),) = batches(store, "big")
    assert (index.tolist(), kinds.tolist(), lengths.tolist(), inlined) == ([[0]], [1], [9000], {})
    assert len(locations[0]) == 20
    assert (index.dtype, kinds.dtype, lengths.dtype) == (np.uint32, np.uint8, np.uint64)
    assert batches(store, "/") == batches(store, "/nothing") == []


def test_batches_have_a_size(store: IcechunkStore) -> None:
    async def coordinates() -> list[Any]:
        return [each async for each in store.session.chunk_coordinates("/a", batch_size=-1)]

    asks: list[Callable[[], object]] = [lambda: batches(store, "a", 0), lambda: asyncio.run(coordinates())]
    for ask in asks:
        with pytest.raises(frazil.InvalidInputError, match="at least 1"):
            ask()
