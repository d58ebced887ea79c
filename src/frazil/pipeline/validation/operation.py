"""`validate`: the driver checks rules about metadata, tasks check rules about values in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frazil.errors import IcechunkError, InternalError, NodeNotFoundError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.memory import Limits
from frazil.jobs.versions import Source, Version
from frazil.pipeline.reductions.fields import open_field
from frazil.pipeline.validation.checks import CHECKS, CheckedRule
from frazil.pipeline.validation.report import Report, Row
from frazil.pipeline.validation.rules import (
    Finite,
    NanShare,
    Range,
    Rule,
    StatisticsAgainst,
    require_sound,
    rules_from,
)
from frazil.pipeline.validation.scan import ArrayScan, Limit, scan_arrays
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session


def validate(
    source: Source,
    rules: Sequence[Rule] | str | Path,
    *,
    against: Source | None = None,
    engine: Engine | EngineName | None = None,
    limits: Limits | None = None,
) -> Report:
    """Check rules about a version, without writing.

    If an array does not exist, all rules about it fail. Rules about the values of one array are checked in
    one pass over the array.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to check.
        rules: A sequence of rules, or rules in YAML or JSON as a text or a file, see `rules_from`.
        against: The version that `StatisticsAgainst` compares with if the rule does not name one. The
            default, None, is the parent snapshot of the source.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        limits: `Limits`, in bytes: how much a task reads. The default, None, is ``Limits()``.

    Returns:
        The `Report`, with one row for each rule.

    Raises:
        InvalidInputError: A rule is not a rule, or has a value of another type, such as ``Range("/t", "0")``
            (``invalid-argument``).

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Range, validate
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="temperature") as store:
        ...     t = zarr.create_array(store, name="t", data=np.array([280.0, 290.0, 999.0]), chunks=(2,),
        ...                           dimension_names=("time",))
        >>> report = validate(repo, [Range("/t", 180, 340)], engine="inline")
        >>> report.ok, report.rows[0].found, report.rows[0].where
        (False, '1 outside, 280.0 to 999.0; first 999.0', 'index (2,)')
    """
    version = Version.of(source)
    session = version.session()
    all_rules = tuple(rules_from(rules) if isinstance(rules, str | Path) else map(require_sound, rules))
    plan = _ScanPlan(session, _other_sessions(version, against))
    for number, rule in enumerate(all_rules):
        plan.add_rule(number, rule)
    bounds, scans = limits or Limits(), plan.scans()
    engine = engine_of(engine) if scans else None
    summaries = [] if engine is None else scan_arrays(scans, engine, task=bounds.task, block=bounds.block)
    results = {
        key: (summaries[scan], summaries[scan].offences[limit])
        for key, (scan, limit) in plan.limits_of_rules().items()
    }
    rows = tuple(
        _row(CheckedRule(session, rule, results.get((number, False)), results.get((number, True))))
        for number, rule in enumerate(all_rules)
    )
    return Report(version.snapshot_id, rows)


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """Rules as the check of a version, for `Repository.history.bisect`. Each check runs in this process.

    Attributes:
        repo: The `Repository`.
        rules: The rules.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Range, RuleCheck
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> for name, value in (("good", 280.0), ("bad", 999.0)):
        ...     with repo.transaction("main", message=name) as store:
        ...         array = zarr.create_array(store, name="t", data=np.array([value]), overwrite=True)
        >>> check = RuleCheck(repo, [Range("/t", 180, 340)])
        >>> good = list(repo.ancestry(branch="main"))[1].id
        >>> repo.history.bisect(check, good=good).first_bad.message
        'bad'
    """

    repo: Repository
    rules: Sequence[Rule]

    @property
    def paths(self) -> tuple[str, ...]:
        """The nodes that decide. Empty if a rule compares versions: its answer can always change."""
        compares = any(isinstance(rule, StatisticsAgainst) for rule in self.rules)
        return () if compares else tuple(rule.path for rule in self.rules)

    def __call__(self, session: Session) -> Report:
        """Return the report of one version."""
        return validate(Version.of(self.repo, snapshot_id=session.snapshot_id), self.rules, engine="inline")


def _other_sessions(version: Version, against: Source | None) -> Callable[[str | None], Session | None]:
    """Return a function from the branch, tag or snapshot of a rule to the session that it compares with."""

    def session_of(name: str | None) -> Session | None:
        if name is not None:
            repo = version.repo
            if name in repo.list_branches():
                return repo.readonly_session(name)
            if name in repo.list_tags():
                return repo.readonly_session(tag=name)
            return repo.readonly_session(snapshot_id=name)
        if against is not None:
            return Version.of(against).session()
        parent = version.repo.lookup_snapshot(version.snapshot_id).parent_id
        return None if parent is None else version.repo.readonly_session(snapshot_id=parent)

    return session_of


#: Rules about values.
_VALUE_RULES: Final = (Range, NanShare, Finite, StatisticsAgainst)
#: An array of a version: snapshot id and path.
type _ArrayKey = tuple[str, str]
#: The number of a rule, and whether the array is that of the other version.
type _RuleKey = tuple[int, bool]


@dataclass(slots=True)
class _ScanPlan:
    """Which arrays are scanned, each version of an array once, and for which limits of which rules."""

    session: Session
    other_session: Callable[[str | None], Session | None]
    sessions: dict[_ArrayKey, Session] = field(default_factory=dict)
    limits: dict[_ArrayKey, list[Limit]] = field(default_factory=dict)
    arrays: dict[_RuleKey, tuple[_ArrayKey, int]] = field(default_factory=dict)

    def add_rule(self, number: int, rule: Rule) -> None:
        """Scan the array of a rule about values, and for `StatisticsAgainst` that of the other version."""
        if not isinstance(rule, _VALUE_RULES) or not _is_numeric(self.session, rule.path):
            return
        self._add_limit((number, False), self.session, rule)
        if isinstance(rule, StatisticsAgainst):
            other = self.other_session(rule.against)
            if other is not None and _is_numeric(other, rule.path):
                self._add_limit((number, True), other, rule)

    def _add_limit(self, key: _RuleKey, session: Session, rule: Rule) -> None:
        array = (session.snapshot_id, rule.path.strip("/"))
        self.sessions[array] = session
        limits = self.limits.setdefault(array, [])
        self.arrays[key] = (array, len(limits))
        limits.append(_limit_of(rule))

    def scans(self) -> list[ArrayScan]:
        """Return a scan for each array."""
        return [
            ArrayScan(session, open_field(session, path), tuple(self.limits[snapshot_id, path]))
            for (snapshot_id, path), session in self.sessions.items()
        ]

    def limits_of_rules(self) -> dict[_RuleKey, tuple[int, int]]:
        """Return for each rule the number of the scan, and the number of the limit in it."""
        numbers = {array: number for number, array in enumerate(self.sessions)}
        return {key: (numbers[array], limit) for key, (array, limit) in self.arrays.items()}


def _is_numeric(session: Session, path: str) -> bool:
    try:
        open_field(session, path)
    except IcechunkError:  # the row of the rule has the message
        return False
    return True


def _limit_of(rule: Rule) -> Limit:
    if isinstance(rule, Range):
        low = -math.inf if rule.min is None else rule.min
        return Limit(low, math.inf if rule.max is None else rule.max)
    if isinstance(rule, Finite):
        return Limit(infinite=True, nan=not rule.nan)
    return Limit(nan=isinstance(rule, NanShare))


def _row(rule: CheckedRule) -> Row:
    """Return the row of a rule. A rule fails if its array does not exist or does not fit the rule."""
    name, path = type(rule.rule).__name__, "/" + rule.rule.path.strip("/")
    try:
        ok, expected, actual, where = CHECKS[name](rule)
    except InternalError:
        raise
    except NodeNotFoundError:
        return Row(name, path, False, "an array", "none")
    except IcechunkError as error:
        return Row(name, path, False, "an array that fits the rule", error.message)
    return Row(name, path, ok, expected, actual, where)
