"""Storages that have to be waited for: chunks are awaited, and fetched together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Buffer

import numpy as np
import pytest
import zarr
from zarr.abc.store import _store_supports_sync_io

import frazil
from frazil.storage.base import Stored
from frazil.storage.memory import MemoryStorage
from frazil.storage.settings import StorageSettings


class SlowStorage(MemoryStorage):
    """Memory that says it is far away, and remembers what was awaited."""

    is_local = False

    def __init__(self) -> None:
        super().__init__()
        self.awaited: list[str] = []
        self.blocked_a_loop: list[str] = []
        self.at_once = 0
        self._now = 0

    def with_settings(self, settings: StorageSettings) -> SlowStorage:
        return self

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self.awaited.append(key)
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        await asyncio.sleep(0.005)
        self._now -= 1
        return super().get(key, start, stop)

    async def put_async(self, key: str, data: Buffer) -> Stored:
        self.awaited.append(key)
        await asyncio.sleep(0.005)
        answer = super().put(key, data)
        assert isinstance(answer, Stored)
        return answer

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        if not key.startswith("repo") and threading.current_thread().name == "zarr_io":
            self.blocked_a_loop.append(key)
        return super().get(key, start, stop)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pipeline", ["BatchedCodecPipeline", "FusedCodecPipeline"])
def test_chunks_are_awaited(packed: bool, pipeline: str) -> None:
    slow = SlowStorage()
    config = frazil.RepositoryConfig(packing=frazil.PackingConfig(enabled=packed))
    repo = frazil.Repository.create(slow, config=config)
    session = repo.writable_session("main")
    data = np.random.default_rng(0).random((64, 100))
    # zarr asks for all chunks at once: how they are grouped does not depend on the speed of the machine.
    options = {"codec_pipeline.path": f"zarr.core.codec_pipeline.{pipeline}", "async.concurrency": 64}
    with zarr.config.set(options):
        array = zarr.create_array(session.store, name="a", shape=data.shape, chunks=(1, 100), dtype="f8")
        array[:] = data
        np.testing.assert_array_equal(array[:], data)
        assert (len(slow.awaited) == 0) == packed
        session.commit("done")
        store = repo.readonly_session("main").store
        assert not _store_supports_sync_io(store)
        slow.awaited.clear()
        np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], data)
    # Chunks of one pack are one request, files are one each, at the same time.
    assert 0 < len(slow.awaited) <= 8 if packed else len(slow.awaited) == 64
    assert packed or slow.at_once > 4
    assert slow.blocked_a_loop == []


@pytest.mark.parametrize("pipeline", ["BatchedCodecPipeline", "FusedCodecPipeline"])
def test_existing_chunks_are_recognised_without_blocking(pipeline: str) -> None:
    slow = SlowStorage()
    config = frazil.RepositoryConfig(
        chunks=frazil.ChunksConfig(deduplicate=True), packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(slow, config=config)
    data = np.random.default_rng(0).random((64, 100))
    data[1::2] = data[0]
    with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{pipeline}"}):
        for name in "ab":
            with repo.transaction("main", message=name) as store:
                zarr.create_array(store, name=name, data=data, chunks=(1, 100), compressors=None)
    assert len(list(slow.list("chunks"))) == 32
    store = repo.readonly_session("main").store
    for name in "ab":
        np.testing.assert_array_equal(zarr.open_array(store, path=name, mode="r")[:], data)
    assert slow.blocked_a_loop == []
