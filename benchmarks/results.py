"""Reads the tables of results.json, and compares new measurements with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from report import Round, measured, ratio_column, ratios
from workload import Workload

#: The tolerance of a ratio that was measured once, so that its spread is not known.
UNKNOWN_SPREAD: Final = 0.1


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
        ratios: The ratios by the name of the measurement, then by `report.ratio_column`.
    """

    title: str
    function: str
    sizes: Mapping[str, int]
    variant: str
    medians: Mapping[str, Mapping[str, float]]
    ratios: Mapping[str, Mapping[str, Ratio]]


def read_tables(path: Path) -> dict[str, Table]:
    """Return the tables of a report by title. Without the file, there are none."""
    documents = json.loads(path.read_text()) if path.exists() else {}
    return {title: _table(title, document) for title, document in documents.items()}


def _table(title: str, document: Mapping[str, Any]) -> Table:
    sizes = document["sizes"]
    return Table(
        title,
        document["function"],
        {name: value for name, value in sizes.items() if type(value) is int},
        ", ".join(f"{value} {name}" for name, value in sizes.items() if type(value) is not int),
        document["medians"],
        {
            name: {
                column: Ratio(*found) if found[1:] else Ratio.once(*found) for column, found in each.items()
            }
            for name, each in document["ratios"].items()
        },
    )


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
        old = None if table is None else table.ratios.get(name, {}).get(ratio_column(ours, other))
        yield f"  {name:<40} {_change(old, now)}  of {other}"


def _change(old: Ratio | None, now: Ratio) -> str:
    if old is None:
        return f"   new -> {now.middle:5.2f}"
    mark = "  WORSE" if now.is_above(old) else "  better" if old.is_above(now) else ""
    return f"{old.middle:6.2f} -> {now.middle:5.2f}{mark}"
