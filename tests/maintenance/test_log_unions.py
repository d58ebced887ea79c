"""The logs of removed versions become few, and comparisons and rebases still see all their changes."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.support.judge import reference, reference_storage

import frazil
from frazil.conflicts import ConflictDetector
from frazil.handle.repository import context_of
from frazil.repository.catalog.history_records import JOBS

LATER = datetime.now(UTC) + timedelta(days=1)
COMMITS = 18


def grown(path: Path, count: int = COMMITS) -> frazil.Repository:
    """A repository in which each commit creates a group and changes a chunk."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="t", data=np.zeros(count, "i4"), chunks=(1,))
    for number in range(count):
        with repo.transaction("main", message=str(number)) as store:
            zarr.open_array(store, path="t", mode="r+")[number] = 1 + number
            zarr.create_group(store, path=f"g{number}")
    return repo


def age(path: Path, days: int = 40) -> None:
    then = time.time() - days * 24 * 3600
    for file in (path / "transactions").iterdir():
        os.utime(file, (then, then))


def removed_logs(repo: frazil.Repository) -> int:
    return int(context_of(repo).catalog.full_repo_info().table.pruned().lengths.sum())


def test_few_logs_are_left(tmp_path: Path) -> None:
    repo = grown(tmp_path)
    first = list(repo.ancestry(branch="main"))[-1].id
    before = repo.diff(from_snapshot_id=first, to_branch="main")
    repo.create_branch("old", first)
    session = repo.writable_session("old")
    zarr.create_group(session.store, path="g5")
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    assert removed_logs(repo) == COMMITS
    repo.garbage_collect(LATER)  # the logs are too young
    assert removed_logs(repo) == COMMITS
    age(tmp_path)
    preview = repo.garbage_collect(LATER, dry_run=True)
    summary = repo.garbage_collect(LATER)
    assert preview.transaction_logs_deleted == summary.transaction_logs_deleted == COMMITS
    assert (removed_logs(repo), summary.leases_respected, repo.upkeep.leases()) == (1, 0, [])
    assert len(list((tmp_path / "transactions").iterdir())) == 3
    repo = frazil.Repository.open(repo.storage)
    after = repo.diff(from_snapshot_id=first, to_branch="main")
    assert str(after) == str(before)
    assert len(after.new_groups) == 1 + COMMITS
    repo.reset_branch("old", repo.lookup_branch("main"))
    with pytest.raises(frazil.RebaseFailedError):
        session.rebase(ConflictDetector())
    assert repo.upkeep.verify("checksum").ok
    theirs = reference().Repository.open(reference_storage(tmp_path))  # skips without the reference
    assert theirs.diff(from_snapshot_id=first, to_branch="main").new_groups == after.new_groups


def test_a_log_that_a_record_names_stays_alone(tmp_path: Path) -> None:
    repo = grown(tmp_path)
    commit = list(repo.ancestry(branch="main"))[10].id
    repo.update_metadata({JOBS: [{"id": "monday", "snapshot": commit, "branch": "main"}]})
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    age(tmp_path)
    repo.garbage_collect(LATER)
    assert removed_logs(repo) == 3
    assert (tmp_path / "transactions" / commit).exists()
