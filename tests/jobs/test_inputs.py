"""Inputs of jobs that others change before the job commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.jobs import tasks
from tests.pipeline.operations import CALLS, Call, operate
from tests.pipeline.transform.shared import repository_of

import frazil
import frazil.pipeline as ops
from frazil.errors import ErrorKind, InvalidInputError, RebaseFailedError, StaleReadError
from frazil.jobs import job_run as module
from frazil.repository.catalog.history_records import JOB

ENGINE = ops.Inline()


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> frazil.Repository:
    storage = frazil.local_filesystem_storage(str(tmp_path / "repo"))
    return filled(frazil.Repository.create(storage, spec_version=request.param))


def filled(repo: frazil.Repository) -> frazil.Repository:
    with repo.transaction("main", message="base") as store:
        root = zarr.create_group(store)
        for name in ("foo", "other", "group/inside"):
            root.create_array(
                name, shape=(8, 3), chunks=(2, 3), dtype="f8", fill_value=0, dimension_names=("t", "x")
            )[:] = 1
    return repo


def put(repo: frazil.Repository, path: str = "foo", value: float = 5, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    zarr.open_array(session.store, path=path)[:] = value
    return session.commit(f"{path} = {value}")


def values(repo: frazil.Repository, path: str, branch: str = "main") -> Any:
    return zarr.open_array(repo.readonly_session(branch).store, path=path, mode="r")[:]


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Let something happen once, between the work of the next job and its commit."""

    def arrange(happens: Callable[[], Any]) -> None:
        real, waiting = module.commit_job, [happens]

        def late(*args: Any, **more: Any) -> Any:
            if waiting:
                waiting.pop()()
            return real(*args, **more)

        monkeypatch.setattr(module, "commit_job", late)

    return arrange


def tenfold(repo: frazil.Repository, *inputs: ops.Input, output: str = "bar", **more: Any) -> ops.Job:
    """``bar`` is ten times ``foo``, as the job's session sees that."""

    def prepare(session: frazil.Session) -> ops.Tasks:
        zarr.create_array(session.store, name=output, shape=(8, 3), chunks=(2, 3), dtype="f8", overwrite=True)
        return ops.Tasks(range(0, 8, 2), shared=("foo", output))

    return ops.Job(
        "tenfold", ops.Target(repo), prepare, tasks.tenfold, inputs=inputs, writes=(f"/{output}",), **more
    )


def foo_of(repo: frazil.Repository, *paths: str) -> ops.Input:
    return ops.Version.of(repo).input(paths or ["/foo"])


@pytest.mark.sample(1)
def test_a_job_whose_input_was_corrected_is_not_committed(
    repo: frazil.Repository, before_commit: Callable[[Any], None]
) -> None:
    before_commit(partial(put, repo))
    with pytest.raises(StaleReadError, match=r"`tenfold` .*`/foo`: another session wrote") as error:
        ops.run_job(tenfold(repo, foo_of(repo)), ENGINE)
    tip = repo.lookup_branch("main")
    assert error.value.snapshot == tip
    assert error.value.kind == ErrorKind.STALE_READ
    assert "Run the job again" in str(error.value)
    assert next(iter(repo.ancestry(branch="main"))).message == "foo = 5"
    again = ops.run_job(tenfold(repo, foo_of(repo)), ENGINE)
    assert not again.done_before
    assert values(repo, "bar").min() == 50


def test_rewritten_manifests_are_no_change() -> None:
    repo = filled(frazil.Repository.create(frazil.in_memory_storage()))
    source = foo_of(repo)
    repo.rewrite_manifests("no data are changed", branch="main")
    assert ops.Version.of(repo).input(["/foo"]).snapshot != source.snapshot
    ops.run_job(tenfold(repo, source), ENGINE)


def test_an_input_that_had_changed_when_the_job_began(repo: frazil.Repository) -> None:
    source = foo_of(repo)
    put(repo, "other")
    culprit = put(repo)
    put(repo, "other", 6)

    def never(*args: Any) -> Any:
        pytest.fail("a task ran")

    with pytest.raises(StaleReadError) as error:
        ops.run_job(replace(tenfold(repo, source), work=never), ENGINE)
    assert error.value.snapshot == culprit


@pytest.mark.parametrize("fixed", ["tag", "snapshot", "branch", "another repository"])
def test_fixed_versions_do_not_change(
    repo: frazil.Repository, fixed: str, before_commit: Callable[[Any], None]
) -> None:
    tip = repo.lookup_branch("main")
    repo.create_tag("v1", tip)
    repo.create_branch("dev", tip)
    other = filled(frazil.Repository.create(frazil.in_memory_storage()))
    before_commit(lambda: [put(each) for each in (repo, other)])
    version = {
        "tag": partial(ops.Version.of, repo, tag="v1"),
        "snapshot": partial(ops.Version.of, repo, snapshot_id=tip),
        "branch": partial(ops.Version.of, repo, branch="dev"),
        "another repository": partial(ops.Version.of, other),
    }[fixed]()
    ops.mean(version, "foo", "t", to=ops.Target(repo, group="mean"), engine=ENGINE)
    assert values(repo, "mean/foo").tolist() == [1, 1, 1]


def test_a_repository_with_two_addresses_is_one(tmp_path: Path, before_commit: Callable[[Any], None]) -> None:
    """As with other credentials or another endpoint: the addresses differ, and the place is the same."""
    repo = filled(frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo"))))
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    source = frazil.Repository.open(frazil.local_filesystem_storage(str(tmp_path / "link")))
    before_commit(partial(put, repo))
    with pytest.raises(StaleReadError, match="`/foo`"):
        ops.mean(source, "foo", "t", to=ops.Target(repo, group="mean"), engine=ENGINE)


def test_inputs_that_are_no_version_of_the_repository_are_fixed(tmp_path: Path) -> None:
    """Files, with a name for their version; and a repository without a commit, the first snapshot of all."""
    repo = filled(frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo"))))
    empty = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "empty")))
    inputs = [ops.Input("a catalogue", "main", "v1", ("/",), "0" * 32), ops.Version.of(empty).input()]
    ops.run_job(tenfold(repo, *inputs), ENGINE)


@pytest.mark.sample(1)
def test_an_output_in_the_group_that_is_read_refuses_nothing(
    repo: frazil.Repository, before_commit: Callable[[Any], None]
) -> None:
    ops.run_job(tenfold(repo, foo_of(repo, "/")), ENGINE)
    ops.run_job(tenfold(repo, foo_of(repo, "/"), output="group/bar"), ENGINE)
    append = tenfold(repo, foo_of(repo, "/foo", "/bar"), output="bar", id="append")
    before_commit(partial(put, repo, "other"))
    ops.run_job(append, ENGINE)
    ops.rechunk(repo, ["foo"], {"t": 4}, engine=ENGINE)
    assert values(repo, "foo").max() == 1


def test_inputs_are_compared_at_each_attempt(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tenfold(repo, foo_of(repo))
    real, attempts = frazil.Session.commit, []

    def commit(self: frazil.Session, message: str, *args: Any, **more: Any) -> str:
        if message == "tenfold":
            attempts.append(1)
            put(repo, "other" if len(attempts) < 3 else "foo", len(attempts))
        return real(self, message, *args, **more)

    monkeypatch.setattr(frazil.Session, "commit", commit)
    with pytest.raises(StaleReadError):
        ops.run_job(job, ENGINE)
    assert len(attempts) == 3


# What was staged


def die_before_commit(job: ops.Job, engine: ops.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "commit_job", die)
        with pytest.raises(KeyboardInterrupt):
            ops.run_job(job, engine)


@pytest.mark.sample(1)
@pytest.mark.parametrize("id_", [None, "given"])
def test_results_of_old_inputs_do_not_stay_staged(
    repo: frazil.Repository, id_: str | None, before_commit: Callable[[Any], None]
) -> None:
    before_commit(partial(put, repo))
    engine = ops.Inline(resumable=True)
    with pytest.raises(StaleReadError):
        ops.run_job(tenfold(repo, foo_of(repo), id=id_), engine)
    assert ops.staged_jobs(repo) == []
    result = ops.run_job(tenfold(repo, foo_of(repo), id=id_), engine)
    assert result.metrics.resumed == 0
    assert values(repo, "bar").min() == 50


def test_a_resumed_job_compares_what_changed_since_its_first_run(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input is declared once, at the version of the first run; the second one goes on from there."""
    engine, source = ops.Inline(resumable=True), foo_of(repo)
    die_before_commit(tenfold(repo, source), engine, monkeypatch)
    put(repo, "other")
    put(repo)
    with pytest.raises(StaleReadError):
        ops.run_job(tenfold(repo, source), engine)
    assert ops.staged_jobs(repo) == []


@pytest.mark.sample(1)
def test_a_resumed_job_whose_inputs_stayed_goes_on(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ops.Inline(resumable=True)
    die_before_commit(tenfold(repo, foo_of(repo)), engine, monkeypatch)
    put(repo, "other")  # the second run's inputs are those of a newer snapshot than its session's
    assert ops.run_job(tenfold(repo, foo_of(repo)), engine).metrics.resumed == 4
    assert values(repo, "bar").min() == 10


# Tracked


@pytest.mark.sample(4)
@pytest.mark.parametrize("engine", [ops.Inline(), ops.Inline(resumable=True), ops.Threads(2)], ids=repr)
@pytest.mark.parametrize("path", ["foo", "other"])
def test_a_job_may_track_what_its_tasks_read(
    repo: frazil.Repository, engine: ops.Engine, path: str, before_commit: Callable[[Any], None]
) -> None:
    before_commit(partial(put, repo, path))
    job = tenfold(repo, track_reads=True)
    if path == "other":
        ops.run_job(job, engine)
        assert values(repo, "bar").max() == 10
        return
    with pytest.raises(StaleReadError, match=r"`tenfold` .*`/foo`"):
        ops.run_job(job, engine)


def test_tracked_reads_of_staged_tasks_count_when_the_job_is_resumed(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, before_commit: Callable[[Any], None]
) -> None:
    engine = ops.Inline(resumable=True)
    die_before_commit(tenfold(repo, track_reads=True), engine, monkeypatch)
    before_commit(partial(put, repo))
    with pytest.raises(StaleReadError):
        ops.run_job(tenfold(repo, track_reads=True), engine)


def test_what_phases_read_of_rounds_before_is_their_own(
    repo: frazil.Repository, before_commit: Callable[[Any], None]
) -> None:
    def second(session: frazil.Session, values: list[Any]) -> ops.Tasks:
        return ops.Tasks(range(0, 8, 2), shared=("bar", "bar"))

    before_commit(partial(put, repo, "other"))
    ops.run_job(tenfold(repo, track_reads=True, phases=(ops.Phase(second, tasks.tenfold),)), ENGINE)
    assert values(repo, "bar").min() == 100


def test_a_plan_may_name_its_inputs(repo: frazil.Repository, before_commit: Callable[[Any], None]) -> None:
    job = tenfold(repo)
    before_commit(partial(put, repo))

    def prepare(session: frazil.Session) -> ops.Tasks:
        return replace(job.prepare(session), reads=("foo",))

    planned = replace(job, prepare=prepare)
    with pytest.raises(StaleReadError):
        ops.run_job(planned, ENGINE)


# Run again


def test_run_again_takes_the_new_version(
    repo: frazil.Repository, before_commit: Callable[[Any], None]
) -> None:
    before_commit(partial(put, repo))
    ops.run_again_if_stale(partial(ops.mean, repo, "foo", "t", engine=ENGINE))
    assert values(repo, "mean/foo").tolist() == [5, 5, 5]


def test_run_again_is_bounded() -> None:
    calls: list[RebaseFailedError] = []

    def fail(error: RebaseFailedError) -> None:
        calls.append(error)
        raise error

    stale, conflict = (partial(fail, of("snapshot")) for of in (StaleReadError, RebaseFailedError))
    with pytest.raises(StaleReadError):
        ops.run_again_if_stale(stale, attempts=4)
    with pytest.raises(RebaseFailedError):
        ops.run_again_if_stale(conflict)
    assert len(calls) == 5

    with pytest.raises(InvalidInputError):
        ops.run_again_if_stale(stale, attempts=0)


# What operations name


@pytest.fixture(scope="module")
def climate() -> frazil.Repository:
    time = xr.date_range("2000-01-01", periods=24, freq="MS")
    dataset = xr.Dataset(
        {"t": (("time", "lat", "lon"), np.ones((24, 4, 4))), "region": (("lat",), [1, 1, 2, 2])},
        {"time": time, "lat": [0.0, 1.0, 2.0, 3.0], "lon": [0.0, 1.0, 2.0, 3.0]},
    )
    dataset["month"] = (("time",), np.arange(24) % 12)
    return repository_of(dataset)


COORDINATES = {"/time", "/lat", "/lon"}
#: Operations, and the labels that they read besides the coordinates.
OPERATIONS: dict[str, tuple[Call, set[str]]] = {name: (call, set()) for name, call in CALLS.items()} | {
    "coslat": ((ops.mean, ["lat"], {"weights": "coslat"}), set()),
    "groupby a label": ((ops.groupby, ["month", "mean"], {}), {"/month"}),
    "zones of a label": ((ops.zonal_stats, ["region", "mean"], {}), {"/region"}),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_name_all_that_they_read(climate: frazil.Repository, name: str) -> None:
    call, labels = OPERATIONS[name]
    result = operate(call, climate, ["t"], to=ops.Target(climate, group=f"made/{name.replace(' ', '-')}"))
    (source,) = climate.lookup_snapshot(result.snapshot_id).metadata[JOB]["inputs"]
    assert {"/t", *COORDINATES, *labels} <= set(source["paths"])


def test_an_anomaly_names_the_climatology(climate: frazil.Repository) -> None:
    usual = ops.climatology(
        climate, "t", "month", "mean", to=ops.Target(climate, group="usual"), engine=ENGINE
    )
    result = ops.anomaly(
        climate, "t", usual, group="usual", to=ops.Target(climate, group="unusual"), engine=ENGINE
    )
    inputs = climate.lookup_snapshot(result.snapshot_id).metadata[JOB]["inputs"]
    assert {"/t", "/time"} <= set(inputs[0]["paths"])
    assert {"/usual/t", "/usual/month"} <= set(inputs[1]["paths"])


# Ingest and publish


def day(path: Path, number: int, value: float) -> str:
    dataset = xr.Dataset(
        {"t": (("time", "x"), np.full((1, 3), value))},
        {"time": xr.date_range(f"2026-01-{number:02d}", periods=1), "x": [0, 1, 2]},
    )
    dataset.to_netcdf(path / f"{number}.nc", engine="h5netcdf", unlimited_dims=["time"])
    return str(path / f"{number}.nc")


def test_an_ingest_whose_labels_were_corrected_is_planned_anew(
    tmp_path: Path, before_commit: Callable[[Any], None]
) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    for number in (1, 2):
        ops.ingest(day(tmp_path, number, number), repo, mode="append", engine=ENGINE)

    def happens() -> None:
        with repo.transaction("main", message="the days were the wrong way round") as store:
            labels = zarr.open_array(store, path="time")
            labels[:] = np.asarray(labels[:])[::-1]

    before_commit(happens)
    corrected = tmp_path / "corrected"
    corrected.mkdir()
    ops.ingest(day(corrected, 2, 20), repo, mode="upsert", engine=ENGINE)
    dataset = xr.open_zarr(repo.readonly_session("main").store, consolidated=False)
    assert dataset.t.sel(time="2026-01-02").values.tolist() == [20, 20, 20]


@pytest.mark.sample(1)
@pytest.mark.parametrize("source", ["main", "audit"])
def test_results_of_old_inputs_are_not_published(repo: frazil.Repository, source: str) -> None:
    runs: list[str] = []

    def work(target: ops.Target) -> None:
        branch = "main" if source == "main" else target.branch
        to = ops.Target(repo, target.branch, "mean")
        ops.mean(ops.Version.of(repo, branch=branch), "foo", "t", to=to, engine=ENGINE)
        runs.append(target.branch)
        put(repo, "other", len(runs))
        if len(runs) == 1:
            put(repo)

    def run() -> Any:
        return ops.write_audit_publish(
            repo, work, [ops.Exists("/mean/foo")], audit_branch="audit", engine=ENGINE
        )

    with pytest.raises(StaleReadError, match=r"`mean` .*`/foo`"):
        run()
    assert repo.readonly_session("main").workspace.node("/mean/foo") is None
    assert run().report.ok
    assert values(repo, "mean/foo").tolist() == [5, 5, 5]
    assert values(repo, "other").min() == 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("source", ["main", "audit"])
def test_old_work_of_an_earlier_run_starts_again(repo: frazil.Repository, source: str) -> None:
    def work(target: ops.Target) -> None:
        to = ops.Target(repo, target.branch, "mean")
        ops.mean(ops.Version.of(repo, branch=source), "foo", "t", to=to, engine=ENGINE)

    repo.create_branch("audit", repo.lookup_branch("main"))
    work(ops.Target(repo, "audit"))
    put(repo)
    ops.write_audit_publish(repo, work, [ops.Exists("/mean/foo")], audit_branch="audit", engine=ENGINE)
    assert values(repo, "mean/foo").tolist() == [5, 5, 5]
