"""What one worker does.

A worker that replaces a killed one first finds out what became of the operations whose answer is lost, as a
user has to.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.histories import layout
from tests.histories.client import Client
from tests.histories.log import LogFile, Operation, Outcome, operations
from tests.histories.operations import OPERATIONS

import frazil
from frazil.errors import IcechunkError, StorageError
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker does.

    Attributes:
        name: A name that no other worker has, also no earlier one.
        storage: The storage of the repository.
        folder: The folder of the logs.
        seed: The seed of the random numbers.
        first_number: The numbers that it writes begin here.
        count: How many operations it does.
        predecessor: The name of the worker that was killed before, or an empty text.
        process: The process id of that worker, which its leases have.
        packs: Whether small chunks are stored in packs.
    """

    name: str
    storage: Storage
    folder: Path
    seed: str
    first_number: int
    count: int
    predecessor: str = ""
    process: int = -1
    packs: bool = True

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
    lost = {each.mark for each in operations([path] if path.exists() else []) if _is_lost(each)}
    try:
        for snapshot in repo.inspect_repo_info()["snapshots"]:
            if snapshot["message"] in lost:
                log.identify(snapshot["message"], snapshot["id"])
        for lease in repo.upkeep.leases():
            if lease.process == plan.process:
                repo.upkeep.break_lease(lease.id)
    except IcechunkError:
        return  # the end of the campaign identifies the rest


def _is_lost(operation: Operation) -> bool:
    return operation.outcome is Outcome.UNKNOWN and operation.snapshot is None
