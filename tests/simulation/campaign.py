"""Many runs: seeds, orders of two clients, and mutants, in parts that several processes share."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.simulation.mutants import MUTANTS
from tests.simulation.orders import BESIDE, SEEDS, orders, pair
from tests.simulation.plan import random_plan
from tests.simulation.run import Outcome, execute

#: Seeds of one part.
_SEEDS = 20


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the work. ``kind`` is `seeds`, `orders` or `mutant`; ``number`` is a seed or an index."""

    kind: str
    number: int
    operation: str = ""
    preemptions: int = 0


@dataclass(eq=False)
class Tally:
    """The result of some runs: numbers, and the broken promises as text."""

    runs: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    seed_requests: int = 0
    seconds: float = 0.0
    attempts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, outcome: Outcome) -> None:
        """Count one run."""
        self.runs[kind] += 1
        self.requests += outcome.requests
        self.seed_requests += outcome.requests if kind == "seeds" else 0
        self.attempts += outcome.attempts
        if outcome.violation is not None:
            self.failures.append(f"{name}: {outcome.violation}")

    def join(self, other: Tally) -> None:
        """Count the runs of another tally."""
        self.runs += other.runs
        self.requests += other.requests
        self.seed_requests += other.seed_requests
        self.seconds += other.seconds
        self.attempts += other.attempts
        self.failures += other.failures

    def __str__(self) -> str:
        runs = ", ".join(f"{number} {kind}" for kind, number in sorted(self.runs.items())) or "nothing"
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.attempts.items()))
        return (
            f"runs: {runs}; {self.requests} requests, {self.seed_requests} of them of seeds; "
            f"{self.attempts.total()} attempts: {outcomes or 'none'}; {len(self.failures)} failures; "
            f"{self.seconds:.0f} s of processor time"
        )


def seed_part(number: int) -> Part:
    """Return part number ``number`` of all seeds."""
    return Part("seeds", number * _SEEDS)


def order_parts(operations: Sequence[str], preemptions: int) -> Iterator[Part]:
    """Yield the parts for all orders of a commit beside some operations; by default beside each."""
    names = operations or BESIDE
    return (Part("orders", seed, name, preemptions) for seed in SEEDS for name in names)


def mutant_parts() -> Iterator[Part]:
    """Yield one part for each mutant."""
    return (Part("mutant", number) for number in range(len(MUTANTS)))


def run_part(part: Part) -> Tally:
    """Run one part."""
    tally, start = Tally(), time.process_time()
    for name, outcome in _RUNS[part.kind](part):
        tally.add(part.kind, name, outcome)
    if part.kind == "mutant" and not tally.runs:
        tally.failures.append(f"no run noticed that {MUTANTS[part.number].name}")
    elif part.kind == "mutant":
        tally.failures.clear()
    gc.collect()
    tally.seconds = time.process_time() - start
    return tally


def _run_seeds(part: Part) -> Iterator[tuple[str, Outcome]]:
    for seed in range(part.number, part.number + _SEEDS):
        yield f"seed {seed}", execute(random_plan(seed))


def _run_orders(part: Part) -> Iterator[tuple[str, Outcome]]:
    for outcome in orders(pair(part.operation, seed=part.number), preemptions=part.preemptions):
        turns = dict(outcome.plan.turns or {})
        yield f"commit beside {part.operation}, seed {part.number}, turns {turns}", outcome


def _run_mutant(part: Part) -> Iterator[tuple[str, Outcome]]:
    outcome = MUTANTS[part.number].find()
    if outcome is not None:
        yield MUTANTS[part.number].name, outcome


_RUNS = {"seeds": _run_seeds, "orders": _run_orders, "mutant": _run_mutant}
