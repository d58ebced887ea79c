"""Repositories as copies of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.spark.reference import same_by_reference
from tests.spark.transform.shared import INLINE, made, read

import frazil
from frazil.errors import ConflictError, FormatError, IcechunkError
from frazil.spark import Version, copy_repository


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    repo = made(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    for number in range(3):
        with repo.transaction("main", message=f"number {number}") as store:
            data = np.full((40, 40), number + 0.5)
            zarr.create_array(store, name=f"a{number}", data=data, chunks=(10, 20))
    repo.create_branch("old", list(repo.ancestry(branch="main"))[1].id)
    repo.create_tag("v1", repo.lookup_branch("main"))
    return repo


def test_everything_is_there_and_more_comes_later(repo: frazil.Repository, tmp_path: Path) -> None:
    place = frazil.local_filesystem_storage(str(tmp_path / "copy"))
    first = copy_repository(repo, place, engine=INLINE)
    copy = frazil.Repository.open(place)
    assert copy.lookup_branch("old") == repo.lookup_branch("old")
    assert copy.lookup_tag("v1") == repo.lookup_tag("v1")
    assert [each.id for each in copy.ancestry(branch="main")] == [
        each.id for each in repo.ancestry(branch="main")
    ]
    assert len(list(copy.ops_log())) == len(list(repo.ops_log()))
    assert (first.objects > 8, first.there) == (True, 0)
    same_by_reference(tmp_path / "copy", copy)

    assert copy_repository(repo, place, engine=INLINE).objects == 0
    with repo.transaction("main", message="more") as store:
        zarr.open_array(store, path="a0", mode="r+")[0] = 9
    again = copy_repository(repo, place, engine=INLINE)
    assert (again.there, again.objects < 8) == (first.objects, True)
    copy = frazil.Repository.open(place)
    assert read(Version.of(copy), "a0")[0, 0] == 9
    same_by_reference(tmp_path / "copy", copy)


def test_commits_of_a_copy_are_not_lost(repo: frazil.Repository) -> None:
    place = frazil.in_memory_storage()
    copy_repository(repo, place, engine=INLINE)
    with frazil.Repository.open(place).transaction("main", message="mine") as store:
        zarr.open_array(store, path="a0", mode="r+")[0] = 9
    with pytest.raises(ConflictError, match="branch 'main' that the source does not have"):
        copy_repository(repo, place, engine=INLINE)


def test_an_object_that_is_gone_leaves_nothing_to_open(
    repo: frazil.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = frazil.in_memory_storage()
    real = type(repo.storage).get

    def broken(self: frazil.Storage, key: str, start: int = 0, stop: int | None = None) -> object:
        if key.startswith("manifests/"):
            raise OSError("unreadable")
        return real(self, key, start, stop)

    with monkeypatch.context() as patched:
        patched.setattr(type(repo.storage), "get", broken)
        with pytest.raises(IcechunkError, match="unreadable"):
            copy_repository(repo, place, engine=INLINE)
    assert not frazil.Repository.exists(place)
    copy_repository(repo, place, engine=INLINE)
    assert frazil.Repository.exists(place)


def test_version_1_is_refused() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    with pytest.raises(FormatError, match="upgrade"):
        copy_repository(repo, frazil.in_memory_storage(), engine=INLINE)
