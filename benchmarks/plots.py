"""Draws costs against sizes: a picture for each function that results.json has with several sizes.

    make bench-plots

A curve is fitted by ``cost = a * n ** b``. The pictures and a table of the exponents ``b`` go to
``docs/pictures`` and to ``benchmarks/COSTS.md``, between its two marks.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from results import Table, read_tables
from svg import panel, picture

ROOT: Final = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- Written by make bench-plots. -->", "<!-- The end of what it writes. -->"
#: The least ratio of the largest to the smallest size: nearer sizes say little about growth.
_RANGE: Final = 8
#: Numbers among the arguments of workloads that are no sizes.
_OPTIONS: Final = {"amending", "split"}
#: Units of measurements that are costs.
_UNITS: Final = (", s", ", ms", ", us", ", MiB", ", KiB", "requests")


@dataclass(frozen=True, slots=True)
class Curve:
    """The costs of one implementation at several sizes."""

    name: str
    sizes: tuple[float, ...]
    costs: tuple[float, ...]

    def fitted(self) -> tuple[float, float]:
        """Return ``a`` and ``b`` of ``cost = a * n ** b``, by least squares of the logarithms."""
        slope, height = np.polyfit(np.log(self.sizes), np.log(self.costs), 1)
        return float(math.exp(height)), float(slope)


@dataclass(frozen=True, slots=True)
class Family:
    """The tables of one function that differ in one size alone.

    ``curves`` has the curves of all implementations by the name of the measurement.
    """

    function: str
    variant: str
    along: str
    curves: Mapping[str, Sequence[Curve]]

    @property
    def file(self) -> str:
        """The name of the picture."""
        words = f"cost {self.function} {self.variant} {self.along}"
        return "-".join("".join(c if c.isalnum() else " " for c in words).split()) + ".svg"

    @property
    def title(self) -> str:
        return f"{self.function}{f' ({self.variant})' if self.variant else ''}, against {self.along}"


def families(tables: Sequence[Table]) -> Iterator[Family]:
    """Yield the families, in the order of the report."""
    groups: defaultdict[tuple[object, ...], dict[int, Table]] = defaultdict(dict)
    for table in tables:
        for along in (name for name in table.sizes if name not in _OPTIONS):
            rest = tuple((name, size) for name, size in table.sizes.items() if name != along)
            groups[table.function, table.variant, along, rest][table.sizes[along]] = table
    for (function, variant, sized, _), by_size in groups.items():
        if max(by_size) >= _RANGE * max(min(by_size), 1) and (
            curves := _curves(dict(sorted(by_size.items())))
        ):
            yield Family(str(function), str(variant), str(sized), curves)


def _curves(tables: Mapping[int, Table]) -> dict[str, list[Curve]]:
    names = dict.fromkeys(name for table in tables.values() for name in table.medians)
    curves = {name: list(_curves_of(name, tables)) for name in names if name.endswith(_UNITS)}
    return {name: found for name, found in curves.items() if found}


def _curves_of(name: str, tables: Mapping[int, Table]) -> Iterator[Curve]:
    rows = {size: table.medians.get(name, {}) for size, table in tables.items()}
    for who in dict.fromkeys(who for row in rows.values() for who in row):
        points = [(float(size), row[who]) for size, row in rows.items() if row.get(who, 0) > 0]
        if len(points) > 1:
            yield Curve(who, *map(tuple, zip(*points, strict=True)))


def draw(family: Family) -> str:
    """Return the picture of a family: one panel for each measurement."""
    panels = []
    for name, curves in family.curves.items():
        lines = []
        for curve in curves:
            a, b = curve.fitted()
            ends = [(n, a * n**b) for n in (curve.sizes[0], curve.sizes[-1])]
            points = list(zip(curve.sizes, curve.costs, strict=True))
            lines.append((f"{curve.name}: b = {b:.2f}", points, ends))
        panels.append(panel(name, family.along, lines))
    return picture(panels)


def described(found: Sequence[Family]) -> str:
    """Return the part of the page: the pictures, and the exponents."""
    lines = []
    for family in found:
        names = dict.fromkeys(curve.name for curves in family.curves.values() for curve in curves)
        lines += [f"### `{family.function}` against {family.along}", ""]
        lines += [f"![Costs of {family.title}](../docs/pictures/{family.file})", ""]
        lines += [f"| exponent b | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
        for name, curves in family.curves.items():
            exponents = {curve.name: f"{curve.fitted()[1]:.2f}" for curve in curves}
            lines.append(f"| {name} | {' | '.join(exponents.get(who, '') for who in names)} |")
        lines += [""]
    return "\n".join(lines)


def with_part(page: str, part: str) -> str:
    """Return the page with another part between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{part}\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    found = list(families(list(read_tables(options.results).values())))
    pictures = options.docs / "pictures"
    for old in pictures.glob("cost-*.svg"):
        old.unlink()
    for family in found:
        (pictures / family.file).write_text(draw(family))
    page = options.docs.parent / "benchmarks" / "COSTS.md"
    page.write_text(with_part(page.read_text(), described(found)))
    print(f"{len(found)} pictures in {pictures}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
