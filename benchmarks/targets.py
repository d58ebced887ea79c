"""Writes the targets of all workloads, beside the results that the tables of a report have.

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
TABLES: Final = "\n## Tables\n"


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
            column = ours if target.peer is None else ratio_column(ours, target.peer)
            cells = {} if table is None else table.cells.get(target.measurement, {})
            yield Result(workload.title, target, cells.get(column))


def with_targets(text: str, workloads: Sequence[Workload] = WORKLOADS) -> str:
    """Return a report with the part about targets before its tables."""
    head, mark, rest = text.partition("\n### ")
    if not workloads:
        return text
    head = head.partition(TITLE)[0].rstrip("\n")
    lines = "\n".join(_lines(list(results_of(workloads, read_tables(text)))))
    return f"{head}\n{TITLE}\n{lines}\n{TABLES}{mark}{rest}"


def _lines(results: Sequence[Result]) -> Iterator[str]:
    missed = [each for each in results if each.is_missed]
    others = [each for each in results if each.value is None]
    met = [each for each in results if not each.is_missed and each.value is not None]
    yield f"The results meet {len(met)} of {len(results)} targets and miss {len(missed)}."
    yield "A result is the median of the rounds, and a target is the largest value of a result."
    yield ""
    columns = ["workload", "measurement", "result", "target"]
    for name, group, more in (
        ("Missed", missed, ["what decides the result"]),
        ("Not measured", others, []),
        ("Met", met, []),
    ):
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
    output.write_text(with_targets(output.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
