"""Operations of a worker that write numbers, and commit them."""

from __future__ import annotations

import pickle
from typing import Any

from tests.histories import layout
from tests.histories.client import OURS, Client
from tests.histories.layout import PAIRS, Changes
from tests.histories.log import Rule

import frazil


def _commit(
    client: Client, session: frazil.Session, changes: Changes, solver: frazil.ConflictSolver | None = None
) -> None:
    def call(mark: str) -> dict[str, Any]:
        layout.write(session.store, changes)
        return {"snapshot": session.commit(mark, rebase_with=solver)}

    rule = Rule.OURS if isinstance(solver, frazil.BasicConflictSolver) else Rule.DISJOINT
    client.run(
        "commit",
        call,
        ref=session.branch,
        changes=changes,
        previous=session.snapshot_id,
        rule=Rule.FIRST if solver is None else rule,
    )


def overwrite(client: Client) -> None:
    """Write slots, and commit if no other worker is first."""
    _commit(client, client.repo.writable_session(client.branch()), Changes(client.slots(), {}))


def rebase(client: Client) -> None:
    """Write slots. Others commit meanwhile, and a solver decides the conflicts, or not."""
    solver = OURS if client.random.random() < 0.4 else frazil.ConflictDetector()
    session = client.repo.writable_session(client.branch())
    _commit(client, session, Changes(client.slots(), {}), solver)


def pair(client: Client) -> None:
    """Write the same number in two arrays."""
    session = client.repo.writable_session(client.branch())
    pairs = {client.random.randrange(PAIRS): client.number() + 1}
    _commit(client, session, Changes({}, pairs), frazil.ConflictDetector())


def append(client: Client) -> None:
    """Make the journal longer by one number."""
    session = client.repo.writable_session(client.branch())
    length = layout.journal_length(session.store)
    changes = Changes({}, {}, (length, client.number() + 1))
    _commit(client, session, changes, frazil.ConflictDetector())


def amend(client: Client) -> None:
    """Replace the last commit of a branch."""
    session = client.repo.writable_session(client.branch())
    changes = Changes(client.slots(), {})

    def call(mark: str) -> dict[str, Any]:
        layout.write(session.store, changes)
        return {"snapshot": session.amend(mark)}

    previous = session.snapshot_id
    client.run("amend", call, ref=session.branch, changes=changes, previous=previous, rule=Rule.FIRST)


def fork(client: Client) -> None:
    """Write with two forks, one of them as bytes for another process, and commit what both have."""
    session = client.repo.writable_session(client.branch())
    slots, pairs = client.slots(), {client.random.randrange(PAIRS): client.number() + 1}
    changes = Changes(slots, pairs)

    def call(mark: str) -> dict[str, Any]:
        near, far = session.fork(), pickle.loads(pickle.dumps(session.fork()))
        layout.write(near.store, Changes(slots, {}))
        layout.write(far.store, Changes({}, pairs))
        session.merge(near, pickle.loads(pickle.dumps(far)))
        return {"snapshot": session.commit(mark, rebase_with=frazil.ConflictDetector())}

    previous = session.snapshot_id
    client.run("commit", call, ref=session.branch, changes=changes, previous=previous, rule=Rule.DISJOINT)


def flush(client: Client) -> None:
    """Store a version that is on no branch, and give it a tag."""
    session = client.repo.writable_session(client.branch())
    changes = Changes(client.slots(), {})
    snapshots: list[str] = []

    def call(mark: str) -> dict[str, Any]:
        layout.write(session.store, changes)
        snapshots.append(session.flush(mark))
        return {"snapshot": snapshots[0]}

    client.run("flush", call, changes=changes, previous=session.snapshot_id, rule=Rule.FIRST)
    for snapshot in snapshots:
        client.create_tag(snapshot)


def move(client: Client) -> None:
    """Rename the group whose name is a number."""
    session = client.repo.rearrange_session(client.branch())
    changes = Changes({}, {}, name=client.number() + 1)

    def call(mark: str) -> dict[str, Any]:
        layout.rename(session, changes)
        return {"snapshot": session.commit(mark, rebase_with=frazil.ConflictDetector())}

    previous = session.snapshot_id
    client.run("commit", call, ref=session.branch, changes=changes, previous=previous, rule=Rule.DISJOINT)
