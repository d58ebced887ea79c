"""Retention: which versions of a history stay, and which versions an expiration removes.

A version stays if

- it is the first version, the tip of a branch, or the version of a tag that stays, or
- the policy of a branch with the version in its history selects it, or
- it is in the history of a branch without a policy, or in no history of a branch with a policy.

All other versions are removed, also from the middle of a history. A version whose parent is removed gets the
next ancestor that stays as its parent, and the list of the transaction logs in between. So comparisons and
rebases over the gap still work. All of this is one update of the repository, and a pure function. The report
has the versions that stay and that are removed, with reasons, as columns.

``history`` is the history of one branch: the rows from its tip to the first snapshot. So "newest" is the
order of the history. It does not depend on the clocks of writers.

The lists are columns. A row becomes an object when it is read, so that a report of a long history is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from fnmatch import fnmatchcase
from typing import ClassVar, Final, overload

import numpy as np
from numpy.typing import NDArray

from frazil.display import Record, Shown, counted, literal, utc
from frazil.format.columns import I64
from frazil.format.ids import id_matrix, ids_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotTable, UpdateKind
from frazil.maintenance.links import NewParent, collapse
from frazil.maintenance.plan import RecordedChange
from frazil.maintenance.retention_policy import (
    BranchPolicies,
    CommitPattern,
    Count,
    Period,
    Retention,
    periods,
)
from frazil.repository.catalog.history_records import with_expiring
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.clock import from_datetime, to_datetime

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


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The repo info after an expiration, and the report for people."""

    info: RepoInfo
    report: RetentionReport


def decide(info: RepoInfo, policies: BranchPolicies, now: int) -> Decision:
    """Return the repository after an expiration by policies. A pure function."""
    table = info.table
    stays, removed = Rules(len(table)), Rules(len(table))
    stays.add("first version", table.parents() < 0)
    _add_refs(stays, info, "tip of branch", info.branches)
    covered = np.zeros(len(table), bool)
    without_policy = []
    selected = {name: _policy_of(name, policies) for name in sorted(info.branches)}
    rows = table.find_snapshots(id_matrix([info.branches[name] for name in selected]))
    for named, history in zip(selected.values(), table.chains(rows.tolist()), strict=True):
        if named is None:
            without_policy.append(int(history[0]))
            continue
        covered[history] = True
        add_policy(stays, table, history, named, now)
        removed.add(f"no rule of `{named[0]}` selects it", history)
    if without_policy:
        reached = table.reachable(np.array(without_policy, np.int64))
        stays.add("in the history of a branch without a policy", reached)
    stays.add("in no history of a branch with a policy", ~covered)
    tags = _tags_that_stay(info, stays, policies)
    _add_refs(stays, info, "tag", tags)
    keep = stays.union()
    snapshots = collapse(table, keep, NewParent.NEXT)
    after = replace(
        info,
        tags=tags,
        deleted_tags=info.deleted_tags | (info.tags.keys() - tags.keys()),
        metadata=with_expiring(info, keep, snapshots),
        snapshots=snapshots,
    )
    report = RetentionReport(
        removed=VersionList(table, np.flatnonzero(~keep), tuple(removed)),
        retained=VersionList(table, np.flatnonzero(keep), tuple(stays)),
        deleted_tags=tuple(sorted(info.tags.keys() - tags.keys())),
    )
    return Decision(after, report)


def _policy_of(branch: str, policies: BranchPolicies) -> tuple[str, Retention] | None:
    return next(((name, policy) for name, policy in policies if fnmatchcase(branch, name)), None)


def _add_refs(rules: Rules, info: RepoInfo, reason: str, refs: Mapping[str, bytes]) -> None:
    if refs:
        rules.add(reason, info.table.find_snapshots(id_matrix(list(refs.values()))), list(refs))


def _tags_that_stay(info: RepoInfo, stays: Rules, policies: BranchPolicies) -> dict[str, bytes]:
    """Return the tags that a policy covers, or whose version stays for another reason."""
    rows = info.table.find_snapshots(id_matrix(list(info.tags.values())))
    staying = stays.union()[rows].tolist()
    return {
        name: id_
        for (name, id_), version_stays in zip(info.tags.items(), staying, strict=True)
        if version_stays or any(policy.covers_tag(name) for _, policy in policies)
    }


def retention_change(policies: BranchPolicies) -> RecordedChange[RetentionReport]:
    """Return the repo change of an expiration by policies. Its result is the report."""

    def change(info: RepoInfo, now: int) -> tuple[RepoUpdate, RetentionReport]:
        decision = decide(info, policies, now)
        return RepoUpdate(decision.info, OpsEntry(UpdateKind.EXPIRATION_RAN, now)), decision.report

    return RecordedChange(change)
