"""Run simulations: `python -m tests.simulation SEED`, or `--requests N` for as many seeds as that takes."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context

from tests.simulation.orders import BESIDE, SEEDS, orders, pair
from tests.simulation.plan import random_plan
from tests.simulation.run import Outcome, execute
from tests.simulation.shrinking import shrink

#: Seeds that a process runs at a time.
_SEEDS = 50


@dataclass(eq=False)
class Tally:
    """What some runs did: numbers, and the broken promises as text."""

    runs: int = 0
    requests: int = 0
    seconds: float = 0.0
    attempts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: Outcome) -> None:
        """Count one run."""
        self.runs += 1
        self.requests += outcome.requests
        self.attempts += outcome.attempts
        if outcome.violation is not None:
            self.failures.append(f"{name}: {outcome.violation}")

    def join(self, other: Tally) -> None:
        """Count the runs of another tally."""
        self.runs += other.runs
        self.requests += other.requests
        self.seconds += other.seconds
        self.attempts += other.attempts
        self.failures += other.failures
        for failure in other.failures:
            print(failure, flush=True)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.requests} requests, {self.attempts.total()} attempts "
            f"{dict(self.attempts)}, "
            f"{len(self.failures)} failures, {self.seconds:.0f} s of processor time"
        )


def main(arguments: list[str]) -> int:
    """Run what the command line says. Return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?", help="run the plan of this seed, and shrink a failure")
    parser.add_argument("--requests", type=int, default=0, help="run seeds until so many requests are made")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--orders", nargs="*", metavar="OPERATION", help="run all orders beside a commit")
    parser.add_argument("--preemptions", type=int, default=2, help="the most preemptions of an order")
    parser.add_argument("--processes", type=int, default=1, help="the number of processes that run seeds")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.seed)
    failures = 0
    if options.orders is not None:
        names = options.orders or BESIDE
        work = [(name, seed, options.preemptions) for name in names for seed in SEEDS]
        failures += _total(_tallies(options.processes, _run_orders, work), sys.maxsize)
    if options.requests:
        parts = ((first, _SEEDS) for first in count(options.first, _SEEDS))
        failures += _total(_tallies(options.processes, _run_seeds, parts), options.requests)
    return min(failures, 1)


def _tallies[*P](
    processes: int, function: Callable[[*P], Tally], work: Iterable[tuple[*P]]
) -> Iterator[Tally]:
    """Yield the results of a function, by some processes, in the order of the work."""
    if processes == 1:
        for part in work:
            yield function(*part)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        pending: deque[Future[Tally]] = deque()
        try:
            for part in work:
                pending.append(pool.submit(function, *part))
                if len(pending) > processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _total(tallies: Iterator[Tally], requests: int) -> int:
    """Print all failures and the sum, for about so many requests. Return the number of failures."""
    total = Tally()
    for tally in tallies:
        total.join(tally)
        if total.requests >= requests:
            break
    print(total, flush=True)
    return len(total.failures)


def _run_seeds(first: int, number: int) -> Tally:
    tally, start = Tally(), time.process_time()
    for seed in range(first, first + number):
        tally.add(f"seed {seed}", execute(random_plan(seed)))
    tally.seconds = time.process_time() - start
    return tally


def _run_orders(operation: str, seed: int, preemptions: int) -> Tally:
    tally, start = Tally(), time.process_time()
    for outcome in orders(pair(operation, seed=seed), preemptions=preemptions):
        tally.add(f"commit beside {operation}, seed {seed}, turns {dict(outcome.plan.turns or {})}", outcome)
    tally.seconds = time.process_time() - start
    print(f"commit beside {operation}, seed {seed}: {tally}", flush=True)
    return tally


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
