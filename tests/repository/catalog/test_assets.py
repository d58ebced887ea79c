"""Decoded files are kept, made once however many ask, and dropped when they take too much memory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.patience import patience

import frazil
from frazil.format.columns import Ragged
from frazil.repository.catalog.assets import DecodedCache, held_bytes


@pytest.mark.parametrize("fails", [False, True])
def test_concurrent_requests_for_one_asset_load_it_once(fails: bool) -> None:
    cache: DecodedCache[str] = DecodedCache(10)
    calls: list[int] = []
    started, go = threading.Event(), threading.Event()

    def make(_key: Any) -> Any:
        calls.append(1)
        started.set()
        assert go.wait(patience(10))
        if fails:
            raise OSError("no")
        return "value"

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(cache.get_or_make, b"k", make) for _ in range(8)]
        assert started.wait(patience(10))
        go.set()
    assert fails or calls == [1]
    assert [each.exception() is not None for each in answers] == [fails] * 8
    assert (b"k" in cache) is not fails
    assert cache.get_or_make(b"k", lambda _: "again") == ("again" if fails else "value")


def test_the_oldest_go_first_and_the_newest_always_stays() -> None:
    cache = DecodedCache(5, weigh=int)
    for key, weight in ((b"a", 2), (b"b", 2), (b"a", 2), (b"c", 3)):
        cache.get_or_make(key, {key: weight}.__getitem__)
    assert [key in cache for key in (b"a", b"b", b"c")] == [True, False, True]
    cache.get_or_make(b"huge", lambda _: 100)
    assert [key in cache for key in (b"a", b"c", b"huge")] == [False, False, True]


def test_views_of_one_buffer_weigh_as_much_as_the_buffer() -> None:
    payload = bytes(10_000)
    views = [np.frombuffer(payload, np.uint8, 10, at) for at in (0, 100, 5_000)]
    assert held_bytes({"rows": Ragged(views[0], *(np.zeros(2, np.int64) for _ in range(2)))}) == 10_000 + 32
    assert held_bytes(dict(enumerate(views))) == 10_000
    assert held_bytes({number: memoryview(view) for number, view in enumerate(views)}) < 1_000
    assert held_bytes({"note": "x" * 5_000}) > 5_000


def commit(repo: frazil.Repository, count: int, *, attributes: dict[str, Any] | None = None) -> None:
    for value in range(count):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.create_group(store, path="g", overwrite=True, attributes=attributes or {})


def held(cache: Any) -> list[Any]:
    return [len(cache._values), cache._total]


def test_commits_alone_do_not_fill_the_memory() -> None:
    caching = frazil.CachingConfig(num_snapshot_nodes=20_000, num_chunk_refs=20_000)
    repo = frazil.Repository.create(frazil.in_memory_storage(), frazil.RepositoryConfig(caching=caching))
    with repo.transaction("main", message="array") as store:
        array = zarr.create_array(store, name="x", shape=(50,), chunks=(1,), dtype="i1")
    for value in range(50):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.open_array(store, path="x")[value] = 1
    assets = repo._context.assets
    assert held(assets._snapshots)[0] <= 20
    assert held(assets._manifests)[0] <= 10
    assert array.shape == (50,)


def test_large_attributes_weigh_what_they_take() -> None:
    caching = frazil.CachingConfig(num_snapshot_nodes=3_000)
    repo = frazil.Repository.create(frazil.in_memory_storage(), frazil.RepositoryConfig(caching=caching))
    commit(repo, 6, attributes={"note": "x" * 2_000_000})
    assert held(repo._context.assets._snapshots)[0] == 1
