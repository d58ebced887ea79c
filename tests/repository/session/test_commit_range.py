"""The logs between two versions of different branches, after an expiration."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import RebaseFailedError
from frazil.format.ids import id_from_text
from frazil.handle.repository import context_of
from frazil.repository.session.differences import commits_between
from frazil.storage.memory import MemoryStorage


def write(repo: frazil.Repository, branch: str, place: int) -> str:
    session = repo.writable_session(branch)
    zarr.open_array(session.store, path="a")[place] = place + 1
    return session.commit(f"number {place}")


def forked() -> tuple[frazil.Repository, list[str], list[str], list[str]]:
    """Return a repository with two branches, and the ids of their common commits and of both branches.

    All commits except the tips are expired.
    """
    repo = frazil.Repository.create(MemoryStorage())
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(16,), chunks=(1,), dtype="i4")
    common = [repo.lookup_branch("main"), *(write(repo, "main", place) for place in range(4))]
    repo.create_branch("side", common[-1])
    mains, sides = [write(repo, "main", 4)], [write(repo, "side", 5)]
    limit = datetime.now(UTC)
    mains.append(write(repo, "main", 6))
    sides.append(write(repo, "side", 7))
    repo.expire_snapshots(limit)
    return repo, common, mains, sides


def test_logs_that_both_branches_have_are_not_compared() -> None:
    repo, common, mains, sides = forked()
    info = context_of(repo).catalog.repo_info()
    assert {id_from_text(id_) for id_ in common} <= {*info.table.pruned().compact().values.tolist()}
    (commit,) = commits_between(info, id_from_text(sides[-1]), id_from_text(mains[-1]))
    assert sorted(commit.logs) == sorted(map(id_from_text, [*mains, *sides]))


def test_a_cherry_pick_over_expired_versions_brings_one_commit() -> None:
    """The differences of the branches are those after the expired fork."""
    repo, _, _, _ = forked()
    write(repo, "side", 8)
    write(repo, "main", 8)  # the same change: no conflict
    write(repo, "side", 9)
    repo.cherry_pick("side", "main")
    content = np.asarray(zarr.open_array(repo.readonly_session("main").store, path="a")[:])
    assert np.flatnonzero(content).tolist() == [0, 1, 2, 3, 4, 6, 8, 9]


def test_conflicts_over_expired_versions_are_found() -> None:
    repo, _, _, _ = forked()
    session = repo.writable_session("side")
    zarr.open_array(session.store, path="a")[4] = 99  # `main` has changed it in an expired version
    session.commit("another number")
    before = repo.lookup_branch("main")
    with pytest.raises(RebaseFailedError) as failure:
        repo.cherry_pick("side", "main")
    assert [conflict.path for conflict in failure.value.conflicts] == ["/a"]
    assert repo.lookup_branch("main") == before
