"""All orders of two clients with at most two preemptions, for pairs of operations.

The first client runs until step ``i``, then the second one until step ``j``, then the first one to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def orders(plan: Plan, *, preemptions: int = 2, every: int = 1, start: int = 0) -> Iterator[Outcome]:
    """Yield the outcomes of all orders. With ``every`` > 1, only of each so many, from number ``start``."""
    number = 0
    for first in (0, 1):
        alone = _with(plan, {0: first})
        outcome = execute(alone)
        yield outcome
        length = outcome.steps
        for i in range(1, length):
            for j in range(i + 1, length + 1) if preemptions > 1 else (length + 1,):
                number += 1
                if number % every == start % every:
                    yield execute(_with(plan, {0: first, i: 1 - first, j: first}))


def _with(plan: Plan, steps: dict[int, int]) -> Plan:
    return Plan(
        plan.seed, plan.clients, plan.spec_version, plan.config, preemptions=steps, history=plan.history
    )
