"""Tables of measurements: medians of each implementation, and ratios within each round.

Machines are shared and the speed of disks varies, so times of different rounds cannot be compared. A ratio
compares two measurements of one round, made one after the other. The median of the ratios is the result, and
the smallest and the largest ratio show how reliable it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from workload import FRAZIL, Medians, Workload

#: The beginning of a section.
_SECTION = "\n### "
#: The note of a table that was measured later, as it was before it became one line.
_LONG_NOTE = re.compile(
    r"Measured later than the other tables:\n\n- Command: (.*)\n- Versions: .*\n- Machine: .*\n"
    r"- Load average: (.*)\n"
)

#: One round: the values of each implementation, by name.
type Round = Mapping[str, Mapping[str, float]]


def section(workload: Workload, rounds: Sequence[Round]) -> Iterable[str]:
    """Yield the lines of a Markdown table for one workload, with a row for each measurement."""
    present = [name for name in workload.implementations if any(name in each for each in rounds)]
    pairs = [pair for pair in workload.pairs() if set(pair) <= set(present)]
    columns = ["", *present]
    for at, (ours, other) in enumerate(pairs):
        columns.append(ratio_column(ours, other))
        if not at:
            columns.append("smallest and largest")
    yield f"### {workload.title}"
    yield ""
    yield row(columns)
    yield row(["---", *["---:"] * (len(columns) - 1)])
    for name in measured(present, rounds):
        cells = [name, *(number(median(values(rounds, who, name))) for who in present)]
        for at, (ours, other) in enumerate(pairs):
            found = ratios(rounds, ours, other, name)
            best = "" if not found else f"{median(found):.2f}"
            cells.append(f"**{best}**" if best and not at else best)
            if not at:
                cells.append(f"{min(found):.2f} – {max(found):.2f}" if len(found) > 1 else "")
        yield row(cells)
    yield ""
    if workload.note is not None and set(present) == set(workload.implementations):
        yield workload.note(medians(present, rounds))
        yield ""
    sizes = ", ".join(f"{size} {name}" for name, size in workload.sizes.items())
    yield f"{workload.run}: {sizes}. Rounds: {len(rounds)}."
    yield ""


def ratio_column(ours: str, other: str) -> str:
    """Return the title of the column with the ratios of two implementations."""
    return f"ratio to {other}" if ours == FRAZIL else f"{ours} / {other}"


def with_sections(text: str, sections: Mapping[str, str], order: Sequence[str]) -> str:
    """Return a report with other sections of some workloads.

    ``sections`` has a text for each title. ``order`` has the titles of all workloads.
    """
    head, *present = _LONG_NOTE.sub(r"Measured later: \1; load average \2.\n", text).split(_SECTION)
    texts = {part.split("\n", 1)[0]: f"{_SECTION[1:]}{part}\n" for part in present} | dict(sections)
    known = [title for title in order if title in texts]
    return "\n".join([head, *(texts[title].rstrip("\n") + "\n" for title in known)])


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
