"""Groups that several forks made."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import frazil


def _forked() -> tuple[frazil.Repository, frazil.Session, list[frazil.ForkSession]]:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    return repo, session, [session.fork() for _ in range(3)]


def test_the_same_group_of_several_forks_is_one() -> None:
    repo, session, forks = _forked()
    for number, fork in enumerate(forks):
        zarr.create_array(fork.store, name=f"made/by {number}", shape=(2,), chunks=(1,), dtype="i4")[:] = (
            number
        )
    session.merge(*forks[:2])
    session.merge(forks[2])
    diff = session.status()
    assert diff.new_groups == {"/", "/made"}
    before = repo.lookup_branch("main")
    after = session.commit("merged")
    log = repo._context.assets.transaction_log(session.workspace.snapshot_id)
    assert len(log.new_groups) == 2
    assert repo.diff(from_snapshot_id=before, to_snapshot_id=after) == diff
    root = zarr.open_group(session.store, mode="r")
    assert [np.asarray(root[f"made/by {number}"]).tolist() for number in range(3)] == [[0, 0], [1, 1], [2, 2]]


def test_arrays_created_twice_are_a_conflict() -> None:
    _, session, forks = _forked()
    for fork in forks:
        zarr.create_array(fork.store, name="a", shape=(2,), chunks=(1,), dtype="i4")
    with pytest.raises(frazil.SessionStateError):
        session.merge(*forks)
