"""The arguments of ``frazil ingest``: decorators of click, in the order in which the help shows them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import click

from frazil.cli.argument_types import chunk_sizes, comma_separated, container, filter_keys, reader_option
from frazil.cli.changes import dry_run_option
from frazil.cli.command import LOCATION

MODES: Final = ("create", "append", "insert", "upsert", "backfill")
ENGINES: Final = ("auto", "inline", "local", "spark")

type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _list_of(function: Callable[[str], Any]) -> Callable[..., list[Any]]:
    """Return a callback that converts each value of an option that may be repeated."""
    return lambda _ctx, _param, values: list(map(function, values))


def _value_of(function: Callable[[str], Any], default: Any = None) -> Callable[..., Any]:
    """Return a callback that converts the value of an option."""
    return lambda _ctx, _param, text: default if text is None else function(text)


#: The files, and the place of their data.
_PLACES: Final[tuple[Decorator, ...]] = (
    click.argument("source", nargs=-1, required=True),
    click.argument("repository", type=LOCATION),
    dry_run_option,
    click.option("--inspect", is_flag=True, help="Only print the contents and the problems of the files."),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        default="create",
        help="How the files relate to existing data (create).",
    ),
    click.option("--branch", default="main", help="The branch to commit to (main)."),
    click.option("--group", default="/", help="The group in the repository (/)."),
)
#: Which data are ingested, and in what form.
_CONTENT: Final[tuple[Decorator, ...]] = (
    click.option("--concat-dim", metavar="DIM", help="The dimension along which the files are joined."),
    click.option(
        "--variables",
        metavar="A,B",
        callback=_value_of(comma_separated),
        help="The data variables to ingest (all).",
    ),
    click.option(
        "--chunks",
        metavar="DIM=N,...",
        callback=_value_of(chunk_sizes, {}),
        help="Chunk lengths; -1 is the whole dimension.",
    ),
    click.option(
        "--virtual", is_flag=True, help="Refer to the bytes in the files, and copy only coordinates."
    ),
    click.option(
        "--container",
        metavar="PREFIX",
        multiple=True,
        callback=_list_of(container),
        help="A prefix that virtual chunks may refer to: file:///folder, s3://bucket/prefix, "
        "gs://bucket/prefix or az://account/container/prefix.",
    ),
    click.option("--unpack", is_flag=True, help="Store packed data (scale_factor, add_offset) as values."),
)
#: How the files are read.
_FORMAT: Final[tuple[Decorator, ...]] = (
    click.option("--format", help="The format of the files (recognised from each file)."),
    click.option("--source-group", default="/", metavar="GROUP", help="The group in the files (/)."),
    click.option(
        "--compound",
        type=click.Choice(("skip", "fields")),
        default="skip",
        help="Leave out HDF5 variables of compound types, or make an array of each field (skip).",
    ),
    click.option(
        "--filter-by-keys",
        metavar="KEY=VALUE,...",
        callback=_value_of(filter_keys, {}),
        help="The GRIB fields to ingest: typeOfLevel=surface,stepType=instant (all).",
    ),
    click.option(
        "--reader-option",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_list_of(reader_option),
        help="An option of the reader of the format, VALUE as JSON or text: squeeze=false, page=2.",
    ),
)
#: What happens to files that do not fit, or that have changed.
_PROBLEMS: Final[tuple[Decorator, ...]] = (
    click.option(
        "--on-problem",
        type=click.Choice(("fail", "skip", "quarantine")),
        default="fail",
        help="What happens to files with problems (fail).",
    ),
    click.option(
        "--on-change",
        type=click.Choice(("fail", "ignore", "rewrite")),
        default="fail",
        help="What happens to files that changed since they were ingested (fail).",
    ),
    click.option(
        "--allow",
        metavar="KIND,...",
        callback=_value_of(comma_separated, ()),
        help="Problems to tolerate: values, unordered, overlap, duplicate, hole.",
    ),
)
#: How the ingest runs.
_RUN: Final[tuple[Decorator, ...]] = (
    click.option("--message", help="The message of the commit."),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        help="Where tasks run: in this process (inline), in processes of this machine (local), on Spark "
        "(auto: inline for a few small files, else local).",
    ),
)


def ingest_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of ``frazil ingest`` to the function of the command."""
    decorators = (*_PLACES, *_CONTENT, *_FORMAT, *_PROBLEMS, *_RUN)
    return reduce(lambda inner, decorator: decorator(inner), reversed(decorators), function)
