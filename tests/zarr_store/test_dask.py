"""dask arrays stored in sessions and forks."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr

import frazil
from frazil.dask import store_dask


def arrays(store: frazil.IcechunkStore) -> list[zarr.Array]:
    root = zarr.open_group(store, mode="a")
    return [root.require_array(name, shape=(20, 30), chunks=(4, 5), dtype="f8") for name in ("a", "b")]


@pytest.mark.parametrize("split_every", [None, 1, 3, 100])
def test_a_fork_comes_back_with_everything(session: frazil.Session, split_every: int | None) -> None:
    arrays(session.store)
    fork = session.fork()
    zarr.create_group(fork.store, path="made in the fork")
    data = np.random.default_rng(0).random((20, 30))
    sources = [da.from_array(data, chunks=(8, 10)), da.from_array(data, chunks=(4, 30)) * 2]
    done = store_dask(sources=sources, targets=arrays(fork.store), split_every=split_every)
    assert done is fork
    session.merge(fork)
    for name, expected in (("a", data), ("b", data * 2)):
        np.testing.assert_array_equal(zarr.open_array(session.store, path=name)[:], expected)
    assert "made in the fork" in zarr.open_group(session.store)


def test_regions_of_a_session(session: frazil.Session) -> None:
    targets = arrays(session.store)
    regions = [(slice(4, 12), slice(10, None)), None]
    sources = [da.ones((8, 20), chunks=(4, 5)), da.ones((20, 30), chunks=(20, 30))]
    store_dask(sources=sources, targets=targets, regions=regions, scheduler="synchronous")
    expected = np.zeros((20, 30))
    expected[4:12, 10:] = 1
    np.testing.assert_array_equal(targets[0][:], expected)
    assert (targets[1][:] == 1).all()
    assert session.has_uncommitted_changes


def test_refusals(session: frazil.Session, repo: frazil.Repository) -> None:
    targets = arrays(session.store)
    with pytest.raises(frazil.SessionStateError) as raised:
        store_dask(sources=[da.ones((20, 30), chunks=(3, 30))], targets=targets[:1])
    assert raised.value.kind == "merge-failed"
    assert (targets[0][:] == 0).all()
    other = arrays(repo.writable_session("main").store)
    for wrong in ([], [targets[0], other[0]], [zarr.zeros((20, 30))]):
        with pytest.raises(frazil.InvalidInputError, match="one session"):
            store_dask(sources=[da.ones((20, 30))] * len(wrong), targets=wrong)
