"""A worker as a client of the repository: its log of JSON lines, and `OPERATIONS`, with all that it does.

A worker writes a line before each call and a line after it. Each line reaches the operating system before the
worker continues, so that it stays when the worker is killed.
"""

from __future__ import annotations

import json
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from tests.histories import layout
from tests.histories.layout import LABEL, PAIRS, SLOTS, Changes

import frazil
from frazil.errors import IcechunkError, OutcomeUnknownError


class Outcome(StrEnum):
    """The answer to an operation."""

    OK = "ok"
    NOTHING = "nothing"  #: it succeeded, and there was nothing to do
    REFUSED = "refused"  #: an error, and the repository is unchanged
    UNKNOWN = "unknown"  #: no answer, or one that leaves the effect open


class Rule(StrEnum):
    """What is true of the version before a commit."""

    NONE = ""
    FIRST = "first"  #: it is the version that the session began at
    DISJOINT = "disjoint"  #: nobody else has changed the same chunks since then
    OURS = "ours"  #: others may have changed them


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a worker. Times are nanoseconds of the monotonic clock, which all processes share."""

    mark: str  #: A text that no other operation has. It is the message of the commit.
    kind: str  #: What the operation is, such as ``commit``.
    ref: str = ""  #: The branch or the tag.
    begin: int = 0  #: The time before the call.
    end: int | None = None  #: The time after the call, or None.
    outcome: Outcome = Outcome.UNKNOWN  #: The answer.
    #: The version that the operation creates or reads, as far as the worker has its id.
    snapshot: str | None = None
    target: str | None = None  #: The version that the ref shall name.
    previous: str | None = None  #: The version that a session began at, or that a reset replaces.
    rule: Rule = Rule.NONE  #: What is true of the version before the commit.
    changes: Changes = field(default_factory=lambda: Changes({}, {}))  #: The numbers of a commit.
    row: tuple[int, ...] | None = None  #: The numbers of a read.
    error: str | None = None  #: The kind of the error.


class LogFile:
    """The log that one worker writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def begin(self, mark: str, kind: str, **values: Any) -> None:
        """Write what the worker is about to do."""
        self._write({"line": "begin", "mark": mark, "kind": kind, "begin": time.monotonic_ns(), **values})

    def end(self, mark: str, outcome: Outcome, **values: Any) -> None:
        """Write the answer."""
        self._write({"line": "end", "mark": mark, "outcome": outcome, "end": time.monotonic_ns(), **values})

    def identify(self, mark: str, snapshot: str) -> None:
        """Write the version of an operation whose answer is lost."""
        self._write({"line": "identify", "mark": mark, "snapshot": snapshot})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def operations(paths: Iterable[Path]) -> Iterator[Operation]:
    """Yield the operations of some logs, each as far as the logs describe it."""
    log: dict[str, Operation] = {}
    snapshots: dict[str, str] = {}  # a later worker identifies the version of an earlier one
    for path in paths:
        for line in _lines(path):
            values = _values(line)
            mark = values["mark"]
            if line["line"] == "identify":
                snapshots[mark] = values["snapshot"]
            else:
                log[mark] = replace(log[mark], **values) if mark in log else Operation(**values)
    for mark, operation in log.items():
        yield replace(operation, snapshot=snapshots[mark]) if mark in snapshots else operation


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines. A worker that is killed can leave a part of a line at the end."""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _values(line: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in line.items() if name != "line"}
    if "outcome" in values:
        values["outcome"] = Outcome(values["outcome"])
    if "rule" in values:
        values["rule"] = Rule(values["rule"])
    values.pop("count", None)
    if "row" in values:
        values["row"] = tuple(values["row"])
    if "changes" in values:
        slots, pairs, append, name = values["changes"]
        values["changes"] = Changes(dict(slots), dict(pairs), None if append is None else tuple(append), name)
    return values


def as_lists(changes: Changes) -> list[Any]:
    """Return changes as lists for JSON, which has no numbers as keys."""
    return [list(changes.slots.items()), list(changes.pairs.items()), changes.append, changes.name]


def file_counts(paths: Iterable[Path]) -> Counter[str]:
    """Return how many files the collections deleted, and how many versions the retentions removed."""
    numbers: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for path in paths:
        for line in _lines(path):
            if line["line"] == "begin":
                kinds[line["mark"]] = line["kind"]
            numbers[kinds.get(line["mark"], "")] += line.get("count", 0)
    return numbers


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
OPERATIONS: Final[dict[Callable[[Client], None], float]] = dict(
    (
        *((overwrite, 24), (rebase, 14), (pair, 9), (append, 10), (amend, 4), (fork, 2), (flush, 1.5)),
        *((move, 2), (rewrite, 0.7), (compact, 0.7), (expire, 1), (retain, 0.5), (collect, 2)),
        *((create_branch, 2), (delete_branch, 0.5), (reset_branch, 1.5), (create_tag, 2), (delete_tag, 2)),
        *((label, 1), (configure, 0.3), (read, 11), (read_tag, 2)),
    )
)
