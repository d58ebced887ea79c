"""Finds the dimension in which files follow each other, if the caller does not name it.

    before the inspection   the dimension of the group, if the first file has it or a scalar of its name;
                            the one dimension of the first file that is unlimited or a time
    after the inspection    if files have no such dimension: the scalar whose value differs from file to file

Such a scalar is stacked as by ``combine="nested", concat_dim=...`` of xarray. A single file has no such
dimension, and its variables stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.pipeline.ingest.families import Family, family_of, members_of
from frazil.pipeline.ingest.file_access import FileAccess
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.pattern import SourceFiles
from frazil.pipeline.ingest.time_conversion import is_time
from frazil.pipeline.ingest.time_units import TimeUnits, common_units, scalar_values
from frazil.readers.reader import FileSchema, VariableSchema
from frazil.remedies import argument

#: Scalars in which files usually follow each other, with their rank: by name, then by CF's standard name.
_NAMES: Final = {"time": 0, "forecast_reference_time": 2, "step": 3, "forecast_period": 3, "valid_time": 4}
_STANDARD_NAMES: Final = {"time": 1, "forecast_reference_time": 2, "forecast_period": 3}
_OTHER: Final = 5
#: The number of files that are tried until one can be read.
_TRIED: Final = 100


@dataclass(frozen=True, slots=True)
class Growth:
    """The dimension in which a group grew, and the names of all its dimensions with labels.

    ``from_nothing``: the group has no arrays yet, and more files may follow a first single file.
    """

    concat_dim: str | None = None
    dims: frozenset[str] = field(default_factory=frozenset)
    from_nothing: bool = False


NO_GROWTH: Final = Growth()


def dimension(files: SourceFiles, access: FileAccess, growth: Growth = NO_GROWTH) -> str | None:
    """Return the dimension that the first readable file has; None if that file does not decide it."""
    if files.concat_dim is not None:
        return files.concat_dim
    schema = _first_schema(files, access)
    if schema is None:
        return None
    scalars = {name for name, each in schema.variables.items() if not each.dims}
    if growth.concat_dim is not None and growth.concat_dim in scalars | schema.dims.keys():
        return growth.concat_dim
    times = [name for name in schema.coords if is_time(schema.variables[name].attrs.get("units"))]
    for names in (sorted(growth.dims & scalars), sorted(schema.unlimited), times):
        if len(names) == 1:
            return names[0]
    if len(files.urls) > 1 and (schema.unlimited or times):
        several = sorted({*schema.unlimited, *times})
        raise InvalidInputError(
            f"files can follow each other in several dimensions, {', '.join(several)}, as in {schema.url}",
            ErrorKind.INVALID_ARGUMENT,
        ).with_remedy("Choose one with {}", argument(concat_dim=several[0]))
    return scalar_time(schema.variables) if growth.from_nothing and len(files.urls) == 1 else None


def _first_schema(files: SourceFiles, access: FileAccess) -> FileSchema | None:
    for url in files.urls[:_TRIED]:
        try:
            with access.open(url) as reader:
                return reader.schema()
        except IcechunkError:
            continue
    return None


def scalar_time(variables: Mapping[str, VariableSchema]) -> str | None:
    """Return the name of the scalar time that is first in the order of `_rank`; None if there is none."""
    times = [
        each
        for each in variables.values()
        if not each.dims and is_time(each.attrs.get("units")) and _rank(each) < _OTHER
    ]
    return min(times, key=_rank).name if times else None


def _rank(variable: VariableSchema) -> int:
    if variable.name in _NAMES:
        return _NAMES[variable.name]
    standard = _STANDARD_NAMES.get(str(variable.attrs.get("standard_name")), _OTHER)
    return min(standard, 1) if variable.attrs.get("axis") == "T" else standard


def scalar_dimension(inspection: Inspection, families: Sequence[Family], units: TimeUnits) -> str | None:
    """Return the scalar coordinate in which files of one family follow each other; None if none differs.

    It is the first scalar in the order of `_rank` that determines all others: files with the same value of
    this scalar have the same values of the others.
    """
    several = [family for family in families if len(family.files) > 1]
    if not several:
        alone = len(inspection.urls) > 1 and len(families) == 1  # the other files have problems
        return scalar_time(families[0].variables()) if alone and not _has_unopened(inspection) else None
    differing = _Differing.of(inspection, several, units)
    if not differing.codes:
        return None
    sufficient = [name for name in differing.codes if differing.determines_others(name)]
    ranks = {name: _rank(units.variables[name]) for name in sufficient}
    if usual := [name for name in sufficient if ranks[name] < _OTHER]:
        return min(usual, key=lambda name: (ranks[name], name))
    if len(sufficient) == 1:
        return sufficient[0]
    raise _several_scalars(differing, sufficient)


def _has_unopened(inspection: Inspection) -> bool:
    """Return whether some files were not opened, because the group already contains them."""
    return int((inspection.layout < 0).sum()) > len(inspection.problems)


@dataclass(frozen=True, slots=True)
class _Differing:
    """The scalar coordinates that differ in a family. Each has one column of codes for each family."""

    codes: dict[str, list[NDArray[np.int64]]]

    @classmethod
    def of(cls, inspection: Inspection, families: Sequence[Family], units: TimeUnits) -> _Differing:
        codes: dict[str, list[NDArray[np.int64]]] = {}
        for name in dict.fromkeys(name for family in families for name in _candidates(family)):
            columns = []
            for family in families:
                column = np.zeros(len(family.files), np.int64)
                if name in family.layout.variables and not family.layout.variables[name].dims:
                    values, _ = scalar_values(inspection, name, family.files, units)
                    column = np.unique(values, return_inverse=True)[1].astype(np.int64)
                columns.append(column)
            if any(column.any() for column in columns):
                codes[name] = columns
        return cls(codes)

    def determines_others(self, name: str) -> bool:
        """Return whether files with the same value of this scalar have the same values of all others."""
        for at, mine in enumerate(self.codes[name]):
            all_of_them = np.stack([columns[at] for columns in self.codes.values()])
            if np.unique(all_of_them, axis=1).shape[1] > len(np.unique(mine)):
                return False
        return True

    def counts(self) -> str:
        """Return the names with their numbers of values, as text.

        >>> _Differing({"time": [np.array([0, 1, 0])]}).counts()
        'time (2 values)'
        """
        return ", ".join(
            f"{name} ({max(len(np.unique(column)) for column in columns)} values)"
            for name, columns in self.codes.items()
        )


def _candidates(family: Family) -> list[str]:
    return [
        name
        for name in sorted(family.layout.individual)
        if not (variable := family.variable(name)).dims
        if variable.coordinate or (_rank(variable) < _OTHER and is_time(variable.attrs.get("units")))
    ]


def _several_scalars(differing: _Differing, sufficient: Sequence[str]) -> InvalidInputError:
    helps = "Choose one with {}: the others become its coordinates"
    if not sufficient:
        helps = (
            "{}, or any new name, makes each file one step with these coordinates. Or ingest files that "
            "differ in only one of them into a group for each"
        )
    return InvalidInputError(
        f"files must follow each other in one scalar coordinate, but several differ: {differing.counts()}",
        ErrorKind.INVALID_ARGUMENT,
    ).with_remedy(helps, argument(concat_dim=sufficient[0] if sufficient else "run"))


def scalar_instead(inspection: Inspection, dim: str) -> str | None:
    """Return the scalar in which files follow each other, if all files have the same labels of ``dim``.

    Returns None if labels differ, or if no scalar has a different value in each file.
    """
    families = [
        family_of(inspection, files, individual=False)
        for files in members_of(inspection, inspection.layout >= 0)
        if len(files) > 1
    ]
    if not families or not all(_has_one_axis(inspection, family, dim) for family in families):
        return None
    units, _ = common_units(inspection, families, {})
    differing = _Differing.of(inspection, families, units)
    distinct = [
        name
        for name, columns in differing.codes.items()
        if all(len(np.unique(column)) == len(column) for column in columns)
    ]
    if not distinct:
        return None
    return min(distinct, key=lambda name: (_rank(units.variables[name]), name))


def _has_one_axis(inspection: Inspection, family: Family, dim: str) -> bool:
    """Return whether all files of a family have the same labels."""
    if dim not in family.layout.variables or family.layout.adds_axis:
        return False
    counts = np.diff(inspection.label_start)[family.files]
    if not counts[0] or (counts != counts[0]).any():
        return False
    units = {
        tuple(each for each in inspection.owns[code] if each[0] == dim)
        for code in np.unique(inspection.own[family.files]).tolist()
    }
    rows = inspection.label_start[family.files][:, None] + np.arange(counts[0])
    labels: NDArray[Any] = inspection.labels[rows]
    return len(units) == 1 and bool((labels == labels[0]).all())
