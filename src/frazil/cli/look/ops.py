"""``frazil ops``: all operations on a repository, newest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from enum import Enum
from itertools import islice, takewhile
from typing import Any, Final

import click

from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.times import TIME_AGO
from frazil.cli.versions import SHORT, clock
from frazil.repository.catalog.ops_values import Update

_DESCRIPTION: Final = """\
Show the operations log, newest first: time in UTC, kind, and details such as the branch and the version. It
has every change of the repository: commits, branches, tags, configuration, status, collections,
expirations."""

_EXAMPLES: Final = """\
frazil ops ice -n 20        the newest twenty operations
frazil ops ice --since 1d   the operations of the last day
frazil ops ice --json       for programs"""

_WORD_BEGIN: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=C)(?=Ran)")
_IDS: Final = ("new_snap_id", "previous_snap_id")


@verb("ops", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@click.option("-n", "--number", type=click.IntRange(min=1), metavar="N", help="Show at most N operations.")
@click.option(
    "--since", type=TIME_AGO, metavar="TIME", help="Only operations from TIME on: 2026-11-01, 7d, 12h."
)
def command(output: Output, target: Target, number: int | None, since: datetime | None) -> None:
    """Print the operations."""
    updates: Iterator[Update] = iter(repository_of(target).ops_log())
    if since is not None:
        updates = takewhile(lambda each: each.updated_at >= since, updates)
    documents = map(update_document, islice(updates, number))
    if output.as_json:
        output.emit(list(documents), ())
    else:
        output.emit(None, (output.cut(_line(each)) for each in documents), pages=True)


def update_document(update: Update) -> dict[str, Any]:
    """Return one operation in the form that JSON has."""
    kind = _WORD_BEGIN.sub("-", type(update.kind).__name__).lower()
    details = {each.name: _detail(getattr(update.kind, each.name)) for each in fields(update.kind)}
    return {"time": update.updated_at, "operation": kind, **details}


def _detail(value: Any) -> Any:
    """Return a detail of an operation; a status is its availability and its reason."""
    if hasattr(value, "availability"):
        reason = value.limited_availability_reason
        return f"{value.availability.name}{f': {reason}' if reason else ''}"
    return value.name if isinstance(value, Enum) else value


def _line(document: dict[str, Any]) -> str:
    details = [
        f"{name.replace('_snap_id', '')} {value[:SHORT] if name in _IDS else value}"
        for name, value in document.items()
        if name not in ("time", "operation")
    ]
    return f"{clock(document['time'])}  {document['operation']:<21}  {', '.join(details)}".rstrip()
