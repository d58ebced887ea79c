"""The plan of a run: clients, operations, clocks and faults, all of them from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation.operations import names
from tests.simulation.scheduler import Policy, Seeded, Turns
from tests.simulation.storage import LAWFUL, Fault

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
    """A run. Its schedule and its faults are drawn from the seed.

    With ``turns``, the schedule is a list: it has the name of the client that goes on at a step.
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
    turns: Mapping[int, str] | None = None
    history: tuple[str, ...] = ()

    def policy(self) -> Policy:
        """Return the policy of the scheduler."""
        return Seeded(self.seed, self.switching) if self.turns is None else Turns(self.turns)


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
