"""Starts workers, kills them with SIGKILL at random moments, and starts new ones."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.history import layout
from tests.history.log import operations
from tests.history.stores import Store
from tests.history.worker import Plan

import frazil
from frazil.errors import ServerFailedError

_NUMBERS: Final = 100_000
_TICK: Final = 0.1


@dataclass(frozen=True, slots=True)
class Scope:
    """How much a campaign does.

    Attributes:
        count: How many operations all workers begin together.
        workers: How many workers run at a time.
        seed: The seed of the random numbers.
        kill_every: The mean number of seconds between two kills. 0: no kills.
        fault_every: The mean number of seconds between two faults, where the store has faults.
        limit: After so many seconds the campaign fails.
    """

    count: int
    workers: int = 4
    seed: int = 1
    kill_every: float = 4.0
    fault_every: float = 0.3
    limit: float = 3600.0


@dataclass
class Slot:
    """A place for one worker at a time."""

    number: int
    count: int
    generation: int = 0
    plan: Plan | None = None
    process: subprocess.Popen[bytes] | None = None

    def rest(self) -> int:
        """Return how many operations are left."""
        return self.count if self.plan is None else self.count - _operations_in(self.plan)


@dataclass
class Campaign:
    """The workers of one history.

    Attributes:
        store: The storage.
        folder: The folder of logs and plans.
        scope: How much to do.
        first: The version with the arrays, before all operations.
        kills: How many workers were killed.
    """

    store: Store
    folder: Path
    scope: Scope
    first: str = ""
    kills: int = 0
    slots: list[Slot] = field(default_factory=list)

    def run(self) -> None:
        """Create the repository and run all workers to the end.

        Raises:
            ServerFailedError: A worker ends with an error, or the limit is over.
        """
        repo = frazil.Repository.create(self.store.direct)
        self.first = layout.create(repo)
        share, more = divmod(self.scope.count, self.scope.workers)
        self.slots = [Slot(number, share + (number < more)) for number in range(self.scope.workers)]
        try:
            for slot in self.slots:
                self._start(slot)
            self._drive()
        finally:
            for slot in self.slots:
                if slot.process is not None and slot.process.poll() is None:
                    slot.process.kill()
                    slot.process.wait()

    def logs(self) -> list[Path]:
        """Return the logs of all workers."""
        return sorted(self.folder.glob("*.jsonl"))

    def _drive(self) -> None:
        chance = random.Random(self.scope.seed)
        deadline = time.monotonic() + self.scope.limit
        while any(self._is_at_work(slot) for slot in self.slots):
            if time.monotonic() > deadline:
                raise ServerFailedError(f"the workers did not end within {self.scope.limit} s")
            time.sleep(_TICK)
            if self._is_due(chance, self.scope.kill_every):
                self._kill(chance)
            if self._is_due(chance, self.scope.fault_every):
                self.store.make_fault()

    @staticmethod
    def _is_due(chance: random.Random, every: float) -> bool:
        return bool(every) and chance.random() < _TICK / every

    def _is_at_work(self, slot: Slot) -> bool:
        """Start a worker again that was killed. Return False when the operations of the slot are done."""
        assert slot.process is not None
        assert slot.plan is not None
        code = slot.process.poll()
        if code is None:
            return True
        if code > 0:
            error = (self.folder / f"{slot.plan.name}.err").read_text(errors="replace")[-3000:]
            raise ServerFailedError(f"worker {slot.plan.name} failed:\n{error}")
        if code == 0 or slot.rest() <= 0:
            return False
        self._start(slot)
        return True

    def _kill(self, chance: random.Random) -> None:
        alive = [slot for slot in self.slots if slot.process is not None and slot.process.poll() is None]
        working = [slot for slot in alive if slot.plan is not None and slot.plan.log_path().exists()]
        # The last workers are killed as often as before, not more often.
        if chance.random() * len(self.slots) < len(working):
            process = chance.choice(working).process
            assert process is not None
            process.kill()
            process.wait()
            self.kills += process.returncode < 0

    def _start(self, slot: Slot) -> None:
        count, predecessor = slot.rest(), "" if slot.plan is None else slot.plan.name
        slot.count, slot.generation = count, slot.generation + 1
        name = f"w{slot.number}-{slot.generation}"
        plan = Plan(
            name,
            self.store.storage,
            self.folder,
            f"{self.scope.seed} {name}",
            (slot.number * 1000 + slot.generation) * _NUMBERS,
            count,
            predecessor,
            -1 if slot.process is None else slot.process.pid,
            packs=(slot.number + slot.generation) % 2 == 0,
        )
        path = self.folder / f"{name}.plan"
        path.write_bytes(pickle.dumps(plan))
        with (self.folder / f"{name}.err").open("wb") as errors:
            slot.process = subprocess.Popen(
                [sys.executable, "-m", "tests.history.worker", str(path)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )
        slot.plan = plan


def _operations_in(plan: Plan) -> int:
    """Return how many operations a worker has begun."""
    path = plan.log_path()
    return sum(each.kind != "prepare" for each in operations([path])) if path.exists() else 0


def counts(campaign: Campaign) -> Counter[str]:
    """Return how many operations there are of each outcome."""
    return Counter(each.outcome for each in operations(campaign.logs()) if each.kind != "prepare")
