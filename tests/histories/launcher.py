"""What one worker does, and the process that starts workers.

Workers are forks of one process that has imported all modules: a start takes milliseconds. The launcher
reads one line with the path of a plan, and answers with the process id of the worker. The end of its input
ends it and all workers. A worker that replaces a killed one first finds out what became of the operations
whose answer is lost, as a user has to.
"""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import random
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.histories import layout
from tests.histories.operations import OPERATIONS, Client, LogFile, Outcome, operations

import frazil
from frazil.errors import IcechunkError, StorageError
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker does."""

    name: str  #: A name that no other worker has, also no earlier one.
    storage: Storage  #: The storage of the repository.
    folder: Path  #: The folder of the logs.
    seed: str  #: The seed of the random numbers.
    first_number: int  #: The numbers that it writes begin here.
    count: int  #: How many operations it does.
    predecessor: str = ""  #: The name of the worker that was killed before, or an empty text.
    process: int = -1  #: The process id of that worker, which its leases have.
    packs: bool = True  #: Whether small chunks are stored in packs.

    def log_path(self) -> Path:
        """Return the log of this worker."""
        return self.folder / f"{self.name}.jsonl"

    def error_path(self) -> Path:
        """Return the file of the standard error of this worker."""
        return self.folder / f"{self.name}.err"

    def end_path(self) -> Path:
        """Return the file that tells that the worker has done all operations."""
        return self.folder / f"{self.name}.end"


def work(plan: Plan) -> None:
    """Do the operations of a plan."""
    repo = _open(plan)
    log = LogFile(plan.log_path())
    if plan.predecessor:
        _follow(repo, log, plan)
    client = Client(plan.name, plan.first_number, repo, log, random.Random(plan.seed))
    functions, weights = list(OPERATIONS), list(OPERATIONS.values())
    missed = 0
    while client.calls - missed < plan.count:
        function = client.random.choices(functions, weights)[0]
        try:
            function(client)
        except IcechunkError as error:  # before the operation began
            mark, missed = client.mark(), missed + 1
            log.begin(mark, "prepare")
            log.end(mark, Outcome.REFUSED, error=f"{type(error).__name__} {error.kind}")


def _open(plan: Plan) -> frazil.Repository:
    """Open the repository. The storage may answer with errors for a while."""
    for _ in range(50):
        try:
            return frazil.Repository.open(plan.storage, layout.config(packs=plan.packs))
        except StorageError as error:
            failure = error
    raise failure


def _follow(repo: frazil.Repository, log: LogFile, plan: Plan) -> None:
    """Find the last commit of the killed worker, and break its leases."""
    path = plan.folder / f"{plan.predecessor}.jsonl"
    lost = {
        each.mark
        for each in operations([path] if path.exists() else [])
        if each.outcome is Outcome.UNKNOWN and each.snapshot is None
    }
    try:
        for snapshot in repo.inspect_repo_info()["snapshots"]:
            if snapshot["message"] in lost:
                log.identify(snapshot["message"], snapshot["id"])
        for lease in repo.upkeep.leases():
            if lease.process == plan.process:
                repo.upkeep.break_lease(lease.id)
    except IcechunkError:
        return  # the end of the campaign identifies the rest


_POLL_MS: Final = 10_000


class WorkerProcess:
    """A worker: whether it runs, and its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = -1

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._handle >= 0 and not self._has_ended(0)

    def kill(self) -> None:
        """End the process at once, and wait for its end."""
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Wait for the end of the process, and close the handle."""
        if self._handle >= 0:
            self._has_ended(_POLL_MS)
            os.close(self._handle)
            self._handle = -1

    def _has_ended(self, milliseconds: int) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(milliseconds))


class Launcher:
    """The process that starts workers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.histories.launcher"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        for worker in self._workers:
            worker.close()
        self._process.stdout.close()

    def start(self, plan: Path) -> WorkerProcess:
        """Start the worker of a plan."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{plan}\n")
        self._process.stdin.flush()
        worker = WorkerProcess(int(self._process.stdout.readline()))
        self._workers.append(worker)
        return worker


def _import_modules() -> None:
    """Import what workers need, because Frazil imports many modules when a program uses them."""
    for package in ("frazil.repository", "frazil.maintenance", "frazil.storage", "frazil.zarr_store"):
        folder = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folder, f"{package}."):
            importlib.import_module(module.name)


def _serve() -> None:
    _import_modules()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets workers that ended
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run(Path(line.rstrip("\n")))
        print(pid, flush=True)
    os.killpg(0, signal.SIGKILL)


def _run(path: Path) -> None:
    """Run a worker, and end the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    plan: Plan = pickle.loads(path.read_bytes())
    with plan.error_path().open("w") as errors, Path(os.devnull).open("r+") as nothing:
        for target, file in enumerate((nothing, nothing, errors)):
            os.dup2(file.fileno(), target)
        try:
            work(plan)
            plan.end_path().touch()
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    _serve()
