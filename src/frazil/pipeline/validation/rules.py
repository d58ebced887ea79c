"""Rules about data, which are frozen values from Python, YAML or JSON, and the report of their check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import yaml  # type: ignore[import-untyped]  # it ships no types

from frazil.answers.conditions import parse
from frazil.display import Shown
from frazil.errors import InvalidInputError, ValidationFailedError
from frazil.jobs.progress import Summary, brief


@dataclass(frozen=True, slots=True)
class Rule:
    """The base class of rules. A rule is a frozen value with the ``path`` of a node.

    Attributes:
        path: The path of the array or group.
    """

    path: str

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as a mapping that `rules_from` accepts.

        Returns:
            The name of the rule, and its fields.

        Examples:
            >>> from frazil.pipeline import NanShare
            >>> NanShare("/t2m", max=0.1).as_dict()
            {'rule': 'NanShare', 'path': '/t2m', 'max': 0.1, 'min': 0.0}
        """
        members: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return {"rule": type(self).__name__, **members}


@dataclass(frozen=True, slots=True)
class Exists(Rule):
    """The path must have an array or a group.

    Attributes:
        path: The path of the node.
        kind: ``"array"`` (the default) or ``"group"``.
    """

    kind: str = "array"


@dataclass(frozen=True, slots=True)
class Shape(Rule):
    """The array must have this shape.

    Attributes:
        path: The path of the array.
        shape: The length of each dimension; None is any length.
    """

    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class DType(Rule):
    """The stored values must have this data type.

    Attributes:
        path: The path of the array.
        dtype: The name of the data type in numpy, such as ``"float32"``.
    """

    dtype: str


@dataclass(frozen=True, slots=True)
class Dims(Rule):
    """The dimensions must have these names, in this order.

    Attributes:
        path: The path of the array.
        dims: The names.
    """

    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Units(Rule):
    """The attribute ``units`` must be exactly this text.

    Attributes:
        path: The path of the array.
        units: The text.
    """

    units: str


@dataclass(frozen=True, slots=True)
class Attributes(Rule):
    """The array must have these attributes.

    Attributes:
        path: The path of the array.
        attributes: The names and values; None is any value.
    """

    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filled(Rule):
    """At least this share of the chunks must be stored.

    Attributes:
        path: The path of the array.
        share: The share, from 0 to 1. The default is 1.0, all chunks.
    """

    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Monotonic(Rule):
    """The values of a coordinate must rise, or fall.

    Attributes:
        path: The path of the coordinate, an array of one dimension.
        increasing: Whether the values rise (the default) or fall.
        strictly: Whether neighbours must differ. The default is True.
    """

    increasing: bool = True
    strictly: bool = True


@dataclass(frozen=True, slots=True)
class Regular(Rule):
    """The values of a coordinate must have equal steps.

    Attributes:
        path: The path of the coordinate, an array of one dimension.
        step: The step. The default, None, is the first step of the coordinate.
        tolerance: The largest deviation, as a share of the step. The default is 1e-6.
    """

    step: float | None = None
    tolerance: float = 1e-6


@dataclass(frozen=True, slots=True)
class NoDuplicates(Rule):
    """No value of a coordinate may occur twice.

    Attributes:
        path: The path of the coordinate, an array of one dimension.
    """


@dataclass(frozen=True, slots=True)
class Range(Rule):
    """The decoded values must be within limits. NaN is ignored.

    Attributes:
        path: The path of the array.
        min: The smallest allowed value. The default, None, sets no limit.
        max: The largest allowed value. The default, None, sets no limit.
    """

    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Condition(Rule):
    """All decoded values must meet a condition. A missing value meets only ``is null``.

    Attributes:
        path: The path of the array.
        holds: The condition, as for `frazil.where`, such as ``"between 180 and 340 or is null"``.
    """

    holds: str


@dataclass(frozen=True, slots=True)
class NanShare(Rule):
    """The share of NaN among the decoded values must be within limits.

    Attributes:
        path: The path of the array.
        max: The largest share, from 0 to 1. The default is 0.0.
        min: The smallest share, from 0 to 1. The default is 0.0.
    """

    max: float = 0.0
    min: float = 0.0


@dataclass(frozen=True, slots=True)
class Finite(Rule):
    """No decoded value may be infinite or NaN.

    Attributes:
        path: The path of the array.
        nan: Whether NaN is allowed. The default is False.
    """

    nan: bool = False


@dataclass(frozen=True, slots=True)
class StatisticsAgainst(Rule):
    """The mean and the standard deviation must be near those of another version.

    An array that the other version does not have is not compared.

    Attributes:
        path: The path of the array.
        against: A branch, a tag or a snapshot id. The default, None, is the argument ``against`` of
            `validate`, or the parent snapshot.
        sigma: The largest difference of the means, in standard deviations of the other version. The default
            is 1.0; None does not compare.
        relative: The largest difference of the means, and of the standard deviations, as a share of those of
            the other version. The default, None, does not compare.
    """

    against: str | None = None
    sigma: float | None = 1.0
    relative: float | None = None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # Any, without types
    """A YAML loader that reads 1e-6 as a number. YAML 1.1 reads it as a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)

KINDS: Final[Mapping[str, Any]] = {
    name: kind for name, kind in globals().items() if isinstance(kind, type) and kind in Rule.__subclasses__()
}


def rules_from(given: str | Path | Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Read rules from a file, a text, or a list of mappings.

    Args:
        given: The path of a file (.yaml, .yml, .json), a text in YAML or JSON, or a sequence of mappings.
            Each entry has the name of the rule as ``rule``, and the fields of the rule.

    Returns:
        The rules, in the order of the entries.

    Raises:
        InvalidInputError: An entry has an unknown rule, an unknown field, or a value of another type
            (``invalid-argument``). The message shows the entry.

    Examples:
        >>> from frazil.pipeline import rules_from
        >>> rules_from('''
        ... - {rule: Range, path: /t2m, min: 180, max: 340}
        ... - {rule: Shape, path: /t2m, shape: [null, 721, 1440]}
        ... ''')
        (Range(path='/t2m', min=180, max=340), Shape(path='/t2m', shape=(None, 721, 1440)))
    """
    entries: Any = given
    if isinstance(given, Path):
        entries = given.read_text(encoding="utf-8")
    if isinstance(entries, str):
        try:
            entries = yaml.load(entries, _Loader)  # JSON is YAML
        except yaml.YAMLError as error:
            raise _refused("rules must be YAML or JSON", error) from error
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise _refused("rules must be a list", type(entries).__name__)
    return tuple(map(_rule, entries))


def _rule(entry: Any) -> Rule:
    if not isinstance(entry, Mapping) or entry.get("rule") not in KINDS:
        raise _refused(f"`rule:` must be one of {', '.join(KINDS)}", entry)
    kind = KINDS[entry["rule"]]
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry.items()
        if name != "rule"
    }
    accepted = {field.name for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING}
    if not required <= arguments.keys() <= accepted:
        raise _refused(f"{entry['rule']} must have the fields {', '.join(sorted(accepted))}", entry)
    return require_sound(kind(**arguments))


_NUMBERS: Final = ("min", "max", "share", "step", "tolerance", "sigma", "relative")


def require_sound(rule: Any) -> Rule:
    """Return a rule, or raise ``InvalidInputError`` for other values and for fields of another type."""
    if type(rule) not in KINDS.values() or not isinstance(rule.path, str):
        raise _refused(f"A rule must be one of {', '.join(KINDS)}, with a path", rule)
    numbers = (getattr(rule, name, None) for name in _NUMBERS)
    if not all(each is None or isinstance(each, int | float | np.number) for each in numbers):
        raise _refused("The limits of a rule must be numbers", rule)
    if isinstance(rule, Range | NanShare) and None not in (rule.min, rule.max) and rule.min > rule.max:  # type: ignore[operator]
        raise _refused("min must be at most max", rule)
    if isinstance(rule, Condition):
        if not isinstance(rule.holds, str):
            raise _refused("holds must be a condition such as '> 40 and <= 50'", rule)
        parse(rule.holds)
    if isinstance(rule, Exists) and rule.kind not in ("array", "group"):
        raise _refused("kind must be array or group", rule)
    if isinstance(rule, Shape) and not (
        isinstance(rule.shape, Sequence) and all(n is None or isinstance(n, int) for n in rule.shape)
    ):
        raise _refused("shape must be a sequence of lengths or None", rule)
    if isinstance(rule, DType):
        try:
            np.dtype(rule.dtype)
        except TypeError as error:
            raise _refused("dtype must be a data type of numpy", rule) from error
    checked: Rule = rule
    return checked


def _refused(requirement: str, actual: Any) -> InvalidInputError:
    return InvalidInputError(f"{requirement}, got {actual!s:.200}")


#: Rules that failed and are named in a summary.
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one rule.

    Attributes:
        rule: The name of the rule.
        path: The path of the array or group.
        ok: Whether the rule holds.
        expected: What the rule expects, in words.
        found: What the version has, in words.
        where: The index and the labels of the first value that breaks the rule, or empty.
    """

    rule: str
    path: str
    ok: bool
    expected: str
    found: str
    where: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Report(Summary):
    """The results of all rules, in their order, and the snapshot that was checked.

    Examples:
        >>> from frazil.pipeline import Report, Row
        >>> report = Report("ABC", (Row("Units", "/t2m", False, "K", "degC"),))
        >>> report.ok, report.verdict()
        (False, '1 of 1 rules failed')
        >>> print(report)
        1 of 1 rules failed in ABC
        FAILED  Units /t2m: expected K, found degC
        >>> Report.from_json(report.as_json()) == report
        True
        >>> report.raise_if_failed()
        Traceback (most recent call last):
        frazil.errors.ValidationFailedError: 1 of 1 rules failed in ABC
        FAILED  Units /t2m: expected K, found degC
    """

    snapshot_id: str
    rows: tuple[Row, ...]

    shown_as: ClassVar[str] = "pipeline.Report"

    @property
    def ok(self) -> bool:
        """Whether all rules hold."""
        return all(row.ok for row in self.rows)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The results of the rules that failed."""
        return tuple(row for row in self.rows if not row.ok)

    def raise_if_failed(self) -> None:
        """Raise an error if a rule failed.

        Raises:
            ValidationFailedError: A rule failed. The error has the report.
        """
        if not self.ok:
            raise ValidationFailedError(f"{self._heading()}\n" + "\n".join(map(_line, self.failed)), self)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, for the metadata of a commit.

        Returns:
            A mapping with ``ok``, ``snapshot`` and ``rows``.
        """
        return {"ok": self.ok, "snapshot": self.snapshot_id, "rows": [asdict(row) for row in self.rows]}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Report:
        """Return the report of a mapping that `as_json` made.

        Args:
            document: The mapping.

        Returns:
            The report.
        """
        return Report(document["snapshot"], tuple(Row(**row) for row in document["rows"]))

    def verdict(self) -> str:
        """Return how many rules failed, in words.

        Returns:
            A text such as ``"1 of 3 rules failed"``.
        """
        return f"{len(self.failed)} of {len(self.rows)} rules failed"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot", self.snapshot_id
        yield "rules", self.verdict()
        failed = self.failed
        yield from ((f"{row.rule} {row.path}", brief(_findings(row))) for row in failed[:_SHOWN])
        if len(failed) > _SHOWN:
            yield "and", f"{len(failed) - _SHOWN:,} more"

    def _heading(self) -> str:
        return f"{self.verdict()} in {self.snapshot_id}"

    def __str__(self) -> str:
        return "\n".join([self._heading(), *map(_line, self.rows)])


def _line(row: Row) -> str:
    verdict = "ok    " if row.ok else "FAILED"
    return f"{verdict}  {row.rule} {row.path}: {_findings(row)}"


def _findings(row: Row) -> str:
    where = f" at {row.where}" if row.where else ""
    return f"expected {row.expected}, found {row.found}{where}"
