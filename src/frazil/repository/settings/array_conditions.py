"""The common parts of all conditions on arrays: or, and, paths, names.

Conditions are frozen, compare by value, and can be keys of a dictionary. A regular expression matches if any
part of the text matches it. An expression that does not compile matches nothing, because another
implementation may have written it in its own dialect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, override

from frazil.display import PACKAGE, Numbered, quoted


class CallShown(Numbered):
    """A value whose ``repr`` is a call of the public interface."""

    __slots__ = ()

    def _call(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{PACKAGE}.config.{self._call()}"


class ArrayCondition(CallShown):
    """A condition on an array. ``family`` is the public class that creates it."""

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


def matches(regex: str, text: str) -> bool:
    """Return whether a regular expression matches any part of the text."""
    pattern = _compiled(regex)
    return pattern is not None and pattern.search(text) is not None


def require_conditions[C: ArrayCondition](kind: type[C], conditions: Sequence[C]) -> tuple[C, ...]:
    """Return the conditions as a tuple. Raise ``TypeError`` if one of them has another class."""
    for condition in conditions:
        if not isinstance(condition, kind):
            raise TypeError(f"each condition must be a {kind.__name__}, got {type(condition).__name__}")
    return tuple(conditions)


def no_constructor(cls: type, example: str) -> TypeError:
    """Return the error for calling a class that only has static methods."""
    return TypeError(f"{cls.__name__} has no constructor. Use one of its static methods, such as {example}")


@lru_cache(maxsize=1024)
def _compiled(regex: str) -> re.Pattern[str] | None:
    try:
        return re.compile(regex)
    except re.error:
        return None


def _require_text(regex: object) -> None:
    if not isinstance(regex, str):
        raise TypeError(f"regex must be a regular expression as str, got {type(regex).__name__}")


def _comma_separated(conditions: Sequence[Any]) -> str:
    return ", ".join(map(repr, conditions))
