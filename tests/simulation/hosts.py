"""The hosts of a simulation: each client has a clock of its own, which may be wrong and may be set."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.host import Host

if TYPE_CHECKING:
    from tests.simulation.scheduler import Scheduler


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
