"""Histories after retention policies and squashes, read and continued by the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.support.judge import same_by_reference

import frazil
from frazil import Retention
from frazil.repository.clock import to_datetime

pytestmark = pytest.mark.interop


def commits(path: Path, count: int = 8) -> tuple[frazil.Repository, list[str]]:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    for number in range(count):
        with repo.transaction("main", message=str(number)) as store:
            array = zarr.create_array(store, name=f"a{number}", shape=(4,), chunks=(2,), dtype="i4")
            array[:] = number
    return repo, [commit.id for commit in repo.ancestry(branch="main")][::-1]


def theirs(path: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def remove_by_policy(repo: frazil.Repository, ids: list[str]) -> None:
    repo.create_tag("two", ids[3])
    repo.upkeep.retain(Retention(last=2)).apply()


def squash_in_place(repo: frazil.Repository, ids: list[str]) -> None:
    repo.upkeep.squash("main", ids[1], ids[6]).apply()


def squash_with_message(repo: frazil.Repository, ids: list[str]) -> None:
    repo.upkeep.squash("main", ids[1], message="all of it").apply()


@pytest.mark.sample(1)
@pytest.mark.parametrize("remove", [remove_by_policy, squash_in_place, squash_with_message])
def test_the_reference_reads_compares_and_continues(remove: Any, tmp_path: Path) -> None:
    repo, ids = commits(tmp_path)
    remove(repo, ids)
    same_by_reference(tmp_path)
    history = [commit.id for commit in repo.ancestry(branch="main")]
    oldest, tip = history[-1], history[0]
    mine = repo.diff(from_snapshot_id=oldest, to_snapshot_id=tip)
    other = theirs(tmp_path).diff(from_snapshot_id=oldest, to_snapshot_id=tip)
    assert mine.new_arrays == other.new_arrays == {f"/a{number}" for number in range(8)}
    session = theirs(tmp_path).writable_session("main")
    zarr.create_group(session.store, path="late")
    with repo.transaction("main", message="first") as store:
        zarr.create_group(store, path="first")
    session.commit("late", rebase_with=icechunk.ConflictDetector())
    limit = to_datetime(2**52)
    repo.garbage_collect(limit)
    same_by_reference(tmp_path)
    theirs(tmp_path).garbage_collect(limit)
    same_by_reference(tmp_path)
    assert repo.upkeep.verify("checksum").ok
    assert len([*theirs(tmp_path).ops_log()]) == len([*repo.ops_log()])
