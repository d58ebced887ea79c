"""The coordinates that several families of files share: one array has the values of all families.

Files with different variables may have a scalar or a time with the same name and other values, such as the
height of 2 m for a temperature and of 10 m for a wind. One array cannot hold both, so files that differ from
earlier files get objections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.axis import Axis, Pieces, runs
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.step_order import Objection, Steps
from frazil.pipeline.ingest.time_units import TimeUnits, scalar_values

_OTHER: Final = "{} has other values, unlike files with other variables"


def different_constants(
    inspection: Inspection, families: Sequence[Family], units: TimeUnits
) -> list[Objection]:
    """Return objections to files whose constant scalars and times differ from an earlier family."""
    expected: dict[str, tuple[Any, bool]] = {}
    objections = []
    for family in families:
        mine: dict[str, tuple[Any, bool]] = {}
        for name in sorted(family.layout.individual):
            values = values_by_file(inspection, family.files[:1], name, units)
            if values is not None:
                mine[name] = (values, name in family.along)
        wrong = [
            name
            for name, (values, along) in mine.items()
            if name in expected and (not along or not expected[name][1])
            if along != expected[name][1] or not same(values, expected[name][0]).all()
        ]
        if wrong:
            text = _OTHER.format(", ".join(wrong))
            objections += [Objection(file, "values", text) for file in family.files.tolist()]
        else:
            expected = {**mine, **expected}
    return objections


def different_steps(
    inspection: Inspection,
    families: Sequence[Family],
    units: TimeUnits,
    start: NDArray[np.int64],
    key: NDArray[Any],
) -> list[Objection]:
    """Return objections to files whose scalars along the dimension differ from an earlier family.

    File ``i`` has the rows ``start[i]:start[i + 1]`` of ``key``. Steps with equal keys are compared.
    """
    objections = []
    counts = np.diff(start)
    for name in _in_several(families):
        values: list[NDArray[Any]] = []
        keys: list[NDArray[Any]] = []
        for family in families:
            if name not in family.along:
                continue
            column = values_by_file(inspection, family.files, name, units)
            if column is None:
                continue
            rows = np.repeat(start[family.files], counts[family.files]) + _inside(counts[family.files])
            mine, places = np.repeat(column, counts[family.files]), key[rows]
            if values:
                earlier, first = np.unique(np.concatenate(keys), return_index=True)
                at = np.minimum(np.searchsorted(earlier, places), len(earlier) - 1)
                differs = (earlier[at] == places) & ~same(np.concatenate(values)[first[at]], mine)
                wrong = np.unique(np.repeat(family.files, counts[family.files])[differs])
                text = _OTHER.format(name)
                objections += [Objection(file, "values", text) for file in wrong.tolist()]
            values.append(mine)
            keys.append(places)
    return objections


def _in_several(families: Sequence[Family]) -> list[str]:
    """Return the names of variables that several families have along the dimension."""
    count: dict[str, int] = {}
    for family in families:
        for name in family.along & family.layout.individual:
            count[name] = count.get(name, 0) + 1
    return sorted(name for name, many in count.items() if many > 1)


def _inside(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of steps of each file, from 0 on, file by file."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def values_by_file(
    inspection: Inspection, files: NDArray[np.int64], name: str, units: TimeUnits
) -> NDArray[Any] | None:
    """Return a value, or a digest of values, for each file; None if digests of times have different units."""
    if name in inspection.scalars and all(each is not None for each in inspection.scalars[name][files]):
        values, inexact = scalar_values(inspection, name, files, units)
        return np.array(inspection.scalars[name][files].tolist()) if inexact.any() else values
    codes, rows = np.unique(inspection.individual[files], return_inverse=True)
    digests = [dict(inspection.individuals[code]).get(name) for code in codes.tolist()]
    has_conversion = any(
        name in units.conversions.get(code, {}) for code in np.unique(inspection.encodings[files]).tolist()
    )
    return None if has_conversion or None in digests else np.array(digests)[rows]


def same(values: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the values that are equal, or are both NaN.

    >>> same(np.array([1, np.nan, 3]), np.array([1, np.nan, 4])).tolist()
    [True, True, False]
    """
    equal: NDArray[np.bool_] = np.asarray(values == others, np.bool_)
    if values.dtype.kind == others.dtype.kind == "f":
        equal |= np.isnan(values) & np.isnan(others)
    return equal


def joined_pieces(
    steps: Steps, families: Sequence[Family], axis: Axis, *, fresh_only: bool = False
) -> Pieces:
    """Return the runs of steps of several families. Each step is from the first family that has it.

    ``fresh_only`` leaves out the steps that the group already has.
    """
    files = np.concatenate([family.files for family in families])
    rows, counts = steps.rows(files), steps.counts[files]
    taken = steps.at[rows] >= 0
    source, inside = np.repeat(files, counts)[taken], _inside(counts)[taken]
    at, first = np.unique(axis.new[steps.at[rows[taken]]], return_index=True)
    if fresh_only:
        fresh = ~np.isin(at, axis.old)
        at, first = at[fresh], first[fresh]
    return runs(source[first], inside[first], at)


def sharing_families(families: Sequence[Family], family: Family, name: str) -> Iterator[Family]:
    """Yield the families whose variable of this name has the same dimensions as in this family."""
    mine = family.layout.variables[name]
    for each in families:
        variable = each.layout.variables.get(name)
        if (
            variable is not None
            and (variable.dims, variable.shape) == (mine.dims, mine.shape)
            and (name in each.along) == (name in family.along)
            and (each.layout.is_converted(name) or np.can_cast(variable.dtype, mine.dtype, "same_kind"))
        ):
            yield each
