"""The plan of a run: clients, operations, clocks and faults, all of them from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.faults import LAWFUL, Fault, Request
from tests.simulation.operations import names
from tests.simulation.scheduler import Policy, Preempting, Seeded, Turns

HOUR_US = 3_600_000_000
#: How far clocks differ, in microseconds.
CLOCKS = (0, 0, 0, 500_000, 20 * 60_000_000, -20 * 60_000_000, HOUR_US, -HOUR_US, -24 * HOUR_US)
#: Settings of repositories by name: packing, deduplication, inline chunks.
CONFIGS = ("packs", "files", "content", "inline", "short-log")


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: the operations, and how far the clock of its host is ahead."""

    name: str
    operations: tuple[str, ...]
    ahead_us: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. With ``preemptions`` and ``faults`` it repeats a run; else both are drawn from the seed.

    ``turns`` has the name of the client that goes on at a step, instead of the number of a task.
    ``history`` has operations of a client that ends before the others begin.
    """

    seed: int
    clients: tuple[ClientPlan, ...]
    spec_version: int = 2
    config: str = "packs"
    is_local: bool = False
    storage_ahead_us: int = 0
    fault_rate: float = 0.0
    fault_kinds: frozenset[Fault] = LAWFUL
    switching: float = 0.3
    preemptions: Mapping[int, int] | None = None
    turns: Mapping[int, str] | None = None
    faults: Mapping[Request, Fault] = field(default_factory=dict)
    history: tuple[str, ...] = ()

    def policy(self) -> Policy:
        """Return the policy of the scheduler."""
        if self.preemptions is None and self.turns is not None:
            return Turns(self.turns)
        if self.preemptions is None:
            return Seeded(self.seed, self.switching)
        return Preempting(self.preemptions)

    def __str__(self) -> str:
        kind = "local" if self.is_local else "remote"
        ahead = self.storage_ahead_us / 1e6
        lines = [f"spec version {self.spec_version}, {self.config}, {kind} storage, its clock {ahead:+.1f} s"]
        lines += [
            f"{each.name} ({each.ahead_us / 1e6:+.1f} s): {' '.join(each.operations)}"
            for each in self.clients
        ]
        lines += [
            f"fault of {name} at request {n}: {fault.value}" for (name, n), fault in self.faults.items()
        ]
        if self.preemptions is not None:
            lines.append(f"{len(self.preemptions)} changes of the task: {dict(self.preemptions)}")
        elif self.turns is not None:
            lines.append(f"turns: {dict(self.turns)}")
        return "\n".join(lines)


def random_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    numbers = random.Random(f"plan {seed}")
    version = 1 if numbers.random() < 0.1 else 2
    choices = names(version)
    operations = [name for name, weight in choices for _ in range(weight)]
    longest = numbers.choice((4, 8, 16))
    clients = tuple(
        ClientPlan(
            f"c{number}",
            tuple(numbers.choice(operations) for _ in range(numbers.randint(2, longest))),
            numbers.choice(CLOCKS),
        )
        for number in range(numbers.randint(2, 4))
    )
    return Plan(
        seed,
        clients,
        version,
        numbers.choice(CONFIGS),
        is_local=numbers.random() < 0.3,
        storage_ahead_us=numbers.choice(CLOCKS),
        fault_rate=numbers.choice((0.0, 0.0, 0.005, 0.02, 0.05)),
        switching=numbers.choice((0.05, 0.3, 0.8)),
    )
