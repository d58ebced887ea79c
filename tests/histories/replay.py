"""The ops log again, with a model of each version.

The ops log says in which order commits and changes of refs took effect. The logs of the workers say what each
of them writes. Together they give the numbers that each version must have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from tests.histories import layout
from tests.histories.evidence import Entry, History
from tests.histories.layout import ANY, DIGEST, LEFT, LENGTH, NAME, RIGHT, Row
from tests.histories.log import Operation, Rule

#: Operations that create a version. The entry in the ops log has the same kind.
WRITES: Final = ("commit", "amend", "flush")


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One promise that is broken."""

    kind: str
    text: str


@dataclass
class Replay:
    """The state after some entries of the ops log.

    Attributes:
        history: The history.
        marks: The marks of versions.
        tips: The tips of branches.
        tags: The tags.
        parents: The parent of each version.
        rows: The numbers that each version must have.
        timeline: The positions in the ops log at which each branch moved, with its new tip.
        anomalies: What is wrong.
    """

    history: History
    marks: dict[str, str]
    tips: dict[str, str | None] = field(default_factory=dict)
    tags: dict[str, str | None] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    timeline: dict[str, list[tuple[int, str | None]]] = field(default_factory=lambda: defaultdict(list))
    anomalies: list[Anomaly] = field(default_factory=list)

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
