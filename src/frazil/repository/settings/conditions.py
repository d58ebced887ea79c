"""Conditions on arrays and on dimensions, as values: which manifests to preload, how to split them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, index
from typing import Any, ClassVar

from frazil.arguments import checked
from frazil.display import Family, quoted, unsigned
from frazil.repository.settings.array_conditions import (
    AllOf,
    AnyOf,
    ArrayCondition,
    CallShown,
    NameMatch,
    PathMatch,
    matches,
    no_constructor,
    require_conditions,
)


class ManifestPreloadCondition(ArrayCondition):
    """When to load the manifests of an array as soon as a session opens. Make it by its static methods.

    >>> condition = ManifestPreloadCondition.name_matches("^time$") | ManifestPreloadCondition.num_refs(0, 10)
    >>> condition.holds("/group/time", 5000)
    True
    """

    __slots__ = ()
    family = "ManifestPreloadCondition"

    def __new__(cls, *args: Any, **kwargs: Any) -> ManifestPreloadCondition:
        if cls is ManifestPreloadCondition:
            raise no_constructor(cls, "and_conditions")
        return super().__new__(cls)

    Or: ClassVar[type[PreloadOr]]
    And: ClassVar[type[PreloadAnd]]
    PathMatches: ClassVar[type[PreloadPathMatches]]
    NameMatches: ClassVar[type[PreloadNameMatches]]
    NumRefs: ClassVar[type[PreloadNumRefs]]

    @staticmethod
    @checked
    def or_conditions(conditions: Sequence[ManifestPreloadCondition]) -> ManifestPreloadCondition:
        """Any of these; false if there are none."""
        return PreloadOr(require_conditions(ManifestPreloadCondition, conditions))

    @staticmethod
    @checked
    def and_conditions(conditions: Sequence[ManifestPreloadCondition]) -> ManifestPreloadCondition:
        """All of these; true if there are none."""
        return PreloadAnd(require_conditions(ManifestPreloadCondition, conditions))

    @staticmethod
    def path_matches(regex: str) -> ManifestPreloadCondition:
        """The expression matches a part of the array's full path."""
        return PreloadPathMatches(regex)

    @staticmethod
    def name_matches(regex: str) -> ManifestPreloadCondition:
        """The expression matches a part of the last part of the array's path."""
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


class PreloadOr(AnyOf[ManifestPreloadCondition], ManifestPreloadCondition):
    __slots__ = ()


class PreloadAnd(AllOf[ManifestPreloadCondition], ManifestPreloadCondition):
    __slots__ = ()


class PreloadPathMatches(PathMatch, ManifestPreloadCondition):
    __slots__ = ()


class PreloadNameMatches(NameMatch, ManifestPreloadCondition):
    __slots__ = ()


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

    def holds(self, path: str, num_refs: int = 0) -> bool:
        return (self.from_refs or 0) <= num_refs and (self.to_refs is None or num_refs < self.to_refs)

    def _call(self) -> str:
        return f"ManifestPreloadCondition.num_refs({self.from_refs}, {self.to_refs})"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadTrue(ManifestPreloadCondition):
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return True

    def _call(self) -> str:
        return "ManifestPreloadCondition.true()"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadFalse(ManifestPreloadCondition):
    def holds(self, path: str, num_refs: int = 0) -> bool:
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


class ManifestSplitCondition(ArrayCondition):
    """Which arrays a rule of manifest splitting is for. Make it by its static methods.

    >>> ManifestSplitCondition.path_matches("^/model/").holds("/model/t2m")
    True
    """

    __slots__ = ()
    family = "ManifestSplitCondition"

    def __new__(cls, *args: Any, **kwargs: Any) -> ManifestSplitCondition:
        if cls is ManifestSplitCondition:
            raise no_constructor(cls, "AnyArray")
        return super().__new__(cls)

    Or: ClassVar[type[SplitOr]]
    And: ClassVar[type[SplitAnd]]
    PathMatches: ClassVar[type[SplitPathMatches]]
    NameMatches: ClassVar[type[SplitNameMatches]]
    #: Every array.
    AnyArray: ClassVar[type[SplitAnyArray]]

    @staticmethod
    @checked
    def or_conditions(conditions: Sequence[ManifestSplitCondition]) -> ManifestSplitCondition:
        """Any of these; false if there are none."""
        return SplitOr(require_conditions(ManifestSplitCondition, conditions))

    @staticmethod
    @checked
    def and_conditions(conditions: Sequence[ManifestSplitCondition]) -> ManifestSplitCondition:
        """All of these; true if there are none."""
        return SplitAnd(require_conditions(ManifestSplitCondition, conditions))

    @staticmethod
    def path_matches(regex: str) -> ManifestSplitCondition:
        """The expression matches a part of the array's full path."""
        return SplitPathMatches(regex)

    @staticmethod
    def name_matches(regex: str) -> ManifestSplitCondition:
        """The expression matches a part of the last part of the array's path."""
        return SplitNameMatches(regex)

    def __or__(self, other: ManifestSplitCondition) -> ManifestSplitCondition:
        return ManifestSplitCondition.or_conditions([self, other])

    def __and__(self, other: ManifestSplitCondition) -> ManifestSplitCondition:
        return ManifestSplitCondition.and_conditions([self, other])


class SplitOr(AnyOf[ManifestSplitCondition], ManifestSplitCondition):
    __slots__ = ()


class SplitAnd(AllOf[ManifestSplitCondition], ManifestSplitCondition):
    __slots__ = ()


class SplitPathMatches(PathMatch, ManifestSplitCondition):
    __slots__ = ()


class SplitNameMatches(NameMatch, ManifestSplitCondition):
    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class SplitAnyArray(ManifestSplitCondition):
    def holds(self, path: str, num_refs: int = 0) -> bool:
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
    class Axis(CallShown):
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
    class DimensionName(CallShown):
        """Dimensions whose name the expression matches, in any part."""

        regex: str

        def holds(self, axis: int, name: str | None) -> bool:
            """Whether it holds for dimension number ``axis``, called ``name``."""
            return name is not None and matches(self.regex, name)

        def _call(self) -> str:
            return f"ManifestSplitDimCondition.DimensionName({quoted(self.regex)})"

    @dataclass(frozen=True, slots=True, repr=False)
    class Any(CallShown):
        """Every dimension."""

        def holds(self, axis: int, name: str | None) -> bool:
            """Always."""
            return True

        def _call(self) -> str:
            return "ManifestSplitDimCondition.Any()"


AnyDimCondition = (
    ManifestSplitDimCondition.Axis | ManifestSplitDimCondition.DimensionName | ManifestSplitDimCondition.Any
)
