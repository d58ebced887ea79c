"""Histories as tables, for notebooks and consoles. A table reads its first rows when it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import islice
from typing import Final

from frazil.display import PACKAGE
from frazil.repository.catalog.ops_values import Update
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.handle.graph import first_line

#: How many rows of a history are shown.
ROWS: Final = 20

type Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A heading, the names of columns, and a function that reads the rows."""

    heading: str
    columns: Row
    rows: Callable[[], Iterable[Row]]

    def _first(self) -> tuple[list[Row], bool]:
        """Return the rows to show, and whether there are more."""
        rows = list(islice(self.rows(), ROWS + 1))
        return rows[:ROWS], len(rows) > ROWS

    def __str__(self) -> str:
        rows, more = self._first()
        widths = [max(map(len, column)) for column in zip(self.columns, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (self.columns, *rows)
        ]
        return "\n".join([f"<{PACKAGE}: {self.heading}>", *lines, *(["..."] if more else [])])

    def html(self) -> str:
        """Return the table as HTML for a notebook, in the colours of its page."""
        rows, more = self._first()
        shown = [*rows, ("...",) * len(self.columns)] if more else rows
        head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td style="text-align: left">{escape(cell)}</td>' for cell in row)}</tr>"
            for row in shown
        )
        return (
            f"<div><div>{escape(self.heading)}</div><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        )


def snapshots_table(heading: str, snapshots: Callable[[], Iterable[SnapshotInfo]]) -> HistoryTable:
    """Return a table of snapshots: id, time and message."""
    return HistoryTable(
        heading,
        ("id", "written at (UTC)", "message"),
        lambda: ((each.id, _time(each.written_at), first_line(each.message)) for each in snapshots()),
    )


def updates_table(heading: str, updates: Callable[[], Iterable[Update]]) -> HistoryTable:
    """Return a table of operations: time and kind."""
    return HistoryTable(
        heading,
        ("time (UTC)", "operation"),
        lambda: ((_time(each.updated_at), _operation(each)) for each in updates()),
    )


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _operation(update: Update) -> str:
    """Return the operation as text, such as ``NewCommit(branch="main", new_snap_id=...)``."""
    return first_line(repr(update.kind).rpartition("UpdateType.")[2])
