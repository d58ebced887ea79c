"""One part of many runs, for several processes."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable

from tests.simulation.mutants import MUTANTS
from tests.simulation.orders import orders, pair
from tests.simulation.plan import random_plan
from tests.simulation.run import Outcome, execute

SEEDS_OF_PART = 20

#: How many runs, requests and attempts there are of each kind, and the broken promises.
type Tally = tuple[Counter[str], list[str]]


def run_part(kind: str, number: int, operation: str) -> Tally:
    """Run some seeds, all orders of two operations, or one mutant."""
    counts, failures = Counter[str](), list[str]()
    for name, outcome in _outcomes(kind, number, operation):
        counts.update({f"runs of {kind}": 1, f"requests of {kind}": outcome.requests, **outcome.attempts})
        if outcome.violation is not None and kind != "mutant":
            failures.append(f"{name}: {outcome.violation}")
    if not counts:
        failures.append(f"no run noticed that {MUTANTS[number].name}")
    gc.collect()
    return counts, failures


def _outcomes(kind: str, number: int, operation: str) -> Iterable[tuple[str, Outcome]]:
    match kind:
        case "seeds":
            seeds = range(number, number + SEEDS_OF_PART)
            return ((f"seed {seed}", execute(random_plan(seed))) for seed in seeds)
        case "orders":
            name = f"commit with {operation}, seed {number}"
            outcomes = orders(pair(operation, seed=number))
            return ((f"{name}, turns {outcome.plan.turns}", outcome) for outcome in outcomes)
    found = MUTANTS[number].find()
    return [] if found is None else [(MUTANTS[number].name, found)]
