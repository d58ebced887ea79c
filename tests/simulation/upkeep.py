"""Operations of clients that change the history or look for damage: retention, squash, repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.model import Intent
from tests.simulation.objects import Violation

import frazil

if TYPE_CHECKING:
    from tests.simulation.operations import ClientRun


def retain(client: ClientRun) -> None:
    """Remove the versions that no rule of a policy selects."""
    policy = frazil.Retention(last=client.numbers.randint(1, 4))
    client.repo.apply_retention(policy if client.numbers.random() < 0.7 else {"main": policy})


def squash(client: ClientRun) -> None:
    """Squash the last versions of a branch. With a message, a new version replaces the tip."""
    branch = client.branch()
    line = [version.id for version in client.repo.ancestry(branch=branch)]
    since = line[min(client.numbers.randint(1, 4), len(line) - 1)]
    if client.numbers.random() < 0.5:
        client.repo.squash(branch, since)
        return
    mark = client.mark()
    client.run.model.intents[mark] = Intent(line[0], {}, amends=True)
    client.run.history.squashes.add(mark)
    client.attempt(mark, lambda: client.repo.squash(branch, since, message=mark))


def repair(client: ClientRun) -> None:
    """Repair a repository without damage, while others write and requests fail. Nothing is to do."""
    plan = frazil.Repository.repair(client.storage, level="exists", dry_run=False)
    if plan.steps:
        raise Violation("repair", f"a sound repository was repaired: {plan.rows()}")
