"""All orders of two clients with at most two preemptions, for pairs of operations.

The first client runs until step ``i``, then the second one until step ``j``, then the first one to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.plan import ClientPlan, Plan
from tests.simulation.run import Outcome, execute

#: Operations that run beside a commit.
BESIDE = (
    *(
        "commit",
        "merge",
        "amend",
        "rebase",
        "expire",
        "collect",
        "rewrite_manifests",
        "compact",
        "copy",
        "verify",
    ),
    *("reset_branch", "fork", "flush", "move", "cherry_pick", "revert", "tag", "delete_branch", "upgrade"),
)


def pair(operation: str, *, first: str = "commit", seed: int = 0, config: str = "packs") -> Plan:
    """Return a plan for a commit beside an operation, after a history of a few versions."""
    version = 1 if operation == "upgrade" else 2
    return Plan(
        seed,
        (ClientPlan("a", (first,)), ClientPlan("b", (operation,))),
        version,
        config,
        preemptions={},
        history=("create_branch", "commit", "commit", "commit", "commit")
        if version > 1
        else ("commit", "commit"),
    )


def orders(plan: Plan, *, preemptions: int = 2, every: int = 1) -> Iterator[Outcome]:
    """Yield the outcomes of all orders. With ``every`` > 1, only of each so many orders.

    Requests for files that only one client knows change places with all requests of the others without an
    effect. So a client is only interrupted before the other requests, unless somebody lists files.
    """
    number = 0
    for first in (0, 1):
        alone = execute(_with(plan, {0: first}), with_trace=True)
        yield alone
        for i in _points(alone, first):
            steps = {0: first, i: 1 - first}
            number += 1
            if number % every == 0 or preemptions > 1:
                once = execute(_with(plan, steps), with_trace=True)
                yield once
            for j in _points(once, 1 - first) if preemptions > 1 else ():
                number += 1
                if j > i and number % every == 0:
                    yield execute(_with(plan, {**steps, j: first}))


def _points(outcome: Outcome, client: int) -> list[int]:
    """Return the steps at which an interruption of a client matters."""
    requests = [line.split() for line in outcome.trace]
    lists_files = any(what == "list" and key in _FOLDERS for _, _, _, what, key, *_ in requests)
    name = outcome.plan.clients[client].name
    return [
        int(step)
        for step, by, _, what, key, *_ in requests
        if by == name and (lists_files or what in ("list", "delete", "head") or not key.startswith(_FILES))
    ]


_FOLDERS = ("snapshots", "manifests", "transactions", "chunks", "overwritten")
_FILES = tuple(f"{folder}/" for folder in _FOLDERS)


def _with(plan: Plan, steps: dict[int, int]) -> Plan:
    return replace(plan, preemptions=steps)
