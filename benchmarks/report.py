"""Tables of what was measured: medians of each implementation, and ratios within each round.

Machines are shared and disks have moods, so seconds of different rounds say little together. A ratio is
taken between two measurements of one round, made one after the other; the median of the ratios is what
counts, and the smallest and largest say how far to trust it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from workloads import FRAZIL, REFERENCE, Workload

#: One round: what each implementation measured.
type Round = Mapping[str, Mapping[str, float]]


def section(workload: Workload, rounds: Sequence[Round]) -> Iterable[str]:
    """A table of one workload in Markdown; a row for each measurement."""
    present = [name for name in workload.implementations if any(name in each for each in rounds)]
    others = [name for name in present if name not in (FRAZIL, REFERENCE)]
    compared = REFERENCE in present and FRAZIL in present
    columns = ["", *present]
    if compared:
        columns += ["ratio to icechunk", "smallest and largest", "expected"]
    columns += [f"ratio to {name}" for name in others]
    yield f"### {workload.title}"
    yield ""
    yield row(columns)
    yield row(["---", *["---:"] * (len(columns) - 1)])
    for name in next(each[FRAZIL] for each in rounds if FRAZIL in each):
        cells = [name, *(number(median(values(rounds, who, name))) for who in present)]
        if compared:
            found = ratios(rounds, REFERENCE, name)
            bound = workload.expected.get(name)
            cells += [
                f"**{median(found):.2f}**" if found else "",
                f"{min(found):.2f} – {max(found):.2f}" if len(found) > 1 else "",
                "" if bound is None else f"at most {bound}",
            ]
        for other in others:
            found = ratios(rounds, other, name)
            cells.append(f"{median(found):.2f}" if found else "")
        yield row(cells)
    yield ""
    sizes = ", ".join(f"{size} {name}" for name, size in workload.sizes.items())
    yield f"{workload.run}: {sizes}. Rounds: {len(rounds)}."
    yield ""


def values(rounds: Sequence[Round], who: str, name: str) -> list[float]:
    return [each[who][name] for each in rounds if name in each.get(who, {})] or [math.nan]


def ratios(rounds: Sequence[Round], other: str, name: str) -> list[float]:
    """Of Frazil to the other, in each round that has both."""
    return [
        each[FRAZIL][name] / each[other][name]
        for each in rounds
        if FRAZIL in each and name in each.get(other, {}) and each[other][name]
    ]


def missed(workload: Workload, rounds: Sequence[Round]) -> Iterable[str]:
    """Expectations that do not hold."""
    for name, bound in workload.expected.items():
        found = ratios(rounds, REFERENCE, name)
        if found and median(found) > bound:
            yield f"{workload.title}: {name}: {median(found):.2f} of icechunk, expected at most {bound}"


def number(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
