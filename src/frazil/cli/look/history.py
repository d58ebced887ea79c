"""``frazil history``: the commits that wrote one cell of an array."""

from __future__ import annotations

from typing import Any, Final

import click

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import open_version
from frazil.cli.output import Output, table
from frazil.cli.selections import SELECTION, Indices, Labels
from frazil.cli.target import Target
from frazil.cli.versions import SHORT, clock

_DESCRIPTION: Final = """\
Show all commits that wrote the chunk of one cell, newest first: id, time in UTC, author, message. CELL is an
index for each dimension, separated by commas, or a label for each dimension: NAME=LABEL,... (labels need the
extra `pipeline`). `frazil blame` shows the last commit of every chunk."""

_EXAMPLES: Final = """\
frazil history ice:era5/t 0,1           the cell at an index
frazil history ice@v2:era5/time time=2  the cell at a label, in the history of a tag"""


@verb("history", description=_DESCRIPTION, examples=_EXAMPLES, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@VERSION]:PATH")
@click.argument("cell", type=SELECTION)
def command(output: Output, target: Target, cell: Indices | Labels) -> None:
    """Print the commits."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    if isinstance(cell, tuple) and not all(isinstance(each, int) for each in cell):
        raise click.UsageError("name one cell: an index for each dimension, such as 0,1, or labels")
    version = open_version(target)
    commits = version.repo.history_of(version.path, cell, snapshot_id=version.id)
    documents = list(map(commit_document, commits))
    output.emit(documents, map(output.cut, table(map(commit_row, documents))), pages=True)


def commit_document(commit: Any) -> dict[str, Any]:
    """Return a commit that wrote chunks, in the form that JSON has."""
    return {
        "id": commit.snapshot_id,
        "before": commit.is_before,
        "time": commit.written_at,
        "author": commit.author,
        "job": commit.job,
        "message": commit.message,
    }


def commit_row(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns of a commit: id, time, author, message."""
    return (
        f"{'before ' if document['before'] else ''}{document['id'][:SHORT]}",
        clock(document["time"]),
        document["author"] or "",
        document["message"].partition("\n")[0],
    )
