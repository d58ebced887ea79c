"""Changes of a history, bisection, and watches of a branch."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from math import ceil, log2
from typing import Any

import numpy as np
import pytest
import zarr
from tests.counting import keys_read
from tests.support.errors import of_kind

import frazil
from frazil.format.ids import id_to_text
from frazil.handle.repository import context_of
from frazil.history.versions import BisectReport, version_changes
from frazil.repository.catalog import presentation
from frazil.snapshots import BranchVersion


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
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    return repo.reopen(frazil.RepositoryConfig(num_updates_per_repo_info_file=3))


def commit(repo: frazil.Repository, path: str, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    zarr.create_group(session.store, path=path)
    return session.commit(path)


def story(repo: frazil.Repository) -> list[tuple[str, str | None]]:
    """Do all that can happen to a branch. Return the kinds and snapshots of its versions."""
    out: list[tuple[str, str | None]] = []
    repo.create_branch("dev", "main")
    out.append(("created", repo.lookup_branch("dev")))
    for path in "ab":
        out.append(("commit", commit(repo, path, "dev")))
        commit(repo, path, "main")
    session = repo.writable_session("dev")
    zarr.create_group(session.store, path="c")
    out.append(("amend", session.amend("amended")))
    repo.set_metadata({"a": 1})
    repo.reset_branch("dev", "main")
    out.append(("reset", repo.lookup_branch("main")))
    out.append(("commit", commit(repo, "d", "dev")))
    repo.history.undo().apply()
    out.append(("reset", repo.lookup_branch("main")))
    repo.delete_branch("dev")
    out.append(("deleted", None))
    repo.create_branch("dev", "main")
    out.append(("created", repo.lookup_branch("main")))
    return out


def shown(versions: list[BranchVersion]) -> list[tuple[str, str | None]]:
    return [(version.kind, version.snapshot_id) for version in versions]


def test_every_version_comes_once_from_any_cursor(repo: frazil.Repository) -> None:
    start = repo.history.watch("main").cursor
    expected = story(repo)
    versions = list(repo.history.watch("dev", cursor=start, timeout=AT_ONCE))
    assert shown(versions) == expected
    assert len({version.cursor for version in versions}) == len(versions)
    for number, version in enumerate(versions, 1):
        rest = repo.history.watch("dev", cursor=version.cursor)
        assert shown(rest.poll()) == expected[number:]
        assert rest.poll() == []
        assert rest.cursor == versions[-1].cursor


@pytest.mark.parametrize("has_etags", [True, False])
def test_a_poll_makes_one_request_while_nothing_changes(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, *, has_etags: bool
) -> None:
    if has_etags:  # as object stores do
        storage = type(repo.storage)
        head, get = storage.head, storage.get_versioned

        def head_with_etag(self: Any, key: str) -> Any:
            found: Any = head(self, key)
            return dataclasses.replace(found, etag=get(self, key)[1].etag)

        monkeypatch.setattr(storage, "head", head_with_etag)
    watch = repo.history.watch("main")
    watch.poll()
    requests: list[str] = []
    for name in ("get", "get_versioned", "head", "list"):
        original = getattr(type(repo.storage), name)

        def counting(self: Any, *args: Any, name: str = name, original: Any = original) -> Any:
            requests.append(name)
            return original(self, *args)

        monkeypatch.setattr(type(repo.storage), name, counting)
    for _ in range(3):
        assert watch.poll() == []
    assert requests == ["head" if has_etags else "get"] * 3
    commit(repo, "a")
    requests.clear()
    assert len(watch.poll()) == 1
    assert requests == (["head", "get"] if has_etags else ["get"])


def test_a_lost_cursor_is_an_error(repo: frazil.Repository) -> None:
    first = repo.history.watch("main").cursor
    commit(repo, "a")
    later = repo.history.watch("main").cursor
    for _ in range(3):
        commit(repo, "b" * (1 + len(list(repo.ops_log()))))
    between = str(int(later) - 1)
    with pytest.raises(frazil.SessionStateError, match="may be missing", check=of_kind("cursor-lost")):
        repo.history.watch("main", cursor=between).poll()
    assert len(repo.history.watch("main", cursor=first).poll()) == 4
    oldest = list(repo.ops_log())[-1]
    for backup in repo.upkeep.backups(repo.storage):
        repo.storage.delete([f"overwritten/{backup.name}"])
    with pytest.raises(frazil.SessionStateError, match="may be missing"):
        repo.history.watch("main", cursor=str(int(oldest.updated_at.timestamp() * 1e6) + 1)).poll()


def test_snapshots_that_expired_since(repo: frazil.Repository) -> None:
    start = repo.history.watch("main").cursor
    ids = [commit(repo, path) for path in "abc"]
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert [version.snapshot_id for version in repo.history.watch("main", cursor=start).poll()] == ids


def test_wrong_arguments_of_a_watch(repo: frazil.Repository) -> None:
    with pytest.raises(frazil.RefNotFoundError):
        repo.history.watch("nothing")
    with pytest.raises(frazil.InvalidInputError, match="cursor must be"):
        repo.history.watch("main", cursor="abc")
    with pytest.raises(frazil.InvalidInputError, match="must not be negative"):
        repo.history.watch("main", interval=timedelta(seconds=-1))
    with pytest.raises(frazil.FormatError, match="version 2"):
        frazil.Repository.create(frazil.in_memory_storage(), spec_version=1).history.watch()
