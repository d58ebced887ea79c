"""Shared jobs: tasks in processes of their own, killed, repeated and lost ones, and one commit.

``--basetemp`` puts the repositories on another file system, such as a mounted NFS.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.jobs.killed import left
from tests.support import servers
from tests.support.patience import patience

import frazil
from frazil.cli.main import main
from frazil.errors import ErrorKind, IcechunkError
from frazil.jobs import SharedJob, open_shared, shared, staging, task_results
from frazil.pipeline import Job, Target, Tasks, discard_job, job_metrics, run_job, staged_jobs
from frazil.repository.catalog.history_records import JOB

TASKS = 5
CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)


@pytest.fixture(params=["files", pytest.param("ministack", marks=[pytest.mark.servers, pytest.mark.deep])])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[frazil.Storage]:
    if request.param == "files":
        yield frazil.local_filesystem_storage(str(tmp_path / "ice"))
        return
    pytest.importorskip("ministack", reason="ministack is not installed")
    with servers.ministack() as server:
        yield server.storage(prefix="ice")


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "ice")), CONFIG)


def arrays(session: frazil.Session) -> None:
    zarr.create_array(session.store, name="t", shape=(2 * TASKS,), chunks=(2,), dtype="i4")
    zarr.create_array(session.store, name="host", shape=(TASKS,), chunks=(1,), dtype="i8")


def values(repo: frazil.Repository, path: str = "t") -> list[int]:
    array = zarr.open_array(repo.readonly_session("main").store, path=path, mode="r")
    return list(map(int, np.asarray(array[:])))


def write(job: SharedJob, number: int, start: int, stop: int, path: str = "t", **more: Any) -> None:
    with job.task(number, **more) as session:
        zarr.open_array(session.store, path=path, mode="r+")[start:stop] = number + 1


def start_program(folder: Path, name: str, number: int, *marks: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.shared_tasks", name, str(folder), str(number), *marks],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def status(process: subprocess.Popen[str]) -> int:
    """Wait for the end of a process, and close its pipe."""
    process.communicate(timeout=patience(120))
    return process.returncode


def test_tasks_that_die_meet_and_are_lost(storage: frazil.Storage, tmp_path: Path) -> None:
    repo = frazil.Repository.create(storage, CONFIG)
    job = open_shared(repo, TASKS, job_id="job", prepare=arrays)
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    # The task 1 runs twice at the same time, the task 2 is killed, and nobody starts the task 4.
    tasks = [(0, ()), (1, ("meets 1",)), (1, ("meets 1",)), (2, ("dies",)), (3, ())]
    processes = [start_program(tmp_path, "task", number, *marks) for number, marks in tasks]
    assert list(map(status, processes)) == [0, 0, 0, -signal.SIGKILL, 0]
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))  # the lease of the job protects its chunks
    killed, never = job.missing()
    assert (killed.number, killed.attempts, killed.host) == (2, 1, socket.gethostname())
    assert (killed.process, never.number, never.attempts) == (processes[3].pid, 4, 0)
    with pytest.raises(frazil.SessionStateError) as caught:
        job.commit()
    assert caught.value.kind == ErrorKind.COMMIT_NOT_ALLOWED
    for text in ("2 of 5 tasks", f"task 2: on {killed.host}", f"process {killed.process}", "4: no attempt"):
        assert text in str(caught.value)
    assert repo.lookup_branch("main") == next(iter(repo.ancestry(branch="main"))).id
    # The batch system queues all tasks again. Those that are done do nothing.
    owners = [start_program(tmp_path, "task", number, "unless done") for number in range(TASKS)]
    assert list(map(status, owners)) == [0] * TASKS
    assert job.missing() == []
    # Two commits run at the same time, and one of them again later.
    commits = [start_program(tmp_path, "commit", 0, "meets commit") for _ in range(2)]
    ids = {each.communicate(timeout=patience(120))[0].strip() for each in commits}
    assert ids == {repo.lookup_branch("main"), job.commit().snapshot_id}
    assert job.commit().done_before
    assert values(repo) == np.repeat(np.arange(1, TASKS + 1), 2).tolist()
    hosts = values(repo, "host")
    assert hosts[1] in (processes[1].pid, processes[2].pid)
    assert [hosts[0], *hosts[2:]] == [processes[0].pid, owners[2].pid, processes[4].pid, owners[4].pid]
    assert [row["tasks"] for row in job_metrics(repo)] == [TASKS]
    assert sum(JOB in each.metadata for each in repo.ancestry(branch="main")) == 1
    assert left(repo) == []
    # A task that is late changes nothing, and says so.
    assert shared(repo, "job").has_result(2)
    with pytest.raises(frazil.SessionStateError, match="was committed as"):
        write(shared(repo, "job"), 2, 0, 2)


@pytest.mark.parametrize("shards", [None, (4,)])
@pytest.mark.parametrize("is_staged", [False, True])
def test_tasks_that_wrote_one_chunk(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, shards: tuple[int, ...] | None, is_staged: bool
) -> None:
    if is_staged:
        monkeypatch.setattr(task_results, "SENT_REFERENCES", 1)

    def prepare(session: frazil.Session) -> None:
        zarr.create_array(session.store, name="t", shape=(8,), chunks=(2,), shards=shards, dtype="i4")

    job = open_shared(repo, 3, prepare=prepare)
    for number, start, stop in ((0, 0, 4), (1, 5, 6), (2, 6, 8)):  # 5 is in the chunk or the shard of 4
        write(job, number, start, stop)
    if shards is None:
        write(job, 2, 4, 8, again=True)
    for _ in range(2):  # the results stay, and the error is the same
        with pytest.raises(frazil.SessionStateError) as caught:
            job.commit()
        assert caught.value.kind == ErrorKind.MERGE_FAILED
        chunk = (1,) if shards else (2,)
        assert f"first is {chunk}, of the tasks `1`, `2`" in str(caught.value)
        assert "`/t`" in str(caught.value)
    write(job, 1, 0, 0, again=True)
    write(job, 2, 4, 8, again=True)
    write(job, 2, 0, 8)  # does not count
    job.commit()
    assert values(repo) == [1, 1, 1, 1, 3, 3, 3, 3]


def test_others_commit_meanwhile(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="arrays") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        zarr.create_array(store, name="u", shape=(4,), chunks=(2,), dtype="i4")
    clean, late = open_shared(repo, 1), open_shared(repo, 1)
    write(clean, 0, 0, 2)
    write(late, 0, 0, 2)
    with repo.transaction("main", message="other") as store:
        zarr.open_array(store, path="u")[:] = 9
    with clean.task(0) as session:  # the same version as that of the first attempt
        assert zarr.open_array(session.store, path="u", mode="r")[0] == 0
    result = clean.commit("clean", {"model": "x"})
    assert (values(repo), values(repo, "u")) == ([1, 1, 0, 0], [9] * 4)
    assert repo.lookup_snapshot(result.snapshot_id).metadata["model"] == "x"
    with pytest.raises(frazil.RebaseFailedError, match="run its tasks again") as caught:
        late.commit()
    assert "session" not in str(caught.value)
    with pytest.warns(UserWarning, match=f"committed before, as {result.snapshot_id}"):
        open_shared(repo, 1, job_id=clean.id)
    assert late.missing() == []
    assert [each.id for each in staged_jobs(repo)] == [late.id]


def test_a_damaged_result_runs_again(repo: frazil.Repository) -> None:
    job = open_shared(repo, 2, prepare=arrays)
    for number in range(2):
        write(job, number, number, number + 1, "host")
    (key,) = [info.key for info in repo.storage.list("staging") if info.key.endswith("/1")]
    repo.storage.put(key, b"damaged")
    assert [job.has_result(number) for number in range(2)] == [True, False]
    with pytest.raises(frazil.SessionStateError, match=r"1 of 2 .* task 1: its result is damaged"):
        job.commit()
    write(job, 1, 1, 2, "host")
    job.commit()
    assert values(repo, "host")[:2] == [1, 2]


def test_jobs_that_cannot_be_used(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(kind: ErrorKind, function: Any, *args: Any, **more: Any) -> str:
        with pytest.raises(IcechunkError) as caught:
            function(*args, **more)
        assert caught.value.kind == kind
        return str(caught.value)

    def broken(session: frazil.Session) -> None:
        raise ArithmeticError("of the user")

    with pytest.raises(ArithmeticError):
        open_shared(repo, 2, prepare=broken)
    assert not staged_jobs(repo)
    assert not repo.upkeep.leases()
    refuses(ErrorKind.NOT_ALLOWED, shared, repo, "job")
    refuses(ErrorKind.INVALID_ARGUMENT, shared)
    refuses(ErrorKind.INVALID_ARGUMENT, open_shared, repo, 0)
    refuses(ErrorKind.REF_NOT_FOUND, open_shared, repo, 2, branch="no")
    job = open_shared(repo, 2, job_id="job", prepare=arrays)
    assert open_shared(repo, 2, job_id="job", prepare=arrays) == open_shared(repo, 2, job_id="job") == job
    prepare: Any = arrays
    for another in (broken, partial(prepare, 3), lambda session: arrays(session)):
        refuses(ErrorKind.CONFLICTING_ARGUMENTS, open_shared, repo, 2, job_id="job", prepare=another)
    refuses(ErrorKind.CONFLICTING_ARGUMENTS, open_shared, repo, 3, job_id="job")
    for number in (-1, 2):
        refuses(ErrorKind.INVALID_ARGUMENT, job.has_result, number)
        refuses(ErrorKind.INVALID_ARGUMENT, write, job, number, 0, 1)
    with pytest.raises(ZeroDivisionError), job.task(1) as failed:
        raise ZeroDivisionError("of the model")
    with job.task(0) as ended:
        array = zarr.open_array(ended.store, path="t")
    for session in (ended, failed):
        refuses(ErrorKind.READ_ONLY_STORE, zarr.open_array(session.store, path="t").__setitem__, 0, 99)
        refuses(ErrorKind.READ_ONLY_STORE, zarr.create_group, session.store, path="late")
    refuses(ErrorKind.READ_ONLY_STORE, array.__setitem__, slice(0, 2), 99)
    assert job.missing()[0].error == "ZeroDivisionError: of the model"
    with monkeypatch.context() as patch:
        patch.setattr(staging, "__version__", "another")
        assert "another" in refuses(ErrorKind.CONFLICTING_ARGUMENTS, write, job, 0, 0, 1)
    discard_job(repo, "job")
    for call in (job.missing, job.commit):
        refuses(ErrorKind.NOT_ALLOWED, call)
    run_job(
        Job("other", Target(repo), lambda session: prepare(session) or Tasks([]), prepare, id="own"), "inline"
    )
    refuses(ErrorKind.CONFLICTING_ARGUMENTS, open_shared, repo, 2, job_id="own")


def test_the_commands(repo: frazil.Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with repo.transaction("main", message="arrays") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
    repo.create_branch("dev", repo.lookup_branch("main"))
    ice = f"{tmp_path / 'ice'}@dev"
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, zarr, frazil.jobs\n"
        "n = int(os.environ['FRAZIL_TASK'])\n"
        "with frazil.jobs.shared().task() as session:\n"
        "    zarr.open_array(session.store, path='t')[2 * n : 2 * n + 2] = int(sys.argv[1])\n"
    )
    python = [sys.executable, str(program)]

    def run(*command: str) -> tuple[int, str]:
        status = main(["job", *command])
        return status, "".join(capfd.readouterr())

    def task(number: int, *command: str, again: bool = False) -> tuple[int, str]:
        return run("task", *["--again"] * again, ice, "night", str(number), "--", *command)

    assert run("open", ice, "--tasks", "2", "--id", "night") == (0, "night\n")
    assert run("commit", ice, "night")[0] == 1
    assert task(0, sys.executable, "-c", "raise SystemExit(7)")[0] == 7
    assert task(0, sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")[0] == 128 + 9
    assert task(0, sys.executable, "-c", "")[0] == 1
    status, text = task(0, "nosuchprogram")
    assert (status, "`nosuchprogram` of task 0: there is no such program" in text) == (127, True)
    assert task(0, str(tmp_path))[0] == 126
    assert task(2, *python, "5")[0] == 1
    assert task(0, *python, "5")[0] == 0
    assert "does not run" in task(0, *python, "6")[1]
    status, text = run("status", ice, "night", "--json")
    assert (status, [each["number"] for each in json.loads(text)["missing"]]) == (1, [1])
    assert task(1, *python, "6")[0] == task(0, *python, "7", again=True)[0] == 0
    assert run("status", ice, "night") == (0, "2 of 2 tasks have a result\n")
    assert [run("commit", ice, "night")[0] for _ in range(2)] == [0, 0]
    assert "does not run" in task(1, *python, "8")[1]
    status, text = run("open", ice, "--tasks", "2", "--id", "night")
    assert status == 0
    assert "committed before" in text
    array: Any = zarr.open_array(repo.readonly_session("dev").store, path="t", mode="r")
    assert array[:].tolist() == [7, 7, 6, 6]
    assert values(repo) == [0] * 4
