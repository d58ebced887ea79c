"""Promises of the transactional core, tested by simulation: `design/039`, `docs/reliability.md`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.simulation.mutants import MUTANTS, Mutant, applied
from tests.simulation.orders import BESIDE, Footprint, orders, pair
from tests.simulation.run import ClientPlan, Outcome, Plan, execute, random_plan, trace_digest
from tests.simulation.storage import Fault
from tests.support.patience import patience


def require_promises(outcomes: list[Outcome]) -> None:
    broken = [outcome for outcome in outcomes if outcome.violation is not None]
    if broken:
        first = broken[0]
        command = f"python -m tests.simulation {first.plan.seed}"
        pytest.fail(f"{len(broken)} runs: {command}\n{first.violation}\n{first.plan}")


def test_some_seeds() -> None:
    outcomes = [execute(random_plan(seed)) for seed in range(5)]
    require_promises(outcomes)
    assert sum(outcome.requests for outcome in outcomes) > 300
    assert sum(outcome.attempts["done"] for outcome in outcomes) > 10


_DIGESTS = """
import sys
from tests.simulation.run import random_plan, trace_digest
print(*(trace_digest(random_plan(int(seed))) for seed in sys.argv[1:]))
"""


@pytest.mark.deep
def test_runs_are_the_same_in_another_process() -> None:
    """A run does not depend on earlier runs, on the order of sets, or on the process."""
    seeds = [1, 3, 7, 14, 22]
    digests = {seed: trace_digest(random_plan(seed)) for seed in seeds}
    output = subprocess.run(
        [sys.executable, "-c", _DIGESTS, *map(str, reversed(seeds))],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    ).stdout
    assert output.split() == [digests[seed] for seed in reversed(seeds)]


@pytest.mark.deep
def test_short_reads_are_noticed() -> None:
    """A read that breaks the contract gives an error, or the right content. Nothing is lost."""
    kinds = frozenset({Fault.SHORT, Fault.CRASH_AFTER})
    plans = [replace(random_plan(seed), fault_rate=0.05, fault_kinds=kinds) for seed in range(12)]
    outcomes = [execute(plan) for plan in plans]
    require_promises(outcomes)
    assert sum(fault is Fault.SHORT for outcome in outcomes for fault in outcome.faults.values()) > 20


@pytest.mark.deep
def test_staged_jobs_continue_after_the_end_of_a_driver() -> None:
    """Two drivers run the same jobs, stop at any request, and start again."""
    operations = ("job", "job", "collect", "job", "job", "commit")
    kinds = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ANSWER_LOST})
    clients = (ClientPlan("c0", operations), ClientPlan("c1", operations))
    outcomes = [
        execute(Plan(seed, clients, fault_rate=0.03, fault_kinds=kinds, switching=0.5)) for seed in range(12)
    ]
    require_promises(outcomes)
    assert sum(outcome.attempts["done"] for outcome in outcomes) > 20


@pytest.mark.deep
@pytest.mark.parametrize("part", range(2))
def test_many_seeds(part: int) -> None:
    total, seed = 0, 1_000 * (part + 1)
    while total < 3_000:
        outcome = execute(random_plan(seed))
        seed += 1
        require_promises([outcome])
        total += outcome.requests


@pytest.mark.sample(3, 3)
@pytest.mark.deep
@pytest.mark.parametrize("operation", BESIDE)
def test_orders_with_one_preemption(operation: str) -> None:
    outcomes = list(orders(pair(operation), preemptions=1))
    require_promises(outcomes)
    assert len(outcomes) > 2


@pytest.mark.deep
def test_the_orders_that_are_left_out_have_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    some = list(orders(pair("reset_branch"), preemptions=1))
    monkeypatch.setattr(Footprint, "depends_on", lambda self, request: True)
    every = list(orders(pair("reset_branch"), preemptions=1))
    require_promises([*some, *every])
    assert len(some) < len(every)
    assert {outcome.results for outcome in some} == {outcome.results for outcome in every}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """A mutant whose function does not exist any more would test nothing."""
    with applied(mutant):
        pass


@pytest.mark.sample(17, 17)
@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_simulation_notices_a_mutant(mutant: Mutant) -> None:
    outcome = mutant.find()
    assert outcome is not None, f"no run noticed that {mutant.name}"
