"""Conditions on arrays and dimensions, as values: which manifests to preload, how to split them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter, index
from typing import ClassVar, override

from frazil.display import Family, quoted, unsigned
from frazil.repository.settings.array_conditions import (
    AllOf,
    AnyOf,
    CallShown,
    ConditionFamily,
    NameMatch,
    PathMatch,
    matches,
)


class ManifestPreloadCondition(ConditionFamily["ManifestPreloadCondition"]):
    """A condition on arrays whose manifests are loaded when a session opens.

    The class methods and the static methods create conditions. ``|`` and ``&`` combine conditions.

    Examples:
        >>> time = ManifestPreloadCondition.name_matches("^time$")
        >>> condition = time | ManifestPreloadCondition.num_refs(0, 10)
        >>> condition.holds("/group/time", 5000)
        True
    """

    __slots__ = ()
    example = "and_conditions"

    Or: ClassVar[type[PreloadOr]]
    And: ClassVar[type[PreloadAnd]]
    PathMatches: ClassVar[type[PreloadPathMatches]]
    NameMatches: ClassVar[type[PreloadNameMatches]]
    NumRefs: ClassVar[type[PreloadNumRefs]]

    @staticmethod
    def num_refs(from_refs: int | None, to_refs: int | None) -> ManifestPreloadCondition:
        """Return a condition on the number of chunk references of an array.

        Args:
            from_refs: The smallest number. None: no lower bound.
            to_refs: The end of the range, which is not included. None: no upper bound.

        Returns:
            The condition.

        Examples:
            >>> few = ManifestPreloadCondition.num_refs(None, 10)
            >>> few.holds("/t", 9), few.holds("/t", 10)
            (True, False)
        """
        return PreloadNumRefs(from_refs, to_refs)

    @staticmethod
    def true() -> ManifestPreloadCondition:
        """Return a condition that always holds.

        Returns:
            The condition.

        Examples:
            >>> ManifestPreloadCondition.true().holds("/t")
            True
        """
        return PreloadTrue()

    @staticmethod
    def false() -> ManifestPreloadCondition:
        """Return a condition that never holds.

        Returns:
            The condition.

        Examples:
            >>> ManifestPreloadCondition.false().holds("/t")
            False
        """
        return PreloadFalse()


class PreloadOr(AnyOf[ManifestPreloadCondition], ManifestPreloadCondition):
    """Any of several conditions on arrays to preload."""

    __slots__ = ()


class PreloadAnd(AllOf[ManifestPreloadCondition], ManifestPreloadCondition):
    """All of several conditions on arrays to preload."""

    __slots__ = ()


class PreloadPathMatches(PathMatch, ManifestPreloadCondition):
    """A regular expression for the paths of arrays to preload."""

    __slots__ = ()


class PreloadNameMatches(NameMatch, ManifestPreloadCondition):
    """A regular expression for the names of arrays to preload."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class PreloadNumRefs(ManifestPreloadCondition):
    """A range of the number of chunk references. ``to_refs`` is not included; None is no bound."""

    from_refs: int | None
    to_refs: int | None

    def __post_init__(self) -> None:
        unsigned(32)("from_refs", self.from_refs)
        unsigned(32)("to_refs", self.to_refs)

    @property
    def to(self) -> int | None:
        """``to_refs`` under the name that the reference implementation uses."""
        return self.to_refs

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return (self.from_refs or 0) <= num_refs and (self.to_refs is None or num_refs < self.to_refs)

    def _call(self) -> str:
        return f"ManifestPreloadCondition.num_refs({self.from_refs}, {self.to_refs})"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadTrue(ManifestPreloadCondition):
    """The condition that always holds."""

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return True

    def _call(self) -> str:
        return "ManifestPreloadCondition.true()"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadFalse(ManifestPreloadCondition):
    """The condition that never holds."""

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return False

    def _call(self) -> str:
        return "ManifestPreloadCondition.false()"


ManifestPreloadCondition.Or = PreloadOr
ManifestPreloadCondition.And = PreloadAnd
ManifestPreloadCondition.PathMatches = PreloadPathMatches
ManifestPreloadCondition.NameMatches = PreloadNameMatches
ManifestPreloadCondition.NumRefs = PreloadNumRefs
# Names of the reference implementation that are keywords of Python.
setattr(PreloadNumRefs, "from", property(attrgetter("from_refs")))
setattr(ManifestPreloadCondition, "True", PreloadTrue)
setattr(ManifestPreloadCondition, "False", PreloadFalse)


class ManifestSplitCondition(ConditionFamily["ManifestSplitCondition"]):
    """A condition on arrays for a rule of manifest splitting.

    The class methods create conditions. ``|`` and ``&`` combine conditions.

    Examples:
        >>> ManifestSplitCondition.path_matches("^/model/").holds("/model/t2m")
        True
    """

    __slots__ = ()
    example = "AnyArray"

    Or: ClassVar[type[SplitOr]]
    And: ClassVar[type[SplitAnd]]
    PathMatches: ClassVar[type[SplitPathMatches]]
    NameMatches: ClassVar[type[SplitNameMatches]]
    #: Every array.
    AnyArray: ClassVar[type[SplitAnyArray]]


class SplitOr(AnyOf[ManifestSplitCondition], ManifestSplitCondition):
    """Any of several conditions on arrays to split."""

    __slots__ = ()


class SplitAnd(AllOf[ManifestSplitCondition], ManifestSplitCondition):
    """All of several conditions on arrays to split."""

    __slots__ = ()


class SplitPathMatches(PathMatch, ManifestSplitCondition):
    """A regular expression for the paths of arrays to split."""

    __slots__ = ()


class SplitNameMatches(NameMatch, ManifestSplitCondition):
    """A regular expression for the names of arrays to split."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class SplitAnyArray(ManifestSplitCondition):
    """The condition that holds for every array."""

    @override
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
    """A condition on dimensions for a size of manifest splitting: ``Axis``, ``DimensionName`` or ``Any``.

    Examples:
        >>> ManifestSplitDimCondition.DimensionName("time").holds(0, "time")
        True
        >>> ManifestSplitDimCondition.Axis(1).holds(0, "time")
        False
    """

    @dataclass(frozen=True, slots=True, repr=False)
    class Axis(CallShown):
        """The dimension at this position, from 0."""

        axis: int

        def __post_init__(self) -> None:
            if self.axis is None:
                raise TypeError("axis must be an integer, got None")
            unsigned(64)("axis", self.axis)
            object.__setattr__(self, "axis", index(self.axis))

        def holds(self, axis: int, name: str | None) -> bool:
            """Return whether the condition holds for the dimension at position ``axis`` with this name."""
            return axis == self.axis

        def _call(self) -> str:
            return f"ManifestSplitDimCondition.Axis({self.axis})"

    @dataclass(frozen=True, slots=True, repr=False)
    class DimensionName(CallShown):
        """The dimensions whose name contains a match of the regular expression."""

        regex: str

        def holds(self, axis: int, name: str | None) -> bool:
            """Return whether the condition holds for the dimension at position ``axis`` with this name."""
            return name is not None and matches(self.regex, name)

        def _call(self) -> str:
            return f"ManifestSplitDimCondition.DimensionName({quoted(self.regex)})"

    @dataclass(frozen=True, slots=True, repr=False)
    class Any(CallShown):
        """Every dimension."""

        def holds(self, axis: int, name: str | None) -> bool:
            """Return True."""
            return True

        def _call(self) -> str:
            return "ManifestSplitDimCondition.Any()"


AnyDimCondition = (
    ManifestSplitDimCondition.Axis | ManifestSplitDimCondition.DimensionName | ManifestSplitDimCondition.Any
)
