"""Reads the tables of RESULTS.md, and compares new measurements with them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from report import Round, measured, ratios
from workload import Workload

#: The tolerance of a ratio that was measured once, so that its spread is not known.
UNKNOWN_SPREAD: Final = 0.1

_SIZES: Final = re.compile(r"([a-z_]+(?:\.[a-z_]+)+): (.*)\. Rounds: (\d+)\.")
_SPREAD: Final = "smallest and largest"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of a ratio, with the smallest and the largest of the rounds."""

    middle: float
    low: float
    high: float

    @staticmethod
    def of(found: Sequence[float]) -> Ratio:
        """Return the ratio of some rounds."""
        if len(found) < 2:
            return Ratio.once(found[0])
        return Ratio(median(found), min(found), max(found))

    @staticmethod
    def once(value: float) -> Ratio:
        """Return a ratio of one round."""
        return Ratio(value, value * (1 - UNKNOWN_SPREAD), value * (1 + UNKNOWN_SPREAD))

    def is_above(self, other: Ratio) -> bool:
        """Whether all rounds were above all rounds of the other ratio."""
        return self.low > other.high


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the report.

    Attributes:
        function: The function that was measured.
        sizes: The numbers among its arguments, by name.
        variant: The other arguments, as text.
        medians: The medians by the name of the measurement, then by implementation.
        ratios: The first ratio of each measurement.
        cells: The numbers by the name of the measurement, then by the title of the column.
    """

    title: str
    function: str
    sizes: Mapping[str, int]
    variant: str
    medians: Mapping[str, Mapping[str, float]]
    ratios: Mapping[str, Ratio]
    cells: Mapping[str, Mapping[str, float]]


def read_tables(text: str) -> dict[str, Table]:
    """Return the tables of a report by title."""
    sections = (part.split("\n", 1) for part in text.split("\n### ")[1:])
    return {title: table for title, body in sections if (table := _table(title, body)) is not None}


def _table(title: str, body: str) -> Table | None:
    lines = [_cells(line) for line in body.splitlines() if line.startswith("|")]
    sizes = _SIZES.search(body)
    if len(lines) < 3 or sizes is None:
        return None
    names, rows = lines[0], lines[2:]
    first = next((at for at, name in enumerate(names) if "ratio to" in name or " / " in name), len(names))
    end = names.index("expected") if "expected" in names[:first] else first
    cells = {
        row[0]: {
            name: number
            for name, cell in zip(names, row, strict=True)
            if not math.isnan(number := _number(cell))
        }
        for row in rows
    }
    medians = {
        name: {column: each[column] for column in names[1:end] if column in each}
        for name, each in cells.items()
    }
    numbers, variant = _arguments(sizes[2])
    return Table(title, sizes[1], numbers, variant, medians, dict(_ratios(names, rows, first)), cells)


def _ratios(names: Sequence[str], rows: Sequence[Sequence[str]], at: int) -> Iterator[tuple[str, Ratio]]:
    for row in rows if at < len(names) else ():
        middle = _number(row[at])
        if math.isnan(middle):
            continue
        spread = row[at + 1].split(" – ") if _SPREAD in names else []
        yield row[0], Ratio(middle, *map(_number, spread)) if len(spread) == 2 else Ratio.once(middle)


def _arguments(text: str) -> tuple[dict[str, int], str]:
    """Return the numbers by name, and the rest of the text of a workload's arguments."""
    parts = [part.split(" ", 1) for part in text.split(", ") if " " in part]
    numbers = {name: int(value) for value, name in parts if value.isdigit()}
    return numbers, ", ".join(f"{value} {name}" for value, name in parts if not value.isdigit())


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _number(text: str) -> float:
    try:
        return float(text.strip("* ").replace(",", ""))
    except ValueError:
        return math.nan


def trends(workload: Workload, rounds: Sequence[Round], before: Mapping[str, Table]) -> Iterator[str]:
    """Yield a line for each first ratio of a workload: before, now, and whether it became worse."""
    pairs = workload.pairs()
    if not pairs or not rounds:
        return
    ours, other = pairs[0]
    table = before.get(workload.title)
    for name in measured(workload.implementations, rounds):
        values = ratios(rounds, ours, other, name)
        if not values:
            continue
        now = Ratio.of(values)
        old = None if table is None else table.ratios.get(name)
        yield f"  {name:<40} {_change(old, now)}  of {other}"


def _change(old: Ratio | None, now: Ratio) -> str:
    if old is None:
        return f"   new -> {now.middle:5.2f}"
    mark = "  WORSE" if now.is_above(old) else "  better" if old.is_above(now) else ""
    return f"{old.middle:6.2f} -> {now.middle:5.2f}{mark}"
