"""Writes the targets of all workloads with their results: how many are met, and each that is missed.

make bench-targets        writes the part again, without a measurement
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from report import number, ratio_column, row
from results import Table, read_tables
from workload import Target, Workload
from workloads import WORKLOADS

TITLE: Final = "\n## Targets\n"


@dataclass(frozen=True, slots=True)
class Result:
    """A target of a workload, with the result of the report. None: the report has no such value."""

    workload: str
    target: Target
    value: float | None

    @property
    def is_missed(self) -> bool:
        return self.value is not None and self.value > self.target.bound

    def cells(self) -> list[str]:
        """Return the workload, the measurement, the result and the target."""
        peer = f" of {self.target.peer}" if self.target.peer else ""
        value = "not measured" if self.value is None else f"{number(self.value)}{peer}"
        return [self.workload, self.target.measurement, value, number(self.target.bound)]


def results_of(workloads: Sequence[Workload], tables: Mapping[str, Table]) -> Iterator[Result]:
    """Yield the results of all targets, in the order of the workloads."""
    for workload in workloads:
        ours = workload.implementations[0]
        table = tables.get(workload.title)
        for target in workload.targets:
            yield Result(workload.title, target, None if table is None else _value(table, target, ours))


def _value(table: Table, target: Target, ours: str) -> float | None:
    if target.peer is None:
        return table.medians.get(target.measurement, {}).get(ours)
    ratio = table.ratios.get(target.measurement, {}).get(ratio_column(ours, target.peer))
    return None if ratio is None else ratio.middle


def with_targets(text: str, tables: Mapping[str, Table], workloads: Sequence[Workload] = WORKLOADS) -> str:
    """Return a report with the part about targets at its end."""
    if not workloads:
        return text
    lines = "\n".join(_lines(list(results_of(workloads, tables)))).rstrip("\n")
    return f"{text.partition(TITLE)[0].rstrip(chr(10))}\n{TITLE}\n{lines}\n"


def _lines(results: Sequence[Result]) -> Iterator[str]:
    missed = [each for each in results if each.is_missed]
    others = [each for each in results if each.value is None]
    met = len(results) - len(missed) - len(others)
    yield f"The results meet {met} of {len(results)} targets and miss {len(missed)}."
    yield "A result is the median of the rounds, and a target is the largest value of a result."
    yield ""
    columns = ["workload", "measurement", "result", "target"]
    for name, group, more in (("Missed", missed, ["what decides the result"]), ("Not measured", others, [])):
        if group:
            yield f"**{name}**"
            yield ""
            yield row([*columns, *more])
            yield row(["---", "---", "---:", "---:", *["---"] * len(more)])
            for each in group:
                yield row(each.cells() + [each.target.limit] * len(more))
            yield ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "RESULTS.md")
    output = parser.parse_args(arguments).output
    tables = read_tables(output.with_name("results.json"))
    output.write_text(with_targets(output.read_text(), tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
