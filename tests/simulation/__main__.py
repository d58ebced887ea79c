"""Run simulations: `python -m tests.simulation SEED`, or many of them with the options."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, count
from multiprocessing import get_context

from tests.simulation.campaign import Part, Tally, mutant_parts, order_parts, run_part, seed_part
from tests.simulation.plan import random_plan
from tests.simulation.run import execute, trace_digest
from tests.simulation.shrinking import shrink

#: Seconds between two lines about the progress.
_PROGRESS = 30.0


def main(arguments: list[str]) -> int:
    """Run what the command line says. Return 1 if a promise is broken or a mutant is not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?", help="run the plan of this seed, and shrink a failure")
    parser.add_argument("--requests", type=int, default=0, help="run seeds until so many requests are made")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--orders", nargs="*", metavar="OPERATION", help="run all orders beside a commit")
    parser.add_argument("--preemptions", type=int, default=2, help="the most preemptions of an order")
    parser.add_argument("--mutants", action="store_true", help="run all mutants of the code")
    parser.add_argument("--processes", type=int, default=1, help="the number of processes")
    parser.add_argument("--digests", nargs="+", type=int, metavar="SEED", help="print digests of these runs")
    options = parser.parse_args(arguments)
    if options.digests:
        print("\n".join(f"{seed} {trace_digest(random_plan(seed))}" for seed in options.digests))
        return 0
    if options.seed is not None:
        return _one(options.seed)
    parts: list[Iterator[Part]] = []
    if options.mutants:
        parts.append(mutant_parts())
    if options.orders is not None:
        parts.append(order_parts(options.orders, options.preemptions))
    total = _run(chain(*parts), options.requests, options.first, options.processes)
    print(total, flush=True)
    for failure in sorted(total.failures):
        print(failure)
    return min(len(total.failures), 1)


def _run(parts: Iterator[Part], requests: int, first: int, processes: int) -> Tally:
    """Run all parts, and then seeds until they have made so many requests."""
    total, start = Tally(), time.monotonic()
    reported = start
    seeds = map(seed_part, count(first))
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=gc.freeze) as pool:
        pending: set[Future[Tally]] = set()
        while True:
            while len(pending) <= processes:
                part = next(parts, None)
                if part is None and total.seed_requests < requests:
                    part = next(seeds)
                if part is None:
                    break
                pending.add(pool.submit(run_part, part))
            if not pending:
                return total
            ready, pending = wait(pending, _PROGRESS, FIRST_COMPLETED)
            for future in ready:
                result = future.result()
                total.join(result)
                for failure in result.failures:
                    print(failure, flush=True)
            if time.monotonic() - reported > _PROGRESS:
                reported = time.monotonic()
                print(f"{reported - start:.0f} s: {total}", flush=True)


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
