"""Retention policies: the rules for the versions of a history that stay.

A policy is a value, so that a program can store it, compare it and send it. A version stays if one rule of
the policy selects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fnmatch import fnmatchcase
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from frazil.errors import ErrorKind, InvalidInputError
from frazil.maintenance.retention.commit_pattern import CommitPattern
from frazil.maintenance.retention.periods import Period

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
        >>> Retention(last=10, daily=7, monthly="all").counts()
        {<Period.DAY: 'day'>: 7, <Period.MONTH: 'month'>: 'all'}
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
            _require_count(name, getattr(self, name), allows_all=name != "last")
        _require_age(self.newer_than)
        object.__setattr__(self, "where", tuple(_conditions(self.where)))
        object.__setattr__(self, "tags", tuple(_patterns(self.tags)))
        self.time_zone()
        if not (self.last or self.counts() or self.newer_than is not None or self.where):
            raise InvalidInputError(
                "Retention() must have a rule, got none. Every version except the tips and tags would be "
                "removed. Pass last=1 for that",
                ErrorKind.INVALID_ARGUMENT,
            )

    def counts(self) -> dict[Period, Count]:
        """Return the periods of the rules that are set.

        Returns:
            The number of periods, or ``"all"``, by the length of the period.

        Examples:
            >>> Retention(weekly=4).counts()
            {<Period.WEEK: 'week'>: 4}
        """
        return {period: getattr(self, name) for name, period in _PERIODS.items() if getattr(self, name)}

    def conditions(self) -> tuple[CommitPattern, ...]:
        """Return the conditions on commits.

        Returns:
            The patterns of ``where``.

        Examples:
            >>> Retention(where=CommitPattern(message="release*")).conditions()[0].message
            'release*'
        """
        return tuple(_conditions(self.where))

    def covers_tag(self, name: str) -> bool:
        """Return whether a tag stays.

        Args:
            name: The name of the tag.

        Returns:
            True if the name matches one pattern of ``tags``.

        Examples:
            >>> Retention(last=1, tags=["v*"]).covers_tag("test-3")
            False
        """
        return any(fnmatchcase(name, pattern) for pattern in _patterns(self.tags))

    def time_zone(self) -> tzinfo:
        """Return the time zone of the periods.

        Returns:
            The zone.

        Raises:
            InvalidInputError: ``invalid-argument`` if this host does not know the zone.

        Examples:
            >>> Retention(last=1).time_zone()
            datetime.timezone.utc
        """
        if isinstance(self.zone, str) and self.zone == "UTC":
            return UTC
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            raise InvalidInputError(
                f'zone must be the name of a time zone, such as "Europe/Rome", got {self.zone!r:.80}. If the '
                "name is right, this host has no data of time zones: install the package tzdata",
                ErrorKind.INVALID_ARGUMENT,
            ) from error


def _require_count(name: str, value: object, *, allows_all: bool) -> None:
    if allows_all and isinstance(value, str) and value == "all":
        return
    if isinstance(value, bool) or not isinstance(value, int):
        expected = 'an integer or "all"' if allows_all else "an integer"
        raise TypeError(f"Retention(): {name} must be {expected}, got {value!r:.80}")
    if value < 0:
        raise InvalidInputError(f"{name} must be at least 0, got {value}", ErrorKind.INVALID_ARGUMENT)


def _require_age(value: object) -> None:
    if value is not None and not isinstance(value, timedelta | datetime):
        raise TypeError(
            f"Retention(): newer_than must be a timedelta, a datetime or None, got {type(value).__name__}"
        )
    if isinstance(value, datetime) and value.tzinfo is None:
        raise TypeError(
            f"Retention(): newer_than must have a time zone, got {value.isoformat()}. Add tzinfo=datetime.UTC"
        )


def _conditions(where: object) -> Iterator[CommitPattern]:
    for each in [where] if isinstance(where, CommitPattern) else _items("where", where):
        if not isinstance(each, CommitPattern):
            raise TypeError(f"Retention(): where must have CommitPattern values, got {type(each).__name__}")
        yield each


def _patterns(tags: object) -> Iterator[str]:
    for each in [tags] if isinstance(tags, str) else _items("tags", tags):
        if not isinstance(each, str):
            raise TypeError(f"Retention(): tags must have texts, got {type(each).__name__}")
        yield each


def _items(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"Retention(): {name} must be one value or a list, got {type(value).__name__}")
    return value


#: Policies by patterns of branches, in order. The first pattern that matches a branch decides.
type BranchPolicies = tuple[tuple[str, Retention], ...]


def branch_policies(policy: Retention | Mapping[str, Retention]) -> BranchPolicies:
    """Return the policies of branches. One policy alone is for every branch."""
    pairs = {"*": policy} if isinstance(policy, Retention) else policy
    if not isinstance(pairs, Mapping):
        raise TypeError(
            f"policy must be a Retention, or a dict from branches to Retention, got {type(policy).__name__}"
        )
    for name, each in pairs.items():
        if not isinstance(name, str) or not isinstance(each, Retention):
            raise TypeError(
                f"policy must have Retention values by names of branches, got {type(each).__name__} for "
                f"{name!r:.80}"
            )
    if not pairs:
        raise InvalidInputError(
            "policy must have at least one branch, got an empty dict", ErrorKind.INVALID_ARGUMENT
        )
    return tuple(pairs.items())
