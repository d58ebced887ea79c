"""Rules about data: frozen values, from Python, YAML or JSON.

Rules about metadata and coordinates cost little. Rules about data (``Range``, ``NanShare``, ``Finite``,
``StatisticsAgainst``) of one array are checked in one pass over it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml  # type: ignore[import-untyped]  # it has no types of its own

from frazil.errors import ErrorKind, InvalidInputError


@dataclass(frozen=True, slots=True)
class Exists:
    """The path has an array, or with ``kind="group"`` a group."""

    path: str
    kind: str = "array"


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape; None is any length."""

    path: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class DType:
    """The type of the stored values, as numpy names it: "float32"."""

    path: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Dims:
    """The names of the dimensions, in order."""

    path: str
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Units:
    """The attribute ``units``, literally."""

    path: str
    units: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """The array has these attributes, with these values; None is any value."""

    path: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filled:
    """At least this share of the chunks is stored."""

    path: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Monotonic:
    """A coordinate only rises, or with ``increasing=False`` only falls; ``strictly``: no two are equal."""

    path: str
    increasing: bool = True
    strictly: bool = True


@dataclass(frozen=True, slots=True)
class Regular:
    """A coordinate has equal steps: ``step``, or None for the first one. ``tolerance`` is a share of it."""

    path: str
    step: float | None = None
    tolerance: float = 1e-6


@dataclass(frozen=True, slots=True)
class NoDuplicates:
    """A coordinate has no value twice."""

    path: str


@dataclass(frozen=True, slots=True)
class Range:
    """The decoded values are within limits; NaN are left out."""

    path: str
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class NanShare:
    """The share of NaN among the decoded values is at most ``max``, and at least ``min``."""

    path: str
    max: float = 0.0
    min: float = 0.0


@dataclass(frozen=True, slots=True)
class Finite:
    """No value is infinite, and none is NaN unless ``nan``."""

    path: str
    nan: bool = False


@dataclass(frozen=True, slots=True)
class StatisticsAgainst:
    """Mean and standard deviation are near those of another version.

    ``against``: a branch, a tag or a snapshot; None is the argument of `validate`, or the version before.
    The mean may differ by ``sigma`` standard deviations of the other version; with ``relative``, mean and
    standard deviation by that share of the other's. An array that the other version does not have is not
    compared.
    """

    path: str
    against: str | None = None
    sigma: float | None = 1.0
    relative: float | None = None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # Any, without types
    """YAML 1.1 takes 1e-6 for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)

type Rule = (
    Exists
    | Shape
    | DType
    | Dims
    | Units
    | Attributes
    | Filled
    | Monotonic
    | Regular
    | NoDuplicates
    | Range
    | NanShare
    | Finite
    | StatisticsAgainst
)

KINDS: Final[Mapping[str, Any]] = {
    kind.__name__: kind
    for kind in (
        Exists,
        Shape,
        DType,
        Dims,
        Units,
        Attributes,
        Filled,
        Monotonic,
        Regular,
        NoDuplicates,
        Range,
        NanShare,
        Finite,
        StatisticsAgainst,
    )
}


def rules_from(given: str | Path | Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Rules from a file (.yaml, .yml, .json), a text, or a list of mappings: ``rule`` and its fields.

    Raises ``InvalidInputError`` that names the entry, for unknown rules and fields.

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
            raise _refused("rules in YAML or JSON", error) from error
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise _refused("a list of rules", type(entries).__name__)
    return tuple(map(_rule, entries))


def _rule(entry: Any) -> Rule:
    if not isinstance(entry, Mapping) or entry.get("rule") not in KINDS:
        raise _refused(f"`rule:` to be one of {', '.join(KINDS)}", entry)
    kind = KINDS[entry["rule"]]
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in entry.items()
        if name != "rule"
    }
    accepted = {field.name for field in dataclasses.fields(kind)}
    required = {field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}
    if not required <= arguments.keys() <= accepted:
        raise _refused(f"{entry['rule']} with {', '.join(sorted(accepted))}", entry)
    return require_sound(kind(**arguments))


_NUMBERS: Final = ("min", "max", "share", "step", "tolerance", "sigma", "relative")


def require_sound(rule: Any) -> Rule:
    """Return a rule. Raises ``InvalidInputError`` for other values, and for fields of another type."""
    if type(rule) not in KINDS.values() or not isinstance(rule.path, str):
        raise _refused(f"one of the rules {', '.join(KINDS)} for a path", rule)
    numbers = (getattr(rule, name, None) for name in _NUMBERS)
    if not all(each is None or isinstance(each, int | float | np.number) for each in numbers):
        raise _refused("numbers as limits", rule)
    if isinstance(rule, Exists) and rule.kind not in ("array", "group"):
        raise _refused("a kind of array or group", rule)
    if isinstance(rule, Shape) and not (
        isinstance(rule.shape, Sequence) and all(n is None or isinstance(n, int) for n in rule.shape)
    ):
        raise _refused("a shape of lengths or None", rule)
    if isinstance(rule, DType):
        try:
            np.dtype(rule.dtype)
        except TypeError as error:
            raise _refused("a data type as numpy names it", rule) from error
    checked: Rule = rule
    return checked


def as_json(rule: Rule) -> dict[str, Any]:
    """A rule as a mapping that `rules_from` accepts.

    >>> as_json(NanShare("/t2m", max=0.1))
    {'rule': 'NanShare', 'path': '/t2m', 'max': 0.1, 'min': 0.0}
    """
    members: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(rule), default=str))
    return {"rule": type(rule).__name__, **members}


def _refused(expected: str, actual: Any) -> InvalidInputError:
    return InvalidInputError(f"expected {expected}, found {actual!s:.200}", ErrorKind.INVALID_ARGUMENT)
