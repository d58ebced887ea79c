"""Settings that change how much is asked for, and when: seen in requests to a storage that is not local."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Buffer, Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.patience import patience
from zarr.core.buffer import default_buffer_prototype

import frazil
from frazil.storage.memory import MemoryStorage


class Remote(MemoryStorage):
    """Memory that pretends to be far away, and counts what is read, and how much at once."""

    is_local = False

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.most_at_once = 0
        self.expected_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    def with_settings(self, settings: frazil.StorageSettings) -> Remote:
        return self

    def _begin(self, key: str) -> None:
        with self._lock:
            self.reads[key.partition("/")[0]] += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)

    def _end(self) -> None:
        with self._lock:
            self._now -= 1

    def _pauses(self, key: str) -> Iterator[float]:
        """Until as many reads of chunks as expected run at once, and then a moment for one more."""
        end = time.monotonic() + patience(20)
        expected = self.expected_at_once if key.startswith("chunks") else 0
        while self.most_at_once < expected and time.monotonic() < end:
            yield 0.001
        yield 0.005

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self._begin(key)
        for pause in self._pauses(key):
            time.sleep(pause)
        self._end()
        return super().get(key, start, stop)

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self._begin(key)
        for pause in self._pauses(key):
            await asyncio.sleep(pause)
        self._end()
        return super().get(key, start, stop)


@pytest.fixture(scope="module")
def storage() -> Remote:
    """Three arrays: 2, 20 and 20 chunks, each a file of its own."""
    storage = Remote()
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(storage, config)
    with repo.transaction("main", message="first") as store:
        group = zarr.create_group(store)
        for name, count in (("x", 2), ("data", 20), ("more", 20)):
            array = group.create_array(name, shape=(count,), chunks=(1,), dtype="i8", fill_value=0)
            array[:] = 1 + 7
    return storage


def _open(storage: Remote, **settings: Any) -> frazil.Repository:
    repo = frazil.Repository.open(storage, frazil.RepositoryConfig(**settings))
    storage.reads.clear()
    storage.most_at_once = storage.expected_at_once = 0
    return repo


def _read(repo: frazil.Repository, name: str) -> None:
    assert (np.asarray(zarr.open_group(repo.readonly_session("main").store, mode="r")[name][:]) == 8).all()  # type: ignore[index]


@pytest.mark.parametrize(("num_bytes", "again"), [(None, 20), (1 << 20, 0), (10, 20)])
def test_chunks_are_cached_up_to_a_limit(storage: Remote, num_bytes: int | None, again: int) -> None:
    repo = _open(storage, caching=frazil.CachingConfig(num_bytes_chunks=num_bytes))
    _read(repo, "data")
    assert storage.reads["chunks"] == 20
    _read(repo, "data")  # by another session
    assert storage.reads["chunks"] - 20 in (again, again - 1)  # the small one keeps one chunk


@pytest.mark.parametrize("limit", [1, 3])
def test_requests_at_once_are_limited(storage: Remote, limit: int) -> None:
    repo = _open(storage)
    storage.expected_at_once = 4
    _read(repo, "data")
    assert storage.most_at_once > 3
    repo = _open(storage, max_concurrent_requests=limit)
    storage.expected_at_once = limit
    _read(repo, "data")
    assert storage.most_at_once == limit


async def test_partial_values_at_once_are_limited(storage: Remote) -> None:
    keys = [(f"data/c/{n}", None) for n in range(20)]
    prototype = default_buffer_prototype()
    for limit, expected in ((None, 20), (2, 2)):
        store = _open(storage, get_partial_values_concurrency=limit).readonly_session("main").store
        await store.get("data/c/0")  # manifests are at hand then
        storage.most_at_once, storage.expected_at_once = 0, expected
        values = await store.get_partial_values(prototype, keys)
        assert None not in values
        assert storage.most_at_once == expected


CONDITION = frazil.ManifestPreloadCondition


@pytest.mark.parametrize(
    ("preload", "expected"),
    [
        (None, 0),
        (frazil.ManifestPreloadConfig(), 1),  # `x` is a coordinate
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.true()), 3),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.false()), 0),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.name_matches("data|more")), 2),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.true(), max_arrays_to_scan=1), 1),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.true(), max_total_refs=25), 2),
    ],
)
def test_manifests_are_preloaded(storage: Remote, preload: Any, expected: int) -> None:
    repo = _open(storage, manifest=frazil.ManifestConfig(preload=preload))
    for _ in (repo.readonly_session("main"), repo.writable_session("main")):
        deadline = time.monotonic() + patience(10)
        while storage.reads["manifests"] < expected and time.monotonic() < deadline:
            time.sleep(0.005)
        threading.Event().wait(0.02)
        assert storage.reads["manifests"] == expected  # the second session finds them


def test_a_failed_preload_is_an_error_of_the_read_that_needs_it(
    storage: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload = frazil.ManifestPreloadConfig(preload_if=CONDITION.true())
    repo = _open(storage, manifest=frazil.ManifestConfig(preload=preload))

    get = storage.get

    def fails(key: str, start: int = 0, stop: int | None = None) -> Buffer:
        if key == "repo":
            return get(key, start, stop)
        raise frazil.StorageError("away", frazil.ErrorKind.OBJECT_STORE)

    monkeypatch.setattr(storage, "get", fails)
    session = repo.readonly_session("main")
    with pytest.raises(frazil.StorageError, match="away"):
        _ = session.workspace.snapshot
    monkeypatch.undo()
    _read(repo, "x")
