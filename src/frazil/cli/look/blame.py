"""``frazil blame``: the commits that wrote the chunks of an array."""

from __future__ import annotations

from typing import Any, Final

import click
import numpy as np

from frazil.cli.command import target_argument, verb
from frazil.cli.look.history import commit_document, commit_row
from frazil.cli.opening import open_version
from frazil.cli.output import Output, table
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Show which commits wrote the chunks of an array last: id, time in UTC, number of chunks, author, message,
newest first. The command reads transaction logs, and no chunk."""

_EXAMPLES: Final = """\
frazil blame ice:era5/t            the commits of `main`
frazil blame ice@v2:era5/t --chunks  also the indices of their chunks"""


@verb("blame", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION[@VERSION]:PATH")
@click.option("--chunks", is_flag=True, help="Also print the indices of the chunks.")
def command(output: Output, target: Target, chunks: bool) -> None:
    """Print the commits."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    version = open_version(target)
    blame = version.repo.history.blame(version.path, snapshot_id=version.id)
    counts = np.bincount(blame.number, minlength=len(blame.commits)).tolist()
    indices: list[Any] = [[]] * len(counts)
    if chunks or output.as_json:
        order = np.argsort(blame.number, kind="stable")
        indices = [
            part.tolist() for part in np.split(blame.index[order], np.cumsum(counts)[:-1])[: len(counts)]
        ]
    documents: list[dict[str, Any]] = [
        {
            **commit_document(each),
            "chunks": count,
            "indices": index,
        }
        for each, count, index in zip(blame.commits, counts, indices, strict=True)
    ]
    rows = table(map(_row, documents))
    lines = []
    for row, each in zip(rows, documents, strict=True):
        lines.append(output.cut(row))
        lines += [f"    {','.join(map(str, index))}" for index in each["indices"]] if chunks else []
    output.emit(documents, lines, pages=True)


def _row(document: dict[str, Any]) -> tuple[str, ...]:
    id_, time, author, message = commit_row(document)
    return (id_, time, f"{document['chunks']:,}", author, message)
