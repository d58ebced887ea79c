"""Undo, redo and restoration; changes of a history, bisection, and watches of a branch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil, log2
from typing import Any

import numpy as np
import pytest
import zarr
from tests.counting import keys_read
from tests.support.errors import of_kind
from tests.support.tiers import deep

import frazil
from frazil.format.ids import id_to_text
from frazil.handle.repository import context_of
from frazil.history.undo import UNDO, StateField, fields_of
from frazil.history.versions import BisectReport, version_changes
from frazil.ops import UpdateType
from frazil.repository.catalog import presentation
from frazil.snapshots import BranchVersion


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


@pytest.mark.parametrize("number", [40, *deep(400), pytest.param(2000, marks=pytest.mark.weekly)])
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


def test_a_branch_undo_goes_on_behind_a_deleted_branch(repo: frazil.Repository) -> None:
    repo.delete_branch("dev")
    repo.history.undo(branch="dev").apply()
    repo.history.undo(branch="dev").apply()
    assert repo.list_branches() == {"main"}
    with pytest.raises(frazil.SessionStateError, match="of the branch `dev`"):
        repo.history.undo(branch="dev").apply()
    repo.history.redo().apply()
    repo.history.redo().apply()
    assert repo.list_branches() == {"main"}


def test_an_undo_of_a_branch_leaves_and_names_what_later_updates_have_changed(
    repo: frazil.Repository,
) -> None:
    start = next(repo.ops_log()).updated_at
    repo.set_metadata({"a": 1})
    commit(repo, "c")
    tip = repo.lookup_branch("main")
    repo.history.restore_to(start).apply()
    repo.set_metadata({"a": 2})
    before = state(repo)
    plan = repo.history.undo(branch="main")
    assert any("metadata `a`" in note for note in plan.notes)
    plan.apply()
    assert repo.lookup_branch("main") == tip
    after = state(repo)
    assert {name for name in before if before[name] != after[name]} == {(StateField.BRANCH, "main")}


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


def a_history() -> frazil.Repository:
    """Nodes that were created, written, moved with their group, deleted, and created again."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="g/t", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
        zarr.create_array(store, name="g/u", shape=(2,), dtype="i4")
    with repo.transaction("main", message="write") as store:
        zarr.open_array(store, path="g/t")[3] = 5
    session = repo.rearrange_session("main")
    session.move("/g", "/h")
    session.commit("move")
    with repo.transaction("main", message="delete and create") as store:
        zarr.open_group(store, path="h").__delitem__("u")
        zarr.create_array(store, name="g/t", shape=(1,), dtype="i1")
    with repo.transaction("main", message="write both") as store:
        zarr.open_array(store, path="h/t")[0] = 7
        zarr.open_array(store, path="g/t")[0] = 7
    return repo


def compared(repo: frazil.Repository) -> list[tuple[str, str, str]]:
    """For each version: its id, and its differences by both methods, as text."""
    context = context_of(repo)
    info = context.catalog.repo_info()
    rows = []
    for entry, changes in version_changes(context, info, info.branches["main"]):
        if entry.parent is None:
            assert changes is None
            continue
        assert changes is not None
        ids = {"from_snapshot_id": id_to_text(entry.parent), "to_snapshot_id": id_to_text(entry.id)}
        rows.append((entry.message, str(presentation.diff(changes)), str(repo.diff(**ids))))
    return rows


def test_changes_are_differences() -> None:
    repo = a_history()
    rows = compared(repo)
    assert [message for message, *_ in rows] == ["write both", "delete and create", "move", "write", "create"]
    for message, changes, difference in rows:
        assert changes == difference, message
    assert "/h/u" in rows[1][1]


def test_expired_ancestors_belong_to_the_next_version() -> None:
    repo = a_history()
    moment = next(each.written_at for each in repo.ancestry(branch="main") if each.message == "move")
    repo.expire_snapshots(moment)
    rows = compared(repo)
    assert len(rows) < 5
    for message, changes, difference in rows:
        assert changes == difference, message


def test_commits_without_moves_need_one_snapshot() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="create") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(1,), dtype="i4")
    for value in range(4):
        with repo.transaction("main", message="write") as store:
            zarr.open_array(store, path="t")[value] = value
    repo = repo.reopen()
    context = context_of(repo)
    info = context.catalog.repo_info()
    with keys_read(type(context.storage)) as keys:
        assert len(list(version_changes(context, info, info.branches["main"]))) == 6
    assert sum(key.startswith("snapshots/") for key in keys) == 1


@pytest.fixture(scope="module")
def ten_versions() -> frazil.Repository:
    """Versions ``0`` to ``9`` write ``a`` if they are even, else ``b``; ``m`` moves ``c`` before the last."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="create") as store:
        for name in "abc":
            zarr.create_array(store, name=name, shape=(2,), dtype="i4", dimension_names=("x",))[:] = -1
    repo.create_tag("good", "main")
    for number in range(10):
        if number == 9:
            session = repo.rearrange_session("main")
            session.move("/c", "/d")
            session.commit("m")
        with repo.transaction("main", message=str(number)) as store:
            zarr.open_array(store, path="b" if number % 2 else "a")[0] = number
    return repo


def below(limit: int, path: str = "a") -> Any:
    def check(session: frazil.Session) -> bool:
        return bool(np.asarray(zarr.open_array(session.store, path=path, mode="r")[0]) < limit)

    return check


@pytest.mark.parametrize("limit", range(9))
def test_the_first_bad_version(ten_versions: frazil.Repository, limit: int) -> None:
    report = ten_versions.history.bisect(below(limit), good="good")
    assert report.first_bad.message == str(limit + limit % 2)
    assert report.last_good.id == report.first_bad.parent_id
    assert (report.versions, report.skipped) == (11, 0)
    assert len(report.checks) <= ceil(log2(11))


def test_versions_that_cannot_differ_are_left_out(ten_versions: frazil.Repository) -> None:
    report = ten_versions.history.bisect(below(6), good="good", path="a")
    assert report.first_bad.message == "6"
    assert report.last_good.message == "5"
    assert report.skipped == 5  # all that write only `b`; a move can bring another array to the path
    assert len(report.checks) <= ceil(log2(6))


def test_a_path_of_a_group_and_several_paths(ten_versions: frazil.Repository) -> None:
    assert ten_versions.history.bisect(below(6), good="good", path="/").skipped == 0
    report = ten_versions.history.bisect(below(7, "b"), good="good", path=["b", "c"])
    assert (report.first_bad.message, report.skipped) == ("7", 5)


def test_a_report_counts_by_its_verdict(ten_versions: frazil.Repository) -> None:
    class Verdict:
        def __init__(self, ok: bool) -> None:
            self.ok = ok

    check = below(4)
    report = ten_versions.history.bisect(lambda session: Verdict(check(session)), good="good")
    assert report.first_bad.message == "4"
    assert all(isinstance(passed, bool) for _, passed in report.checks)
    assert "first_bad" in repr(report)


def test_rules_of_the_pipeline(ten_versions: frazil.Repository) -> None:
    pytest.importorskip("pyarrow")  # of the extra `pipeline`
    pipeline = pytest.importorskip("frazil.pipeline")
    report: BisectReport = ten_versions.history.bisect(
        pipeline.RuleCheck(ten_versions, [pipeline.Range("/a", -1, 5)]), good="good"
    )
    assert (report.first_bad.message, report.skipped) == ("6", 5)


def test_expired_versions_and_lost_logs_are_not_left_out(ten_versions: frazil.Repository) -> None:
    copy = frazil.Repository.open(ten_versions.storage)
    bad = next(each for each in copy.ancestry(branch="main") if each.message == "5")
    log = f"transactions/{bad.id}"
    data = ten_versions.storage.get(log)
    ten_versions.storage.delete([log])
    try:
        assert copy.history.bisect(below(6), good="good", path="a").skipped == 4
    finally:
        ten_versions.storage.put(log, data)


def test_wrong_arguments_of_a_bisection(ten_versions: frazil.Repository) -> None:
    for good, bad in (("main", "good"), ("main", "main")):
        with pytest.raises(frazil.InvalidInputError, match="before the bad version"):
            ten_versions.history.bisect(below(1), good=good, bad=bad)
    with pytest.raises(frazil.NotFoundError):
        ten_versions.history.bisect(below(1), good="nothing")
    with pytest.raises(frazil.InvalidInputError, match="no commit between"):
        ten_versions.history.bisect(
            below(1), good="good", bad=list(ten_versions.ancestry(branch="main"))[-4].id, path="c"
        )
    with pytest.raises(TypeError, match="check"):
        ten_versions.history.bisect(["a"], good="good")  # type: ignore[arg-type]  # what is tested


AT_ONCE = timedelta(0)


@pytest.fixture
def watched() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    return repo.reopen(frazil.RepositoryConfig(num_updates_per_repo_info_file=3))


def committed(repo: frazil.Repository, path: str, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    zarr.create_group(session.store, path=path)
    return session.commit(path)


def story(repo: frazil.Repository) -> list[tuple[str, str | None]]:
    """Do all that can happen to a branch. Return the kinds and snapshots of its versions."""
    out: list[tuple[str, str | None]] = []
    repo.create_branch("dev", "main")
    out.append(("created", repo.lookup_branch("dev")))
    for path in "ab":
        out.append(("commit", committed(repo, path, "dev")))
        committed(repo, path, "main")
    session = repo.writable_session("dev")
    zarr.create_group(session.store, path="c")
    out.append(("amend", session.amend("amended")))
    repo.set_metadata({"a": 1})
    repo.reset_branch("dev", "main")
    out.append(("reset", repo.lookup_branch("main")))
    out.append(("commit", committed(repo, "d", "dev")))
    repo.history.undo().apply()
    out.append(("reset", repo.lookup_branch("main")))
    repo.delete_branch("dev")
    out.append(("deleted", None))
    repo.create_branch("dev", "main")
    out.append(("created", repo.lookup_branch("main")))
    return out


def shown(versions: list[BranchVersion]) -> list[tuple[str, str | None]]:
    return [(version.kind, version.snapshot_id) for version in versions]


def test_every_version_comes_once_from_any_cursor(watched: frazil.Repository) -> None:
    start = watched.history.watch("main").cursor
    expected = story(watched)
    versions = list(watched.history.watch("dev", cursor=start, timeout=AT_ONCE))
    assert shown(versions) == expected
    assert len({version.cursor for version in versions}) == len(versions)
    for number, version in enumerate(versions, 1):
        rest = watched.history.watch("dev", cursor=version.cursor)
        assert shown(rest.poll()) == expected[number:]
        assert rest.poll() == []
        assert rest.cursor == versions[-1].cursor


@pytest.mark.parametrize("has_etags", [True, False])
def test_a_poll_makes_one_request_while_nothing_changes(
    watched: frazil.Repository, monkeypatch: pytest.MonkeyPatch, *, has_etags: bool
) -> None:
    if has_etags:  # as object stores do
        storage = type(watched.storage)
        head, get = storage.head, storage.get_versioned

        def head_with_etag(self: Any, key: str) -> Any:
            found: Any = head(self, key)
            return dataclasses.replace(found, etag=get(self, key)[1].etag)

        monkeypatch.setattr(storage, "head", head_with_etag)
    watch = watched.history.watch("main")
    watch.poll()
    requests: list[str] = []
    for name in ("get", "get_versioned", "head", "list"):
        original = getattr(type(watched.storage), name)

        def counting(self: Any, *args: Any, name: str = name, original: Any = original) -> Any:
            requests.append(name)
            return original(self, *args)

        monkeypatch.setattr(type(watched.storage), name, counting)
    for _ in range(3):
        assert watch.poll() == []
    assert requests == ["head" if has_etags else "get"] * 3
    committed(watched, "a")
    requests.clear()
    assert len(watch.poll()) == 1
    assert requests == (["head", "get"] if has_etags else ["get"])


def test_a_lost_cursor_is_an_error(watched: frazil.Repository) -> None:
    first = watched.history.watch("main").cursor
    committed(watched, "a")
    later = watched.history.watch("main").cursor
    for _ in range(3):
        committed(watched, "b" * (1 + len(list(watched.ops_log()))))
    between = str(int(later) - 1)
    with pytest.raises(frazil.SessionStateError, match="may be missing", check=of_kind("cursor-lost")):
        watched.history.watch("main", cursor=between).poll()
    assert len(watched.history.watch("main", cursor=first).poll()) == 4
    oldest = list(watched.ops_log())[-1]
    for backup in watched.upkeep.backups(watched.storage):
        watched.storage.delete([f"overwritten/{backup.name}"])
    with pytest.raises(frazil.SessionStateError, match="may be missing"):
        watched.history.watch("main", cursor=str(int(oldest.updated_at.timestamp() * 1e6) + 1)).poll()


def test_snapshots_that_expired_since(watched: frazil.Repository) -> None:
    start = watched.history.watch("main").cursor
    ids = [committed(watched, path) for path in "abc"]
    watched.expire_snapshots(datetime.now(UTC))
    watched.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert [version.snapshot_id for version in watched.history.watch("main", cursor=start).poll()] == ids


def test_wrong_arguments_of_a_watch(watched: frazil.Repository) -> None:
    with pytest.raises(frazil.RefNotFoundError):
        watched.history.watch("nothing")
    with pytest.raises(frazil.InvalidInputError, match="cursor must be"):
        watched.history.watch("main", cursor="abc")
    with pytest.raises(frazil.InvalidInputError, match="must not be negative"):
        watched.history.watch("main", interval=timedelta(seconds=-1))
    with pytest.raises(frazil.FormatError, match="version 2"):
        frazil.Repository.create(frazil.in_memory_storage(), spec_version=1).history.watch()
