"""Snapshots that are younger than the restored `repo` go back only where one explanation is left."""

from __future__ import annotations

from typing import Any

import pytest
import zarr
from tests.maintenance.test_verification import config, keys
from tests.repository.version_1 import copy_of

import frazil
from frazil.storage.memory import MemoryStorage

repair = frazil.Repository.upkeep.repair


def repository(commits: int = 3) -> frazil.Repository:
    repo = frazil.Repository.create(MemoryStorage(), config())
    for number in range(commits):
        commit(repo, number)
    return repo


def commit(repo: frazil.Repository, number: int, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    if number == 0:
        zarr.create_array(session.store, name="x", shape=(16,), chunks=(1,), dtype="i4", compressors=None)
    else:
        zarr.open_array(session.store, path="x")[number] = number
    return session.commit(str(number))


def messages(storage: Any, branch: str = "main") -> list[str]:
    return [info.message for info in frazil.Repository.open(storage).ancestry(branch=branch)]


def lose_updates(storage: Any, updates: int) -> None:
    """Delete `repo` and the newest backups, so that only the state before ``updates`` updates is left."""
    names = [each.name for each in frazil.Repository.upkeep.backups(storage)]
    storage.delete(["repo", *(f"overwritten/{name}" for name in names[: updates - 1])])


@pytest.mark.deep
def test_a_chain_of_lost_commits_comes_back() -> None:
    repo = repository(5)
    before = messages(repo.storage)
    lose_updates(repo.storage, 3)
    plan = repair(repo.storage)
    assert [each.action for each in plan.steps] == ["restore", "relist", "relist", "relist"]
    plan.apply()
    assert messages(repo.storage) == before
    assert frazil.Repository.open(repo.storage).upkeep.verify("checksum").ok
    assert repair(repo.storage).ok


def test_a_plan_can_be_applied_twice() -> None:
    repo = repository()
    lose_updates(repo.storage, 1)
    plan = repair(repo.storage)
    plan.apply()
    plan.apply()
    assert messages(repo.storage)[0] == "2"


def test_two_snapshots_on_the_same_tip_need_a_guess() -> None:
    repo = repository()
    one, other = repo.writable_session("main"), repo.writable_session("main")
    for number, session in enumerate((one, other), 8):
        zarr.open_array(session.store, path="x")[number] = 1
    ids = [one.commit("one"), other.flush("other")]
    lose_updates(repo.storage, 2)
    plan = repair(repo.storage)
    assert [each.action for each in plan.steps] == ["restore"]
    assert {each.id for each in plan.detached} == set(ids)


def test_a_refused_commit_that_fits_two_versions_stays_detached() -> None:
    """The commit started from the version before the tip, and wrote the chunk of the tip."""
    repo = repository()
    late = repo.writable_session("main")
    with repo.transaction("main", message="first") as store:
        zarr.open_array(store, path="x")[9] = 1
    zarr.open_array(late.store, path="x")[9] = 2
    refused = late.flush("refused")
    lose_updates(repo.storage, 1)
    plan = repair(repo.storage)
    assert [each.id for each in plan.detached] == [refused]


def test_a_lost_log_of_a_lost_commit_stays_detached() -> None:
    repo = repository()
    tip = repo.lookup_branch("main")
    storage = copy_of(repo.storage)
    lose_updates(storage, 1)
    storage.delete([f"transactions/{tip}"])
    plan = repair(storage)
    assert [each.id for each in plan.detached] == [tip]
    assert len(keys(storage, "snapshots")) == 4


def test_a_child_of_a_detached_snapshot_may_belong_to_the_same_branches() -> None:
    repo = repository()
    repo.create_branch("dev", repo.lookup_branch("main"))
    ids = [commit(repo, number, "dev") for number in (4, 5)]
    lose_updates(repo.storage, 2)
    plan = repair(repo.storage).apply()
    assert [(each.id, each.branches) for each in plan.detached] == [(id_, ("dev", "main")) for id_ in ids]
    restored = frazil.Repository.open(repo.storage)
    for id_ in ids:
        restored.upkeep.recover(id_, "dev")
    assert messages(repo.storage, "dev")[:2] == ["5", "4"]
