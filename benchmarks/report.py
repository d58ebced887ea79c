"""Tables of measurements: medians of each implementation, and ratios within each round.

Machines are shared and the speed of disks varies, so times of different rounds cannot be compared. A ratio
compares two measurements of one round, made one after the other. The median of the ratios is the result, and
the smallest and the largest ratio show how reliable it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from workload import FRAZIL, Medians, Workload

#: One round: the values of each implementation, by name.
type Round = Mapping[str, Mapping[str, float]]


def table(workload: Workload, rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the table of one workload, as `results.json` has it.

    A ratio is its median, with the smallest and the largest of the rounds if there are several.
    """
    present = [name for name in workload.implementations if any(name in each for each in rounds)]
    pairs = [pair for pair in workload.pairs() if set(pair) <= set(present)]
    names = measured(present, rounds)
    found = {name: {pair: ratios(rounds, *pair, name) for pair in pairs} for name in names}
    middles = medians(present, rounds)
    document: dict[str, Any] = {
        "function": workload.run,
        "sizes": dict(workload.sizes),
        "rounds": len(rounds),
        "medians": {
            name: {who: short(each[name]) for who, each in middles.items() if not math.isnan(each[name])}
            for name in names
        },
        "ratios": {
            name: {ratio_column(*pair): spread(values) for pair, values in by_pair.items() if values}
            for name, by_pair in found.items()
        },
    }
    if workload.note is not None and set(present) == set(workload.implementations):
        document["note"] = workload.note(middles)
    return document


def spread(values: Sequence[float]) -> list[float]:
    """Return the median of the ratios of the rounds, and their smallest and largest if there are several."""
    return [short(each) for each in (median(values), min(values), max(values))[: 3 if len(values) > 1 else 1]]


def short(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def ratio_column(ours: str, other: str) -> str:
    """Return the title of the column with the ratios of two implementations."""
    return f"ratio to {other}" if ours == FRAZIL else f"{ours} / {other}"


def measured(present: Sequence[str], rounds: Sequence[Round]) -> list[str]:
    """Return the names of all measurements."""
    return list(dict.fromkeys(name for who in present for each in rounds for name in each.get(who, ())))


def medians(present: Sequence[str], rounds: Sequence[Round]) -> Medians:
    names = measured(present, rounds)
    return {who: {name: median(values(rounds, who, name)) for name in names} for who in present}


def values(rounds: Sequence[Round], who: str, name: str) -> list[float]:
    return [each[who][name] for each in rounds if name in each.get(who, {})] or [math.nan]


def ratios(rounds: Sequence[Round], ours: str, other: str, name: str) -> list[float]:
    """Return the ratio of one implementation to the other, for each round that has both."""
    return [
        each[ours][name] / each[other][name]
        for each in rounds
        if name in each.get(ours, {}) and name in each.get(other, {}) and each[other][name]
    ]


def number(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
