"""What a worker does, as a client of the repository: `OPERATIONS` has all operations."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from tests.histories import layout
from tests.histories.layout import LABEL, PAIRS, SLOTS, Changes
from tests.histories.log import LogFile, Outcome, Rule, as_lists

import frazil
from frazil.errors import IcechunkError, OutcomeUnknownError

#: A solver that prefers the changes of the session.
OURS: Final = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)


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
        return "main" if self.random.random() < 0.6 else self.random.choice(sorted(self.repo.list_branches()))

    def side_branch(self) -> str | None:
        """Return a branch other than `main`, or None."""
        names = sorted(self.repo.list_branches() - {"main"})
        return self.random.choice(names) if names else None

    def slots(self, most: int = 3) -> dict[int, int]:
        """Return the number of the next operation for some slots."""
        number = self.number() + 1
        return dict.fromkeys(self.random.sample(range(SLOTS), self.random.randint(1, most)), number)

    def create_tag(self, target: str) -> None:
        """Create a tag on a version."""
        name = f"t{self.name}-{self.calls + 1}"
        change = without_values(lambda: self.repo.create_tag(name, target))
        self.run("create-tag", change, ref=name, target=target)


def time_before(seconds: float) -> datetime:
    """Return the time so many seconds ago."""
    return datetime.now(UTC) - timedelta(seconds=seconds)


def without_values(change: Callable[[], object]) -> Callable[[str], dict[str, Any]]:
    """Return a call whose answer is that it succeeded, without values."""

    def call(_mark: str) -> dict[str, Any]:
        change()
        return {}

    return call


def if_new(client: Client, mark: str, snapshot: str) -> dict[str, Any] | None:
    """Return the answer of a call that can return the present tip, if there is nothing to do."""
    return {"snapshot": snapshot} if client.repo.lookup_snapshot(snapshot).message == mark else None


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
