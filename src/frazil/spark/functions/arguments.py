"""Arguments of functions of SQL.

    SELECT * FROM frazil_rows('climate', tag => 'v1', where => 'lat > 0')
    SELECT * FROM frazil_chunks('s3://bucket/ice', options => 'tag=v1,array=tas')

The first argument is the path. Options of the data source are named arguments, with ``_`` instead of ``-``.
The argument ``options`` has several of them as ``name=value``, separated by commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.options import Use, advice, canonical


def options_of_call(arguments: Mapping[str, Any], use: Use) -> dict[str, str]:
    """Return the options of a call: named arguments, and those in the argument ``options``.

    Raises ``InvalidInputError`` for an unknown option (``invalid-argument``), and for an option that is set
    twice (``conflicting-arguments``).

    >>> from frazil.spark.tables.options import READ
    >>> options_of_call({"path": "ice", "options": "tag=v1", "cf": False, "group": None}, READ)
    {'path': 'ice', 'cf': 'false', 'tag': 'v1'}
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
    """Return options as text.

    >>> from frazil.spark.tables.options import READ
    >>> parse_options("tag=v1, array=tas", READ)
    {'tag': 'v1', 'array': 'tas'}
    """
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
