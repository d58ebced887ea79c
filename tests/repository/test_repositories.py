"""Repositories: creating, opening, refs, configuration, status, flags, the ops log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.support.errors import of_kind

import frazil
from frazil.errors import ErrorKind


def commit(repo: frazil.Repository, branch: str = "main", **attributes: object) -> str:
    with repo.transaction(branch, message=str(attributes)) as store:
        zarr.open_group(store, mode="a").update_attributes(attributes)
    return repo.lookup_branch(branch)


def failing(kind: str, call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(frazil.IcechunkError, check=of_kind(kind)):
        call(*args, **kwargs)


def test_create_open_exists(storage: frazil.Storage) -> None:
    assert not frazil.Repository.exists(storage)
    assert frazil.Repository.fetch_spec_version(storage) is None
    failing(ErrorKind.REPOSITORY_NOT_FOUND, frazil.Repository.open, storage)
    failing(ErrorKind.REPOSITORY_NOT_FOUND, frazil.Repository.fetch_config, storage)
    first = frazil.Repository.open_or_create(storage)
    assert frazil.Repository.exists(storage)
    assert frazil.Repository.fetch_spec_version(storage) == frazil.SpecVersion.v2
    assert frazil.Repository.open_or_create(storage).lookup_branch("main") == first.lookup_branch("main")
    failing(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN, frazil.Repository.create, storage)
    failing(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN, frazil.Repository.create, storage, check_clean_root=False)
    with pytest.raises(ValueError, match="spec_version must be 1 or 2"):
        frazil.Repository.create(storage, spec_version=3)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x1b[31ma", "a\x7f", "a\x85b", "x" * 1001, "\ud800"])
def test_names_that_new_refs_cannot_have(repo: frazil.Repository, name: str) -> None:
    tip = commit(repo, n=1)
    failing(ErrorKind.INVALID_REF_NAME, repo.create_branch, name, tip)
    failing(ErrorKind.INVALID_REF_NAME, repo.create_tag, name, tip)


@pytest.mark.parametrize("name", ["main ", " a", "a/b", "é", "e\u0301", "日本", "x" * 1000, "\u202ea", ".."])
def test_names_stay_as_they_are(repo: frazil.Repository, name: str) -> None:
    tip = commit(repo, n=1)
    repo.create_branch(name, tip)
    repo.create_tag(name, tip)
    assert (repo.list_branches(), repo.list_tags()) == ({"main", name}, {name})
    repo.delete_branch(name)
    failing(ErrorKind.REF_NOT_FOUND, repo.lookup_branch, name)
    assert repo.lookup_tag(name) == tip


def test_refs_of_other_programs_can_have_any_name(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    other = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    tip = other.lookup_branch("main")
    other.create_branch("a\nb", tip)
    repo = frazil.Repository.open(frazil.local_filesystem_storage(tmp_path))
    commit(repo, "a\nb", n=1)
    repo.delete_branch("a\nb")
    assert repo.list_branches() == {"main"}


def test_many_open_or_create_one_repository(storage: frazil.Storage) -> None:
    with ThreadPoolExecutor(6) as threads:
        repos = list(threads.map(lambda _: frazil.Repository.open_or_create(storage), range(6)))
    assert len({next(iter(repo.ops_log())).updated_at for repo in repos}) == 1


def test_a_creation_that_was_killed_can_be_done_again(storage: frazil.Storage) -> None:
    frazil.Repository.create(storage)
    storage.delete(["repo"])
    storage.put("probe/left", b"over")
    assert not frazil.Repository.exists(storage)
    commit(frazil.Repository.create(storage), n=1)
    storage.delete(["repo"])
    failing(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN, frazil.Repository.create, storage)


def test_a_branch_deleted_under_a_session(repo: frazil.Repository) -> None:
    repo.create_branch("dev", commit(repo, n=1))
    session = repo.writable_session("dev")
    zarr.open_group(session.store, mode="a").update_attributes({"n": 2})
    repo.delete_branch("dev")
    failing(ErrorKind.BRANCH_NOT_FOUND, session.commit, "late")


def test_status_closes_the_repository_for_changes(repo: frazil.Repository) -> None:
    tip = commit(repo, n=1)
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a").update_attributes({"n": 2})
    closed = frazil.RepoStatus(frazil.RepoAvailability.read_only, limited_availability_reason="maintenance")
    repo.set_status(closed)
    assert repo.status.limited_availability_reason == "maintenance"
    for call, *args in (
        (repo.writable_session, "main"),
        (repo.create_branch, "x", tip),
        (repo.create_tag, "x", tip),
        (repo.set_metadata, {}),
        (repo.save_config,),
        (session.commit, "late"),
    ):
        with pytest.raises(frazil.ReadOnlyError, match="maintenance") as error:
            call(*args)
        assert error.value.kind == ErrorKind.READ_ONLY_REPOSITORY
    assert repo.readonly_session("main").snapshot_id == tip
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    session.commit("now")


def test_feature_flags(repo: frazil.Repository) -> None:
    tip = commit(repo, n=1)
    assert [flag.name for flag in repo.feature_flags()] == ["create_tag", "delete_tag", "move_node"]
    repo.create_tag("v1", tip)
    repo.set_feature_flag("create_tag", False)
    repo.set_feature_flag("delete_tag", False)
    failing(ErrorKind.FEATURE_FLAG_DISABLED, repo.create_tag, "v2", tip)
    failing(ErrorKind.FEATURE_FLAG_DISABLED, repo.delete_tag, "v1")
    assert {flag.name for flag in repo.disabled_feature_flags()} == {"create_tag", "delete_tag"}
    repo.set_feature_flag("create_tag", None)
    repo.create_tag("v2", tip)
    assert {flag.name for flag in repo.enabled_feature_flags()} == {"create_tag", "move_node"}
    failing(ErrorKind.INVALID_FEATURE_FLAG, repo.set_feature_flag, "nope", True)
