"""Families: files with the same data variables.

The files of a family follow each other along the concat dimension. Families with different variables are
merged. The layout of most files of a family is the expected one, and other files get objections.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.file_layout import (
    PACKING,
    FileLayout,
    OwnAttributes,
    stacked,
    with_own,
)
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.layout_differences import (
    attribute_differences,
    differences,
    meaning,
    value_differences,
)
from frazil.pipeline.ingest.problems import Problem
from frazil.pipeline.ingest.step_order import Objection
from frazil.readers.reader import NotVirtual, VariableSchema


@dataclass(frozen=True, slots=True)
class Family:
    """Files with the same data variables.

    ``layout``, ``own`` and ``values`` (digests of shared variables) are those of its first file. ``files``
    are the numbers of its good files. ``along`` are the variables that get the concat dimension, and do not
    have it in the files.
    """

    layout: FileLayout
    own: OwnAttributes
    files: NDArray[np.int64]
    values: Mapping[str, str]
    along: frozenset[str] = frozenset()

    def variable(self, name: str) -> VariableSchema:
        """Return a variable with the attributes of the first file."""
        return with_own(self.layout.variables[name], self.own)

    def variables(self) -> dict[str, VariableSchema]:
        """Return all variables by name, with the attributes of the first file."""
        return {name: self.variable(name) for name in self.layout.variables}

    def with_along(self, dim: str, names: Collection[str]) -> Family:
        """Return the family with these variables along the dimension, unless they have it in the files."""
        variables = self.layout.variables
        along = frozenset(name for name in names if name in variables and dim not in variables[name].dims)
        values = {name: digest for name, digest in self.values.items() if name not in along}
        return replace(self, layout=stacked(self.layout, dim, along), values=values, along=along)


def members_of(inspection: Inspection, good: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return the numbers of the files of each family. Files with a common data variable are one family."""
    groups: list[tuple[set[str], list[int]]] = []
    for code in np.unique(inspection.layout[good]).tolist():
        names, codes = set(inspection.layouts[code].data), [code]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, codes = names | group[0], codes + group[1]
        groups.append((names, codes))
    members = [np.flatnonzero(good & np.isin(inspection.layout, codes)) for _, codes in groups]
    return sorted(members, key=lambda files: int(files[0]))


def family_of(inspection: Inspection, files: NDArray[np.int64], *, individual: bool) -> Family:
    """Return the family of these files.

    ``individual``: individual variables are shared too, because there is no concat dimension.
    """
    first = int(files[0])
    layout = inspection.layouts[inspection.layout[first]]
    values = dict(layout.values)
    if individual:
        values |= dict(inspection.individuals[inspection.individual[first]])
    return Family(layout, inspection.owns[inspection.own[first]], files, values)


@dataclass(frozen=True, slots=True)
class _Variants:
    """The different codes of some files, with the first file and the number of files of each code."""

    codes: NDArray[np.int64]
    first: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, column: NDArray[Any]) -> _Variants:
        """Return the variants in a column of codes."""
        codes, first, counts = np.unique(column, return_index=True, return_counts=True)
        return cls(codes, first, counts)

    def usual(self, keys: Sequence[Any]) -> list[int]:
        """Return the rows of the key that most files have; of several such keys, the earliest."""
        rows: dict[Any, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        return max(rows.values(), key=lambda mine: (self.counts[mine].sum(), -self.first[mine].min()))


def different_layouts(inspection: Inspection, members: NDArray[np.int64]) -> list[Objection]:
    """Return objections to files with other variables, dimensions or dtypes than most of these files."""
    variants = _Variants.of(inspection.layout[members])
    layouts = [inspection.layouts[code] for code in variants.codes.tolist()]
    usual = variants.usual(list(map(meaning, layouts)))
    expected = layouts[min(usual, key=lambda row: variants.first[row])]
    objections = []
    for row, layout in enumerate(layouts):
        if row in usual:
            continue
        lines = differences(layout, expected) or [("variables", "differs from the others")]
        kind, text = lines[0][0], "; ".join(text for _, text in lines)
        where = members[inspection.layout[members] == variants.codes[row]]
        objections += [Objection(file, kind, text) for file in where.tolist()]
    return objections


def different_coordinates(inspection: Inspection, members: NDArray[np.int64]) -> list[Objection]:
    """Return objections to files whose shared variables have other values than in most of these files."""
    variants = _Variants.of(inspection.layout[members])
    values = [inspection.layouts[code].values for code in variants.codes.tolist()]
    usual = variants.usual([tuple(sorted(each.items())) for each in values])
    expected = values[usual[0]]
    return [
        Objection(file, "values", value_differences(values[row], expected))
        for row in range(len(values))
        if row not in usual
        for file in members[inspection.layout[members] == variants.codes[row]].tolist()
    ]


def different_packing(inspection: Inspection, members: NDArray[np.int64]) -> list[Objection]:
    """Return objections to files with another packing than most of these files."""
    variants = _Variants.of(inspection.own[members])
    owns = [inspection.owns[code] for code in variants.codes.tolist()]
    usual = variants.usual(list(map(_packing, owns)))
    expected = _in_words(owns[usual[0]])
    return [
        Objection(file, "packing", f"packed with {_in_words(owns[row])} and not {expected}")
        for row in range(len(owns))
        if row not in usual
        for file in members[inspection.own[members] == variants.codes[row]].tolist()
    ]


def _packing(own: OwnAttributes) -> OwnAttributes:
    return tuple(each for each in own if each[1] in PACKING)


def _in_words(own: OwnAttributes) -> str:
    return ", ".join(f"{name}.{attribute} {value!r}" for name, attribute, value in _packing(own)) or "nothing"


def family_notes(inspection: Inspection, family: Family) -> list[Problem]:
    """Return the notes on files with other attributes, and the problems of variables without references."""
    problems = []
    codes = inspection.layout[family.files]
    for code in np.unique(codes[codes != codes[0]]).tolist():
        names = attribute_differences(inspection.layouts[code], family.layout)
        if names:
            where = family.files[codes == code]
            listed = ", ".join(names[:10])
            text = f"{len(where)} file(s) have other values of {listed}; those of the first file are kept"
            problems.append(Problem("attributes", text, inspection.urls[int(where[0])], fatal=False))
    for name, each in (family.layout.virtual or {}).items():
        if isinstance(each, NotVirtual):
            text = f"{name} cannot have references: {each.reason}; copy it, or leave it out"
            problems.append(Problem("virtual", text, inspection.urls[int(family.files[0])]))
    return problems


def different_grids(families: Sequence[Family], inspection: Inspection) -> list[Objection]:
    """Return objections to families that share dimensions or variables with an earlier family, but differ."""
    values: dict[str, str] = {}
    dims: dict[str, int] = {}
    objections = []
    for family in families:
        texts = [
            ("dims", f"{name} has {size} steps and not {dims[name]}, as in files with other variables")
            for name, size in family.layout.dims.items()
            if dims.get(name, size) != size
        ]
        shared = {
            name: digest for name, digest in family.values.items() if name not in family.layout.individual
        }
        other = value_differences(shared, values)
        texts += [("values", f"{other}, unlike files with other variables")] if other else []
        objections += [Objection(file, *each) for each in texts[:1] for file in family.files.tolist()]
        if not texts:
            values |= shared
            dims |= family.layout.dims
    return objections
