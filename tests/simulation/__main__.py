"""Run simulations: `python -m tests.simulation SEED`, or many of them with the options."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context

from tests.simulation.mutants import MUTANTS
from tests.simulation.orders import BESIDE, SEEDS, SEEDS_OF_PART, Tally, run_part
from tests.simulation.run import execute, random_plan

#: Seconds between two lines about the progress.
_PROGRESS = 30.0

#: The kind of some runs, a seed or the index of a mutant, and an operation.
type Part = tuple[str, int, str]


def main(arguments: list[str]) -> int:
    """Run what the command line says. Return 1 if a promise is broken or a mutant is not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?", help="run the plan of this seed")
    parser.add_argument("--requests", type=int, default=0, help="run seeds until this many requests are made")
    parser.add_argument(
        "--orders", action="store_true", help="run all orders of operations together with a commit"
    )
    parser.add_argument("--mutants", action="store_true", help="run all mutants of the code")
    parser.add_argument("--processes", type=int, default=1, help="the number of processes")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        outcome = execute(random_plan(options.seed), with_trace=True)
        print("\n".join(outcome.trace), outcome.plan, outcome.violation or "no promise is broken", sep="\n\n")
        return int(outcome.violation is not None)
    parts: list[Part] = [("mutant", number, "") for number in range(len(MUTANTS) * options.mutants)]
    if options.orders:
        parts += [("orders", seed, name) for seed in SEEDS for name in BESIDE]
    counts, failures = _run(iter(parts), options.requests, options.processes)
    print(f"{_text(counts)}; {len(failures)} failures", *sorted(failures), sep="\n")
    return min(len(failures), 1)


def _run(parts: Iterator[Part], requests: int, processes: int) -> Tally:
    """Run all parts, and then seeds until they have made this many requests."""
    counts, failures = Counter[str](), list[str]()
    reported = time.monotonic()
    seeds: Iterator[Part] = (("seeds", SEEDS_OF_PART * number, "") for number in count())
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=gc.freeze) as pool:
        pending: set[Future[Tally]] = set()
        while True:
            while len(pending) <= processes:
                part = next(parts, None)
                if part is None and counts["requests of seeds"] < requests:
                    part = next(seeds)
                if part is None:
                    break
                pending.add(pool.submit(run_part, *part))
            if not pending:
                return counts, failures
            ready, pending = wait(pending, _PROGRESS, FIRST_COMPLETED)
            for numbers, broken in (future.result() for future in ready):
                counts.update(numbers)
                failures += broken
            if time.monotonic() - reported > _PROGRESS:
                reported = time.monotonic()
                print(_text(counts), *failures, sep="\n", flush=True)


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
