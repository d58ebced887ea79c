"""The values of arguments when Spark analyzes a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.udtf import AnalyzeArgument

from frazil.errors import ErrorKind, InvalidInputError


def bound[T](
    name: str, parameters: Sequence[str], args: Sequence[T], kwargs: Mapping[str, T]
) -> dict[str, T]:
    """Return the arguments of a call by their names.

    Raises ``InvalidInputError`` for too many arguments, and for two of one name.

    >>> bound("frazil_tag", ("path", "name"), ["ice"], {"name": "v1"})
    {'path': 'ice', 'name': 'v1'}
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
