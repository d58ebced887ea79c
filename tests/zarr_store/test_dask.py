"""dask arrays stored in sessions. `tests/parity/test_dask_and_xarray.py` stores them in forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import frazil
from frazil.dask import session_merge_reduction, store_dask
from frazil.distributed import extract_session, merge_sessions

#: dask has no annotations.
from_array: Any = da.from_array


def arrays(store: frazil.IcechunkStore) -> list[zarr.Array[Any]]:
    root = zarr.open_group(store, mode="a")
    return [root.require_array(name, shape=(20, 30), chunks=(4, 5), dtype="f8") for name in ("a", "b")]


def test_refusals(session: frazil.Session, repo: frazil.Repository) -> None:
    targets = arrays(session.store)
    with pytest.raises(frazil.SessionStateError) as raised:
        store_dask(sources=[da.ones((20, 30), chunks=(3, 30))], targets=targets[:1])
    assert raised.value.kind == "merge-failed"
    assert (np.asarray(targets[0][:]) == 0).all()
    other = arrays(repo.writable_session("main").store)
    for wrong in ([], [targets[0], other[0]], [zarr.zeros((20, 30))]):
        with pytest.raises(frazil.InvalidInputError, match="one session"):
            store_dask(sources=[da.ones((20, 30))] * len(wrong), targets=wrong)


@pytest.mark.parametrize(
    ("region", "shape"),
    [
        ((slice(4, 12),), (8, 30)),
        ((slice(-8, None), slice(5, 10)), (8, 5)),
        ((slice(0, 16, 4), slice(None)), (4, 30)),
        ((3, slice(0, 10)), (10,)),
        (slice(4, 8), (4, 30)),
    ],
)
def test_regions_are_those_of_numpy(session: frazil.Session, region: Any, shape: tuple[int, ...]) -> None:
    target = arrays(session.store)[0]
    data = np.random.default_rng(0).random(shape)
    chunks = (4, 5)[-len(shape) :] if shape != (4, 30) else (1, 5)
    if region == slice(4, 8):
        chunks = (4, 5)
    store_dask(sources=[from_array(data, chunks=chunks)], targets=[target], regions=[region])
    expected = np.zeros((20, 30))
    expected[region] = data
    np.testing.assert_array_equal(target[:], expected)


@pytest.mark.parametrize(
    "region", [(slice(0, 2), slice(0, 30)), (slice(7, None, -1),), (..., 3), (slice(0, 4),) * 3, (20,)]
)
def test_regions_that_do_not_fit_write_nothing(session: frazil.Session, region: Any) -> None:
    target = arrays(session.store)[0]
    with pytest.raises(frazil.InvalidInputError, match="the region of a target"):
        store_dask(sources=[da.ones((8, 30), chunks=(4, 5))], targets=[target], regions=[region])
    assert (np.asarray(target[:]) == 0).all()


def test_arguments_that_cannot_be_meant(session: frazil.Session) -> None:
    targets = arrays(session.store)
    with pytest.raises(TypeError, match="compute"):
        store_dask(sources=[da.ones((20, 30))], targets=targets[:1], compute=False)
    with pytest.raises(frazil.InvalidInputError, match="1, 2 and 2"):
        store_dask(sources=[da.ones((20, 30))], targets=targets)


@pytest.mark.parametrize("arrays", [3, None, [3], np.zeros(3), "abc"])
def test_only_dask_arrays_are_reduced(arrays: Any) -> None:
    with pytest.raises(TypeError, match="arrays must be a dask array or a list of dask arrays, got"):
        session_merge_reduction(arrays, split_every=None)


class Client:
    """As much of a client of dask.distributed as is asked: where its workers are."""

    def __init__(self, *workers: str) -> None:
        self.workers = workers

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": dict.fromkeys(self.workers)}

    def get(self, graph: Any, keys: Any, **options: Any) -> Any:
        return dask.local.get_sync(graph, keys)


def test_workers_elsewhere_cannot_read_memory(tmp_path: Path) -> None:
    """They would refuse one after the other, and the client would wait for ever."""
    source = da.arange(4, chunks=2)
    memory, local = frazil.in_memory_storage(), frazil.local_filesystem_storage(tmp_path)
    for storage, worker, refused in [
        (memory, "tcp://127.0.0.1:1", True),
        (memory, "inproc://127.0.0.1/1/1", False),
        (local, "tcp://127.0.0.1:1", False),
    ]:
        session = frazil.Repository.open_or_create(storage).writable_session("main")
        target = zarr.create_array(
            session.store, name="a", shape=(4,), chunks=(2,), dtype="i8", overwrite=True
        )
        scheduler = Client(worker).get
        if refused:
            with pytest.raises(frazil.InvalidInputError, match=f"in memory and the worker {worker}"):
                store_dask(sources=[source], targets=[target], scheduler=scheduler)
        else:
            store_dask(sources=[source], targets=[target], scheduler=scheduler)
            assert np.asarray(target[:]).tolist() == [0, 1, 2, 3]


def test_sessions_of_arrays(session: frazil.Session) -> None:
    arrays(session.store)
    fork = session.fork()
    assert extract_session(arrays(fork.store)[0]) is fork
    assert extract_session(arrays(session.store)[0]) is session
    with pytest.raises(TypeError, match="got int"):
        merge_sessions(fork, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        merge_sessions([])
    with pytest.raises(TypeError, match="MemoryStore"):
        extract_session(zarr.zeros((2,)))
