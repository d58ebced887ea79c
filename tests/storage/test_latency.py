"""A storage that delays requests."""

from __future__ import annotations

import time

import zarr

import frazil
from frazil.testing import LatencyStorage


def test_latency_can_be_changed_and_is_of_a_remote_storage() -> None:
    storage = LatencyStorage(frazil.in_memory_storage())
    repo = frazil.Repository.create(storage)
    storage.write_latency_ms, storage.read_latency_ms = 30, 20
    for call, least in ((lambda: repo.lookup_branch("main"), 0.02), (lambda: storage.put("x", b""), 0.03)):
        started = time.perf_counter()
        call()
        assert time.perf_counter() - started >= least
    storage.write_latency_ms = storage.read_latency_ms = 0
    with repo.transaction("main", message="m") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="i4")[:] = 3
    assert not storage.is_local
    assert zarr.open_group(repo.readonly_session("main").store, mode="r")["a"][:].tolist() == [3] * 4  # type: ignore[index]
