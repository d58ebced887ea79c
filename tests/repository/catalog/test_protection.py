"""Protected branches: every way to move a branch, principals, audits, and damaged rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import zarr
from tests.history.test_undo import amend, commit
from tests.support.errors import of_kind

import frazil
from frazil.repository.catalog.protection import PROTECTION


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    for path in ("a", "b"):
        commit(repo, path)
    repo.create_branch("dev", "main")
    commit(repo, "c", "dev")
    return repo


def acting_as(repo: frazil.Repository, principal: str) -> frazil.Repository:
    return frazil.Repository.open(repo.storage, attribution=frazil.Attribution(principal=principal))


def older(repo: frazil.Repository) -> str:
    return list(repo.ancestry(branch="main"))[1].id


FORWARD: dict[str, Callable[[frazil.Repository], object]] = {
    "commit": lambda repo: commit(repo, "d"),
    "merge": lambda repo: repo.merge("dev"),
    "merge commit": lambda repo: repo.merge("dev", fast_forward=False),
    "reset": lambda repo: repo.reset_branch("main", "dev"),
}
BACKWARD: dict[str, Callable[[frazil.Repository], object]] = {
    "amend": amend,
    "reset": lambda repo: repo.reset_branch("main", older(repo)),
    "undo": lambda repo: repo.history.undo(branch="main").apply(),
    "squash": lambda repo: repo.upkeep.squash("main", since=older(repo), message="one").apply(),
    "restoration": lambda repo: repo.history.restore_to(list(repo.ops_log())[-2]).apply(),
}


def refused(repo: frazil.Repository, work: Callable[[frazil.Repository], object], match: str) -> None:
    before = repo.inspect_repo_info()
    with pytest.raises(frazil.SessionStateError, match=match, check=of_kind("branch-protected")):
        work(repo)
    assert repo.inspect_repo_info() == before


@pytest.mark.parametrize("name", FORWARD)
def test_a_protected_branch_moves_forward(name: str, repo: frazil.Repository) -> None:
    repo.protect_branch("ma*")
    tip = repo.lookup_branch("main")
    FORWARD[name](repo)
    assert repo.lookup_branch("main") != tip


@pytest.mark.parametrize("name", BACKWARD)
def test_a_protected_branch_does_not_lose_commits(name: str, repo: frazil.Repository) -> None:
    repo.protect_branch("main")
    refused(repo, BACKWARD[name], "does not contain its commits")
    repo.unprotect_branch("main")
    tip = repo.lookup_branch("main")
    BACKWARD[name](repo)
    assert repo.lookup_branch("main") != tip


def test_a_protected_branch_is_not_deleted(repo: frazil.Repository) -> None:
    repo.protect_branch("d?v", fast_forward_only=False)
    repo.reset_branch("dev", older(repo))
    refused(repo, lambda repo: repo.delete_branch("dev"), "cannot be deleted")
    repo.create_branch("other", "main")
    repo.delete_branch("other")


def test_only_principals_move_a_branch(repo: frazil.Repository) -> None:
    ada = acting_as(repo, "ada")
    repo.protect_branch("main", principals=["ada"])
    for work in (FORWARD["commit"], FORWARD["merge"], lambda repo: repo.unprotect_branch("main")):
        refused(acting_as(repo, "bob"), work, "`bob` may not")
    for work in (lambda repo: repo.protect_branch("main"), lambda repo: repo.history.undo().apply()):
        refused(acting_as(repo, "bob"), work, "may not change the protection")
    commit(acting_as(repo, "bob"), "d", "dev")
    commit(ada, "d")
    ada.unprotect_branch("main")
    commit(repo, "e")


def test_the_rules_of_a_branch_need_an_audit(repo: frazil.Repository) -> None:
    pytest.importorskip("pyarrow")  # of the extra `pipeline`
    pipeline = pytest.importorskip("frazil.pipeline")
    with repo.transaction("main", message="data") as store:
        zarr.create_array(store, name="t", shape=(2,), dtype="i4", dimension_names=("x",))[:] = 1
    rules = [pipeline.Range("/t", 0, 5)]
    repo.protect_branch("main", rules=rules)
    assert repo.branch_protections()[0].rules[0]["rule"] == "Range"

    def write(value: int) -> Callable[[Any], None]:
        def work(target: Any) -> None:
            with target.repo.transaction(target.branch, message=str(value)) as store:
                zarr.open_array(store, path="t")[0] = value

        return work

    refused(repo, FORWARD["commit"], "no audit shows")
    pipeline.write_audit_publish(repo, write(3), rules, engine="inline")
    assert zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")[0] == 3
    audit = next(repo.ancestry(branch="main")).metadata  # it is of another version

    def reuse(repo: frazil.Repository) -> None:
        with repo.transaction("main", message="again", metadata=audit) as store:
            zarr.open_array(store, path="t")[0] = 99

    refused(repo, reuse, "no audit shows")
    with pytest.raises(frazil.SessionStateError, match="no audit shows"):
        pipeline.write_audit_publish(repo, write(4), [pipeline.Exists("/t")], engine="inline")
    assert zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")[0] == 3


def test_the_rules_stay_and_are_undone(repo: frazil.Repository) -> None:
    repo.protect_branch("main")
    repo.set_metadata({"owner": "team"})
    assert [each.pattern for each in repo.branch_protections()] == ["main"]
    repo.history.undo().apply()
    repo.history.undo().apply()
    assert repo.branch_protections() == []
    repo.history.redo().apply()
    assert [each.pattern for each in repo.branch_protections()] == ["main"]


def test_damaged_rules_refuse_updates_until_they_are_replaced(repo: frazil.Repository) -> None:
    repo.update_metadata({PROTECTION: {"main": 5}})
    for call in (lambda: commit(repo, "d"), repo.branch_protections):
        with pytest.raises(frazil.FormatError, match="must have rules of branches"):
            call()
    repo.update_metadata({PROTECTION: {}})
    commit(repo, "d")


def test_upkeep_of_a_protected_repository(repo: frazil.Repository) -> None:
    repo.protect_branch("*", principals=["nobody"])
    tips = {name: repo.lookup_branch(name) for name in repo.list_branches()}
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC))
    assert {name: repo.lookup_branch(name) for name in repo.list_branches()} == tips


def test_wrong_arguments(repo: frazil.Repository) -> None:
    with pytest.raises(frazil.InvalidInputError, match="got an empty text"):
        repo.protect_branch("")
    with pytest.raises(frazil.InvalidInputError, match="no protection has the pattern"):
        repo.unprotect_branch("main")
    old = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    with pytest.raises(frazil.FormatError, match="version 2"):
        old.protect_branch("main")
