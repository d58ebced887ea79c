"""The report of an expiration: the versions that it removes and that stay, with reasons.

The lists are columns. A row becomes an object when it is read, so that a report of a long history is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, overload

import numpy as np

from frazil.display import Record, Shown, counted, literal, utc
from frazil.format.columns import I64
from frazil.format.ids import ids_to_text
from frazil.format.repo_info import SnapshotTable
from frazil.maintenance.retention.rules import Rule
from frazil.repository.clock import to_datetime


@dataclass(frozen=True, slots=True, repr=False)
class VersionReason(Record):
    """A version in the report of an expiration.

    Attributes:
        id: The id of the snapshot.
        written_at: The time of the commit.
        message: The message of the commit.
        reasons: Why the version stays or is removed.
    """

    id: str
    written_at: datetime
    message: str
    reasons: tuple[str, ...]

    shown_as: ClassVar[str] = "ops.VersionReason"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", self.id
        yield "written_at", utc(self.written_at)
        yield "message", literal(self.message)
        yield "reasons", "; ".join(self.reasons)


class VersionList(Sequence[VersionReason]):
    """The versions of a report, newest first by the time of the commit."""

    __slots__ = ("_rows", "_rules", "_table")

    def __init__(self, table: SnapshotTable, rows: I64, rules: Sequence[Rule]) -> None:
        order = table.flushed_at()[rows].argsort(kind="stable")[::-1]
        self._table, self._rows, self._rules = table, rows[order], rules

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> VersionReason: ...

    @overload
    def __getitem__(self, at: slice) -> list[VersionReason]: ...

    def __getitem__(self, at: int | slice) -> VersionReason | list[VersionReason]:
        if isinstance(at, slice):
            return list(self._versions(self._rows[at]))
        return next(self._versions(self._rows[[at]]))

    def __iter__(self) -> Iterator[VersionReason]:
        return self._versions(self._rows)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'version')}>"

    def ids(self) -> list[str]:
        """Return the ids of the snapshots."""
        return ids_to_text(self._table.ids()[self._rows])

    def _versions(self, rows: I64) -> Iterator[VersionReason]:
        ids = ids_to_text(self._table.ids()[rows])
        times = map(to_datetime, self._table.flushed_at()[rows].tolist())
        return map(VersionReason, ids, times, self._table.messages(rows), self._reasons(rows))

    def _reasons(self, rows: I64) -> list[tuple[str, ...]]:
        """Return the reasons of rows. Most rows have one of a few sets of reasons; only some have names."""
        selected = (
            np.array([rule.rows[rows] for rule in self._rules], np.bool_)
            .reshape(len(self._rules), len(rows))
            .T
        )
        sets, place = np.unique(selected, axis=0, return_inverse=True)
        texts = [
            tuple(rule.reason for rule, has in zip(self._rules, each, strict=True) if has) for each in sets
        ]
        reasons = [texts[each] for each in place.ravel().tolist()]
        named = np.array(sorted({row for rule in self._rules for row in rule.names}), np.int64)
        for at in np.flatnonzero(np.isin(rows, named)).tolist():
            row = int(rows[at])
            reasons[at] = tuple(rule.reason_of(row) for rule in self._rules if rule.rows[row])
        return reasons


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RetentionReport(Record):
    """The result of an expiration, or what it would do.

    Attributes:
        removed: The versions that are removed from the history.
        retained: The versions that stay.
        deleted_branches: The branches that are deleted.
        deleted_tags: The tags that are deleted.
    """

    removed: VersionList
    retained: VersionList
    deleted_branches: tuple[str, ...] = ()
    deleted_tags: tuple[str, ...] = ()

    shown_as: ClassVar[str] = "ops.RetentionReport"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "removed", counted(len(self.removed), "version")
        yield "retained", counted(len(self.retained), "version")
        yield "deleted_branches", literal(list(self.deleted_branches))
        yield "deleted_tags", literal(list(self.deleted_tags))
