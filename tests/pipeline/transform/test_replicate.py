"""Repositories as copies of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.pipeline.transform.shared import copy_repository, new_repository, read
from tests.support.judge import same_by_reference

import frazil
from frazil.errors import ConflictError, FormatError
from frazil.maintenance.verification.plan import stored_findings
from frazil.pipeline import Version
from frazil.pipeline.replication import operation

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    repo = new_repository(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    for number in range(3):
        with repo.transaction("main", message=f"number {number}") as store:
            data = np.full((40, 40), number + 0.5)
            zarr.create_array(store, name=f"a{number}", data=data, chunks=(10, 20))
    repo.create_branch("old", list(repo.ancestry(branch="main"))[1].id)
    repo.create_tag("v1", repo.lookup_branch("main"))
    return repo


@pytest.mark.deep
def test_a_copy_is_complete_and_later_copies_add_more(repo: frazil.Repository, tmp_path: Path) -> None:
    place = frazil.local_filesystem_storage(str(tmp_path / "copy"))
    first = copy_repository(repo, place)
    copy = frazil.Repository.open(place)
    assert copy.lookup_branch("old") == repo.lookup_branch("old")
    assert copy.lookup_tag("v1") == repo.lookup_tag("v1")
    assert [each.id for each in copy.ancestry(branch="main")] == [
        each.id for each in repo.ancestry(branch="main")
    ]
    assert len(list(copy.ops_log())) == len(list(repo.ops_log()))
    assert (first.objects > 8, first.existing) == (True, 0)
    same_by_reference(tmp_path / "copy", copy)

    assert copy_repository(repo, place).objects == 0
    with repo.transaction("main", message="more") as store:
        zarr.open_array(store, path="a0", mode="r+")[0] = 9
    again = copy_repository(repo, place)
    assert (again.existing, again.objects < 8) == (first.objects, True)
    copy = frazil.Repository.open(place)
    assert read(Version.of(copy), "a0")[0, 0] == 9
    same_by_reference(tmp_path / "copy", copy)


def test_commits_of_a_copy_are_not_lost(repo: frazil.Repository) -> None:
    place = frazil.in_memory_storage()
    copy_repository(repo, place)
    with frazil.Repository.open(place).transaction("main", message="mine") as store:
        zarr.open_array(store, path="a0", mode="r+")[0] = 9
    with pytest.raises(
        ConflictError, match=r"(?s)hold an earlier copy.* which the source does not have"
    ) as caught:
        copy_repository(repo, place)
    assert caught.value.kind == "repo-info-updated"
    place = frazil.in_memory_storage()
    copy_repository(repo, place)
    other = frazil.Repository.open(place)
    other.create_tag("mine", other.lookup_branch("main"))
    with pytest.raises(ConflictError, match="tag 'mine', which the source does not have"):
        copy_repository(repo, place)


def test_a_target_that_changes_meanwhile(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    place = frazil.in_memory_storage()

    def meanwhile(*args: Any) -> Any:
        frazil.Repository.create(place, check_clean_root=False)
        return stored_findings(*args)

    monkeypatch.setattr(operation, "stored_findings", meanwhile)
    with pytest.raises(ConflictError, match="Another writer changed the repository in"):
        copy_repository(repo, place)


def in_memory() -> frazil.Repository:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=False),
        num_updates_per_repo_info_file=2,
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    repo.save_config()
    for number in range(3):
        with repo.transaction("main", message=f"number {number}") as store:
            zarr.create_array(store, name="a", data=np.full(4, number), chunks=(2,), overwrite=True)
    return repo


def is_whole(place: frazil.Storage) -> bool:
    return frazil.Repository.open(place).upkeep.verify("checksum").ok


@pytest.mark.sample(1)
@pytest.mark.parametrize("folder", ["snapshots", "transactions", "manifests", "chunks", "overwritten"])
def test_a_damaged_copy_is_healed_by_another_run(folder: str) -> None:
    repo, place = in_memory(), frazil.in_memory_storage()
    copy_repository(repo, place)
    for key in sorted(each.key for each in place.list(folder)):
        data = bytes(place.get(key))
        place.put(key, bytes([data[0] ^ 1]) + data[1:])
    done = copy_repository(repo, place)
    assert done.objects > 0
    assert copy_repository(repo, place, compare=True).objects == 0
    assert is_whole(place)
    assert (np.asarray(read(Version.of(frazil.Repository.open(place)), "a")) == 2).all()


@pytest.mark.parametrize("folder", ["snapshots", "transactions", "manifests", "chunks"])
def test_a_source_that_has_lost_a_file_is_not_copied_in_silence(folder: str) -> None:
    repo, place = in_memory(), frazil.in_memory_storage()
    key = max(each.key for each in repo.storage.list(folder))
    repo.storage.delete([key])
    with pytest.raises(FormatError, match=f"not published: (unreadable|missing): {key}"):
        copy_repository(repo, place)
    assert not frazil.Repository.exists(place)
    assert not list(repo.storage.list("leases"))
