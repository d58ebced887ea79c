"""The common parts of all conditions on arrays: or, and, paths, names.

Conditions are frozen, compare by value, and can be keys of a dictionary. A regular expression matches if any
part of the text matches it. An expression that does not compile matches nothing, because another
implementation may have written it in its own dialect. ``linear_search`` has the dialect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, cast, override

from frazil.arguments import checked
from frazil.display import PACKAGE, Numbered, quoted


class CallShown(Numbered):
    """A value whose ``repr`` is a call of the public interface."""

    __slots__ = ()

    def _call(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{PACKAGE}.config.{self._call()}"


class ArrayCondition(CallShown):
    """A condition on an array. ``family`` is the name of the public class that creates it."""

    __slots__ = ()
    family: ClassVar[str]

    def holds(self, path: str, num_refs: int = 0) -> bool:
        """Return whether the condition holds for an array.

        Args:
            path: The full path of the array.
            num_refs: The number of chunk references in its manifests.

        Returns:
            True if the condition holds.

        Examples:
            >>> from frazil import ManifestSplitCondition
            >>> ManifestSplitCondition.AnyArray().holds("/t2m")
            True
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, repr=False)
class AnyOf[C: ArrayCondition](ArrayCondition):
    """A condition that holds if any of several conditions holds; without any, it never holds."""

    conditions: tuple[C, ...]

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return any(condition.holds(path, num_refs) for condition in self.conditions)

    def _call(self) -> str:
        return f"{self.family}.or_conditions([{_comma_separated(self.conditions)}])"


@dataclass(frozen=True, slots=True, repr=False)
class AllOf[C: ArrayCondition](ArrayCondition):
    """A condition that holds if all of several conditions hold; without any, it always holds."""

    conditions: tuple[C, ...]

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return all(condition.holds(path, num_refs) for condition in self.conditions)

    def _call(self) -> str:
        return f"{self.family}.and_conditions([{_comma_separated(self.conditions)}])"


@dataclass(frozen=True, slots=True, repr=False)
class PathMatch(ArrayCondition):
    """A condition that holds if the full path of the array contains a match of a regular expression."""

    regex: str

    def __post_init__(self) -> None:
        _require_text(self.regex)

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return matches(self.regex, path)

    def _call(self) -> str:
        return f"{self.family}.path_matches({quoted(self.regex)})"


@dataclass(frozen=True, slots=True, repr=False)
class NameMatch(ArrayCondition):
    """A condition that holds if the name of the array contains a match of a regular expression."""

    regex: str

    def __post_init__(self) -> None:
        _require_text(self.regex)

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return matches(self.regex, path.rpartition("/")[2])

    def _call(self) -> str:
        return f"{self.family}.name_matches({quoted(self.regex)})"


class ConditionFamily[C: ArrayCondition](ArrayCondition):
    """The base of a public class that creates conditions. ``C`` is this class itself.

    The variants of a condition are subclasses of the public class. ``example`` names a way to create one.
    """

    __slots__ = ()
    example: ClassVar[str]
    Or: ClassVar[type[AnyOf[Any]]]
    And: ClassVar[type[AllOf[Any]]]
    PathMatches: ClassVar[type[PathMatch]]
    NameMatches: ClassVar[type[NameMatch]]
    _base: ClassVar[type]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if ConditionFamily in cls.__bases__:
            cls._base, cls.family = cls, cls.__name__

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse to create an instance of the public class. Its methods create instances of its variants."""
        if cls is cls._base:
            raise TypeError(f"{cls.family} has no constructor. Use one of its methods, such as {cls.example}")
        return super().__new__(cls)

    @classmethod
    @checked
    def or_conditions(cls, conditions: Sequence[C]) -> C:
        """Return a condition that holds if any of several conditions holds.

        Args:
            conditions: The conditions, all of the same class. Without any, the result never holds.

        Returns:
            The condition.

        Raises:
            TypeError: If one of them is of another class.

        Examples:
            >>> from frazil import ManifestSplitCondition
            >>> names = [ManifestSplitCondition.name_matches(f"^{name}$") for name in ("t2m", "u10")]
            >>> ManifestSplitCondition.or_conditions(names).holds("/model/u10")
            True
        """
        return cast("C", cls.Or(cls._require_same_family(conditions)))

    @classmethod
    @checked
    def and_conditions(cls, conditions: Sequence[C]) -> C:
        """Return a condition that holds if all of several conditions hold.

        Args:
            conditions: The conditions, all of the same class. Without any, the result always holds.

        Returns:
            The condition.

        Raises:
            TypeError: If one of them is of another class.

        Examples:
            >>> from frazil import ManifestPreloadCondition
            >>> time = ManifestPreloadCondition.name_matches("^time$")
            >>> few = ManifestPreloadCondition.num_refs(0, 10)
            >>> ManifestPreloadCondition.and_conditions([time, few]).holds("/time", 5000)
            False
        """
        return cast("C", cls.And(cls._require_same_family(conditions)))

    @classmethod
    def path_matches(cls, regex: str) -> C:
        """Return a condition that holds for arrays whose full path contains a match.

        Args:
            regex: The regular expression, in the syntax of RE2. One that does not compile, for example with
                ``(?=...)``, or has more than 1,000 characters, matches nothing.

        Returns:
            The condition.

        Examples:
            >>> from frazil import ManifestPreloadCondition
            >>> ManifestPreloadCondition.path_matches("^/coords/").holds("/coords/lat")
            True
        """
        return cast("C", cls.PathMatches(regex))

    @classmethod
    def name_matches(cls, regex: str) -> C:
        """Return a condition that holds for arrays whose name contains a match.

        The name is the last part of the path.

        Args:
            regex: The regular expression, in the syntax of RE2. One that does not compile, for example with
                ``(?=...)``, or has more than 1,000 characters, matches nothing.

        Returns:
            The condition.

        Examples:
            >>> from frazil import ManifestSplitCondition
            >>> ManifestSplitCondition.name_matches("^t2m$").holds("/model/t2m")
            True
        """
        return cast("C", cls.NameMatches(regex))

    def __and__(self, other: C) -> C:
        return self.and_conditions([cast("C", self), other])

    def __or__(self, other: C) -> C:
        return self.or_conditions([cast("C", self), other])

    @classmethod
    def _require_same_family(cls, conditions: Sequence[C]) -> tuple[C, ...]:
        """Return the conditions as a tuple. Raise ``TypeError`` if one of them has another class."""
        for condition in conditions:
            if not isinstance(condition, cls._base):
                raise TypeError(f"each condition must be a {cls.family}, got {type(condition).__name__}")
        return tuple(conditions)


#: The usual names of coordinates in the CF conventions and in practice.
COORDINATE_NAMES: Final = (
    r"(?i)^(t|time|min|minute|hour|day|week|month|year|step|valid_time"
    r"|x|i|nlon|rlon|lon|longitude|glam\w*|nav_lon\w*"
    r"|y|j|nlat|rlat|lat|latitude|gphi\w*|nav_lat\w*"
    r"|z|lev|level|levels|nav_lev|depth|height|hght|altitude|sigma|pressure|pres|isobaric\w*)\d*$"
)
#: The expressions of the defaults. Nobody else can change them, and ``re`` matches them in linear time.
_OWN: Final = frozenset((".*", COORDINATE_NAMES))


def matches(regex: str, text: str) -> bool:
    """Return whether a regular expression matches any part of the text."""
    if regex in _OWN:
        return re.search(regex, text) is not None
    from frazil.repository.settings.linear_search import search

    return search(regex, text)


def _require_text(regex: object) -> None:
    if not isinstance(regex, str):
        raise TypeError(f"regex must be a regular expression as str, got {type(regex).__name__}")


def _comma_separated(conditions: Sequence[Any]) -> str:
    return ", ".join(map(repr, conditions))
