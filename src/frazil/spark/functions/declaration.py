"""Functions of SQL that change or check a repository: what declares one, and what makes Spark call it.

The Python function is the declaration: its name, and its parameters after the `Call`, with their types and
defaults. Spark may evaluate a function more than once: a task is retried, a DataFrame gets a second action, a
speculative copy of a task runs beside it. So a function has two parts:

    pin    when Spark analyzes the statement, once: the state of the repository that the work starts from
    work   when Spark evaluates it: the work from this state, or the result if the work is done already

The pin makes the second evaluation harmless. A branch moves only from the pinned tip, a tag is created only
at the pinned snapshot, and a commit has the id of the call in its metadata.

The first argument in SQL is the path. Options of the data source are named arguments, with ``_`` instead of
``-``, and the argument ``options`` has several of them as ``name=value``, separated by commas:

    SELECT * FROM frazil_tag('climate', 'v2')
    SELECT * FROM frazil_chunks('s3://bucket/ice', options => 'tag=v1,array=tas')
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.spark.runtime.errors import causes_only
from frazil.spark.tables.options import (
    PLACE_OPTIONS,
    VERSION_OPTIONS,
    Profiles,
    Use,
    advice,
    canonical,
    repository_at,
    timestamp,
)
from frazil.spark.tables.schemas import to_spark

type Pin = Mapping[str, str]
type Rows = Iterator[Mapping[str, Any]]
type Values = Mapping[str, Any]

_USE: Final = Use("a function", PLACE_OPTIONS - frozenset(VERSION_OPTIONS))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function: the repository, the profiles of the session, and the pin."""

    repo: Repository
    profiles: Profiles
    pin: Pin = field(default_factory=dict)


def _time(name: str, value: Any) -> datetime | None:
    if isinstance(value, str):
        return timestamp(value, name)
    # Spark gives a TIMESTAMP as a time of this process's zone, without the zone.
    return value.astimezone(UTC) if isinstance(value, datetime) else None


#: Type of a parameter -> what a value must be, and the conversion of a value of SQL; None for a wrong one.
_KINDS: Final[Mapping[Any, tuple[str, Callable[[str, Any], Any]]]] = {
    str: ("text", lambda name, value: value if isinstance(value, str) else None),
    bool: ("true or false", lambda name, value: {"true": True, "false": False}.get(str(value).lower())),
    datetime: ("a TIMESTAMP, or a time in ISO 8601", _time),
}


@dataclass(frozen=True)
class UpkeepFunction:
    """A function: see the module.

    Attributes:
        work: The Python function. It returns rows as dictionaries.
        schema: The columns of the rows.
        pin: The state that the work starts from: a function of the repository and the values of the
            arguments. The default is nothing.
    """

    work: Callable[..., Rows]
    schema: pa.Schema
    pin: Callable[..., Pin] = lambda repo, **values: {}

    @property
    def name(self) -> str:
        """The name in SQL."""
        return f"frazil_{self.work.__name__}"

    @cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """The arguments after the path."""
        _, *declared = inspect.signature(self.work, eval_str=True).parameters.items()
        return dict(declared)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments, in the order of a call without names."""
        return ("path", *self.arguments)

    def split(self, given: Values) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the options of the location, and the values of the arguments that have one.

        Raises ``InvalidInputError`` for unknown arguments, and for values of a wrong kind.
        """
        options = {name: each for name, each in given.items() if name not in self.arguments}
        known = {*_USE.options, "options"}
        unknown = [name for name in canonical(dict.fromkeys(options, "")) if name not in known]
        if unknown:
            names = [*self.parameters, "options"]
            raise _invalid(
                f"An argument of {self.name} must be one of {', '.join(names)}, or an option of the storage, "
                f"got {unknown[0]}{suggest(unknown[0], names)}"
            )
        values = {
            name: _converted(self.arguments[name], each)
            for name, each in given.items()
            if name in self.arguments and each is not None
        }
        return options_of_call(options, _USE), values

    def with_defaults(self, values: Values) -> dict[str, Any]:
        """Return the values of all arguments. Raise ``InvalidInputError`` for a missing one."""
        defaults = {name: each.default for name, each in self.arguments.items()}
        whole = {**defaults, **values}
        for name, value in whole.items():
            if value is inspect.Parameter.empty:
                raise _invalid(f"{self.name} must have the argument {name}, got none")
        return whole


def _converted(parameter: inspect.Parameter, value: Any) -> Any:
    """Return a value of SQL as a value of Python. Raise ``InvalidInputError`` for one of another kind."""
    kind = parameter.annotation if parameter.annotation in _KINDS else str  # `str | None`
    expected, convert = _KINDS[kind]
    converted = convert(parameter.name, value)
    if converted is None:
        raise _invalid(f"The argument {parameter.name} must be {expected}, got {value!r}")
    return converted


@dataclass
class UpkeepAnalysis(AnalyzeResult):
    """The columns of a function, and the state that its work starts from."""

    pin: Pin = field(default_factory=dict)


def upkeep_udtf(function: UpkeepFunction, profiles: Profiles) -> Any:
    """Return a function of SQL, for the registration with Spark."""
    times = [name for name, each in function.arguments.items() if each.annotation is datetime]
    schema = to_spark(function.schema)

    @causes_only
    class Upkeep:
        """One function: ``analyze`` runs on the driver, ``eval`` in a task."""

        def __init__(self, analysis: UpkeepAnalysis) -> None:
            self._pin = analysis.pin

        @staticmethod
        def analyze(*args: AnalyzeArgument, **kwargs: AnalyzeArgument) -> UpkeepAnalysis:
            given = constants(function.name, function.parameters, args, kwargs, variable=times)
            # Values of expressions are not known yet.
            unset = dict.fromkeys(
                bound(function.name, function.parameters, args, kwargs).keys() - given.keys()
            )
            call, values = called(function, profiles, given, unset)
            return UpkeepAnalysis(schema, pin=function.pin(call.repo, **values))

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, ...]]:
            given = bound(function.name, function.parameters, args, kwargs)
            call, values = called(function, profiles, given)
            for row in function.work(replace(call, pin=self._pin), **values):
                yield tuple(row[name] for name in function.schema.names)

    Upkeep.__name__ = Upkeep.__qualname__ = function.name
    return udtf(Upkeep)


def called(
    function: UpkeepFunction, profiles: Profiles, given: Values, unset: Values | None = None
) -> tuple[Call, dict[str, Any]]:
    """Return a call without its pin, and the values of all arguments."""
    options, values = function.split(given)
    all_values = function.with_defaults({**(unset or {}), **values})
    return Call(repository_at(profiles.resolve(options)), profiles), all_values


def bound[T](
    name: str, parameters: Sequence[str], args: Sequence[T], kwargs: Mapping[str, T]
) -> dict[str, T]:
    """Return the arguments of a call by their names.

    Raises ``InvalidInputError`` for too many arguments, and for two of one name.
    """
    if len(args) > len(parameters):
        raise InvalidInputError(
            f"{name} takes at most {len(parameters)} arguments without a name ({', '.join(parameters)}), got "
            f"{len(args)}",
            ErrorKind.INVALID_ARGUMENT,
        )
    positional = dict(zip(parameters, args, strict=False))
    named = {each.lower(): value for each, value in kwargs.items()}
    twice = sorted(positional.keys() & named.keys())
    if twice:
        raise InvalidInputError(
            f"{name} takes the argument {twice[0]} once, got it with and without its name",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    return positional | named


def constants(
    name: str,
    parameters: Sequence[str],
    args: Sequence[AnalyzeArgument],
    kwargs: Mapping[str, AnalyzeArgument],
    variable: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values of the arguments of a call, without those of ``variable`` that are not constant.

    Raises ``InvalidInputError`` for other arguments that are not constant, as Spark knows their values later.
    """
    arguments = bound(name, parameters, args, kwargs)
    for each, argument in arguments.items():
        if not argument.isConstantExpression and each not in variable:
            raise InvalidInputError(
                f"The argument {each} of {name} must be a constant, got an expression. Write a literal",
                ErrorKind.INVALID_ARGUMENT,
            )
    return {each: argument.value for each, argument in arguments.items() if argument.isConstantExpression}


def options_of_call(arguments: Mapping[str, Any], use: Use) -> dict[str, str]:
    """Return the options of a call: named arguments, and those in the argument ``options``.

    Raises ``InvalidInputError`` for an unknown option (``invalid-argument``), and for an option that is set
    twice (``conflicting-arguments``).
    """
    named = {name.lower(): _text(value) for name, value in arguments.items() if value is not None}
    options = canonical({name: value for name, value in named.items() if name != "options"})
    more = parse_options(named.get("options"), use)
    twice = sorted(options.keys() & more.keys())
    if twice:
        raise InvalidInputError(
            f"An option must be set once, got `{twice[0]}` as an argument and in the argument options",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    _require_options(options, use)
    return options | more


def parse_options(text: str | None, use: Use) -> dict[str, str]:
    """Return options as text."""
    parts = [each.partition("=") for each in (text or "").split(",") if each.strip()]
    without = [name.strip() for name, equal, _ in parts if not equal]
    if without:
        raise InvalidInputError(
            f"An option must be name=value, got `{without[0]}`", ErrorKind.INVALID_ARGUMENT
        )
    options = canonical({name.strip().lower(): value.strip() for name, _, value in parts})
    _require_options(options, use)
    return options


def _require_options(options: Mapping[str, str], use: Use) -> None:
    unknown = [name for name in options if name not in use.options]
    if unknown:
        raise InvalidInputError("; ".join(advice(name, use) for name in unknown), ErrorKind.INVALID_ARGUMENT)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _invalid(text: str) -> InvalidInputError:
    return InvalidInputError(text, ErrorKind.INVALID_ARGUMENT)
