"""The types of arguments of the command line: functions from a text to a value."""

from __future__ import annotations

import json
from typing import Any

import click

from frazil.errors import InvalidInputError
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.urls import parse_url


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the parts of ``A,B``."""
    return tuple(filter(None, text.split(",")))


def chunk_sizes(text: str) -> dict[str, int]:
    """Return the sizes of ``DIM=N,...``.

    >>> chunk_sizes("time=24,lat=-1")
    {'time': 24, 'lat': -1}
    """
    pairs = [each.partition("=") for each in comma_separated(text)]
    try:
        return {name.strip(): int(size) for name, _, size in pairs}
    except ValueError:
        raise click.BadParameter(f"must be DIM=NUMBER,..., got {text!r}") from None


def reader_option(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``KEY=VALUE``; the value is JSON, or text.

    >>> reader_option("squeeze=false"), reader_option('time_dims=["valid_time"]'), reader_option("name=t2m")
    (('squeeze', False), ('time_dims', ['valid_time']), ('name', 't2m'))
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.BadParameter(f"must be KEY=VALUE, got {text!r}")
    return name.strip(), _json_or_text(value.strip())


def filter_keys(text: str) -> dict[str, Any]:
    """Return the keys and values of ``KEY=VALUE,...``.

    >>> filter_keys("typeOfLevel=heightAboveGround,level=2")
    {'typeOfLevel': 'heightAboveGround', 'level': 2}
    """
    return dict(map(reader_option, comma_separated(text)))


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def container(prefix: str) -> VirtualChunkContainer:
    """Return the container for a prefix of URLs.

    >>> container("file:///data/era5").url_prefix
    'file:///data/era5/'
    """
    try:
        url = parse_url(prefix)
        if "://" in prefix:
            return VirtualChunkContainer(url.chunk_location.rstrip("/") + "/", url.store_config())
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from error
    raise click.BadParameter(f"must be a prefix of URLs, such as {url.url}, got {prefix!r}")
