"""The rows of a table of snapshots that the rules of a policy select.

``history`` is the history of one branch: the rows from its tip to the first snapshot. So "newest" is the
order of the history. It does not depend on the clocks of writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64
from frazil.format.repo_info import SnapshotTable
from frazil.maintenance.retention.commit_pattern import CommitPattern
from frazil.maintenance.retention.periods import Period, periods
from frazil.maintenance.retention.policy import Count, Retention
from frazil.repository.clock import from_datetime

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(slots=True, eq=False)
class Rule:
    """Rows of a table, with the reason why they stay or are removed.

    Attributes:
        reason: The reason, in words.
        rows: One bool for each row, bool (n,).
        names: Names of some rows, which follow the reason. Only a few rows have names.
    """

    reason: str
    rows: NDArray[np.bool_]
    names: dict[int, list[str]] = field(default_factory=dict)

    def reason_of(self, row: int) -> str:
        """Return the reason for one row."""
        return " ".join([self.reason, ", ".join(f"`{name}`" for name in self.names.get(row, []))]).rstrip()


class Rules:
    """Rules by their reasons. Rows that are added twice for one reason are one rule."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._by_reason: dict[str, Rule] = {}

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._by_reason.values())

    def add(self, reason: str, rows: I64 | NDArray[np.bool_], names: list[str] | None = None) -> None:
        """Add rows for a reason."""
        rule = self._by_reason.setdefault(reason, Rule(reason, np.zeros(self._count, bool)))
        rule.rows[rows] = True
        for row, name in zip(rows.tolist(), names or [], strict=False):
            rule.names.setdefault(row, []).append(name)

    def union(self) -> NDArray[np.bool_]:
        """Return the rows of all rules."""
        every = np.zeros(self._count, bool)
        for rule in self:
            every |= rule.rows
        return every


def add_policy(
    rules: Rules, table: SnapshotTable, history: I64, named: tuple[str, Retention], now: int
) -> None:
    """Add the rows of a history that a policy selects."""
    name, policy = named
    times = table.flushed_at()[history].astype(np.int64)
    if policy.last:
        rules.add(f"one of the last {policy.last} on `{name}`", history[: policy.last])
    if policy.newer_than is not None:
        age = policy.newer_than
        limit = now - age // _MICROSECOND if isinstance(age, timedelta) else from_datetime(age)
        rules.add(f"newer than the limit of `{name}`", history[times >= limit])
    for period, count in policy.counts().items():
        rows = _newest_of_periods(times, period, count, policy.time_zone())
        rules.add(f"newest of its {period} on `{name}`", history[rows])
    if patterns := policy.conditions():
        rules.add(f"meets a condition of `{name}`", _meeting(table, history, patterns))


def _newest_of_periods(times: I64, period: Period, count: Count, zone: tzinfo) -> I64:
    """Return the first position of each of the newest periods."""
    _, first = np.unique(periods(times, period, zone), return_index=True)
    return first if count == "all" else first[-int(count) :]


def _meeting(table: SnapshotTable, history: I64, patterns: tuple[CommitPattern, ...]) -> I64:
    """Return the rows of commits that meet a condition.

    For a condition on metadata, only commits that have the items are decoded.
    """
    met = np.zeros(0, np.int64)
    for pattern in patterns:
        rows = history
        for name in pattern.items():
            rows = table.mentioning(rows, name)
        entries = table.entries(rows)
        meets = (pattern.meets(entry.message, entry.metadata) for entry in entries)
        met = np.union1d(met, rows[np.fromiter(meets, bool, len(rows))])
    return met
