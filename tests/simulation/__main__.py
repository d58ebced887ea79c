"""Run simulations: `python -m tests.simulation SEED`, or `--requests N` for as many seeds as that takes."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.orders import BESIDE, orders, pair
from tests.simulation.plan import random_plan
from tests.simulation.run import Outcome, execute
from tests.simulation.shrinking import shrink


def main(arguments: list[str]) -> int:
    """Run what the command line says. Return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?", help="run the plan of this seed, and shrink a failure")
    parser.add_argument("--requests", type=int, default=0, help="run seeds until so many requests are made")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--orders", action="store_true", help="run all orders of a commit beside other operations"
    )
    parser.add_argument("--every", type=int, default=1, help="run each so many of these orders")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.seed)
    failures = _orders(options.every) if options.orders else 0
    return min(failures + _many(options.first, options.requests), 1)


def _one(seed: int) -> int:
    outcome = execute(random_plan(seed), with_trace=True)
    print("\n".join(outcome.trace))
    print(f"\nseed {seed}: {outcome.requests} requests, {dict(outcome.attempts)}\n{outcome.plan}\n")
    if outcome.violation is None:
        return 0
    print(f"broken: {outcome.violation}\n\nThe smallest plan with the same failure:\n")
    smallest = shrink(outcome)
    again = execute(smallest.plan, with_trace=True)
    print("\n".join(again.trace))
    print(f"\n{again.plan}\n{again.violation}")
    return 1


def _many(first: int, requests: int) -> int:
    start, total, failures, seed = time.process_time(), 0, 0, first
    attempts: Counter[str] = Counter()
    while total < requests:
        outcome = execute(random_plan(seed))
        failures += _report(f"seed {seed}", outcome)
        total += outcome.requests
        attempts += outcome.attempts
        seed += 1
    seconds = time.process_time() - start
    print(
        f"{seed - first} runs, {total} requests, {sum(attempts.values())} attempts {dict(attempts)}, "
        f"{failures} failures, {seconds:.0f} s of processor time"
    )
    return failures


def _orders(every: int) -> int:
    failures = 0
    for operation in BESIDE:
        start, count = time.process_time(), 0
        for outcome in orders(pair(operation), every=every):
            steps = dict(outcome.plan.preemptions or {})
            failures += _report(f"commit beside {operation}, steps {steps}", outcome)
            count += 1
        seconds = time.process_time() - start
        print(f"commit beside {operation}: {count} orders, {seconds:.0f} s of processor time")
    return failures


def _report(name: str, outcome: Outcome) -> bool:
    if outcome.violation is not None:
        print(f"{name}: {outcome.violation}", flush=True)
    return outcome.violation is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
