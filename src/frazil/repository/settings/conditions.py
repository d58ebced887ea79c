"""Conditions on arrays and on dimensions, as values: which manifests to preload, how to split them.

Conditions are frozen, compare by value and can be keys of a dict. A regular expression matches if it is
found anywhere; one that does not compile matches nothing (it may have been written by another
implementation, in its dialect).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, index
from typing import TYPE_CHECKING, Any, ClassVar

from frazil.arguments import checked
from frazil.display import PACKAGE, Family, Numbered, quoted, unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence


@lru_cache(maxsize=1024)
def _compiled(regex: str) -> re.Pattern[str] | None:
    try:
        return re.compile(regex)
    except re.error:
        return None


def _found(regex: str, text: str) -> bool:
    pattern = _compiled(regex)
    return pattern is not None and pattern.search(text) is not None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _expect(kind: type, conditions: Sequence[Any]) -> tuple[Any, ...]:
    for condition in conditions:
        if not isinstance(condition, kind):
            raise TypeError(f"expected {kind.__name__}, found {type(condition).__name__}")
    return tuple(conditions)


def _require_text(regex: object) -> None:
    if not isinstance(regex, str):
        raise TypeError(f"expected a regular expression as str, found {type(regex).__name__}")


class _Printed(Numbered):
    __slots__ = ()

    def _call(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{PACKAGE}.config.{self._call()}"


def _all(conditions: Sequence[object]) -> str:
    return ", ".join(map(repr, conditions))


# ------------------------------------------------------------------------------------------ preload


class ManifestPreloadCondition(_Printed):
    """When to load the manifests of an array as soon as a session opens. Make it by its static methods.

    >>> condition = ManifestPreloadCondition.name_matches("^time$") | ManifestPreloadCondition.num_refs(0, 10)
    >>> condition.holds("/group/time", 5000)
    True
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> ManifestPreloadCondition:
        if cls is ManifestPreloadCondition:
            raise TypeError(
                "ManifestPreloadCondition has no constructor: use one of its static methods, such as "
                "and_conditions"
            )
        return super().__new__(cls)

    Or: ClassVar[type[PreloadOr]]
    And: ClassVar[type[PreloadAnd]]
    PathMatches: ClassVar[type[PreloadPathMatches]]
    NameMatches: ClassVar[type[PreloadNameMatches]]
    NumRefs: ClassVar[type[PreloadNumRefs]]

    def holds(self, path: str, num_refs: int) -> bool:
        """Whether it holds for the array at ``path`` whose manifests have ``num_refs`` references."""
        raise NotImplementedError

    @staticmethod
    @checked
    def or_conditions(conditions: Sequence[ManifestPreloadCondition]) -> ManifestPreloadCondition:
        """Any of these; false if there are none."""
        return PreloadOr(_expect(ManifestPreloadCondition, conditions))

    @staticmethod
    @checked
    def and_conditions(conditions: Sequence[ManifestPreloadCondition]) -> ManifestPreloadCondition:
        """All of these; true if there are none."""
        return PreloadAnd(_expect(ManifestPreloadCondition, conditions))

    @staticmethod
    def path_matches(regex: str) -> ManifestPreloadCondition:
        """The expression is found in the array's full path."""
        return PreloadPathMatches(regex)

    @staticmethod
    def name_matches(regex: str) -> ManifestPreloadCondition:
        """The expression is found in the last part of the array's path."""
        return PreloadNameMatches(regex)

    @staticmethod
    def num_refs(from_refs: int | None, to_refs: int | None) -> ManifestPreloadCondition:
        """The number of references is in the range, ``to_refs`` excluded; None is no bound."""
        return PreloadNumRefs(from_refs, to_refs)

    @staticmethod
    def true() -> ManifestPreloadCondition:
        """Always."""
        return PreloadTrue()

    @staticmethod
    def false() -> ManifestPreloadCondition:
        """Never."""
        return PreloadFalse()

    def __and__(self, other: ManifestPreloadCondition) -> ManifestPreloadCondition:
        return ManifestPreloadCondition.and_conditions([self, other])

    def __or__(self, other: ManifestPreloadCondition) -> ManifestPreloadCondition:
        return ManifestPreloadCondition.or_conditions([self, other])


@dataclass(frozen=True, slots=True, repr=False)
class PreloadOr(ManifestPreloadCondition):
    conditions: tuple[ManifestPreloadCondition, ...]

    def holds(self, path: str, num_refs: int) -> bool:
        return any(c.holds(path, num_refs) for c in self.conditions)

    def _call(self) -> str:
        return f"ManifestPreloadCondition.or_conditions([{_all(self.conditions)}])"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadAnd(ManifestPreloadCondition):
    conditions: tuple[ManifestPreloadCondition, ...]

    def holds(self, path: str, num_refs: int) -> bool:
        return all(c.holds(path, num_refs) for c in self.conditions)

    def _call(self) -> str:
        return f"ManifestPreloadCondition.and_conditions([{_all(self.conditions)}])"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadPathMatches(ManifestPreloadCondition):
    regex: str

    def __post_init__(self) -> None:
        _require_text(self.regex)

    def holds(self, path: str, num_refs: int) -> bool:
        return _found(self.regex, path)

    def _call(self) -> str:
        return f"ManifestPreloadCondition.path_matches({quoted(self.regex)})"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadNameMatches(ManifestPreloadCondition):
    regex: str

    def __post_init__(self) -> None:
        _require_text(self.regex)

    def holds(self, path: str, num_refs: int) -> bool:
        return _found(self.regex, _name(path))

    def _call(self) -> str:
        return f"ManifestPreloadCondition.name_matches({quoted(self.regex)})"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadNumRefs(ManifestPreloadCondition):
    from_refs: int | None
    to_refs: int | None

    def __post_init__(self) -> None:
        unsigned(32)("from_refs", self.from_refs)
        unsigned(32)("to_refs", self.to_refs)

    @property
    def to(self) -> int | None:
        """``to_refs``, as the reference names it."""
        return self.to_refs

    def holds(self, path: str, num_refs: int) -> bool:
        return (self.from_refs or 0) <= num_refs and (self.to_refs is None or num_refs < self.to_refs)

    def _call(self) -> str:
        return f"ManifestPreloadCondition.num_refs({self.from_refs}, {self.to_refs})"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadTrue(ManifestPreloadCondition):
    def holds(self, path: str, num_refs: int) -> bool:
        return True

    def _call(self) -> str:
        return "ManifestPreloadCondition.true()"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadFalse(ManifestPreloadCondition):
    def holds(self, path: str, num_refs: int) -> bool:
        return False

    def _call(self) -> str:
        return "ManifestPreloadCondition.false()"


ManifestPreloadCondition.Or = PreloadOr
ManifestPreloadCondition.And = PreloadAnd
ManifestPreloadCondition.PathMatches = PreloadPathMatches
ManifestPreloadCondition.NameMatches = PreloadNameMatches
ManifestPreloadCondition.NumRefs = PreloadNumRefs
# Words of the language, as the reference names them.
setattr(PreloadNumRefs, "from", property(attrgetter("from_refs")))
setattr(ManifestPreloadCondition, "True", PreloadTrue)
setattr(ManifestPreloadCondition, "False", PreloadFalse)


# -------------------------------------------------------------------------------------------- split


class ManifestSplitCondition(_Printed):
    """Which arrays a rule of manifest splitting is for. Make it by its static methods.

    >>> ManifestSplitCondition.path_matches("^/model/").holds("/model/t2m")
    True
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> ManifestSplitCondition:
        if cls is ManifestSplitCondition:
            raise TypeError(
                "ManifestSplitCondition has no constructor: use one of its static methods, such as AnyArray"
            )
        return super().__new__(cls)

    Or: ClassVar[type[SplitOr]]
    And: ClassVar[type[SplitAnd]]
    PathMatches: ClassVar[type[SplitPathMatches]]
    NameMatches: ClassVar[type[SplitNameMatches]]
    #: Every array.
    AnyArray: ClassVar[type[SplitAnyArray]]

    def holds(self, path: str) -> bool:
        """Whether it holds for the array at ``path``."""
        raise NotImplementedError

    @staticmethod
    @checked
    def or_conditions(conditions: Sequence[ManifestSplitCondition]) -> ManifestSplitCondition:
        """Any of these; false if there are none."""
        return SplitOr(_expect(ManifestSplitCondition, conditions))

    @staticmethod
    @checked
    def and_conditions(conditions: Sequence[ManifestSplitCondition]) -> ManifestSplitCondition:
        """All of these; true if there are none."""
        return SplitAnd(_expect(ManifestSplitCondition, conditions))

    @staticmethod
    def path_matches(regex: str) -> ManifestSplitCondition:
        """The expression is found in the array's full path."""
        return SplitPathMatches(regex)

    @staticmethod
    def name_matches(regex: str) -> ManifestSplitCondition:
        """The expression is found in the last part of the array's path."""
        return SplitNameMatches(regex)

    def __or__(self, other: ManifestSplitCondition) -> ManifestSplitCondition:
        return ManifestSplitCondition.or_conditions([self, other])

    def __and__(self, other: ManifestSplitCondition) -> ManifestSplitCondition:
        return ManifestSplitCondition.and_conditions([self, other])


@dataclass(frozen=True, slots=True, repr=False)
class SplitOr(ManifestSplitCondition):
    conditions: tuple[ManifestSplitCondition, ...]

    def holds(self, path: str) -> bool:
        return any(c.holds(path) for c in self.conditions)

    def _call(self) -> str:
        return f"ManifestSplitCondition.or_conditions([{_all(self.conditions)}])"


@dataclass(frozen=True, slots=True, repr=False)
class SplitAnd(ManifestSplitCondition):
    conditions: tuple[ManifestSplitCondition, ...]

    def holds(self, path: str) -> bool:
        return all(c.holds(path) for c in self.conditions)

    def _call(self) -> str:
        return f"ManifestSplitCondition.and_conditions([{_all(self.conditions)}])"


@dataclass(frozen=True, slots=True, repr=False)
class SplitPathMatches(ManifestSplitCondition):
    regex: str

    def __post_init__(self) -> None:
        _require_text(self.regex)

    def holds(self, path: str) -> bool:
        return _found(self.regex, path)

    def _call(self) -> str:
        return f"ManifestSplitCondition.path_matches({quoted(self.regex)})"


@dataclass(frozen=True, slots=True, repr=False)
class SplitNameMatches(ManifestSplitCondition):
    regex: str

    def __post_init__(self) -> None:
        _require_text(self.regex)

    def holds(self, path: str) -> bool:
        return _found(self.regex, _name(path))

    def _call(self) -> str:
        return f"ManifestSplitCondition.name_matches({quoted(self.regex)})"


@dataclass(frozen=True, slots=True, repr=False)
class SplitAnyArray(ManifestSplitCondition):
    def holds(self, path: str) -> bool:
        return True

    def _call(self) -> str:
        return "ManifestSplitCondition.AnyArray()"


ManifestSplitCondition.Or = SplitOr
ManifestSplitCondition.And = SplitAnd
ManifestSplitCondition.PathMatches = SplitPathMatches
ManifestSplitCondition.NameMatches = SplitNameMatches
ManifestSplitCondition.AnyArray = SplitAnyArray


class ManifestSplitDimCondition(metaclass=Family):
    """Which dimensions a size of manifest splitting is for."""

    @dataclass(frozen=True, slots=True, repr=False)
    class Axis(_Printed):
        """The dimension at this position, from 0."""

        axis: int

        def __post_init__(self) -> None:
            if self.axis is None:
                raise TypeError("axis: expected an integer, found None")
            unsigned(64)("axis", self.axis)
            object.__setattr__(self, "axis", index(self.axis))

        def holds(self, axis: int, name: str | None) -> bool:
            """Whether it holds for dimension number ``axis``, called ``name``."""
            return axis == self.axis

        def _call(self) -> str:
            return f"ManifestSplitDimCondition.Axis({self.axis})"

    @dataclass(frozen=True, slots=True, repr=False)
    class DimensionName(_Printed):
        """Dimensions in whose name the expression is found."""

        regex: str

        def holds(self, axis: int, name: str | None) -> bool:
            """Whether it holds for dimension number ``axis``, called ``name``."""
            return name is not None and _found(self.regex, name)

        def _call(self) -> str:
            return f"ManifestSplitDimCondition.DimensionName({quoted(self.regex)})"

    @dataclass(frozen=True, slots=True, repr=False)
    class Any(_Printed):
        """Every dimension."""

        def holds(self, axis: int, name: str | None) -> bool:
            """Always."""
            return True

        def _call(self) -> str:
            return "ManifestSplitDimCondition.Any()"


AnyDimCondition = (
    ManifestSplitDimCondition.Axis | ManifestSplitDimCondition.DimensionName | ManifestSplitDimCondition.Any
)
