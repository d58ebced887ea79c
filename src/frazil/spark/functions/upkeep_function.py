"""A function of SQL that changes or checks a repository.

Spark may evaluate a function more than once: a task is retried, a DataFrame gets a second action, a
speculative copy of a task runs beside it. So a function has two parts:

    pin    when Spark analyzes the statement, once: the state of the repository that the work starts from
    work   when Spark evaluates it: the work from this state, or the result if the work is done already

The pin makes the second evaluation harmless. A branch moves only from the pinned tip, a tag is created only
at the pinned snapshot, and a commit has the id of the call in its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.spark.functions.arguments import options_of_call
from frazil.spark.tables.location import PLACE_OPTIONS, VERSION_OPTIONS, timestamp
from frazil.spark.tables.options import Use, canonical
from frazil.spark.tables.profiles import Profiles

type Pin = Mapping[str, str]


class Kind(Enum):
    """The kind of an argument's value."""

    TEXT = "text"
    FLAG = "true or false"
    NUMBER = "a whole number"
    TIME = "a TIMESTAMP, or a time in ISO 8601"


class Required(Enum):
    """The default of an argument that has none."""

    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: its name, its kind, and its default."""

    name: str
    kind: Kind = Kind.TEXT
    default: Any = Required.REQUIRED

    def convert(self, value: Any) -> Any:
        """Return a value of SQL as a value of Python. Raise ``InvalidInputError`` for one of another kind."""
        converted = _CONVERTERS[self.kind](self.name, value)
        if converted is None:
            raise InvalidInputError(
                f"The argument {self.name} must be {self.kind.value}, got {value!r}",
                ErrorKind.INVALID_ARGUMENT,
            )
        return converted


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function: the repository, the values of the arguments, and the pin."""

    repo: Repository
    values: Mapping[str, Any]
    profiles: Profiles
    pin: Pin = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpkeepFunction:
    """A function: see the module.

    Attributes:
        name: The name in SQL.
        arguments: The arguments after the path.
        schema: The columns of the result.
        work: The work of a call. It returns rows as dictionaries.
        pin: The state that the work starts from. The default is nothing.
    """

    name: str
    arguments: tuple[Argument, ...]
    schema: pa.Schema
    work: Callable[[Call], Iterator[Mapping[str, Any]]]
    pin: Callable[[Call], Pin] = lambda call: {}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments, in the order of a call without names."""
        return ("path", *(each.name for each in self.arguments))

    def split(self, values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the options of the location, and the values of the arguments; None means the default.

        Raises ``InvalidInputError`` for unknown arguments, and for values of a wrong kind.
        """
        by_name = {each.name: each for each in self.arguments}
        options = {name: each for name, each in values.items() if name not in by_name}
        unknown = [
            name for name in canonical(dict.fromkeys(options, "")) if name not in {*_USE.options, "options"}
        ]
        if unknown:
            names = [*self.parameters, "options"]
            raise InvalidInputError(
                f"An argument of {self.name} must be one of {', '.join(names)}, or an option of the storage, "
                f"got {unknown[0]}{suggest(unknown[0], names)}",
                ErrorKind.INVALID_ARGUMENT,
            )
        given = {name: values[name] for name in by_name if values.get(name) is not None}
        return options_of_call(options, _USE), {
            name: by_name[name].convert(each) for name, each in given.items()
        }

    def with_defaults(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all arguments. Raise ``InvalidInputError`` for a missing one."""
        missing = [each.name for each in self.arguments if _is_missing(each, values)]
        if missing:
            raise InvalidInputError(
                f"{self.name} must have the argument {missing[0]}, got none", ErrorKind.INVALID_ARGUMENT
            )
        return {**{each.name: each.default for each in self.arguments}, **values}


_USE: Final = Use("a function", PLACE_OPTIONS - frozenset(VERSION_OPTIONS))


def _is_missing(argument: Argument, values: Mapping[str, Any]) -> bool:
    return argument.default is Required.REQUIRED and argument.name not in values


def _text(name: str, value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _flag(name: str, value: Any) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower())


def _number(name: str, value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(name: str, value: Any) -> datetime | None:
    if isinstance(value, str):
        return timestamp(value, name)
    # Spark gives a TIMESTAMP as a time of this process's zone, without the zone.
    return value.astimezone(UTC) if isinstance(value, datetime) else None


_CONVERTERS: Final[Mapping[Kind, Callable[[str, Any], Any]]] = {
    Kind.TEXT: _text,
    Kind.FLAG: _flag,
    Kind.NUMBER: _number,
    Kind.TIME: _time,
}
