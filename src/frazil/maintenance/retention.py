"""Retention: policies for the versions of a history that stay, and the removal of the others.

A version whose parent is removed gets an ancestor that stays as its parent, and the list of the transaction
logs in between. So comparisons and rebases over the gap still work. A removal is one update of the
repository, and a pure function. "Newest" is the order of the history, not of the clocks of writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import check_fields
from frazil.display import Record, Shown, counted, literal, utc
from frazil.errors import InvalidInputError
from frazil.format.columns import I64, U8
from frazil.format.ids import id_matrix, ids_to_text
from frazil.format.repo_info import OpsEntry, RepoInfo, SnapshotTable, UpdateKind
from frazil.maintenance.links import NewParent, collapse
from frazil.maintenance.plan import LazyRows, RecordedChange, require_age
from frazil.repository.catalog.history_records import with_expiring
from frazil.repository.catalog.repo_update import RepoUpdate
from frazil.repository.clock import MICROSECOND, from_datetime, to_datetime

_AUTHOR: Final = "author"
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPattern:
    """A condition on commits. A commit meets it if it meets every part that is set.

    The patterns are those of `fnmatch`: ``*`` is any text, ``?`` is one character, and case matters.

    Attributes:
        message: A pattern for the message.
        author: A pattern for the item ``author`` of the metadata.
        metadata: Items that the metadata must have. A text is a pattern. Any other value must be equal.

    Raises:
        InvalidInputError: ``invalid-argument`` if no part is set.

    Examples:
        >>> releases = CommitPattern(message="release *", metadata={"reviewed": True})
        >>> releases.meets("release 3", {"reviewed": True}), releases.meets("release 3", {})
        (True, False)
    """

    message: str | None = None
    author: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.message is None and not self._items():
            raise InvalidInputError(
                'CommitPattern() must have a message, an author or metadata. message="*" means all commits'
            )

    def _items(self) -> dict[str, Any]:
        """Return the items that the metadata of a commit must have, with the pattern of the author."""
        return {**self.metadata, **({} if self.author is None else {_AUTHOR: self.author})}

    def meets(self, message: str, metadata: Mapping[str, Any]) -> bool:
        """Return whether a commit meets the condition.

        Args:
            message: The message of the commit.
            metadata: The metadata of the commit.

        Returns:
            True if every part is met.

        Examples:
            >>> CommitPattern(author="ada*").meets("first", {"author": "ada lovelace"})
            True
        """
        if self.message is not None and not fnmatchcase(message, self.message):
            return False
        for name, pattern in self._items().items():
            value = metadata.get(name, _ABSENT)
            is_text = isinstance(pattern, str) and isinstance(value, str)
            if not (fnmatchcase(value, pattern) if is_text else value == pattern):
                return False
        return True


_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3600 * _SECOND_US
_QUARTER_US: Final = _HOUR_US // 4
_DAY_US: Final = 24 * _HOUR_US
#: 1970-01-01 was a Thursday, three days after a Monday.
_DAYS_AFTER_MONDAY: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The range of ``datetime`` with a tolerance of two days for zones. Other times are clipped to it.
_LAST_US: Final = (datetime(9999, 12, 29, tzinfo=UTC) - _EPOCH) // MICROSECOND


class Period(StrEnum):
    """The length of a period."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


def periods(times: I64, period: Period, zone: tzinfo) -> I64:
    """Return the period of each time: an integer, which is larger for a later period."""
    times = np.clip(times, 0, _LAST_US)
    offsets = np.zeros(len(times), np.int64)
    if zone is not UTC:  # the difference to UTC changes at full quarters of hours
        quarters, place = np.unique(times // _QUARTER_US, return_inverse=True)
        moments = (_EPOCH + timedelta(microseconds=each) for each in (quarters * _QUARTER_US).tolist())
        local = [moment.astimezone(zone).utcoffset() or timedelta(0) for moment in moments]
        offsets = np.array([each // MICROSECOND for each in local], np.int64)[place]
    if period is Period.HOUR:
        return (times + offsets % _HOUR_US) // _HOUR_US
    days = (times + offsets) // _DAY_US
    if period is Period.DAY:
        return days
    if period is Period.WEEK:
        return (days + _DAYS_AFTER_MONDAY) // 7
    dates = days.astype("datetime64[D]")
    return dates.astype("datetime64[M]" if period is Period.MONTH else "datetime64[Y]").astype(np.int64)


#: The number of periods of a rule: the newest ones, or all.
type Count = int | Literal["all"]

_PERIODS: Final = {
    "hourly": Period.HOUR,
    "daily": Period.DAY,
    "weekly": Period.WEEK,
    "monthly": Period.MONTH,
    "yearly": Period.YEAR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The rules for the versions of a branch that stay. A version stays if one rule selects it.

    The first version, the tips of branches, and the versions of tags that match ``tags`` always stay.

    ``hourly`` to ``yearly`` select the newest version of each period, for the newest periods that have a
    version. ``daily=7`` selects one version for each of the last seven days with versions. ``"all"`` selects
    one version for every period.

    Attributes:
        last: The number of newest versions.
        hourly: The number of hours.
        daily: The number of days.
        weekly: The number of weeks. A week begins on Monday.
        monthly: The number of months.
        yearly: The number of years.
        newer_than: Selects versions that are not older than this: a duration before now, or a time with a
            time zone.
        where: Selects commits that meet one of these conditions.
        tags: Patterns of the tags that stay. The default is every tag. A tag that matches no pattern is
            deleted if no rule selects its version. The name of a deleted tag cannot be used again.
        zone: The time zone of the periods, such as ``"Europe/Rome"``. Default: ``"UTC"``.

    Raises:
        InvalidInputError: ``invalid-argument`` if no rule is set, for a negative number, or for an unknown
            time zone.

    Examples:
        >>> Retention(last=10, daily=7, monthly="all").monthly
        'all'
    """

    last: int = 0
    hourly: Count = 0
    daily: Count = 0
    weekly: Count = 0
    monthly: Count = 0
    yearly: Count = 0
    newer_than: timedelta | datetime | None = None
    where: CommitPattern | Sequence[CommitPattern] = ()
    tags: str | Sequence[str] = "*"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        for name in ("last", *_PERIODS):
            value = getattr(self, name)
            if name != "last" and isinstance(value, str) and value == "all":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                expected = "an integer" if name == "last" else 'an integer or "all"'
                raise TypeError(f"Retention(): {name} must be {expected}, got {value!r:.80}")
            if value < 0:
                raise InvalidInputError(f"{name} must be at least 0, got {value}")
        require_age("Retention()", self.newer_than)
        object.__setattr__(self, "where", _values("where", self.where, CommitPattern))
        object.__setattr__(self, "tags", _values("tags", self.tags, str))
        self._time_zone()
        if not (self.last or self._counts() or self.newer_than is not None or self.where):
            raise InvalidInputError(
                "Retention() must have a rule, got none. Pass last=1 to retain only tips and tags"
            )

    def _counts(self) -> dict[Period, Count]:
        """Return the number of periods, or ``"all"``, of the rules that are set."""
        return {period: getattr(self, name) for name, period in _PERIODS.items() if getattr(self, name)}

    def _time_zone(self) -> tzinfo:
        """Return the time zone of the periods, if this host knows it."""
        if isinstance(self.zone, str) and self.zone == "UTC":
            return UTC
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            raise InvalidInputError(
                f'zone must be the name of a time zone, such as "Europe/Rome", got {self.zone!r:.80}. If the '
                "name is right, this host has no data of time zones: install the package tzdata"
            ) from error


def _values[T](name: str, value: object, of: type[T]) -> tuple[T, ...]:
    every = [value] if isinstance(value, of) else value
    if not isinstance(every, list | tuple) or not all(isinstance(each, of) for each in every):
        raise TypeError(f"Retention(): {name} must be {of.__name__} or a list of them, got {value!r:.80}")
    return tuple(every)


#: Policies by patterns of branches, in order. The first pattern that matches a branch decides.
type BranchPolicies = tuple[tuple[str, Retention], ...]


def branch_policies(policy: Retention | Mapping[str, Retention]) -> BranchPolicies:
    """Return the policies of branches. A single policy applies to every branch."""
    pairs = {"*": policy} if isinstance(policy, Retention) else policy
    if not isinstance(pairs, Mapping):
        raise TypeError(
            f"policy must be a Retention, or a dict from branches to Retention, got {type(policy).__name__}"
        )
    for name, each in pairs.items():
        if not isinstance(name, str) or not isinstance(each, Retention):
            raise TypeError(
                f"policy must have Retention values by branches, got {type(each).__name__} for {name!r:.80}"
            )
    if not pairs:
        raise InvalidInputError("policy must have at least one branch, got an empty dict")
    return tuple(pairs.items())


@dataclass(slots=True, eq=False)
class RetentionRule:
    """Rows of a table, with the reason why they stay or are removed.

    Attributes:
        reason: The reason, in words.
        rows: One bool for each row, bool (n,).
        names: Names of some rows, which follow the reason. Only a few rows have names.
    """

    reason: str
    rows: NDArray[np.bool_]
    names: dict[int, list[str]] = field(default_factory=dict)


class RetentionRules:
    """Rules by their reasons. Rows that are added twice for one reason are one rule."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._by_reason: dict[str, RetentionRule] = {}

    def __iter__(self) -> Iterator[RetentionRule]:
        return iter(self._by_reason.values())

    def add(self, reason: str, rows: I64 | NDArray[np.bool_], names: list[str] | None = None) -> None:
        """Add rows for a reason."""
        rule = self._by_reason.setdefault(reason, RetentionRule(reason, np.zeros(self._count, bool)))
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
    rules: RetentionRules, table: SnapshotTable, history: I64, named: tuple[str, Retention], now: int
) -> None:
    """Add the rows of a history that a policy selects. A history is the rows from a tip to the first one."""
    name, policy = named
    times = table.flushed_at()[history].astype(np.int64)
    if policy.last:
        rules.add(f"one of the last {policy.last} on `{name}`", history[: policy.last])
    if policy.newer_than is not None:
        age = policy.newer_than
        limit = now - age // MICROSECOND if isinstance(age, timedelta) else from_datetime(age)
        rules.add(f"newer than the limit of `{name}`", history[times >= limit])
    for period, count in policy._counts().items():
        _, first = np.unique(periods(times, period, policy._time_zone()), return_index=True)
        newest = first if count == "all" else first[-int(count) :]
        rules.add(f"newest of its {period} on `{name}`", history[newest])
    for pattern in _values("where", policy.where, CommitPattern):
        rows = history
        for item in pattern._items():  # only commits that have the items are decoded
            rows = table.mentioning(rows, item)
        meets = (pattern.meets(entry.message, entry.metadata) for entry in table.entries(rows))
        rules.add(f"meets a condition of `{name}`", rows[np.fromiter(meets, bool, len(rows))])


@dataclass(frozen=True, slots=True, repr=False)
class VersionReason(Record, shown_as="ops.VersionReason"):
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

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", self.id
        yield "written_at", utc(self.written_at)
        yield "message", literal(self.message)
        yield "reasons", "; ".join(self.reasons)


class VersionList(LazyRows[VersionReason]):
    """The versions of a report, newest first by the time of the commit."""

    __slots__ = ("_rows", "_rules", "_table")
    noun = "version"

    def __init__(self, table: SnapshotTable, rows: I64, rules: Sequence[RetentionRule]) -> None:
        order = table.flushed_at()[rows].argsort(kind="stable")[::-1]
        self._table, self._rows, self._rules = table, rows[order], rules

    def __len__(self) -> int:
        return len(self._rows)

    def ids(self) -> list[str]:
        """Return the ids of the snapshots."""
        return ids_to_text(self._table.ids()[self._rows])

    def _made(self, start: int, stop: int) -> Iterator[VersionReason]:
        rows = self._rows[start:stop]
        ids = ids_to_text(self._table.ids()[rows])
        times = map(to_datetime, self._table.flushed_at()[rows].tolist())
        return map(VersionReason, ids, times, self._table.messages(rows), self._reasons(rows))

    def _reasons(self, rows: I64) -> list[tuple[str, ...]]:
        """Return the reasons of rows. Most rows have one of a few sets of reasons; only some have names."""
        selected = np.array([rule.rows[rows] for rule in self._rules], np.bool_)
        selected = selected.reshape(len(self._rules), len(rows))
        sets, place = np.unique(selected.T, axis=0, return_inverse=True)
        texts = [
            tuple(rule.reason for rule, has in zip(self._rules, each, strict=True) if has) for each in sets
        ]
        reasons = [texts[each] for each in place.ravel().tolist()]
        named = np.array(sorted({row for rule in self._rules for row in rule.names}), np.int64)
        for at in np.flatnonzero(np.isin(rows, named)).tolist():
            row = int(rows[at])
            reasons[at] = tuple(
                " ".join([rule.reason, ", ".join(f"`{name}`" for name in rule.names.get(row, []))]).rstrip()
                for rule in self._rules
                if rule.rows[row]
            )
        return reasons


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RetentionReport(Record, shown_as="ops.RetentionReport"):
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

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "removed", counted(len(self.removed), "version")
        yield "retained", counted(len(self.retained), "version")
        yield "deleted_branches", literal(list(self.deleted_branches))
        yield "deleted_tags", literal(list(self.deleted_tags))


class Decision(NamedTuple):
    """The repo info after a removal of versions, and the report for people."""

    info: RepoInfo
    report: RetentionReport


def decide(info: RepoInfo, policies: BranchPolicies, now: int, held: U8) -> Decision:
    """Return the repository after an expiration by policies. A pure function.

    A version stays if it is the first one, the tip of a branch, or the version of a tag that stays. It also
    stays if the policy of a branch with it in its history selects it, if it is in the history of a branch
    without a policy, or if it is in no history of a branch with a policy. The parents of ``held`` stay: these
    are the ids of the detached snapshots with a lease.
    """
    table = info.table
    stays, removed = RetentionRules(len(table)), RetentionRules(len(table))
    stays.add("first version", table.parents() < 0)
    add_refs(stays, info, "tip of branch", info.branches)
    add_held(stays, info, held)
    covered = np.zeros(len(table), bool)
    without_policy = []
    names = sorted(info.branches)
    rows = table.find_snapshots(id_matrix([info.branches[name] for name in names]))
    for name, history in zip(names, table.chains(rows.tolist()), strict=True):
        named = next((pair for pair in policies if fnmatchcase(name, pair[0])), None)
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
    # A tag stays if a policy covers it, or if its version stays for another reason.
    staying = stays.union()[table.find_snapshots(id_matrix(list(info.tags.values())))].tolist()
    patterns = [each for _, policy in policies for each in _values("tags", policy.tags, str)]
    tags = {
        name: id_
        for (name, id_), version_stays in zip(info.tags.items(), staying, strict=True)
        if version_stays or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    add_refs(stays, info, "tag", tags)
    return decision(replace(info, tags=tags), info, stays, removed, NewParent.NEXT)


def add_held(rules: RetentionRules, info: RepoInfo, held: U8) -> None:
    """Add the detached snapshots that wait for a merge, and their parents, which the merge needs."""
    rows = info.table.find_snapshots(held)
    rows = rows[rows >= 0]
    if len(rows):
        rules.add(
            "a detached snapshot with a lease, or its parent",
            np.concatenate([rows, info.table.parents().astype(np.int64)[rows]]),
        )


def add_refs(rules: RetentionRules, info: RepoInfo, reason: str, refs: Mapping[str, bytes]) -> None:
    """Add the versions of branches or tags."""
    if refs:
        rules.add(reason, info.table.find_snapshots(id_matrix(list(refs.values()))), list(refs))


def decision(
    left: RepoInfo, info: RepoInfo, stays: RetentionRules, removed: RetentionRules, parent: NewParent
) -> Decision:
    """Return what is left of a repository. ``left`` has only branches and tags that stay."""
    table, keep = info.table, stays.union()
    snapshots = collapse(table, keep, parent)
    after = replace(
        left,
        deleted_tags=info.deleted_tags | (info.tags.keys() - left.tags.keys()),
        metadata=with_expiring(info, keep, snapshots) if info.spec_version > 1 else info.metadata,
        snapshots=snapshots,
    )
    report = RetentionReport(
        removed=VersionList(table, np.flatnonzero(~keep), tuple(removed)),
        retained=VersionList(table, np.flatnonzero(keep), tuple(stays)),
        deleted_branches=tuple(sorted(info.branches.keys() - left.branches.keys())),
        deleted_tags=tuple(sorted(info.tags.keys() - left.tags.keys())),
    )
    return Decision(after, report)


def removal_change(decide: Callable[[RepoInfo, int], Decision]) -> RecordedChange[RetentionReport]:
    """Return the repo change of a removal of versions. Its result is the report."""

    def change(info: RepoInfo, now: int) -> tuple[RepoUpdate, RetentionReport]:
        after, report = decide(info, now)
        return RepoUpdate(after, OpsEntry(UpdateKind.EXPIRATION_RAN, now)), report

    return RecordedChange(change)
