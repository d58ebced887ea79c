"""The commit of a job leaves the history of its branch, and the job is still committed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil import ErrorKind, InvalidInputError
from frazil.jobs.engine import Inline
from frazil.jobs.job import Job, JobResult, Target, Tasks
from frazil.jobs.job_run import run_job
from frazil.jobs.task_results import Outcome
from frazil.repository.catalog.history_records import JOBS
from frazil.storage.memory import MemoryStorage

LATER = datetime.now(UTC) + timedelta(days=1)
ENGINE = Inline()


@pytest.fixture
def repo() -> frazil.Repository:
    return created(MemoryStorage())


def created(storage: frazil.Storage) -> frazil.Repository:
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="first") as store:
        for name in "xyz":
            zarr.create_array(store, name=name, data=np.zeros(1, "i4"))
    return repo


def adding(repo: frazil.Repository, id_: str | None = "monday", **more: Any) -> Job:
    """A job that adds one to ``x``: the sum tells how often it was committed."""

    def prepare(session: frazil.Session) -> Tasks:
        array: Any = zarr.open_array(session.store, path="x", mode="r+")
        array[0] += 1
        return Tasks([])

    return Job("add", Target(repo), prepare, nothing, id=id_, writes=("/x",), **more)


def nothing(fork: frazil.ForkSession, shared: Any, item: Any) -> Outcome:
    return Outcome()


def total(repo: frazil.Repository, name: str = "x") -> int:
    array: Any = zarr.open_array(repo.readonly_session("main").store, path=name, mode="r")
    return int(array[0])


def other_commit(repo: frazil.Repository, name: str = "y") -> str:
    with repo.transaction("main", message=f"other {name}") as store:
        array: Any = zarr.open_array(store, path=name, mode="r+")
        array[0] += 1
    return repo.lookup_branch("main")


def first_of(repo: frazil.Repository) -> str:
    return [commit.id for commit in repo.ancestry(branch="main")][-2]


def squashed(repo: frazil.Repository, message: str | None = None) -> None:
    other_commit(repo)
    repo.upkeep.squash("main", since=first_of(repo), message=message).apply()


def squashed_twice(repo: frazil.Repository) -> None:
    squashed(repo)
    squashed(repo)


def expired(repo: frazil.Repository) -> None:
    other_commit(repo)
    repo.expire_snapshots(LATER)


def retained(repo: frazil.Repository) -> None:
    other_commit(repo)
    repo.upkeep.retain(frazil.Retention(last=1)).apply()


def amended(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="y", mode="r+")[0] = 7
    session.amend("amended")


def collected(repo: frazil.Repository) -> None:
    squashed(repo)
    repo.garbage_collect(LATER)


REMOVALS = [squashed, partial(squashed, message="all"), squashed_twice, expired, retained, amended, collected]


def beside(
    repo: frazil.Repository, removal: Callable[[frazil.Repository], None], id_: str | None
) -> JobResult:
    """Run a job. Before it commits, another driver commits it, and this commit is removed."""

    def finish(session: frazil.Session, values: list[Any]) -> None:
        assert not run_job(adding(repo, id_), ENGINE).done_before
        removal(repo)

    array = replace(adding(repo, id_), prepare=lambda session: prepares_z(session), finish=finish)
    return run_job(array, ENGINE)


def prepares_z(session: frazil.Session) -> Tasks:
    """Change what no other driver changes, so that no conflict stops this one."""
    zarr.open_array(session.store, path="z", mode="r+")[0] = 1
    return Tasks([])


@pytest.mark.parametrize(
    ("removal", "id_"), [*((each, "monday") for each in REMOVALS), (squashed_twice, None)]
)
def test_drivers_after_the_removal(
    repo: frazil.Repository, removal: Callable[[frazil.Repository], None], id_: str | None
) -> None:
    """One has begun before the commit of the other, and one begins after its removal."""
    result = beside(repo, removal, id_)
    assert (result.done_before, total(repo), total(repo, "z")) == (True, 1, 0)
    values: Any = zarr.open_array(result.version.session().store, path="x", mode="r")[:]
    assert values.tolist() == [1]
    again = run_job(adding(repo, id_), ENGINE)
    assert (again.done_before, again.snapshot_id, total(repo)) == (True, result.snapshot_id, 1)
    if id_ is not None:
        with pytest.raises(InvalidInputError, match=r"with (another name|other)") as caught:
            run_job(adding(repo, parameters={"by": 2}), ENGINE)
        assert caught.value.kind == ErrorKind.CONFLICTING_ARGUMENTS


def test_a_reset_to_the_base_of_a_driver(repo: frazil.Repository) -> None:
    """The branch is where the driver began. Its commit would undo the reset."""
    base = repo.lookup_branch("main")
    commits: list[str] = []

    def reset(repo: frazil.Repository) -> None:
        commits.append(repo.lookup_branch("main"))
        repo.reset_branch("main", base)

    result = beside(repo, reset, "monday")
    assert (result.done_before, result.snapshot_id) == (True, commits[0])
    assert (repo.lookup_branch("main"), total(repo)) == (base, 0)
    # a run that begins after the reset is a new one
    assert not run_job(adding(repo), ENGINE).done_before
    assert total(repo) == 1


def test_a_derived_id_runs_again_after_a_change_even_one_that_a_squash_hides(repo: frazil.Repository) -> None:
    first = run_job(adding(repo, None), ENGINE)
    squashed(repo)
    again = run_job(adding(repo, None), ENGINE)
    assert (again.done_before, again.id, total(repo)) == (True, first.id, 1)
    other_commit(repo, "x")
    repo.upkeep.squash("main", since=first_of(repo)).apply()
    assert not run_job(adding(repo, None), ENGINE).done_before
    assert total(repo) == 3
    other_commit(repo, "x")
    assert not run_job(adding(repo, None), ENGINE).done_before
    assert total(repo) == 5


def test_another_branch_is_another_job(repo: frazil.Repository) -> None:
    repo.create_branch("dev", repo.lookup_branch("main"))
    run_job(adding(repo), ENGINE)
    squashed(repo)
    assert not run_job(replace(adding(repo), target=Target(repo, "dev")), ENGINE).done_before


def test_records_do_not_pile_up(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.repository.catalog.history_records._RECENT_JOBS", 2)
    monkeypatch.setattr("frazil.repository.catalog.history_records._MOST", 3)
    repo.set_metadata({"owner": "somebody"})
    for number in range(5):
        run_job(adding(repo, str(number)), ENGINE)
    assert [each["id"] for each in repo.get_metadata()[JOBS]] == ["4", "3"]
    squashed(repo)
    assert [each["id"] for each in repo.get_metadata()[JOBS]] == ["4", "3", "2"]
    assert sorted(repo.get_metadata()) == [JOBS, "owner"]


@pytest.mark.interop
def test_the_reference_removes_the_commit(tmp_path: Path) -> None:
    import icechunk

    repo = created(frazil.local_filesystem_storage(str(tmp_path)))
    run_job(adding(repo), ENGINE)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="y", mode="r+")[0] = 7
    session.amend("amended")
    repo = frazil.Repository.open(repo.storage)
    assert run_job(adding(repo), ENGINE).done_before
    other_commit(repo)
    theirs.expire_snapshots(LATER)
    theirs.garbage_collect(LATER)
    repo = frazil.Repository.open(repo.storage)
    assert run_job(adding(repo), ENGINE).done_before
    assert total(repo) == 1
