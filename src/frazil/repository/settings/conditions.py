r"""Conditions on arrays and dimensions, as values: which manifests to preload, how to split them.

A regular expression matches if any part of the text matches it. An expression that does not compile matches
nothing, because another implementation may have written it in its own dialect.

Anyone who can write to a repository chooses these expressions, and Python's ``re`` needs exponential time for
some of them. RE2 needs linear time, and its memory has a limit. It knows ``\d``, ``\s`` and ``\w`` for ASCII
alone: for other texts, an expression gets the classes of Unicode in their place, as in the reference. There,
``\b`` takes only ASCII for letters; so do ``\D``, ``\S`` and ``\W`` in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, index
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, override

from frazil.arguments import checked
from frazil.display import PACKAGE, Family, Numbered, literal
from frazil.lazy_names import ModuleOnDemand
from frazil.options import unsigned

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # it ships no types
else:
    re2 = ModuleOnDemand("re2")

#: A longer expression matches nothing.
_LONGEST: Final = 1000
#: The most memory for one expression, in bytes. One that needs more matches nothing.
_MEMORY: Final = 1 << 18
#: An escape, a bracket of a class, or one character.
_TOKENS: Final = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|\[\^?\]?|\[:\^?\w+:\]|.", re.DOTALL)
#: The classes of Unicode. In brackets they stand without their own brackets.
_CLASSES: Final[Mapping[str, str]] = {
    r"\d": r"\p{Nd}",
    r"\s": r"\s\v\p{Z}\x{85}",
    r"\w": r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}",
}
_NEGATED: Final[Mapping[str, str]] = {name.upper(): members for name, members in _CLASSES.items()}


@lru_cache(maxsize=1)
def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.never_capture = True
    options.log_errors = False
    return options


@lru_cache(maxsize=1024)
def _compiled(regex: str, is_ascii: bool) -> Any:
    """Return the expression for texts of ASCII, or for others; None if it does not compile."""
    try:
        return re2.compile(_translated(regex, is_ascii), _options()) if len(regex) <= _LONGEST else None
    except (re2.error, UnicodeEncodeError):  # half of a surrogate pair is no character
        return None


def _translated(regex: str, is_ascii: bool) -> str:
    """Return an expression of RE2 with the same meaning."""
    parts = []
    is_inside = False
    for token in _TOKENS.findall(regex):
        if token.startswith(r"\u") and len(token) > 2:
            parts.append(rf"\x{{{token[2:]}}}")
        elif not is_ascii and token in _CLASSES:
            parts.append(_CLASSES[token] if is_inside else f"[{_CLASSES[token]}]")
        elif not is_ascii and not is_inside and token in _NEGATED:
            parts.append(f"[^{_NEGATED[token]}]")
        else:
            parts.append(token)
            is_inside = token != "]" if is_inside else token.startswith("[")
    return "".join(parts)


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
    pattern = _compiled(regex, text.isascii())
    try:
        return pattern is not None and pattern.search(text) is not None
    except UnicodeEncodeError:
        return False


class CallShown(Numbered):
    """A value whose ``repr`` is a call of the public interface."""

    __slots__ = ()

    def _name(self) -> str:
        return type(self).__qualname__

    def __repr__(self) -> str:
        values = [getattr(self, name) for name in self.__match_args__]
        shown = (literal(list(each) if isinstance(each, tuple) else each) for each in values)
        return f"{PACKAGE}.config.{self._name()}({', '.join(shown)})"


class ArrayCondition(CallShown):
    """A condition on an array.

    ``family`` is the name of the public class that creates it, ``method`` the name of its method that does.
    """

    __slots__ = ()
    family: ClassVar[str]
    method: ClassVar[str]
    constant: ClassVar[bool] = True

    def holds(self, path: str, num_refs: int = 0) -> bool:
        """Return whether the condition holds for an array.

        Args:
            path: The full path of the array.
            num_refs: The number of chunk references in its manifests.

        Returns:
            True if the condition holds. A condition without fields has a constant answer.
        """
        return self.constant

    def _name(self) -> str:
        return f"{self.family}.{self.method}"


@dataclass(frozen=True, slots=True, repr=False)
class AnyOf[C: ArrayCondition](ArrayCondition):
    """A condition that holds if any of several conditions holds; without any, it never holds."""

    conditions: tuple[C, ...]
    method: ClassVar[str] = "or_conditions"

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return any(condition.holds(path, num_refs) for condition in self.conditions)


@dataclass(frozen=True, slots=True, repr=False)
class AllOf[C: ArrayCondition](AnyOf[C]):
    """A condition that holds if all of several conditions hold; without any, it always holds."""

    method = "and_conditions"

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return all(condition.holds(path, num_refs) for condition in self.conditions)


@dataclass(frozen=True, slots=True, repr=False)
class PathMatch(ArrayCondition):
    """A condition that holds if the full path of the array contains a match of a regular expression."""

    regex: str
    method: ClassVar[str] = "path_matches"

    def __post_init__(self) -> None:
        if not isinstance(self.regex, str):
            raise TypeError(f"regex must be a regular expression as str, got {type(self.regex).__name__}")

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return matches(self.regex, path)


@dataclass(frozen=True, slots=True, repr=False)
class NameMatch(PathMatch):
    """A condition that holds if the name of the array contains a match of a regular expression."""

    method = "name_matches"

    @override
    def holds(self, path: str, num_refs: int = 0) -> bool:
        return matches(self.regex, path.rpartition("/")[2])


_VARIANTS: Final[Mapping[str, type[ArrayCondition]]] = {
    "Or": AnyOf,
    "And": AllOf,
    "PathMatches": PathMatch,
    "NameMatches": NameMatch,
}


class ConditionFamily[C: ArrayCondition](ArrayCondition):
    """The base of a public class that creates conditions. ``C`` is this class itself.

    The variants of a condition are subclasses of the public class. ``example`` names a way to create one.
    """

    __slots__ = ()
    family: ClassVar[str]
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
            for name, variant in _VARIANTS.items():
                namespace = {"__slots__": (), "__module__": cls.__module__, "__doc__": variant.__doc__}
                names = {"__qualname__": f"{cls.__name__}.{name}"}
                setattr(cls, name, type(name, (variant, cls), namespace | names))

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


class ManifestPreloadCondition(ConditionFamily["ManifestPreloadCondition"]):
    """A condition on arrays whose manifests are loaded when a session opens.

    The class methods and the static methods create conditions. ``|`` and ``&`` combine conditions.

    Examples:
        >>> time = ManifestPreloadCondition.name_matches("^time$")
        >>> few = ManifestPreloadCondition.num_refs(None, 10)
        >>> few.holds("/t", 9), few.holds("/t", 10), (time | few).holds("/group/time", 5000)
        (True, False, True)
        >>> ManifestPreloadCondition.and_conditions([time, few]).holds("/time", 5000)
        False
        >>> ManifestPreloadCondition.or_conditions([time, few]) == time | few
        True
        >>> ManifestPreloadCondition.path_matches("^/coords/").holds("/coords/lat")
        True
        >>> ManifestPreloadCondition.true().holds("/t"), ManifestPreloadCondition.false().holds("/t")
        (True, False)
    """

    __slots__ = ()
    example = "and_conditions"

    NumRefs: ClassVar[type[PreloadNumRefs]]

    @staticmethod
    def num_refs(from_refs: int | None, to_refs: int | None) -> ManifestPreloadCondition:
        """Return a condition on the number of chunk references of an array.

        Args:
            from_refs: The smallest number. None: no lower bound.
            to_refs: The end of the range, which is not included. None: no upper bound.

        Returns:
            The condition.
        """
        return PreloadNumRefs(from_refs, to_refs)

    @staticmethod
    def true() -> ManifestPreloadCondition:
        """Return a condition that always holds.

        Returns:
            The condition.
        """
        return PreloadTrue()

    @staticmethod
    def false() -> ManifestPreloadCondition:
        """Return a condition that never holds.

        Returns:
            The condition.
        """
        return PreloadFalse()


@dataclass(frozen=True, slots=True, repr=False)
class PreloadNumRefs(ManifestPreloadCondition):
    """A range of the number of chunk references. ``to_refs`` is not included; None is no bound."""

    from_refs: int | None
    to_refs: int | None
    method = "num_refs"

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


@dataclass(frozen=True, slots=True, repr=False)
class PreloadTrue(ManifestPreloadCondition):
    """The condition that always holds."""

    method = "true"


@dataclass(frozen=True, slots=True, repr=False)
class PreloadFalse(ManifestPreloadCondition):
    """The condition that never holds."""

    method = "false"
    constant = False


ManifestPreloadCondition.NumRefs = PreloadNumRefs
# Names of the reference implementation that are keywords of Python.
setattr(PreloadNumRefs, "from", property(attrgetter("from_refs")))
setattr(ManifestPreloadCondition, "True", PreloadTrue)
setattr(ManifestPreloadCondition, "False", PreloadFalse)


class ManifestSplitCondition(ConditionFamily["ManifestSplitCondition"]):
    """A condition on arrays for a rule of manifest splitting.

    The class methods create conditions. ``|`` and ``&`` combine conditions.

    Examples:
        >>> model = ManifestSplitCondition.path_matches("^/model/")
        >>> names = [ManifestSplitCondition.name_matches(f"^{name}$") for name in ("t2m", "u10")]
        >>> ManifestSplitCondition.and_conditions([model, names[0]]).holds("/model/u10")
        False
        >>> ManifestSplitCondition.or_conditions(names).holds("/model/u10")
        True
        >>> ManifestSplitCondition.AnyArray().holds("/t2m")
        True
    """

    __slots__ = ()
    example = "AnyArray"

    #: Every array.
    AnyArray: ClassVar[type[SplitAnyArray]]


@dataclass(frozen=True, slots=True, repr=False)
class SplitAnyArray(ManifestSplitCondition):
    """The condition that holds for every array."""

    method = "AnyArray"


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

    @dataclass(frozen=True, slots=True, repr=False)
    class DimensionName(CallShown):
        """The dimensions whose name contains a match of the regular expression."""

        regex: str

        def holds(self, axis: int, name: str | None) -> bool:
            """Return whether the condition holds for the dimension at position ``axis`` with this name."""
            return name is not None and matches(self.regex, name)

    @dataclass(frozen=True, slots=True, repr=False)
    class Any(CallShown):
        """Every dimension."""

        def holds(self, axis: int, name: str | None) -> bool:
            """Return True."""
            return True


AnyDimCondition = (
    ManifestSplitDimCondition.Axis | ManifestSplitDimCondition.DimensionName | ManifestSplitDimCondition.Any
)
