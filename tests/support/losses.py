"""An engine that loses one task: the worker that did it is killed before it can return anything."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from frazil.jobs.engine import Engine, Task

type Victim = Literal["executor", "worker"]


@dataclass(frozen=True)
class Losing:
    """An engine whose second task that finishes is killed before it can return anything."""

    engine: Engine
    marks: Path
    victim: Victim

    @property
    def resumable(self) -> bool:
        return bool(getattr(self.engine, "resumable", False))

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        return self.engine.run(functools.partial(_lost, task, self.marks, self.victim), tasks, shared)


def _lost(task: Task, marks: Path, victim: Victim, shared: bytes, message: bytes) -> bytes:
    result = task(shared, message)
    lose_the_second(marks, victim)
    return result


def lose_the_second(marks: Path, victim: Victim | None) -> None:
    """For tasks that have no engine: the second caller in all processes is killed."""
    if victim is None:
        return
    for name in ("first", "second"):
        try:
            (marks / name).touch(exist_ok=False)
        except FileExistsError:
            continue
        if name == "second":
            daemon = os.getppid()
            os.kill(_parent(daemon) if victim == "executor" else os.getpid(), signal.SIGKILL)
            time.sleep(60)  # until it has arrived
        return


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
