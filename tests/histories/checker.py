"""Logs and repository -> one `History` -> anomalies.

The ops log says in which order commits and changes of refs took effect. The logs of the workers say what each
of them writes. Together they give the numbers that each version must have. The checks work on columns:
positions in the ops log, times of operations, rows of numbers. Only the replay of the ops log goes through it
entry by entry.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tests.histories import layout
from tests.histories.layout import ANY, DIGEST, LABEL, LEFT, LENGTH, NAME, RIGHT, TORN, Row
from tests.histories.operations import Operation, Outcome, Rule, operations

import frazil
from frazil.ops import UpdateType

#: How many versions are read at a time.
_READERS: Final = 8
_KINDS: Final = {
    UpdateType.NewCommit: "commit",
    UpdateType.CommitAmended: "amend",
    UpdateType.NewDetachedSnapshot: "flush",
    UpdateType.BranchCreated: "create-branch",
    UpdateType.BranchReset: "reset-branch",
    UpdateType.BranchDeleted: "delete-branch",
    UpdateType.TagCreated: "create-tag",
    UpdateType.TagDeleted: "delete-tag",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the ops log. ``previous`` is the version that it replaces or whose name it deletes."""

    kind: str
    ref: str
    snapshot: str | None = None
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What workers say, and what the repository has afterwards."""

    first: str  #: The version with the arrays.
    operations: Sequence[Operation]  #: The operations of all workers.
    entries: Sequence[Entry]  #: The ops log, oldest first.
    branches: Mapping[str, str]  #: The tips at the end.
    tags: Mapping[str, str] = field(default_factory=dict)  #: The tags at the end.
    #: The messages of the versions that the repository has at the end.
    messages: Mapping[str, str] = field(default_factory=dict)
    #: The history of each branch at the end, newest first.
    ancestry: Mapping[str, Sequence[str]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  #: The metadata of the repository at the end.
    rows: Mapping[str, Row] = field(default_factory=dict)  #: The numbers of versions, read at the end.
    damages: Sequence[str] = ()  #: What `Repository.upkeep.verify` finds, and versions that cannot be read.
    has_faults: bool = False  #: Whether the storage answers with errors.


def collect_evidence(
    repo: frazil.Repository, first: str, logs: Iterable[Path], *, has_faults: bool = False
) -> History:
    """Read logs and repository. No worker runs any more."""
    info = repo.inspect_repo_info()
    ancestry = {
        branch: [snapshot.id for snapshot in repo.ancestry(branch=branch)] for branch in info["branches"]
    }
    versions = dict.fromkeys([*(id_ for ids in ancestry.values() for id_ in ids), *info["tags"].values()])
    rows, damages = _read_all(repo, versions)
    report = repo.upkeep.verify("checksum")
    damages += [str(finding) for finding in report.problems]
    return History(
        first=first,
        operations=tuple(operations(logs)),
        entries=tuple(reversed(list(entries(repo)))),
        branches=info["branches"],
        tags=info["tags"],
        messages={each["id"]: each["message"] for each in info["snapshots"]},
        ancestry=ancestry,
        labels={name: text for name, text in repo.metadata.items() if name.startswith(LABEL)},
        rows=rows,
        damages=damages,
        has_faults=has_faults,
    )


def entries(repo: frazil.Repository) -> Iterator[Entry]:
    """Yield the entries of the ops log that change refs, newest first."""
    for update in repo.ops_log():
        kind = _KINDS.get(type(update.kind))
        if kind is not None:
            ref: str = getattr(update.kind, "branch", "") or getattr(update.kind, "name", "")
            new, old = (getattr(update.kind, name, None) for name in ("new_snap_id", "previous_snap_id"))
            yield Entry(kind, ref, new, old)


def _read_all(repo: frazil.Repository, versions: Iterable[str]) -> tuple[dict[str, Row], list[str]]:
    """Read each version that has the arrays."""
    with ThreadPoolExecutor(_READERS) as pool:
        pairs = list(pool.map(lambda version: (version, _read(repo, version)), versions))
    rows = {version: row for version, row in pairs if isinstance(row, np.ndarray)}
    return rows, [row for _, row in pairs if isinstance(row, str)]


def _read(repo: frazil.Repository, version: str) -> Row | str | None:
    """Return the numbers of a version, the text of an error, or None for the version without arrays."""
    try:
        info = repo.lookup_snapshot(version)
        if info.parent_id is None and info.message == "Repository initialized":
            return None
        return layout.read(repo.readonly_session(snapshot_id=version).store)
    except Exception as error:
        return f"version {version}: {type(error).__name__}: {error}"


#: Operations that create a version. The entry in the ops log has the same kind.
WRITES: Final = ("commit", "amend", "flush")


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One promise that is broken."""

    kind: str
    text: str


@dataclass
class Replay:
    """The state after some entries of the ops log."""

    history: History  #: The history.
    marks: dict[str, str]  #: The marks of versions.
    tips: dict[str, str | None] = field(default_factory=dict)  #: The tips of branches.
    tags: dict[str, str | None] = field(default_factory=dict)  #: The tags.
    parents: dict[str, str | None] = field(default_factory=dict)  #: The parent of each version.
    rows: dict[str, Row] = field(default_factory=dict)  #: The numbers that each version must have.
    #: The positions in the ops log at which each branch moved, with its new tip.
    timeline: dict[str, list[tuple[int, str | None]]] = field(default_factory=lambda: defaultdict(list))
    anomalies: list[Anomaly] = field(default_factory=list)  #: What is wrong.

    def __post_init__(self) -> None:
        self._operations = {each.mark: each for each in self.history.operations}
        self._refs = {(each.kind, each.ref, each.previous): each for each in self.history.operations}
        self._refs |= {
            (each.kind, each.ref, each.previous): each
            for each in self.history.operations
            if each.outcome == "ok"
        }
        self._observed = dict(observations(self.history))

    def run(self) -> None:
        """Apply all entries."""
        for position, entry in enumerate(self.history.entries):
            _STEPS[entry.kind](self, entry)
            if entry.kind not in ("create-tag", "delete-tag", "flush"):
                self.timeline[entry.ref].append((position, self.tips.get(entry.ref)))

    def report(self, kind: str, text: str) -> None:
        """Add an anomaly."""
        self.anomalies.append(Anomaly(kind, text))

    def commit(self, entry: Entry) -> None:
        """Put a version on a branch, or in the place of its tip."""
        assert entry.snapshot is not None
        tip, id_ = self.tips.get(entry.ref), entry.snapshot
        if entry.kind == "amend" and tip is not None and entry.previous != tip:
            self.report("branches", f"{id_} replaces {entry.previous}, but {entry.ref} is at {tip}")
        operation = self._operations.get(self.marks.get(id_, ""))
        parent = tip if entry.kind == "commit" else self.parents.get(tip or "")
        self.parents.setdefault(id_, parent)  # a version that is there twice is not its own ancestor
        self.tips[entry.ref] = id_
        self._set_row(entry, operation, self._row(tip))

    def flush(self, entry: Entry) -> None:
        """Add a version that is on no branch."""
        operation = self._operations.get(self.marks.get(entry.snapshot or "", ""))
        parent = None if operation is None else operation.previous
        self.parents.setdefault(entry.snapshot or "", parent)
        self._set_row(entry, operation, self._row(parent))

    def _set_row(self, entry: Entry, operation: Operation | None, before: Row) -> None:
        id_ = entry.snapshot or ""
        if id_ == self.history.first:
            self.rows[id_] = layout.first_row()
        else:
            self.rows[id_] = self._pinned(id_, self._model(entry, operation, before))

    def create_branch(self, entry: Entry) -> None:
        self.tips[entry.ref] = self._target(entry, None)

    def reset_branch(self, entry: Entry) -> None:
        if self.tips.get(entry.ref) not in (entry.previous, None):
            self.report(
                "branches",
                f"a reset of {entry.ref} from {entry.previous}, but it is at {self.tips[entry.ref]}",
            )
        self.tips[entry.ref] = self._target(entry, entry.previous)

    def delete_branch(self, entry: Entry) -> None:
        if (tip := self.tips.pop(entry.ref, None)) not in (entry.previous, None):
            self.report("branches", f"{entry.ref} is deleted at {entry.previous}, but it is at {tip}")

    def create_tag(self, entry: Entry) -> None:
        if entry.ref in self.tags:
            self.report("tags", f"tag {entry.ref} is created again")
        self.tags[entry.ref] = self._target(entry, None)

    def delete_tag(self, entry: Entry) -> None:
        if (target := self.tags.pop(entry.ref, None)) not in (entry.previous, None):
            self.report("tags", f"tag {entry.ref} is deleted at {entry.previous}, but it is at {target}")

    def _target(self, entry: Entry, previous: str | None) -> str | None:
        operation = self._refs.get((entry.kind, entry.ref, previous))
        return None if operation is None else operation.target

    def _row(self, id_: str | None) -> Row:
        row = self.rows.get(id_ or "")
        return np.full(layout.WIDTH, ANY) if row is None else row

    def _model(self, entry: Entry, operation: Operation | None, before: Row) -> Row:
        if operation is None:  # no log says whose version it is
            return np.full(layout.WIDTH, ANY)
        if operation.ref != entry.ref or operation.kind != entry.kind:
            self.report(
                "branches",
                f"{operation.mark}: {operation.kind} on {operation.ref}, got {entry.kind} on {entry.ref}",
            )
        self._require_rule(operation, entry, before)
        return layout.apply(before, operation.changes)

    def _require_rule(self, operation: Operation, entry: Entry, before: Row) -> None:
        """Report a commit that undoes a change of another worker."""
        parent = entry.previous if entry.kind == "amend" else self.parents[entry.snapshot or ""]
        if operation.rule is Rule.FIRST and parent not in (operation.previous, None):
            self.report(
                "lost update", f"{operation.mark} began at {operation.previous}, and follows {parent}"
            )
        if operation.rule is Rule.DISJOINT:
            columns = list(columns_of(operation))
            base = self._row(operation.previous)[columns]
            if ((base != before[columns]) & (base != ANY) & (before[columns] != ANY)).any():
                self.report("lost update", f"{operation.mark} overwrites changes since {operation.previous}")
        append = operation.changes.append
        if append is not None and before[LENGTH] not in (append[0], ANY):
            self.report("lost update", f"{operation.mark} writes number {append[0]}, after {before[LENGTH]}")

    def _pinned(self, id_: str, row: Row) -> Row:
        """Fill the columns that the model leaves open with what was read."""
        observed = self._observed.get(id_)
        if observed is None or not (row == ANY).any():
            return row
        return np.where(row == ANY, observed, row)


_STEPS: Final[dict[str, Callable[[Replay, Entry], None]]] = {
    "commit": Replay.commit,
    "amend": Replay.commit,
    "flush": Replay.flush,
    "create-branch": Replay.create_branch,
    "reset-branch": Replay.reset_branch,
    "delete-branch": Replay.delete_branch,
    "create-tag": Replay.create_tag,
    "delete-tag": Replay.delete_tag,
}


def columns_of(operation: Operation) -> Iterator[int]:
    """Yield the columns that an operation writes."""
    yield from operation.changes.slots
    for pair in operation.changes.pairs:
        yield from (LEFT + pair, RIGHT + pair)
    if operation.changes.append is not None:
        yield from (LENGTH, DIGEST)
    if operation.changes.name is not None:
        yield NAME


def observations(history: History) -> Iterator[tuple[str, Row]]:
    """Yield each version that was read, with its numbers."""
    for operation in history.operations:
        if operation.row is not None and operation.snapshot is not None:
            yield operation.snapshot, np.array(operation.row, np.int64)
    yield from history.rows.items()


_REFS: Final = frozenset({"create-branch", "delete-branch", "reset-branch", "create-tag", "delete-tag"})
_NEVER: Final = np.iinfo(np.int64).max
#: Errors that a worker may get because of others.
_ALLOWED: Final = frozenset(
    {
        *("commit-conflict", "rebase-failed", "branch-update-conflict", "update-attempts-exhausted"),
        *("repo-info-updated", "garbage-collected", "garbage-collection-running", "gc-deletes-failing"),
        *("snapshot-not-found", "branch-not-found", "tag-not-found", "ref-not-found"),
        *("branch-already-exists", "tag-already-exists", "tag-previously-deleted", "session-expired"),
        *("rebase-tx-log-pruned", "no-changes-to-commit", "no-amend-for-initial-commit"),
    }
)
#: Errors of single operations.
_EXPECTED: Final = {
    "amend": frozenset({"rearrange-session-only"})  # of a commit that moves nodes
}
#: Errors of a storage with faults.
_FAULTS: Final = frozenset(
    {
        *("outcome-unknown", "object-store", "io", "throttled", "storage-other", "storage-timeout"),
        *("storage-unreachable", "gc-deletes-failing"),
    }
)


def check(history: History) -> list[Anomaly]:
    """Return every anomaly of a history."""
    marks = _marks(history)
    replay = Replay(history, marks)
    replay.run()
    return [
        *_commits(history, marks),
        *_refs(history),
        *replay.anomalies,
        *_order(history, marks),
        *_reads(history, replay),
        *_freshness(history, replay),
        *_end(history, replay),
        *_labels(history),
        *_errors(history),
        *(Anomaly("damage", text) for text in history.damages),
    ]


def _marks(history: History) -> dict[str, str]:
    """Return the mark of each version, as far as logs or repository have it."""
    own = {
        each.snapshot: each.mark
        for each in history.operations
        if each.kind in WRITES and each.snapshot is not None
    }
    return {**own, **history.messages}


def _commits(history: History, marks: dict[str, str]) -> Iterator[Anomaly]:
    """Each commit with an answer is there once, and a refused one is not."""
    versions = Counter(entry.snapshot for entry in history.entries if entry.snapshot is not None)
    present = Counter(marks[id_] for id_ in versions if id_ in marks)
    writes = [each for each in history.operations if each.kind in WRITES]
    for operation in writes:
        count = present[operation.mark]
        if count > 1 or versions[operation.snapshot or ""] > 1:
            yield Anomaly(
                "doubled",
                f"commit {operation.mark} is there {max(count, versions[operation.snapshot or ''])} times",
            )
        elif operation.outcome is Outcome.OK and not versions[operation.snapshot or ""]:
            yield Anomaly("lost", f"commit {operation.mark}, {operation.snapshot}, is not in the ops log")
        elif operation.outcome in (Outcome.REFUSED, Outcome.NOTHING) and count:
            yield Anomaly("refused", f"commit {operation.mark} is there, although it was {operation.outcome}")
    expected = {each.mark for each in writes}
    strange = [id_ for id_ in versions if id_ != history.first and marks.get(id_) not in expected]
    open_ = sum(each.outcome is Outcome.UNKNOWN and not present[each.mark] for each in writes)
    if len(strange) > open_:
        yield Anomaly(
            "unexplained", f"{len(strange)} versions, such as {strange[0]}, and {open_} open commits"
        )


def _refs(history: History) -> Iterator[Anomaly]:
    """Each change of a ref with an answer is there once, and no other."""
    operations = [each for each in history.operations if each.kind in _REFS]
    outcomes = {
        outcome: Counter(_key(each) for each in operations if each.outcome is outcome) for outcome in Outcome
    }
    present = Counter(
        (entry.kind, entry.ref, entry.previous if entry.kind == "reset-branch" else None)
        for entry in history.entries
        if entry.kind in _REFS and (entry.kind, entry.ref) != ("create-branch", "main")
    )
    for key in {*present, *outcomes[Outcome.OK]}:
        least = outcomes[Outcome.OK][key]
        most = least + outcomes[Outcome.UNKNOWN][key]
        if present[key] < least:
            yield Anomaly("lost", f"{key}: {least} answers, {present[key]} in the ops log")
        if present[key] > most:
            yield Anomaly("unexplained", f"{key}: {present[key]} in the ops log, at most {most} expected")


def _key(operation: Operation) -> tuple[str, str, str | None]:
    return operation.kind, operation.ref, operation.previous if operation.kind == "reset-branch" else None


def _positions(history: History, marks: dict[str, str]) -> dict[str, int]:
    """Return the position of each operation in the ops log, as far as it is clear."""
    refs = {_key(each): each.mark for each in history.operations if each.kind in _REFS - {"reset-branch"}}
    refs |= {
        _key(each): each.mark
        for each in history.operations
        if each.kind in _REFS - {"reset-branch"} and each.outcome is Outcome.OK
    }
    positions = {}
    for position, entry in enumerate(history.entries):
        mark = marks.get(entry.snapshot or "") or refs.get((entry.kind, entry.ref, None))
        if mark is not None:
            positions[mark] = position
    return positions


def _latest_before(
    ends: NDArray[np.int64], positions: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return, for each time, the last position of all operations that ended before it; -1 without any."""
    order = np.argsort(ends, kind="stable")
    last = np.concatenate([[-1], np.maximum.accumulate(positions[order])]) if len(order) else np.array([-1])
    return np.asarray(last[np.searchsorted(ends[order], times, side="left")], np.int64)


def _order(history: History, marks: dict[str, str]) -> Iterator[Anomaly]:
    """An operation that begins after the end of another one follows it in the ops log."""
    at = _positions(history, marks)
    operations = [each for each in history.operations if each.mark in at]
    positions = np.array([at[each.mark] for each in operations], np.int64)
    begins = np.array([each.begin for each in operations], np.int64)
    ends = np.array([_end_of(each) for each in operations], np.int64)
    for row in np.flatnonzero(_latest_before(ends, positions, begins) > positions):
        yield Anomaly("order", f"{operations[row].mark} is before an operation that ended before it began")


def _end_of(operation: Operation) -> int:
    return operation.end if operation.outcome is Outcome.OK and operation.end is not None else int(_NEVER)


def _reads(history: History, replay: Replay) -> Iterator[Anomaly]:
    """Each version has the numbers of the model, at every read."""
    pairs = list(observations(history))
    if not pairs:
        return
    ids = [id_ for id_, _ in pairs]
    rows = np.array([row for _, row in pairs])
    unknown = np.full(rows.shape[1], ANY)
    model = np.array([replay.rows.get(id_, unknown) for id_ in ids])
    for row in np.flatnonzero(
        (rows == TORN).any(axis=1) | (rows[:, LEFT:RIGHT] != rows[:, RIGHT:LENGTH]).any(axis=1)
    ):
        yield Anomaly("torn", f"version {ids[row]} has a part of a commit")
    wrong = (rows != model) & (model != ANY)
    for row in np.flatnonzero(wrong.any(axis=1)):
        columns = np.flatnonzero(wrong[row])
        yield Anomaly(
            "read",
            f"version {ids[row]}, columns {columns}: {rows[row, columns]}, expected {model[row, columns]}",
        )
    for id_ in {*ids} - {*replay.rows}:
        yield Anomaly("read", f"version {id_} was read, and is not in the ops log")


def _freshness(history: History, replay: Replay) -> Iterator[Anomaly]:
    """A read of a branch gets a tip of the branch during the read. A tag is always the same version."""
    at = _positions(history, replay.marks)
    operations = {
        position: each for each in history.operations if (position := at.get(each.mark)) is not None
    }
    reads: dict[str, list[Operation]] = {}
    targets = {each.ref: each.target for each in history.operations if each.kind == "create-tag"}
    for each in history.operations:
        if each.row is not None and each.kind == "read-branch":
            reads.setdefault(each.ref, []).append(each)
        elif each.row is not None and each.kind == "read-tag" and targets.get(each.ref) != each.snapshot:
            yield Anomaly("tags", f"tag {each.ref} is {each.snapshot} for {each.mark}")
    for branch, group in reads.items():
        moves = replay.timeline.get(branch, [])
        ends = np.array([_end_of(operations[p]) if p in operations else _NEVER for p, _ in moves], np.int64)
        places = np.arange(len(moves))
        earliest = _latest_before(ends, places, np.array([each.begin for each in group]))
        last = {tip: place for place, (_, tip) in enumerate(moves)}
        begins = {tip: operations[p].begin for p, tip in moves[::-1] if p in operations}
        for read, least in zip(group, earliest.tolist(), strict=True):
            # Where no log says to which version the branch moved, any version may be right.
            if max(last.get(read.snapshot, -1), last.get(None, -1)) < least:
                yield Anomaly("stale", f"{read.mark} reads {read.snapshot}, which {branch} had before")
            if read.end is not None and begins.get(read.snapshot, 0) > read.end:
                yield Anomaly("stale", f"{read.mark} reads {read.snapshot} before it was written")


def _end(history: History, replay: Replay) -> Iterator[Anomaly]:
    """Branches, tags and histories at the end are those of the ops log."""
    for kind, expected, present in (
        ("branches", replay.tips, history.branches),
        ("tags", replay.tags, history.tags),
    ):
        for name in {*expected, *present}:
            right = expected.get(name, "absent")
            if right is not None and present.get(name, "absent") != right:
                yield Anomaly(kind, f"{name} is {present.get(name, 'absent')}, expected {right}")
    for branch, ids in history.ancestry.items():
        version = history.branches.get(branch)
        for id_ in ids:
            while version is not None and version != id_:
                version = replay.parents.get(version)
            if version is None and id_ in replay.parents:
                yield Anomaly("ancestry", f"{id_} is in the history of {branch} at a wrong place")
                break


def _labels(history: History) -> Iterator[Anomaly]:
    """Each item of the metadata of the repository has the last text that its worker has set."""
    texts: dict[str, set[str]] = {}
    for each in history.operations:
        if each.kind == "label" and each.outcome is Outcome.OK:
            texts[each.ref] = {each.target or ""}
        elif each.kind == "label" and each.outcome is Outcome.UNKNOWN:
            texts.setdefault(each.ref, {"absent"}).add(each.target or "")
    for name in {*texts, *history.labels}:
        text = history.labels.get(name, "absent")
        if text not in texts.get(name, {"absent"}):
            yield Anomaly("metadata", f"{name} is {text}, expected one of {sorted(texts.get(name, ()))}")


def _errors(history: History) -> Iterator[Anomaly]:
    """Errors have causes: other workers, or faults of the storage."""
    allowed = _ALLOWED | _FAULTS if history.has_faults else _ALLOWED
    for operation in history.operations:
        kind = "" if operation.error is None else operation.error.rpartition(" ")[2]
        if kind and kind not in allowed and kind not in _EXPECTED.get(operation.kind, ()):
            yield Anomaly("error", f"{operation.mark}, {operation.kind}: {operation.error}")
