"""Operations of clients that change the history or look for damage: retention, squash, repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.model import Intent
from tests.simulation.objects import IMMUTABLE, Violation

import frazil
from frazil.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from tests.simulation.operations import ClientRun


def retain(client: ClientRun) -> None:
    """Remove the versions that no rule of a policy selects."""
    policy = frazil.Retention(last=client.numbers.randint(1, 4))
    client.repo.upkeep.retain(policy if client.numbers.random() < 0.7 else {"main": policy}).apply()


def squash(client: ClientRun) -> None:
    """Squash the last versions of a branch. With a message, a new version replaces the tip."""
    branch = client.branch()
    line = [version.id for version in client.repo.ancestry(branch=branch)]
    since = line[min(client.numbers.randint(1, 4), len(line) - 1)]
    if client.numbers.random() < 0.5:
        client.repo.upkeep.squash(branch, since).apply()
        return
    mark = client.mark()
    client.run.model.intents[mark] = Intent(line[0], {}, amends=True)
    client.run.history.squashes.add(mark)
    client.attempt(mark, lambda: client.repo.upkeep.squash(branch, since, message=mark).apply())


def repair(client: ClientRun) -> None:
    """Repair a repository without damage, while others write and requests fail. Nothing is to do."""
    plan = frazil.Repository.upkeep.repair(client.storage, level="exists").apply()
    if plan.steps and not client.has_accidents():
        raise Violation("repair", f"a sound repository was repaired: {plan.rows()}")


def lose_file(client: ClientRun) -> None:
    """Lose a file, or its second half, and bring it back from a copy while others work."""
    run, objects = client.run, client.run.network.objects
    keys = [
        key for key in sorted(objects.objects) if key.startswith(IMMUTABLE) and key not in objects.damaged
    ]
    key = client.numbers.choice(keys)
    half = objects.objects[key].data[: len(objects.objects[key].data) // 2]
    with run.scheduler.standing_still():
        objects.harm(key, half if client.numbers.random() < 0.5 else None)
        run.network.note(run.clients[client.name], f"accident {key}")
        is_needed = key in _damage(client)
    copy = run.undamaged()
    frazil.Repository.upkeep.repair(client.storage, copies=[copy]).apply()
    with run.scheduler.standing_still():
        # A version that others publish during a verification is not verified. The next repair sees it.
        if is_needed and key in objects.damaged:
            frazil.Repository.upkeep.repair(client.storage, copies=[copy]).apply()
        if is_needed and key in objects.damaged and key in _damage(client):
            raise Violation("repair", f"`{key}` was damaged and needed, and is not repaired")


def _damage(client: ClientRun) -> set[str]:
    """Return the files with problems, which a storage with the same bytes has at this moment."""
    storage = MemoryStorage()
    objects = client.run.network.objects.objects
    storage.put_many(((key, each.data) for key, each in objects.items()))
    return {each.key for each in frazil.Repository.open(storage).upkeep.verify("exists").problems}
