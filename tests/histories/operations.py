"""What a worker does: operations that write numbers, on versions, and on refs; `OPERATIONS` has all."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal

from tests.histories import layout
from tests.histories.client import OURS, Client, if_new, time_before, without_values
from tests.histories.layout import LABEL, PAIRS, Changes
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


#: Seconds after which a version may expire, and after which a file may be collected.
EXPIRY: Final = 20
GARBAGE: Final = 6
#: The kind of the operation, and the argument for it.
_METHODS: Final[tuple[tuple[str, Literal["new_commit", "amend"]], ...]] = (
    ("commit", "new_commit"),
    ("amend", "amend"),
)


def rewrite(client: Client) -> None:
    """Write the manifests of a branch again."""
    branch, (kind, method) = client.branch(), client.random.choice(_METHODS)

    def call(mark: str) -> dict[str, Any] | None:
        return if_new(client, mark, client.repo.rewrite_manifests(mark, branch=branch, commit_method=method))

    client.run(kind, call, ref=branch)


def compact(client: Client) -> None:
    """Merge small chunk files into packs."""
    branch, (kind, method) = client.branch(), client.random.choice(_METHODS)
    limits = frazil.CompactionLimits(live_fraction=0.9)

    def call(mark: str) -> dict[str, Any] | None:
        report = client.repo.upkeep.compact(mark, branch=branch, limits=limits, commit_method=method).apply()
        return {"snapshot": report.snapshots[branch]} if report.snapshots else None

    client.run(kind, call, ref=branch)


def expire(client: Client) -> None:
    client.run("expire", without_values(lambda: client.repo.expire_snapshots(time_before(EXPIRY))))


def retain(client: Client) -> None:
    """Remove old versions from the middle of histories."""
    policy = frazil.Retention(last=5, newer_than=timedelta(seconds=EXPIRY), tags="*")
    client.run("retain", lambda _: {"count": len(client.repo.upkeep.retain(policy).apply().removed)})


def collect(client: Client) -> None:
    def call(_mark: str) -> dict[str, Any]:
        summary = client.repo.garbage_collect(time_before(GARBAGE))
        return {"count": summary.chunks_deleted + summary.manifests_deleted + summary.snapshots_deleted}

    client.run("collect", call)


#: The largest number of branches and tags.
_REFS: Final = 5


def create_branch(client: Client) -> None:
    target = client.repo.lookup_branch(client.branch())
    if len(client.repo.list_branches()) >= _REFS:
        return delete_branch(client)
    name = f"b{client.name}-{client.calls + 1}"
    return client.run(
        "create-branch",
        without_values(lambda: client.repo.create_branch(name, target)),
        ref=name,
        target=target,
    )


def delete_branch(client: Client) -> None:
    name = client.side_branch()
    if name is not None:
        client.run("delete-branch", without_values(lambda: client.repo.delete_branch(name)), ref=name)


def reset_branch(client: Client) -> None:
    """Set a branch back by one version, or to the tip of `main`, if it has not moved."""
    name = client.side_branch()
    if name is None:
        return
    tip = client.repo.lookup_branch(name)
    parent = client.repo.lookup_snapshot(tip).parent_id
    target = parent if client.random.random() < 0.5 else client.repo.lookup_branch("main")
    if target is None or client.repo.lookup_snapshot(target).parent_id is None:
        return  # the first version has no arrays
    client.run(
        "reset-branch",
        without_values(lambda: client.repo.reset_branch(name, target, from_snapshot_id=tip)),
        ref=name,
        target=target,
        previous=tip,
    )


def create_tag(client: Client) -> None:
    client.create_tag(client.repo.lookup_branch(client.branch()))


def delete_tag(client: Client) -> None:
    names = sorted(client.repo.list_tags())
    if len(names) > _REFS:
        name = client.random.choice(names)
        client.run("delete-tag", without_values(lambda: client.repo.delete_tag(name)), ref=name)


def label(client: Client) -> None:
    """Set an item of the metadata of the repository, which only this worker sets."""
    name, text = f"{LABEL}{client.name}", str(client.number() + 1)
    client.run(
        "label", without_values(lambda: client.repo.update_metadata({name: text})), ref=name, target=text
    )


def configure(client: Client) -> None:
    client.run("configure", without_values(client.repo.save_config))


def read(client: Client) -> None:
    """Read all numbers of the tip of a branch."""
    branch = client.branch()
    client.run("read-branch", lambda _: _row(client.repo.readonly_session(branch)), ref=branch)


def read_tag(client: Client) -> None:
    """Read all numbers of a tag."""
    names = sorted(client.repo.list_tags())
    if names:
        name = client.random.choice(names)
        client.run("read-tag", lambda _: _row(client.repo.readonly_session(tag=name)), ref=name)


def _row(session: frazil.Session) -> dict[str, Any]:
    return {"snapshot": session.snapshot_id, "row": layout.read(session.store).tolist()}


#: Each operation, and how often a worker does it.
OPERATIONS: Final[dict[Callable[[Client], None], float]] = {
    overwrite: 24,
    rebase: 14,
    pair: 9,
    append: 10,
    amend: 4,
    fork: 2,
    flush: 1.5,
    move: 2,
    rewrite: 0.7,
    compact: 0.7,
    expire: 1,
    retain: 0.5,
    collect: 2,
    create_branch: 2,
    delete_branch: 0.5,
    reset_branch: 1.5,
    create_tag: 2,
    delete_tag: 2,
    label: 1,
    configure: 0.3,
    read: 11,
    read_tag: 2,
}
