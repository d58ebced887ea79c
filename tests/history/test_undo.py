"""Undo, redo and restoration: every kind of update, refusals, and other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zarr
from tests.counting import keys_read
from tests.support.errors import of_kind
from tests.support.tiers import deep

import frazil
from frazil.history.undo import UNDO, fields_of
from frazil.ops import UpdateType


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    commit(repo, "a")
    commit(repo, "b")
    repo.create_branch("dev", "main")
    return repo


def commit(repo: frazil.Repository, path: str, branch: str = "main") -> None:
    with repo.transaction(branch, message=path) as store:
        zarr.create_group(store, path=path)


def amend(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="more")
    session.amend("amended")


def move(repo: frazil.Repository) -> None:
    session = repo.rearrange_session("main")
    session.move("/a", "/moved")
    session.commit("moved")


def configure(repo: frazil.Repository) -> None:
    repo.reconfigure(frazil.RepositoryConfig(inline_chunk_threshold_bytes=7))
    repo.save_config()


def state(repo: frazil.Repository) -> dict[Any, Any]:
    return fields_of(repo._context.catalog.repo_info())


UPDATES: dict[str, Callable[[frazil.Repository], object]] = {
    "commit": lambda repo: commit(repo, "c"),
    "amend": amend,
    "move": move,
    "reset": lambda repo: repo.reset_branch("dev", list(repo.ancestry(branch="dev"))[1].id),
    "branch": lambda repo: repo.create_branch("new", "main"),
    "no branch": lambda repo: repo.delete_branch("dev"),
    "config": configure,
    "metadata": lambda repo: repo.set_metadata({"a": None, "b": [1, {"c": 2}]}),
    "flag": lambda repo: repo.set_feature_flag("move_node", False),
    "status": lambda repo: repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only)),
}


@pytest.mark.parametrize("name", UPDATES)
def test_every_kind_of_update_is_undone_and_made_again(name: str, repo: frazil.Repository) -> None:
    before = state(repo)
    UPDATES[name](repo)
    after = state(repo)
    assert after != before
    plan = repo.history.undo()
    assert state(repo) == after
    report = repo.history.undo().apply()
    assert state(repo) == before
    assert (plan.is_applied, report.is_applied) == (False, True)
    assert plan.changes == report.changes != []
    repo.history.redo().apply()
    assert state(repo) == after
    repo.history.undo().apply()
    assert state(repo) == before
    assert repo.upkeep.verify().ok


def test_the_undoing_of_a_tag_is_final(repo: frazil.Repository) -> None:
    repo.create_branch("later", "main")
    repo.history.undo().apply()
    repo.create_tag("v1", "main")
    assert "v1" in repo.history.undo().notes[0]
    repo.history.undo().apply()
    assert repo.list_tags() == set()
    before = state(repo)
    for _ in range(2):  # never the branch, which was undone before it
        with pytest.raises(frazil.SessionStateError, match="`v1` was deleted", check=of_kind("cannot-undo")):
            repo.history.redo().apply()
    assert state(repo) == before
    with pytest.raises(frazil.AlreadyExistsError):
        repo.create_tag("v1", "main")


def test_a_collection_is_refused_and_passed_over_for_a_branch(repo: frazil.Repository) -> None:
    commit(repo, "c")
    repo.garbage_collect(datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(frazil.SessionStateError, match="a garbage collection", check=of_kind("cannot-undo")):
        repo.history.undo().apply()
    repo.history.undo(branch="main").apply()
    assert next(repo.ancestry(branch="main")).message == "b"


def test_an_expired_snapshot_is_an_error_before_a_change(repo: frazil.Repository) -> None:
    repo.reset_branch("dev", list(repo.ancestry(branch="dev"))[1].id)
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[1].id)
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    before = state(repo)
    with pytest.raises(frazil.SessionStateError, match="expired or collected"):
        repo.history.undo(branch="main").apply()
    assert state(repo) == before


def test_a_state_without_backup_is_an_error_before_a_change(repo: frazil.Repository) -> None:
    commit(repo, "c")
    update = list(repo.ops_log())[1]
    repo.storage.delete([f"overwritten/{update.backup_path}"])
    before = state(repo)
    calls: list[Callable[[], object]] = [repo.history.undo, lambda: repo.history.restore_to(update)]
    for call in calls:
        with pytest.raises(frazil.SessionStateError, match="not known any more") as error:
            call()
        assert error.value.kind == "cannot-undo"
    assert state(repo) == before


def test_an_update_by_its_time(repo: frazil.Repository) -> None:
    repo.set_metadata({"a": 1})
    update = next(repo.ops_log())
    commit(repo, "c")
    repo.history.undo(update=update).apply()
    assert repo.metadata.get("a") is None
    assert next(repo.ancestry(branch="main")).message == "c"
    with pytest.raises(frazil.SessionStateError, match="undone already"):
        repo.history.undo(update=update.updated_at).apply()
    with pytest.raises(frazil.SessionStateError, match="no update at"):
        repo.history.undo(update=datetime(2000, 1, 1, tzinfo=UTC)).apply()
    with pytest.raises(ValueError, match="at most one"):
        repo.history.undo(update=update, branch="main").apply()


def test_restoration_is_one_update(repo: frazil.Repository) -> None:
    start = next(repo.ops_log())
    expected = state(repo)
    for name in ("commit", "branch", "no branch", "config", "metadata", "flag", "status"):
        UPDATES[name](repo)
    last = state(repo)
    plan = repo.history.restore_to(start)
    assert state(repo) == last
    writes = len(repo.upkeep.backups(repo.storage))
    report = repo.history.restore_to(start).apply()
    assert len(repo.upkeep.backups(repo.storage)) == writes + 1
    assert report.changes == plan.changes
    assert state(repo) == expected
    assert repo.upkeep.verify().ok
    new = [type(update.kind).__name__ for update in repo.ops_log()][: len(report.changes)]
    assert set(new) >= {"BranchReset", "BranchDeleted", "BranchCreated", "ConfigChanged", "RepoStatusChanged"}
    repo.history.undo().apply()
    assert state(repo) == last
    repo.history.redo().apply()
    assert state(repo) == expected
    moment = next(repo.ops_log()).updated_at + timedelta(microseconds=1)
    assert repo.history.restore_to(moment).apply().changes == []
    with pytest.raises(frazil.SessionStateError, match="no update at or before"):
        repo.history.restore_to(datetime(2000, 1, 1, tzinfo=UTC)).apply()


def test_spec_version_1_has_no_ops_log() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    for call in (repo.history.undo, repo.history.redo, lambda: repo.history.restore_to(datetime.now(UTC))):
        with pytest.raises(frazil.FormatError, match="version 2"):
            call()


def record_size(repo: frazil.Repository) -> int:
    return len(json.dumps(repo._context.catalog.repo_info().metadata[UNDO]))


@pytest.mark.parametrize("number", [40, *deep(2000)])
def test_thousands_of_undos_in_a_row(number: int) -> None:
    config = frazil.RepositoryConfig(num_updates_per_repo_info_file=number // 8)
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, config)
    other = frazil.Repository.open(storage, config)
    for n in range(number):
        repo.set_metadata({"n": n})
    for n in range(number - 2, -1, -1):
        (repo if n % 2 else other).history.undo().apply()
        assert repo.get_metadata() == {"n": n}
    assert record_size(repo) < 300
    for n in range(1, number):
        (repo if n % 3 else other).history.redo().apply()
        assert repo.get_metadata() == {"n": n}
    assert record_size(repo) < 300
    for _ in range(number // 4):
        assert repo.history.undo().apply().changes[0].before == f"{number - 1}"
        repo.history.redo().apply()
    assert repo.get_metadata() == {"n": number - 1}


def test_a_later_undo_costs_as_much_as_the_first(repo: frazil.Repository) -> None:
    repo = repo.reopen(frazil.RepositoryConfig(num_updates_per_repo_info_file=4))
    for n in range(40):
        repo.set_metadata({"n": n})
    for step, most in ((repo.history.undo, 4), (repo.history.redo, 6)):
        for _ in range(39):
            with keys_read(type(repo.storage)) as keys:
                step().apply()
            assert len(keys) <= most


@pytest.mark.parametrize("record", [5, {"at": 1}, {"at": "x", "update": [1]}, {"at": 1, "update": [-1]}])
def test_a_record_of_another_program_counts_as_none(record: Any, repo: frazil.Repository) -> None:
    commit(repo, "c")
    repo.update_metadata({UNDO: record})
    with pytest.raises(frazil.SessionStateError, match="no undone update"):
        repo.history.redo().apply()
    assert "changed nothing" in repo.history.undo().notes[0]


def test_a_plan_is_applied_as_it_is(repo: frazil.Repository) -> None:
    commit(repo, "c")
    plan = repo.history.undo()
    commit(repo, "d", "dev")  # by another writer
    report = plan.apply()
    assert (report.is_applied, report.changes) == (True, plan.changes)
    assert next(repo.ancestry(branch="main")).message == "b"
    repo.history.undo().apply()
    assert next(repo.ancestry(branch="dev")).message == "b"
    plan = repo.history.redo()
    repo.set_metadata({"a": 1})
    repo.history.undo().apply()
    with pytest.raises(frazil.ConflictError, match="another undo or redo"):
        plan.apply()
    with pytest.raises(frazil.ConflictError, match="has changed since"):
        report.apply()


def test_the_report_says_what_is_deleted(repo: frazil.Repository) -> None:
    repo.create_branch("new", "main")
    assert "`new` is deleted" in repo.history.undo().notes[0]
    repo = frazil.Repository.open(repo.storage, attribution=frazil.Attribution(principal="ada"))
    repo.protect_branch("main", principals=["ada"])
    assert "`main` is removed" in repo.history.undo().notes[0]
    repo.protect_branch("main", principals=["ada", "ben"])
    assert "`main` changes" in repo.history.undo().notes[0]
    commit(repo, "c")
    assert repo.history.undo().notes == []


def test_many_updates_that_are_undone_one_by_one(repo: frazil.Repository) -> None:
    before = state(repo)
    times = []
    for n in range(30):  # more fields than a record has
        repo.create_branch(f"branch-{n}", "main")
        times.append(next(repo.ops_log()).updated_at)
    repo.set_metadata({"a": 1})
    for update in times:
        repo.history.undo(update=update).apply()
        assert record_size(repo) < 1000
    repo.history.undo().apply()
    assert state(repo) == before
    assert repo.history.undo().apply().updates[0].kind == UpdateType.BranchCreated("dev")


def test_a_clone_has_no_undone_updates(repo: frazil.Repository) -> None:
    pytest.importorskip("xarray")
    from frazil.pipeline import clone_repository

    commit(repo, "c")
    repo.history.undo().apply()
    storage = frazil.in_memory_storage()
    clone_repository(repo, storage, engine="inline")
    clone = frazil.Repository.open(storage)
    with pytest.raises(frazil.SessionStateError, match="no undone update"):
        clone.history.redo().apply()
    before = state(clone)
    clone.create_branch("new", "main")
    clone.history.undo().apply()
    assert state(clone) == before


def test_an_undo_whose_cursor_was_collected_is_an_error(repo: frazil.Repository) -> None:
    for n in range(3):
        repo.set_metadata({"n": n})
    cursor = list(repo.ops_log())[1]
    repo.history.undo().apply()
    repo.storage.delete([f"overwritten/{cursor.backup_path}"])
    before = state(repo)
    with pytest.raises(frazil.SessionStateError, match="has deleted its backup") as error:
        repo.history.undo().apply()
    assert error.value.kind == "cannot-undo"
    assert state(repo) == before
    repo.set_metadata({"n": 9})
    repo.history.undo().apply()
    assert state(repo) == before
