"""Chooses the variables that get the dimension in which files follow each other.

If files do not have the dimension, their data get it. Individual variables (scalars, times) that differ from
file to file get it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_layout import values_digest
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.shared_coordinates import same
from frazil.pipeline.ingest.time_units import TimeUnits, scalar_values
from frazil.readers.reader import VariableSchema


@dataclass(frozen=True, slots=True)
class StoredVariables:
    """The arrays of the group, and the values of the small ones, None for others."""

    variables: Mapping[str, VariableSchema] = field(default_factory=dict)
    values: Callable[[str], NDArray[Any] | None] = lambda name: None


NO_STORED_VARIABLES: Final = StoredVariables()


def stacked_families(
    inspection: Inspection, families: Sequence[Family], dim: str, units: TimeUnits, stored: StoredVariables
) -> list[Family]:
    """Return the families with the variables that get the dimension.

    A file with other variables and without a label of the dimension is merged without changes.
    """
    names = {name for family in families for name in family.layout.individual} - {dim}
    different = {name for name in names if _differs(inspection, families, name, units, stored, dim)}
    has_keys = bool(inspection.files.keys)
    has_labels = has_keys or any(dim in family.layout.variables for family in families)
    result = []
    for family in families:
        layout = family.layout
        stacks = layout.adds_axis and (
            dim in layout.variables or has_keys or not has_labels or len(family.files) > 1
        )
        data = {name for name, each in layout.variables.items() if not each.coordinate or name == dim}
        follows = stacks or not layout.adds_axis
        result.append(family.with_along(dim, (different if follows else set()) | (data if stacks else set())))
    return result


def has_dimension(family: Family, dim: str) -> bool:
    """Return whether the files of a family follow each other: they have the dimension, or data get it."""
    return not family.layout.adds_axis or any(dim in each.dims for each in family.layout.variables.values())


def _differs(
    inspection: Inspection,
    families: Sequence[Family],
    name: str,
    units: TimeUnits,
    stored: StoredVariables,
    dim: str,
) -> bool:
    """Return whether an individual variable has several values, or already has the dimension in the group."""
    if name in stored.variables and dim in stored.variables[name].dims:
        return True
    values = stored.values(name)
    return any(
        _scalar_differs(inspection, family, name, units, values)
        if not family.layout.variables[name].dims
        else _array_differs(inspection, family, name, units, values)
        for family in families
        if name in family.layout.variables and name in family.layout.individual
    )


def _scalar_differs(
    inspection: Inspection, family: Family, name: str, units: TimeUnits, stored: NDArray[Any] | None
) -> bool:
    values, inexact = scalar_values(inspection, name, family.files, units)
    first = values[:1] if stored is None else stored.reshape(-1)[:1]
    return bool(inexact.any() or not same(values, first).all())


def _array_differs(
    inspection: Inspection, family: Family, name: str, units: TimeUnits, stored: NDArray[Any] | None
) -> bool:
    codes, rows = np.unique(inspection.individual[family.files], return_inverse=True)
    digests = np.array([dict(inspection.individuals[code])[name] for code in codes.tolist()])[rows]
    owns = np.unique(inspection.encodings[family.files]).tolist()
    converted = any(name in units.conversions.get(code, {}) for code in owns)
    expected = digests[0] if stored is None else values_digest(stored)
    return converted or bool((digests != expected).any())
