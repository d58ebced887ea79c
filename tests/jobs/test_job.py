"""Jobs: prepared on the driver, worked on by tasks, committed once, and not done twice."""

from __future__ import annotations

import gc
import warnings
from dataclasses import asdict, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pytest
import zarr
from tests.jobs import killed, tasks
from tests.jobs.killed import left

import frazil
import frazil.pipeline as ops
from frazil.errors import IcechunkError
from frazil.repository.catalog.history_records import JOB


@pytest.fixture
def repo(tmp_path: Any) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))


#: Three tasks.
counting = partial(killed.counting, rows=12)


def test_a_second_phase_sees_what_the_first_has_merged(repo: frazil.Repository) -> None:
    """Intermediate arrays are in the session, never in the commit."""

    def first(session: frazil.Session) -> ops.Tasks:
        for name in ("x", "between"):
            zarr.create_array(session.store, name=name, shape=(12,), chunks=(4,), dtype="i4")
        return ops.Tasks(range(0, 12, 4), shared="between")

    def second(session: frazil.Session, values: list[Any]) -> ops.Tasks:
        assert values == [6, 22, 38]
        return ops.Tasks([(start, 100) for start in range(0, 12, 4)], shared=("between", "x"))

    def finish(session: frazil.Session, values: list[Any]) -> None:
        assert values == [3 - start for start in (0, 4, 8)]
        del zarr.open_group(session.store, mode="r+")["between"]

    phases = (ops.Phase(second, tasks.reversed_and_more),)
    result = ops.run_job(
        ops.Job("two", ops.Target(repo), first, tasks.counts, finish, phases=phases), ops.Inline()
    )
    root: Any = zarr.open_group(result.version.session().store, mode="r")
    assert list(root) == ["x"]
    assert root["x"][:].tolist() == [103, 102, 101, 100, 107, 106, 105, 104, 111, 110, 109, 108]
    assert result.metrics.tasks == 6
    first_commit = list(repo.ancestry(branch="main"))[-1]
    difference = repo.diff(from_snapshot_id=first_commit.id, to_snapshot_id=result.snapshot_id)
    assert (difference.new_arrays, difference.deleted_arrays) == ({"/x"}, set())


@pytest.mark.sample(1, 3)
def test_all_tasks_are_one_commit_with_their_metrics(tmp_path: Any, every_engine: ops.Engine) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")), config)
    source = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "source")), config)
    with source.transaction("main", message="data") as store:
        zarr.create_array(store, name="s", data=np.arange(12, dtype="i4"), chunks=(4,), compressors=None)
    planned = partial(_prepared_with, job=counting(repo), source=source)
    result = ops.run_job(replace(counting(repo), prepare=planned, work=tasks.copies), every_engine)
    metrics = result.metrics
    assert (metrics.tasks, metrics.resumed, metrics.retries, metrics.bytes_written) == (3, 0, 0, 48)
    # of both repositories: three chunks of 16 bytes each, and files of metadata
    assert metrics.stored_bytes_read > 48
    assert metrics.stored_bytes_written > 48
    assert metrics.requests > 12
    assert 0 < metrics.longest_task_seconds <= metrics.task_seconds
    assert (metrics.rows, metrics.chunks) == (12, 3)
    array: Any = zarr.open_array(result.version.session().store, path="x", mode="r")
    assert array[:].tolist() == list(range(12))
    assert array.attrs["sum"] == sum(range(12))
    assert left(repo) == []
    commit, first = repo.ancestry(branch="main")
    assert (commit.id, commit.metadata[JOB]["parameters"]) == (result.snapshot_id, {"rows": 12})
    (row,) = ops.job_metrics(repo)
    assert row == ops.job_metrics(repo, snapshot_id=result.snapshot_id)[0]
    assert (row["id"], row["name"], row["snapshot_id"]) == (result.id, "count", result.snapshot_id)
    assert {name: row[name] for name in ops.Metrics.__slots__} == asdict(metrics)
    assert ops.job_metrics(repo, snapshot_id=first.id) == []


def _prepared_with(session: frazil.Session, job: ops.Job, source: frazil.Repository) -> ops.Tasks:
    planned = job.prepare(session)
    return ops.Tasks(planned.items, shared=(planned.shared, ops.Version.of(source)))


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"parameters": {"fill": float("nan")}}, "bad-metadata", "a finite number"),
        ({"parameters": {"names": {"a"}}}, "bad-metadata", "got set"),
        ({"metadata": {"by": object()}}, "bad-metadata", "got object"),
        ({"message": "\ud800"}, "bad-metadata", "message must be text in UTF-8"),
        ({"id": "\ud800"}, "bad-metadata", "text that UTF-8 can encode"),
        ({"id": ""}, "bad-metadata", "job_id must be non-empty text, got ''"),
        ({"id": 5}, "bad-metadata", "job_id must be non-empty text, got 5"),
        ({"prepare": lambda session: None}, "invalid-argument", "must return Tasks, got NoneType"),
        (
            {"prepare": lambda session: ops.Tasks([1, Lock()])},
            "invalid-argument",
            "item 1 cannot be sent to a task",
        ),
        (
            {"prepare": lambda session: ops.Tasks([1], Lock())},
            "invalid-argument",
            "shared value cannot be sent to a task because of the item 'shared', of the type lock: ",
        ),
        ({"work": lambda fork, shared, item: None}, "task-failed", "must return an Outcome, got NoneType"),
    ],
)
def test_an_invalid_job_does_no_work(
    repo: frazil.Repository, more: dict[str, Any], kind: str, message: str
) -> None:
    done: list[Any] = []
    work = more.get("work", lambda fork, shared, item: done.append(item))
    with pytest.raises(IcechunkError, match=message) as caught:
        ops.run_job(replace(counting(repo), **{"work": work, **more}), ops.Threads(1, attempts=1))
    assert caught.value.kind == kind
    assert (done, left(repo)) == ([], [])


@pytest.mark.parametrize("id_", ["../../repo", "a/b\n\0c", "ä" * 500, "refs/branch.main/ref.json"])
def test_an_id_may_be_any_text(repo: frazil.Repository, id_: str) -> None:
    result = ops.run_job(counting(repo, id=id_), ops.Inline(resumable=True))
    assert (result.id, repo.lookup_branch("main")) == (id_, result.snapshot_id)
    assert ops.run_job(counting(repo, id=id_), ops.Inline(resumable=True)).done_before
    assert repo.upkeep.verify("checksum").ok
    folders = {info.key.split("/")[0] for info in repo.storage.list("")}
    assert folders == {"repo", "overwritten", "snapshots", "transactions", "manifests"}


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_failure_leaves_no_lease(spec_version: int) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=spec_version)

    def finish(session: frazil.Session, values: list[Any]) -> None:
        raise ZeroDivisionError

    fails = replace(counting(repo), finish=finish)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # sessions of other tests warn now
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            ops.run_job(fails, ops.Inline())
        gc.collect()
    assert not [each for each in warned if each.category is frazil.errors.UncommittedChangesWarning]
    assert left(repo) == []
    assert ops.run_job(counting(repo), ops.Inline()).metrics.rows == 12
