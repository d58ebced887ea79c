"""Reads from a remote storage: the number of requests, their order, and the cache of chunks."""

from __future__ import annotations

import threading
from typing import Any, override

import numpy as np
import pytest
import zarr
from tests.arrays.test_array import same
from tests.support.patience import patience

import frazil
from frazil.testing import LatencyStorage

CODECS = [None, zarr.codecs.ZstdCodec(level=1)]


class Remote(LatencyStorage):
    """A remote storage without latency that notes the folders of the reads."""

    def __init__(self) -> None:
        super().__init__(frazil.in_memory_storage())
        self.reads: list[str] = []
        self.barrier: threading.Barrier | None = None

    @override
    def with_settings(self, settings: Any) -> Remote:
        return self

    @override
    def get(self, key: str, start: int = 0, stop: int | None = None) -> Any:
        self.reads.append(key.partition("/")[0])
        if self.barrier is not None and key.startswith("chunks"):
            self.barrier.wait(patience(20))
        return super().get(key, start, stop)

    @override
    def get_versioned(self, key: str) -> Any:
        self.reads.append(key.partition("/")[0])
        return super().get_versioned(key)

    def take_reads(self) -> list[str]:
        reads, self.reads = self.reads, []
        return reads


def config(**options: Any) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, **options)


@pytest.fixture
def storage() -> Remote:
    return Remote()


@pytest.fixture
def values() -> np.ndarray:
    return np.arange(400, dtype="f8")


def write(storage: Remote, values: np.ndarray, codec: Any = None, **options: Any) -> None:
    repo = frazil.Repository.create(storage, config(**options))
    with repo.transaction("main", message="values") as store:
        zarr.create_array(store, name="t", data=values, chunks=(20,), compressors=codec)
    storage.take_reads()


@pytest.mark.parametrize("codec", CODECS)
def test_requests_of_a_read(storage: Remote, values: np.ndarray, codec: Any) -> None:
    """Each request waits for the one before. The last one is for all chunks."""
    write(storage, values, codec)
    repo = frazil.Repository.open(storage)
    storage.take_reads()
    session = repo.readonly_session("main")
    array = frazil.Array(session, "/t")
    assert storage.take_reads() == ["repo", "snapshots"]
    same(array[:], values)
    assert storage.take_reads() == ["manifests", "chunks"]
    same(array[::-7], values[::-7])
    same(array[[3, 399, 20]], values[[3, 399, 20]])
    assert storage.take_reads() == ["chunks"] * 2


@pytest.mark.parametrize("codec", CODECS)
def test_requests_for_several_objects_are_in_flight_together(
    storage: Remote, values: np.ndarray, codec: Any
) -> None:
    write(storage, values, codec, packing=frazil.PackingConfig(threshold_bytes=0))
    array = frazil.Array(frazil.Repository.open(storage).readonly_session("main"), "/t")
    storage.barrier = threading.Barrier(20)
    same(array[:], values)
    same(array[10:399], values[10:399])
    assert storage.take_reads().count("chunks") == 40


@pytest.mark.parametrize("codec", CODECS)
def test_the_cache_of_chunks(storage: Remote, values: np.ndarray, codec: Any) -> None:
    write(storage, values, codec)
    options = config(caching=frazil.CachingConfig(num_bytes_chunks=1 << 20))
    repo = frazil.Repository.open(storage, options)
    array = frazil.Array(repo.readonly_session("main"), "/t")
    same(array[100:200], values[100:200])
    storage.take_reads()
    same(array[100:200], values[100:200])
    same(array[110:190:3], values[110:190:3])
    same(array[[199, 101]], values[[199, 101]])
    same(zarr.open_array(array.session.store, path="t", mode="r")[100:200], values[100:200])
    assert storage.take_reads() == []
    same(array[:], values)  # one request for the other chunks, before and after those that are cached
    assert storage.take_reads() == ["chunks"]
    other = frazil.Array(repo.readonly_session("main"), "/t")
    same(other[:], values)
    assert "chunks" not in storage.take_reads()


def test_the_cache_has_a_limit(storage: Remote, values: np.ndarray) -> None:
    write(storage, values)
    options = config(caching=frazil.CachingConfig(num_bytes_chunks=350))
    array = frazil.Array(frazil.Repository.open(storage, options).readonly_session("main"), "/t")
    for _ in range(2):
        same(array[:], values)
        assert "chunks" in storage.take_reads()
    same(array[380:], values[380:])
    assert storage.take_reads().count("chunks") <= 1


def test_changes_of_the_session_are_not_cached(storage: Remote, values: np.ndarray) -> None:
    write(storage, values)
    options = config(caching=frazil.CachingConfig(num_bytes_chunks=1 << 20))
    session = frazil.Repository.open(storage, options).writable_session("main")
    array = frazil.Array(session, "/t")
    same(array[:], values)
    for number in range(3):
        zarr.open_array(session.store, path="t")[30:90] = number
        values[30:90] = number
        same(array[:], values)
