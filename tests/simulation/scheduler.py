"""The scheduler: one task runs at a time, and another may go on at each request to the storage. Its hosts.

A task is a greenlet. A client has one task, and one more for each call in a thread pool. ``Scheduler.step``
is called before each request. It asks the policy which task goes on. Each client has a host with a clock of
its own, which may be wrong and may be set.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it ships no types

from frazil.host import Host

#: Microseconds that a request takes, on average.
REQUEST_US = 5_000
#: 2026-01-01, in microseconds since 1970.
START_US = 1_767_225_600_000_000


class Stuck(Exception):
    """No task can go on: the clients wait for each other."""


class TooLong(BaseException):
    """The run has more steps than its limit. Not an ``Exception``, so that no retry catches it."""


@dataclass(eq=False)
class Task:
    """One flow of control. ``owner`` is the client, ``is_ready`` what the task waits for."""

    number: int
    owner: Any
    flow: greenlet
    wakes_at: int = 0
    is_ready: Callable[[], bool] | None = None

    def can_run(self, now: int) -> bool:
        return not self.flow.dead and self.wakes_at <= now and (self.is_ready is None or self.is_ready())


class Policy(Protocol):
    """Chooses the task that makes step number ``step``. ``now`` is the task that made the step before."""

    def choose(self, step: int, runnable: list[Task], now: Task | None) -> Task: ...


@dataclass
class Seeded:
    """Changes the task with the probability ``switching`` at each step."""

    seed: int
    switching: float = 0.3
    _numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = random.Random(f"schedule {self.seed}")

    def choose(self, step: int, runnable: list[Task], now: Task | None) -> Task:
        if now in runnable and self._numbers.random() >= self.switching:
            return now
        return runnable[self._numbers.randrange(len(runnable))]


@dataclass
class Turns:
    """Lets each client run until it ends or waits, except at the steps in ``turns``.

    ``turns`` has the name of the client that goes on at a step. All tasks of a client have the same turn.
    """

    turns: Mapping[int, str]

    def choose(self, step: int, runnable: list[Task], now: Task | None) -> Task:
        name = self.turns.get(step)
        if name is None and now is not None:
            name = now.owner.name
        if now in runnable and now.owner.name == name:
            return now
        return next((task for task in runnable if task.owner.name == name), runnable[0])


class Scheduler:
    """All tasks of a run, and the time."""

    def __init__(self, policy: Policy, *, limit: int = 100_000) -> None:
        self.policy = policy
        self.limit = limit
        self.now_us = START_US
        self.steps = 0
        self._tasks: list[Task] = []
        self._count = 0
        self._last: Task | None = None
        self._by_flow: dict[greenlet, Task] = {}
        self._outside = getcurrent()
        self._stands_still = False

    def start(self, owner: Any, function: Callable[[], object]) -> Task:
        """Add a task. It begins when the policy chooses it."""
        task = Task(self._count, owner, greenlet(function, self._outside))
        self._count += 1
        self._tasks.append(task)
        self._by_flow[task.flow] = task
        return task

    @property
    def current(self) -> Task | None:
        """The task that runs, or None outside of ``run`` and inside of ``standing_still``."""
        return None if self._stands_still else self._by_flow.get(getcurrent())

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Let no other task run during a block: it is part of one step."""
        before, self._stands_still = self._stands_still, True
        try:
            yield
        finally:
            self._stands_still = before

    def run(self) -> None:
        """Run all tasks to their ends."""
        while (task := self._next()) is not None:
            self._go(task)
            self._tasks = [each for each in self._tasks if not each.flow.dead]

    def begin_again(self) -> None:
        """Count steps and tasks from zero."""
        self.steps = self._count = 0

    def step(self) -> None:
        """Let time pass, and let the policy choose the next task. Return when this task goes on."""
        task = self.current
        if task is None:
            return
        self.now_us += REQUEST_US
        self._yield_to_next(task)

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Let other tasks run until ``is_ready()``."""
        task = self.current
        assert task is not None, "only a task can wait"
        if not is_ready():
            task.is_ready = is_ready
            self._yield_to_next(task)
            task.is_ready = None

    def pause(self, seconds: float) -> None:
        """Let other tasks run for a number of seconds of the simulated time."""
        task = self.current
        if task is None:
            self.now_us += int(seconds * 1e6)
            return
        task.wakes_at = self.now_us + int(seconds * 1e6)
        self._yield_to_next(task)

    def _yield_to_next(self, task: Task) -> None:
        chosen = self._next()
        assert chosen is not None
        if chosen is not task:
            self._go(chosen)

    def _go(self, task: Task) -> None:
        # An ended task returns to its parent: `run`.
        self._last = task
        task.flow.switch()

    def _next(self) -> Task | None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooLong(f"more than {self.limit} steps")
        alive = [task for task in self._tasks if not task.flow.dead]
        if not alive:
            return None
        runnable = [task for task in alive if task.can_run(self.now_us)]
        if not runnable:
            sleeping = [task.wakes_at for task in alive if task.wakes_at > self.now_us]
            if not sleeping:
                raise Stuck(_stacks(alive))
            self.now_us = min(sleeping)
            runnable = [task for task in alive if task.can_run(self.now_us)]
            if not runnable:
                raise Stuck(_stacks(alive))
        return self.policy.choose(self.steps, runnable, self._last)


def _stacks(tasks: list[Task]) -> str:
    """Return where tasks wait, innermost calls last."""
    lines = [f"{len(tasks)} tasks wait for each other"]
    for task in tasks:
        frame = task.flow.gr_frame
        calls = [] if frame is None else traceback.extract_stack(frame)[-6:]
        lines.append(
            f"{task.number}: " + ", ".join(f"{Path(each.filename).name}:{each.lineno}" for each in calls)
        )
    return "\n".join(lines)


@dataclass(eq=False)
class Client:
    """One client: a process on a host.

    ``ahead_us`` is how far the clock of its host is ahead of the true time. ``requests`` counts its
    requests, ``short_reads`` those with fewer bytes than the object has, and ``starts`` the processes.
    ``is_dead`` says that the process is stopped.
    """

    name: str
    seed: int
    ahead_us: int = 0
    requests: int = 0
    short_reads: int = 0
    starts: int = 0
    is_dead: bool = False
    numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = random.Random(f"{self.seed} {self.name}")


class SimulatedHost(Host):
    """The host of the client that runs at the moment."""

    def __init__(self, scheduler: Scheduler, judge: Client) -> None:
        self._scheduler = scheduler
        self._judge = judge

    def _client(self) -> Client:
        task = self._scheduler.current
        return self._judge if task is None else task.owner

    def time_us(self) -> int:
        return self._scheduler.now_us + self._client().ahead_us

    def monotonic_us(self) -> int:
        return self._scheduler.now_us

    def pause(self, seconds: float) -> None:
        self._scheduler.pause(seconds)

    def random_bytes(self, count: int) -> bytes:
        return self._client().numbers.randbytes(count)

    def random_between(self, low: float, high: float) -> float:
        return self._client().numbers.uniform(low, high)
