"""What a worker does. Each operation is a function of a `Client`; `OPERATIONS` has all of them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.history import layout
from tests.history.layout import PAIRS, SLOTS, Changes
from tests.history.log import LogFile, Outcome, Rule, as_lists

import frazil
from frazil.errors import IcechunkError, OutcomeUnknownError

#: Seconds after which a version may expire, and after which a file may be collected.
EXPIRY: Final = 20
GARBAGE: Final = 6
_BRANCHES: Final = 5


@dataclass
class Client:
    """One worker: its handle on the repository, its log, and its random numbers."""

    name: str
    first_number: int
    repo: frazil.Repository
    log: LogFile
    random: random.Random
    calls: int = 0

    def mark(self) -> str:
        """Return a text that no other operation has."""
        self.calls += 1
        return f"{self.name}.{self.calls}"

    def number(self) -> int:
        """Return the number that the present operation writes. No other operation writes it."""
        return self.first_number + self.calls

    def run(self, kind: str, call: Callable[[str], dict[str, Any] | None], **values: Any) -> None:
        """Make a call between two lines of the log. ``call`` gets the mark and returns values of the answer.

        The answer None means that there was nothing to do.
        """
        mark = self.mark()
        if "changes" in values:
            values["changes"] = as_lists(values["changes"])
        self.log.begin(mark, kind, **values)
        try:
            answer = call(mark)
        except OutcomeUnknownError as error:
            self.log.end(mark, Outcome.UNKNOWN, error=str(error.kind), snapshot=error.snapshot)
        except IcechunkError as error:
            self.log.end(mark, Outcome.REFUSED, error=f"{type(error).__name__} {error.kind}")
        except Exception as error:
            self.log.end(mark, Outcome.UNKNOWN, error=f"{type(error).__name__}: {error}"[:300])
        else:
            self.log.end(mark, Outcome.NOTHING if answer is None else Outcome.OK, **(answer or {}))

    def branch(self) -> str:
        """Return a branch, most often `main`."""
        return "main" if self.random.random() < 0.7 else self.random.choice(sorted(self.repo.list_branches()))

    def side_branch(self) -> str | None:
        """Return a branch other than `main`, or None."""
        names = sorted(self.repo.list_branches() - {"main"})
        return self.random.choice(names) if names else None

    def slots(self, most: int = 3) -> dict[int, int]:
        """Return the number of the next operation for some slots."""
        number = self.number() + 1
        return dict.fromkeys(self.random.sample(range(SLOTS), self.random.randint(1, most)), number)


def time_before(seconds: float) -> datetime:
    """Return the time so many seconds ago."""
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _without_values(change: Callable[[], object]) -> Callable[[str], dict[str, Any]]:
    """Return a call whose answer is that it succeeded."""

    def call(_mark: str) -> dict[str, Any]:
        change()
        return {}

    return call


# ---- commits


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
    ours = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)
    solver = ours if client.random.random() < 0.4 else frazil.ConflictDetector()
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


def merge(client: Client) -> None:
    """Merge the tip of another branch, and read the result."""
    source, into = client.side_branch(), client.branch()
    if source is None or source == into:
        return
    target = client.repo.lookup_branch(source)
    ours = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)

    def call(mark: str) -> dict[str, Any] | None:
        snapshot = client.repo.merge(target, into, solver=ours, message=mark, fast_forward=False)
        return _if_new(client, mark, snapshot)

    client.run("merge", call, ref=into, target=target)


def rewrite(client: Client) -> None:
    """Write the manifests of a branch again."""
    branch = client.branch()
    client.run(
        "commit",
        lambda mark: _if_new(client, mark, client.repo.rewrite_manifests(mark, branch=branch)),
        ref=branch,
    )


def compact(client: Client) -> None:
    """Merge small chunk files into packs."""
    branch = client.branch()
    limits = frazil.CompactionLimits(live_fraction=0.9)

    def call(mark: str) -> dict[str, Any] | None:
        snapshots = client.repo.compact(mark, branch=branch, limits=limits).snapshots
        return {"snapshot": snapshots[branch]} if snapshots else None

    client.run("commit", call, ref=branch)


def _if_new(client: Client, mark: str, snapshot: str) -> dict[str, Any] | None:
    """Return the answer of a call that can return the present tip, if there is nothing to do."""
    return {"snapshot": snapshot} if client.repo.lookup_snapshot(snapshot).message == mark else None


# ---- refs


def create_branch(client: Client) -> None:
    target = client.repo.lookup_branch(client.branch())
    if len(client.repo.list_branches()) >= _BRANCHES:
        return delete_branch(client)
    name = f"b{client.name}-{client.calls + 1}"
    return client.run(
        "create-branch",
        _without_values(lambda: client.repo.create_branch(name, target)),
        ref=name,
        target=target,
    )


def delete_branch(client: Client) -> None:
    name = client.side_branch()
    if name is not None:
        client.run("delete-branch", _without_values(lambda: client.repo.delete_branch(name)), ref=name)


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
        _without_values(lambda: client.repo.reset_branch(name, target, from_snapshot_id=tip)),
        ref=name,
        target=target,
        previous=tip,
    )


def create_tag(client: Client) -> None:
    target = client.repo.lookup_branch(client.branch())
    name = f"t{client.name}-{client.calls + 1}"
    client.run(
        "create-tag", _without_values(lambda: client.repo.create_tag(name, target)), ref=name, target=target
    )


def delete_tag(client: Client) -> None:
    names = sorted(client.repo.list_tags())
    if len(names) > _BRANCHES:
        name = client.random.choice(names)
        client.run("delete-tag", _without_values(lambda: client.repo.delete_tag(name)), ref=name)


# ---- reads


def read(client: Client) -> None:
    """Read all numbers of the tip of a branch."""
    branch = client.branch()

    def call(_mark: str) -> dict[str, Any]:
        session = client.repo.readonly_session(branch)
        return {"snapshot": session.snapshot_id, "row": layout.read(session.store).tolist()}

    client.run("read-branch", call, ref=branch)


def read_tag(client: Client) -> None:
    """Read all numbers of a tag."""
    names = sorted(client.repo.list_tags())
    if not names:
        return
    name = client.random.choice(names)

    def call(_mark: str) -> dict[str, Any]:
        session = client.repo.readonly_session(tag=name)
        return {"snapshot": session.snapshot_id, "row": layout.read(session.store).tolist()}

    client.run("read-tag", call, ref=name)


# ---- upkeep


def expire(client: Client) -> None:
    client.run("expire", _without_values(lambda: client.repo.expire_snapshots(time_before(EXPIRY))))


def retain(client: Client) -> None:
    """Remove old versions from the middle of histories."""
    policy = frazil.Retention(last=5, newer_than=timedelta(seconds=EXPIRY), tags="*")
    client.run("retain", lambda _: {"count": len(client.repo.apply_retention(policy).removed)})


def collect(client: Client) -> None:
    def call(_mark: str) -> dict[str, Any]:
        summary = client.repo.garbage_collect(time_before(GARBAGE))
        return {"count": summary.chunks_deleted + summary.manifests_deleted + summary.snapshots_deleted}

    client.run("collect", call)


#: Each operation, and how often a worker does it.
OPERATIONS: Final[dict[Callable[[Client], None], float]] = {
    overwrite: 26,
    rebase: 16,
    pair: 10,
    append: 12,
    amend: 4,
    fork: 2.5,
    merge: 2,
    rewrite: 0.5,
    compact: 0.5,
    create_branch: 2,
    delete_branch: 0.5,
    reset_branch: 1.5,
    create_tag: 2,
    delete_tag: 2,
    read: 13,
    read_tag: 2,
    expire: 1,
    retain: 0.5,
    collect: 2,
}
