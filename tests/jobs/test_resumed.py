"""Jobs that were stopped: a second run does what is missing, commits once, and leaves garbage only."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.jobs.killed import CONFIG, POINTS, ROWS, TASKS, counting, created, left, opened
from tests.jobs.tasks import counts
from tests.support.faulty_storage import Fault, FaultyStorage

import frazil
from frazil.jobs import job_run
from frazil.jobs.engine import Task
from frazil.jobs.staging import Folder, Staging
from frazil.jobs.task_results import joined, split
from frazil.repository.catalog.collection_guard import STAGING
from frazil.repository.catalog.history_records import JOB
from frazil.spark import Engine, Inline, JobResult, Tasks, Threads, discard_job, run_job, staged_jobs

TOMORROW = datetime.now(UTC) + timedelta(days=1)
ENGINE = Threads(2)
PROGRAM = "import sys; from tests.jobs.killed import main; main(*sys.argv[1:])"


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    return created(tmp_path / "repo")


@dataclass(frozen=True)
class Stops:
    """An engine that stops after some tasks, as a driver that dies does."""

    after: int
    resumable: bool = True
    done: list[int] = field(default_factory=list)

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        for number, message in enumerate(tasks):
            if number == self.after:
                raise KeyboardInterrupt
            self.done.append(pickle.loads(message[8:]))
            yield task(shared, message)


def stopped(repo: frazil.Repository, after: int = 2, **more: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_job(counting(repo, **more), Stops(after))


def is_right(repo: frazil.Repository, chunks: int = TASKS + 1) -> None:
    """The data are there, by one commit. A collection of garbage leaves ``chunks`` chunk files."""
    for _ in range(2):
        store = repo.readonly_session("main").store
        array: Any = zarr.open_array(store, path="x", mode="r")
        other: Any = zarr.open_array(store, path="y", mode="r")
        assert array[:].tolist() == list(range(ROWS))
        assert array.attrs["sum"] == sum(range(ROWS))
        assert other[:].tolist() == [5, 5, 5]
        repo.garbage_collect(TOMORROW)
    assert len([info for info in repo.ancestry(branch="main") if JOB in info.metadata]) == 1
    assert left(repo) == []
    assert len(list(repo.storage.list("chunks"))) == chunks


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository for each point, where a driver was killed."""
    place = tmp_path_factory.mktemp("died")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place), *POINTS],
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": ":".join(map(str, sys.path))},
        capture_output=True,
        text=True,
    )
    assert run.stdout.splitlines() == [f"{point}\t9" for point in POINTS], run.stderr
    return place


@pytest.mark.sample(2, 2)
@pytest.mark.deep
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed(died: Path, point: str, caplog: pytest.LogCaptureFixture) -> None:
    repo = opened(died / point)
    # Somebody collects garbage meanwhile, with no regard for what is young.
    repo.garbage_collect(TOMORROW)
    committed = point in ("committed, and not told", "before cleaning")
    result = run_job(counting(repo), ENGINE)
    assert result.done_before is committed
    if not committed:
        assert POINTS[point][1] <= result.metrics.resumed <= POINTS[point][1] + 2
        assert result.metrics.tasks == TASKS
    assert left(repo) == []
    assert run_job(counting(repo), ENGINE).done_before
    is_right(repo)


@pytest.mark.sample(1)
@pytest.mark.parametrize("spec_version", [2, 1])
def test_others_may_commit_meanwhile(spec_version: int, tmp_path: Path) -> None:
    repo = created(tmp_path / "repo", spec_version)
    stopped(repo)
    with repo.transaction("main", message="other") as store:
        zarr.create_array(store, name="other", data=np.arange(3))
    assert run_job(counting(repo), ENGINE).metrics.resumed == 2
    assert zarr.open_array(repo.readonly_session("main").store, path="other", mode="r")[2] == 2
    is_right(repo, TASKS + 1 + 1)


@pytest.mark.deep
def test_a_conflict_begins_anew(repo: frazil.Repository, caplog: pytest.LogCaptureFixture) -> None:
    stopped(repo)
    with repo.transaction("main", message="the same array") as store:
        zarr.create_array(store, name="x", data=np.arange(3))
    with caplog.at_level(logging.WARNING):
        assert run_job(counting(repo), ENGINE).metrics.resumed == 0
    assert "its staged results cannot be used" in caplog.text
    is_right(repo, TASKS + 1 + 1)  # theirs is in the history


def test_a_conflict_at_the_end_is_raised_and_the_plan_given_up(repo: frazil.Repository) -> None:
    def others(session: frazil.Session, values: list[Any]) -> None:
        with repo.transaction("main", message="the same array") as store:
            zarr.create_array(store, name="x", data=np.arange(3))

    late = replace(counting(repo), finish=others)
    with pytest.raises(frazil.RebaseFailedError):
        run_job(late, ENGINE)
    assert left(repo) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "gone", ["expired", "too old", "other software", "other items", "damaged", "hostile"]
)
def test_a_job_with_an_unusable_plan_starts_again(repo: frazil.Repository, gone: str, tmp_path: Path) -> None:
    stopped(repo, 4)
    plan = next((tmp_path / "repo" / STAGING).glob("*/plan"))
    fields = json.loads(plan.read_text())
    if gone == "expired":
        for number in range(2):
            repo.writable_session("main").commit(str(number), allow_empty=True)
        repo.expire_snapshots(datetime.now(UTC))
        # the base is the first snapshot, which never goes: another one that did
        fields["base"] = "VY76P925PRY57WFEK410"
    elif gone == "too old":
        fields["started"] -= timedelta(days=8) // timedelta(microseconds=1)
    elif gone == "other software":
        fields["software"] = "0.0.0"
    elif gone == "damaged":
        fields.pop("seen")
    elif gone == "hostile":
        fields["folder"] = "../../chunks"
    plan.write_text(json.dumps(fields))
    assert len(staged_jobs(repo)) == (gone not in ("damaged", "hostile"))
    job = counting(repo)
    if gone == "other items":
        items = [(start,) for start in range(0, ROWS, 4)]
        prepare, work = job.prepare, job.work
        job = replace(
            job,
            prepare=lambda session: Tasks(items, prepare(session).shared),
            work=lambda fork, shared, item: work(fork, shared, *item),
        )
    assert run_job(job, ENGINE).metrics.resumed == 0
    is_right(repo)


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("evil"),))


def test_a_damaged_result_is_done_again_and_runs_no_code(
    repo: frazil.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damages: list[Any] = [b"", lambda data: data.replace(b'"ends": 1', b'"ends": "')]
    damages.append(
        lambda data: joined([*split(data, 3)[:2], b"\x80\x04\x8c\x0cfrazil.spark\x8c\x03gon\x93."])
    )
    damages.append(lambda data: joined([*split(data, 3)[:2], b"(" * 100]))
    damages.append(lambda data: joined([*split(data, 3)[:2], pickle.dumps(Evil())]))
    stopped(repo, len(damages))
    for number, damage in enumerate(damages):
        file = next((tmp_path / "repo" / STAGING).glob(f"*/*/*/{number}"))
        file.write_bytes(damage if isinstance(damage, bytes) else damage(file.read_bytes()))
    assert run_job(counting(repo), ENGINE).metrics.resumed == 0
    assert not (tmp_path / "evil").exists()
    is_right(repo)


@pytest.mark.sample(1)
@pytest.mark.parametrize("hours", [30, 6 * 24])
def test_after_the_lifetime_of_sessions(repo: frazil.Repository, hours: int, tmp_path: Path) -> None:
    stopped(repo, 4)
    plan = next((tmp_path / "repo" / STAGING).glob("*/plan"))
    fields = json.loads(plan.read_text())
    for name in ("started", "since"):
        fields[name] -= timedelta(hours=hours) // timedelta(microseconds=1)
    plan.write_text(json.dumps(fields))
    then = time.time() - hours * 3600
    for file in (tmp_path / "repo" / "leases").iterdir():
        os.utime(file, (then, then))
    for file in (tmp_path / "repo" / "chunks").iterdir():
        os.utime(file, (then + 60, then + 60))
    repo.garbage_collect(TOMORROW)
    assert run_job(counting(repo), ENGINE).metrics.resumed == 4
    is_right(repo)


def test_an_id_is_for_one_job(repo: frazil.Repository) -> None:
    stopped(repo, id="monday")
    other = replace(counting(repo, id="monday"), parameters={"rows": 7})
    with pytest.raises(
        frazil.InvalidInputError, match="was started with other parameters or inputs"
    ) as caught:
        run_job(other, ENGINE)
    assert caught.value.kind == frazil.ErrorKind.CONFLICTING_ARGUMENTS
    discard_job(repo, "monday")
    assert left(repo) == []
    result = run_job(counting(repo, id="monday"), ENGINE)
    assert result.metrics.resumed == 0
    with pytest.raises(
        frazil.InvalidInputError, match=f"committed as {result.snapshot_id}, with (another name|other)"
    ):
        run_job(other, ENGINE)


def test_two_drivers_of_one_job(repo: frazil.Repository) -> None:
    barrier = threading.Barrier(2)

    def drive(_: int) -> JobResult:
        own = opened(Path(repo.storage.root))  # type: ignore[attr-defined]
        barrier.wait()
        return run_job(counting(own), ENGINE)

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(drive, range(2)))
    assert len({result.snapshot_id for result in results}) == 1
    assert sorted(result.done_before for result in results) == [False, True]
    is_right(repo)


@dataclass(frozen=True)
class Twice:
    """An engine that runs each task of two drivers at one time: both are first attempts."""

    resumable: bool = True

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        for message in tasks:
            first = task(shared, message)
            assert task(shared, message) == first
            yield first


def test_two_drivers_merge_the_same_results(repo: frazil.Repository) -> None:
    """What one driver stages for a later round refers to the results of an earlier round of the other."""
    run_job(counting(repo), Twice())
    is_right(repo)


def test_two_drivers_begin_at_one_moment(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one goes on from the first one's plan, and leaves it and its lease in peace."""
    put = Folder.put

    def late(self: Folder, name: str, data: bytes) -> bool:
        if name == "plan":
            monkeypatch.undo()
            stopped(repo, 3)
        return put(self, name, data)

    monkeypatch.setattr(Folder, "put", late)
    assert run_job(counting(repo), ENGINE).metrics.resumed == 3
    is_right(repo)


def test_another_driver_takes_away_what_is_staged(repo: frazil.Repository) -> None:
    """It has committed: whatever this one then misses, the job is done."""
    other = opened(Path(repo.storage.root))  # type: ignore[attr-defined]

    def finish(session: frazil.Session, values: list[Any]) -> None:
        assert not run_job(counting(other, id="monday"), ENGINE).done_before
        raise frazil.StorageError("staged references are gone", frazil.ErrorKind.OBJECT_NOT_FOUND)

    result = run_job(replace(counting(repo, id="monday"), finish=finish), ENGINE)
    assert (result.done_before, result.snapshot_id) == (True, repo.lookup_branch("main"))
    is_right(repo)


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", [ENGINE, Inline(), Inline(resumable=True)], ids=repr)
def test_tasks_that_write_one_chunk_are_an_error_and_not_staged(
    repo: frazil.Repository, engine: Engine
) -> None:
    """Corrected, the job does not go on from there."""
    job = counting(repo, id="monday")
    wrong = replace(job, work=writes_one_chunk)
    with pytest.raises(frazil.SessionStateError, match="more than one task") as caught:
        run_job(wrong, engine)
    assert caught.value.kind == frazil.ErrorKind.MERGE_FAILED
    assert left(repo) == []
    assert run_job(job, engine).metrics.resumed == 0
    assert len(list(repo.ancestry(branch="main"))) == 3


def writes_one_chunk(fork: frazil.ForkSession, shared: str, start: int) -> Any:
    return replace(counts(fork, shared, 0), rows=start)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.LOST])
def test_a_commit_whose_reply_is_lost(fault: Fault) -> None:
    """The first reply: it is looked for and found. All of them: the next run knows."""
    inner = frazil.in_memory_storage()
    first = frazil.Repository.create(inner, CONFIG)
    with first.transaction("main", message="root") as store:
        zarr.create_group(store)
    commits: list[str] = []

    def choose(key: str, condition: Any) -> Fault | None:
        commits.extend([key] if key == "repo" else [])
        return fault if key == "repo" and (fault is Fault.LOST or len(commits) == 1) else None

    repo = frazil.Repository.open(FaultyStorage(inner, choose), CONFIG)
    engine = Inline(resumable=True)
    if fault is Fault.ANSWER_LOST:
        assert not run_job(counting(repo), engine).done_before
        assert len(commits) == 1
    else:
        with pytest.raises(frazil.StorageError, match="was lost"):
            run_job(counting(repo), engine)
        assert run_job(counting(first), engine).metrics.resumed == TASKS
    assert run_job(counting(first), engine).done_before
    is_right(first)


@pytest.mark.parametrize("when", ["before it opens its session", "before it commits"])
def test_another_driver_is_done_in_between(
    repo: frazil.Repository, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if what it has committed is in nobody's way."""
    mine = replace(counting(repo), id="monday")
    other = replace(mine, prepare=prepares_z, finish=None)

    def first(*args: Any, call: Any) -> Any:
        monkeypatch.undo()
        assert not run_job(other, Inline()).done_before
        return call(*args)

    owner, name = {
        "before it opens its session": (Staging, "open"),
        "before it commits": (job_run, "commit_job"),
    }[when]
    monkeypatch.setattr(owner, name, partial(first, call=getattr(owner, name)))
    result = run_job(mine, ENGINE)
    assert result.done_before
    assert result.snapshot_id == repo.lookup_branch("main")
    assert len(list(repo.ancestry(branch="main"))) == 3
    assert left(repo) == []


def prepares_z(session: frazil.Session) -> Tasks:
    zarr.create_array(session.store, name="z", shape=(ROWS,), chunks=(4,), dtype="i4")
    return Tasks([0, 4], "z")


def test_a_task_that_fails_for_good_leaves_the_others_staged(repo: frazil.Repository) -> None:
    job = counting(repo)
    bad = replace(job, work=fails)
    with pytest.raises(frazil.IcechunkError, match="task 3 of 6 failed with OSError: no"):
        run_job(bad, Threads(1, attempts=2))
    assert run_job(job, ENGINE).metrics.resumed >= 2
    is_right(repo)


def test_a_job_that_fails_before_its_work_leaves_nothing(repo: frazil.Repository) -> None:
    def prepare(session: frazil.Session) -> Tasks:
        assert len(left(repo)) == 2
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        run_job(replace(counting(repo), prepare=prepare), ENGINE)
    assert left(repo) == []


def fails(fork: frazil.ForkSession, shared: str, start: int) -> Any:
    if start == 8:
        raise OSError("no")
    return counts(fork, shared, start)


# Garbage collection


@pytest.mark.deep
def test_abandoned_work_is_garbage_after_its_lease(repo: frazil.Repository, tmp_path: Path) -> None:
    stopped(repo, 4)
    before = left(repo)
    repo.garbage_collect(TOMORROW, dry_run=True)
    repo.garbage_collect(TOMORROW)
    assert left(repo) == before
    lease = next((tmp_path / "repo" / "leases").glob("job.*"))
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "left": -10_000_000}))
    repo.garbage_collect(datetime.now(UTC) - timedelta(days=1))
    assert len(left(repo)) == len(before) - 1  # nothing is that old
    repo.garbage_collect(TOMORROW)
    assert left(repo) == []
    assert list((tmp_path / "repo" / "chunks").iterdir()) == []
    assert run_job(counting(repo), ENGINE).metrics.resumed == 0
    is_right(repo)


@pytest.mark.deep
@pytest.mark.interop
def test_the_reference_collects_beside_a_staged_job(repo: frazil.Repository, tmp_path: Path) -> None:
    """It knows nothing of staged work, and takes its chunks; that is noticed, and they are written again."""
    import icechunk

    stopped(repo, 4)
    before = left(repo)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    old = theirs.garbage_collect(datetime.now(UTC) - timedelta(hours=1))
    assert old.chunks_deleted == 0
    young = theirs.garbage_collect(TOMORROW)
    assert young.chunks_deleted == 5
    assert left(repo) == before
    repo = opened(tmp_path / "repo")
    assert run_job(counting(repo), ENGINE).metrics.resumed == 0
    read: Any = zarr.open_array(theirs.readonly_session("main").store, path="x", mode="r")
    assert read[:].tolist() == list(range(ROWS))
    is_right(repo)
