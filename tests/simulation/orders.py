"""All orders of two clients with at most two preemptions, for pairs of operations.

The first client runs until step ``i``, then the second one until step ``j``, then the first one to its end.

Most of these orders are the same for both clients. Two requests change places without an effect if they have
no key in common, or if both only read. So the interruption at a later point is a new order only if a request
between the two points depends on what the other client does in its turn.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import ClientPlan, Outcome, Plan, execute, random_plan

#: Operations that run together with a commit.
BESIDE = (
    *("commit", "merge", "amend", "rebase", "expire", "collect", "rewrite_manifests", "compact", "copy"),
    *("verify", "reset_branch", "fork", "flush", "move", "cherry_pick", "revert", "tag", "delete_branch"),
    *("upgrade", "job", "squash", "retain", "repair", "lose_file"),
)


#: Seeds of the pairs: with them, both operations are on the same branch or not.
SEEDS = (0, 1, 2)


def pair(operation: str, *, seed: int = 0) -> Plan:
    """Return a plan for a commit together with an operation, after a history of a few versions."""
    version = 1 if operation == "upgrade" else 2
    return Plan(
        seed,
        (ClientPlan("a", ("commit",)), ClientPlan("b", (operation,))),
        version,
        turns={},
        history=("create_branch", *["commit"] * 4) if version > 1 else ("commit", "commit"),
    )


def orders(plan: Plan, *, preemptions: int = 2) -> Iterator[Outcome]:
    """Yield the outcomes of all different orders with at most this many preemptions."""
    first, second = (client.name for client in plan.clients)
    yield from _orders(plan, {0: first}, (first, second), preemptions)
    yield from _orders(plan, {0: second}, (second, first), preemptions)


def _orders(plan: Plan, turns: dict[int, str], names: tuple[str, str], preemptions: int) -> Iterator[Outcome]:
    """Yield the order of ``turns``, and those with later interruptions of ``names[0]``, whose turn it is."""
    outcome = execute(replace(plan, turns=turns), with_trace=True)
    yield outcome
    running, waiting = names
    last = max(turns)
    meanwhile: Footprint | None = None
    is_new = True
    for request in _requests(outcome, running, last) if preemptions else ():
        if is_new and request.step > last and request.what != "clock":
            later = _orders(plan, {**turns, request.step: waiting}, (waiting, running), preemptions - 1)
            interrupted = next(later)
            yield interrupted
            yield from later
            meanwhile, is_new = Footprint.of(_requests(interrupted, waiting, request.step)), False
        is_new = is_new or meanwhile is None or meanwhile.depends_on(request)


@dataclass(frozen=True, slots=True)
class _Request:
    """One line of a trace. ``keys`` has one folder for a listing."""

    step: int
    client: str
    what: str
    keys: tuple[str, ...]

    @property
    def writes(self) -> bool:
        return self.what in ("put", "put-if", "delete", "accident")


def _requests(outcome: Outcome, client: str, since: int) -> list[_Request]:
    """Return the requests of a client from a step on."""
    lines = (line.split() for line in outcome.trace)
    return [
        _Request(int(step), by, what, tuple(keys) or ("",))
        for step, by, _, what, *keys in lines
        if by == client and int(step) >= since
    ]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What some requests read, write and list. ``has_clock`` says that their client reads its clock."""

    reads: frozenset[str]
    writes: frozenset[str]
    folders: frozenset[str]
    has_clock: bool

    @staticmethod
    def of(requests: Iterable[_Request]) -> Footprint:
        """Return the footprint of requests."""
        rows = list(requests)
        return Footprint(
            frozenset(key for row in rows if row.what in ("get", "head") for key in row.keys),
            frozenset(key for row in rows if row.writes for key in row.keys),
            frozenset(row.keys[0] for row in rows if row.what == "list"),
            any(row.what == "clock" for row in rows),
        )

    def depends_on(self, request: _Request) -> bool:
        """Return whether a request of the other client may have another effect or answer."""
        if request.what == "clock":
            return bool(self.writes)  # times of files are compared with the clock
        if request.what == "list":
            return any(_is_below(key, request.keys[0]) for key in self.writes)
        for key in request.keys:
            if key in self.writes or (request.writes and key in self.reads):
                return True
        if not request.writes:
            return False
        return self.has_clock or any(_is_below(key, each) for key in request.keys for each in self.folders)


def _is_below(key: str, folder: str) -> bool:
    return not folder or key.startswith(f"{folder}/")


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
