"""Nobody reads what was not checked; each step can be the last of a process, and a second run finishes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
import frazil.pipeline as ops
from frazil.pipeline.publishing import operation as module
from frazil.repository.catalog import history_records as job_records
from frazil.repository.catalog.history_records import JOBS

RULES = (ops.Exists("/mean/t"), ops.Range("/mean/t", 0, 100))


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    observe(repo, 20)
    return repo


def observe(repo: frazil.Repository, value: float, name: str = "t", branch: str = "main") -> str:
    session = repo.writable_session(branch)
    array = xr.DataArray(np.full((6, 3), float(value)), dims=("time", "x"), name=name)
    array.encoding["chunks"] = (2, 3)
    array.to_dataset().to_zarr(session.store, mode="a", consolidated=False, zarr_format=3)
    return session.commit(f"{name} = {value}")


class Pipeline:
    """Work that counts how often it was done."""

    def __init__(self, repo: frazil.Repository) -> None:
        self.repo, self.runs = repo, 0

    def __call__(self, target: ops.Target) -> Any:
        result = ops.mean(
            self.repo, "t", "time", to=ops.Target(self.repo, target.branch, "mean"), engine=ops.Inline()
        )
        self.runs += not result.done_before
        return result

    def run(self, **more: Any) -> module.PublishSummary:
        return ops.write_audit_publish(self.repo, self, RULES, engine=ops.Inline(), **more)


def value(repo: frazil.Repository, branch: str = "main") -> float:
    return float(frazil.read(repo.readonly_session(branch), "mean/t")[0])


@pytest.mark.deep
def test_what_is_checked_is_published_once(repo: frazil.Repository) -> None:
    pipeline = Pipeline(repo)
    before = repo.lookup_branch("main")
    first = pipeline.run(tag="v1")
    assert first.report
    assert first.report.ok
    assert first.snapshot_id == repo.lookup_branch("main") == repo.lookup_tag("v1")
    assert value(repo) == 20
    assert repo.list_branches() == {"main"}
    messages = [info.message for info in repo.ancestry(branch="main")]
    assert messages[:3] == ["Audit: all rules hold", "mean", "t = 20"]
    assert [info.id for info in repo.ancestry(branch="main")][2] == before
    again = pipeline.run(tag="v1")
    assert again.done_before
    assert (again.snapshot_id, pipeline.runs) == (first.snapshot_id, 1)
    observe(repo, 30)
    assert not pipeline.run().done_before
    assert (value(repo), pipeline.runs) == (30, 2)
    observe(repo, 40)
    with pytest.raises(frazil.AlreadyExistsError):
        pipeline.run(tag="v1")


def test_failed_work_stays_on_its_branch_and_starts_again(repo: frazil.Repository) -> None:
    pipeline = Pipeline(repo)
    tip = observe(repo, 200)
    with pytest.raises(
        frazil.ValidationFailedError, match=r"Range /mean/t: expected 0 to 100, found 3 outside"
    ) as raised:
        pipeline.run()
    assert not raised.value.report.ok
    assert repo.lookup_branch("main") == tip
    assert value(repo, "audit/main") == 200
    audit: Any = ops.lineage(repo, repo.lookup_branch("audit/main")).audit
    assert audit["ok"] is False
    observe(repo, 50)
    assert pipeline.run().report is not None
    assert value(repo) == 50
    assert repo.list_branches() == {"main"}
    assert "Audit: 1 of 2 rules failed" not in [info.message for info in repo.ancestry(branch="main")]


STEPS = ["begin_audit_branch", "commit_audit", "publish", "create_tag_once", "delete_if_published"]


@pytest.mark.sample(13, 13)
@pytest.mark.deep
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("job_id", [None, "monday"])
def test_a_crash_anywhere_is_finished_by_the_next_run(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, step: str, when: str, job_id: str | None
) -> None:
    real = getattr(module, step)

    def crash(*args: Any) -> Any:
        if when == "after":
            real(*args)
        raise KeyboardInterrupt

    pipeline = Pipeline(repo)
    with monkeypatch.context() as patch:
        patch.setattr(module, step, crash)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(job_id=job_id, tag="v1")
    done = pipeline.run(job_id=job_id, tag="v1")
    assert (value(repo), pipeline.runs) == (20, 1)
    assert repo.list_branches() == {"main"}
    assert repo.lookup_tag("v1") == repo.lookup_branch("main") == done.snapshot_id
    messages = [info.message for info in repo.ancestry(branch="main")]
    assert messages == ["Audit: all rules hold", "mean", "t = 20", "Repository initialized"]


def test_what_others_committed_meanwhile_is_checked_too(repo: frazil.Repository) -> None:
    seen: list[bool] = []

    def work(target: ops.Target) -> None:
        if not seen:
            observe(repo, 1, "other")
        seen.append(True)
        observe(repo, 20, "new", target.branch)

    published = ops.write_audit_publish(
        repo, work, [ops.Exists("/other"), ops.Exists("/new")], engine=ops.Inline()
    )
    assert published.report is not None
    assert published.report.ok
    arrays = dict(zarr.open_group(repo.readonly_session("main").store, mode="r").arrays())
    assert {"t", "new", "other"} <= arrays.keys()

    def clash(target: ops.Target) -> None:
        observe(repo, 2, "other")
        observe(repo, 3, "other", target.branch)

    tip = repo.lookup_branch("main")
    with pytest.raises(frazil.RebaseFailedError):
        ops.write_audit_publish(repo, clash, [], engine=ops.Inline())
    assert [info.id for info in repo.ancestry(branch="main")][1] == tip
    assert ops.lineage(repo, repo.lookup_branch("audit/main")).message == "other = 3"


def test_work_without_jobs_starts_again_or_is_done_once(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def work(target: ops.Target) -> None:
        runs.append(observe(repo, 20, "new", target.branch))

    with monkeypatch.context() as patch:
        patch.setattr(module, "commit_audit", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ops.write_audit_publish(repo, work, [], engine=ops.Inline(), job_id="monday")
    for done_before in (False, True):
        outcome = ops.write_audit_publish(repo, work, [], engine=ops.Inline(), job_id="monday")
        assert outcome.done_before == done_before
    assert len(runs) == 2
    messages = [info.message for info in repo.ancestry(branch="main")]
    assert messages == ["Audit: all rules hold", "new = 20", "t = 20", "Repository initialized"]


def test_publish_alone(repo: frazil.Repository) -> None:
    repo.create_branch("dev", repo.lookup_branch("main"))
    snapshot = observe(repo, 1, "a", "dev")
    assert ops.publish(repo, "dev", tag="a") == snapshot == repo.lookup_branch("main") == repo.lookup_tag("a")
    assert ops.publish(repo, "dev") == snapshot
    later = observe(repo, 2, "b")
    assert ops.publish(repo, "dev") == later  # there is nothing new
    observe(repo, 3, "c", "dev")
    with pytest.raises(frazil.ConflictError, match=r"got commits on `main`"):
        ops.publish(repo, "dev")
    assert repo.lookup_branch("main") == later


def test_rollback_goes_into_the_own_past_only(repo: frazil.Repository) -> None:
    first = repo.lookup_branch("main")
    at = repo.lookup_snapshot(first).written_at
    second = observe(repo, 30)
    repo.create_branch("dev", second)
    elsewhere = observe(repo, 40, branch="dev")
    with pytest.raises(frazil.InvalidInputError, match="in the history of `main`"):
        ops.rollback_to(repo, "main", elsewhere)
    repo.create_tag("good", first)
    assert ops.rollback_to(repo, "main", "good") == first == repo.lookup_branch("main")
    repo.reset_branch("main", second)
    assert ops.rollback_to(repo, "main", at) == first
    assert ops.rollback_to(repo, "main", first) == first
    with pytest.raises(frazil.SnapshotNotFoundError):
        ops.rollback_to(repo, "main", datetime(1999, 1, 1, tzinfo=UTC))
    with pytest.raises(frazil.InvalidInputError, match="time zone"):
        ops.rollback_to(repo, "main", datetime(1999, 1, 1))


def test_lineage_says_what_was_read(repo: frazil.Repository) -> None:
    read = repo.lookup_branch("main")
    Pipeline(repo).run()
    result = ops.mean(repo, "mean/t", "x", to=ops.Target(repo, group="twice"), engine=ops.Inline())
    step = ops.lineage(repo)
    assert (step.job, step.job_id, step.outputs) == ("mean", result.id, ("/twice/mean/t",))
    assert "read     /mean/t" in str(step)
    graph = ops.lineage_graph(repo)
    assert [step.job for step in graph.steps] == ["mean", "mean"]
    assert graph.rows[1][1:] == ("mean", "/mean/t", "/t", read)
    assert graph.inputs_of("/twice/mean/t") == {"/mean/t", "/t"}
    assert str(graph).splitlines()[0].split() == ["snapshot", "job", "wrote", "read", "of", "snapshot"]
    assert len(ops.lineage_graph(repo, jobs_only=False).steps) == 5


def test_a_tag_that_cannot_be_is_refused_before_anything_is_published(repo: frazil.Repository) -> None:
    pipeline = Pipeline(repo)
    repo.create_tag("gone", repo.lookup_branch("main"))
    repo.delete_tag("gone")
    tip = repo.lookup_branch("main")
    with pytest.raises(frazil.AlreadyExistsError, match="was deleted"):
        pipeline.run(tag="gone")
    assert repo.lookup_branch("main") == tip
    with pytest.raises(frazil.AlreadyExistsError, match="was deleted"):
        ops.publish(repo, "audit/main", tag="gone")
    assert repo.lookup_branch("main") == tip
    assert pipeline.run(tag="v1").snapshot_id == repo.lookup_tag("v1")


def test_in_a_repository_of_spec_version_1() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    observe(repo, 20)
    assert Pipeline(repo).run(job_id="monday").snapshot_id == repo.lookup_branch("main")
    assert (value(repo), repo.list_branches()) == (20, {"main"})


# ---- publications whose commit was removed -----------------------------------------------------------


def publish_once(
    repo: frazil.Repository, job_id: str | None = "monday"
) -> tuple[module.PublishSummary, list[str]]:
    """Publish, and return the snapshots that the work committed."""
    runs: list[str] = []
    published = ops.write_audit_publish(
        repo,
        lambda target: runs.append(observe(repo, 20, "new", target.branch)),
        [],
        job_id=job_id,
        engine="inline",
    )
    return published, runs


def amend(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t")[:] = 30
    session.amend("amended")


def first_commit(repo: frazil.Repository) -> str:
    return list(repo.ancestry(branch="main"))[-1].id


REMOVALS: dict[str, Any] = {
    "amend": amend,
    "squash": lambda repo: (observe(repo, 30), repo.upkeep.squash("main", first_commit(repo)).apply()),
    "squash of the tip": lambda repo: repo.upkeep.squash("main", first_commit(repo), message="all").apply(),
    "retention": lambda repo: (observe(repo, 30), repo.upkeep.retain(frazil.Retention(last=1)).apply()),
    "expiration": lambda repo: (observe(repo, 30), repo.expire_snapshots(datetime.now(UTC))),
}


@pytest.mark.parametrize("recent", [64, 0], ids=["with a record", "with a mark alone"])
@pytest.mark.parametrize("removal", REMOVALS.values(), ids=REMOVALS)
def test_a_publication_whose_commit_was_removed_is_done_once(
    repo: frazil.Repository, removal: Any, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_records, "_RECENT", recent)
    first, runs = publish_once(repo)
    assert len(runs) == 1
    removal(repo)
    assert first.snapshot_id not in [info.id for info in repo.ancestry(branch="main")]
    for _ in range(2):
        again, runs = publish_once(repo)
        assert (again.done_before, runs) == (True, [])
        assert again.snapshot_id in [info.id for info in repo.ancestry(branch="main")]
        amend(repo)


def test_a_publication_that_a_reset_removed_runs_again(repo: frazil.Repository) -> None:
    before = repo.lookup_branch("main")
    publish_once(repo)
    repo.reset_branch("main", before)
    again, runs = publish_once(repo)
    assert (again.done_before, len(runs)) == (False, 1)
    assert publish_once(repo)[0].done_before
    (record,) = [each for each in repo.metadata[JOBS] if each["id"] == "frazil_audit:monday"]
    assert record["snapshot"] == again.snapshot_id


@pytest.mark.parametrize("job_id", ["monday", None])
def test_a_squash_after_a_crash_leaves_no_audit_branch(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, job_id: str | None
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "delete_if_published", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_once(repo, job_id)
    REMOVALS["squash of the tip"](repo)
    again, runs = publish_once(repo, job_id)
    assert (again.done_before, len(runs)) == ((True, 0) if job_id else (False, 1))
    assert repo.list_branches() == {"main"}
