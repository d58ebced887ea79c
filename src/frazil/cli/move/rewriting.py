"""``frazil rechunk`` and ``frazil recompress``: the same values in other chunks, or with other codecs."""

from __future__ import annotations

import json
from typing import Any, Final

import click

import frazil.pipeline
from frazil.cli.argument_types import chunk_sizes
from frazil.cli.changes import dry_run_option, emit_tip, options, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.ingest_arguments import ENGINES
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target

#: Codec -> its configuration for a level.
_CODECS: Final = {
    "zstd": lambda level: {"level": level, "checksum": False},
    "gzip": lambda level: {"level": level},
    "blosc": lambda level: {
        "cname": "zstd",
        "clevel": level,
        "shuffle": "bitshuffle",
        "typesize": 4,
        "blocksize": 0,
    },
}

_arguments: Final = options(
    click.option("-m", "--message", metavar="TEXT", help="The message of the commit."),
    click.option(
        "--engine",
        type=click.Choice(ENGINES[1:]),
        default="inline",
        help="Where tasks run: in this process (inline), in processes of this machine (local), on Spark.",
    ),
    dry_run_option,
)


@verb(
    "rechunk",
    commits=True,
    description="Store arrays in other chunks, in one commit on a branch. CHUNKS is DIM=N,...; -1 is the "
    "whole dimension. With the path of a group, all arrays below it. Values do not change.",
    examples="""\
frazil rechunk ice:era5/t time=-1,x=1            series along time
frazil rechunk ice@dev:era5/t time=2 --dry-run   only rehearse""",
)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@click.argument("chunks")
@click.option("--shards", metavar="DIM=N,...", help="The lengths of shards (no shards).")
@_arguments
def rechunk(output: Output, target: Target, chunks: str, shards: str | None, **settings: Any) -> None:
    """Store the arrays in other chunks."""
    outer = None if shards is None else chunk_sizes(shards)
    _rewrite(output, "rechunk", target, (chunk_sizes(chunks),), settings, shards=outer)


@verb(
    "recompress",
    commits=True,
    description="Store arrays with another compression, in one commit on a branch. CODEC is zstd, gzip or "
    "blosc with a level (zstd:9), `none`, or the metadata of codecs as JSON. Values do not change.",
    examples="""\
frazil recompress ice:era5/t zstd:9            compress better
frazil recompress ice:era5 none --dry-run      without compression, all arrays of a group; only rehearse""",
)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@click.argument("codec")
@_arguments
def recompress(output: Output, target: Target, codec: str, **settings: Any) -> None:
    """Store the arrays with another compression."""
    _rewrite(output, "recompress", target, (codecs_of(codec),), settings)


def codecs_of(text: str) -> list[dict[str, Any]]:
    """Return the metadata of codecs for a name with a level, or for JSON.

    >>> codecs_of("gzip:6"), codecs_of("none")
    ([{'name': 'gzip', 'configuration': {'level': 6}}], [])
    """
    if text == "none":
        return []
    if text.startswith("["):
        try:
            documents: list[dict[str, Any]] = json.loads(text)
        except json.JSONDecodeError as error:
            raise click.UsageError(f"CODEC must be JSON, got {text!r}: {error}") from error
        return documents
    name, _, level = text.partition(":")
    if name not in _CODECS or not (level or "5").isdigit():
        raise click.UsageError(
            f"CODEC must be one of {', '.join(_CODECS)} with a level, none or JSON, got {text!r}"
        )
    return [{"name": name, "configuration": _CODECS[name](int(level or 5))}]


def _rewrite(
    output: Output,
    operation: str,
    target: Target,
    arguments: tuple[Any, ...],
    settings: dict[str, Any],
    **further: Any,
) -> None:
    if target.path is None:
        raise click.UsageError("name an array or a group: LOCATION[@BRANCH]:PATH")
    dry_run = settings["dry_run"]
    repo = writable_repository(target, dry_run)
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    function = getattr(frazil.pipeline, operation)
    source = frazil.pipeline.Version.of(repo, branch=branch)
    with output.progress(operation) as bar:
        function(
            source,
            [target.path],
            *arguments,
            message=settings["message"] or f"{operation.capitalize()} {target.path}",
            engine="inline"
            if dry_run
            else settings["engine"],  # the rehearsal is in the memory of this process
            progress=bar,
            **further,
        )
    emit_tip(output, repo, branch, before, dry_run=dry_run)
