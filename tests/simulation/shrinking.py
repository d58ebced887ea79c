"""A smaller plan with the same broken promise: fewer clients, operations, faults and changes of the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.plan import Plan
from tests.simulation.run import Outcome, execute


def shrink(outcome: Outcome, *, tries: int = 400) -> Outcome:
    """Return the outcome of the smallest plan that was found. ``outcome`` has a violation."""
    assert outcome.violation is not None
    best = outcome
    # The schedule and the faults as they were, instead of those of the seed.
    exact = replace(outcome.plan, preemptions=outcome.switches, faults=outcome.faults, fault_rate=0.0)
    if (repeated := _same(exact, outcome)) is not None:
        best = repeated
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for plan in _smaller(best.plan):
            tries -= 1
            if tries <= 0:
                break
            if (again := _same(plan, outcome)) is not None:
                best, smaller = again, True
                break
    return best


def _same(plan: Plan, outcome: Outcome) -> Outcome | None:
    again = execute(plan)
    assert outcome.violation is not None
    if again.violation is None or again.violation.check != outcome.violation.check:
        return None
    return again


def _smaller(plan: Plan) -> Iterator[Plan]:
    for client in plan.clients:
        if len(plan.clients) > 1:
            yield replace(plan, clients=tuple(each for each in plan.clients if each is not client))
    for number, client in enumerate(plan.clients):
        for at in range(len(client.operations)):
            fewer = replace(client, operations=client.operations[:at] + client.operations[at + 1 :])
            yield replace(plan, clients=(*plan.clients[:number], fewer, *plan.clients[number + 1 :]))
    for request in plan.faults:
        yield replace(plan, faults={key: fault for key, fault in plan.faults.items() if key != request})
    if plan.fault_rate:
        yield replace(plan, fault_rate=0.0)
    if plan.preemptions:
        steps = list(plan.preemptions)
        size = len(steps)
        while size >= 1:
            for at in range(0, len(steps), size):
                left = {*steps[:at], *steps[at + size :]}
                yield replace(plan, preemptions={step: plan.preemptions[step] for step in left})
            size //= 2
    if plan.storage_ahead_us:
        yield replace(plan, storage_ahead_us=0)
    for number, client in enumerate(plan.clients):
        if client.ahead_us:
            still = replace(client, ahead_us=0)
            yield replace(plan, clients=(*plan.clients[:number], still, *plan.clients[number + 1 :]))
