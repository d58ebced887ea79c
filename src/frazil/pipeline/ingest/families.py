"""Families: files with the same data variables.

The files of a family follow each other along the concat dimension. Families with different variables are
merged. The layout of most files of a family is the expected one, and other files have problems.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.layouts import (
    PACKING,
    FileLayout,
    OwnAttributes,
    attribute_differences,
    differences,
    meaning,
    stacked,
    value_differences,
    with_own,
)
from frazil.pipeline.ingest.problems import FileProblem, Problem
from frazil.readers.file_schema import NotVirtual, VariableSchema


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


def _minority(codes: NDArray[Any], key: Callable[[int], Any]) -> tuple[int, list[int]]:
    """Return the first code with the key that most files have, and the codes with other keys."""
    distinct, first, counts = np.unique(codes, return_index=True, return_counts=True)
    rows: dict[Any, list[int]] = {}
    for row, code in enumerate(distinct.tolist()):
        rows.setdefault(key(code), []).append(row)
    usual = max(rows.values(), key=lambda mine: (counts[mine].sum(), -first[mine].min()))
    others = np.delete(distinct, usual).tolist()
    return int(distinct[min(usual, key=first.__getitem__)]), others


def different_layouts(inspection: Inspection, members: NDArray[np.int64]) -> Iterator[FileProblem]:
    """Yield the files with other variables, dimensions or dtypes than most of these files."""
    layouts, codes = inspection.layouts, inspection.layout[members]
    usual, others = _minority(codes, lambda code: meaning(layouts[code]))
    for code in others:
        lines = differences(layouts[code], layouts[usual]) or [("variables", "differs from the others")]
        text = "; ".join(text for _, text in lines)
        yield from problems_of(members[codes == code], lines[0][0], text)


def different_coordinates(inspection: Inspection, members: NDArray[np.int64]) -> Iterator[FileProblem]:
    """Yield the files whose shared variables have other values than in most of these files."""
    layouts, codes = inspection.layouts, inspection.layout[members]
    usual, others = _minority(codes, lambda code: tuple(sorted(layouts[code].values.items())))
    for code in others:
        text = value_differences(layouts[code].values, layouts[usual].values)
        yield from problems_of(members[codes == code], "values", text)


def different_packing(inspection: Inspection, members: NDArray[np.int64]) -> Iterator[FileProblem]:
    """Yield the files with another packing than most of these files."""
    codes = inspection.own[members]
    packing = [tuple(each for each in own if each[1] in PACKING) for own in inspection.owns]
    usual, others = _minority(codes, packing.__getitem__)
    words = [
        ", ".join(f"{name}.{attribute} {value!r}" for name, attribute, value in each) or "nothing"
        for each in packing
    ]
    for code in others:
        text = f"packed with {words[code]} and not {words[usual]}"
        yield from problems_of(members[codes == code], "packing", text)


def problems_of(files: NDArray[np.int64], kind: str, text: str) -> list[FileProblem]:
    """Return the same problem of several files."""
    return [FileProblem(file, kind, text) for file in files.tolist()]


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


def different_grids(families: Sequence[Family]) -> Iterator[FileProblem]:
    """Yield the families that share dimensions or variables with an earlier family, but differ."""
    values: dict[str, str] = {}
    dims: dict[str, int] = {}
    for family in families:
        texts = [
            ("dims", f"{name} has {size} steps and not {dims[name]}, as in files with other variables")
            for name, size in family.layout.dims.items()
            if dims.get(name, size) != size
        ]
        shared = {
            name: digest for name, digest in family.values.items() if name not in family.layout.individual
        }
        if other := value_differences(shared, values):
            texts.append(("values", f"{other}, unlike files with other variables"))
        if texts:
            yield from problems_of(family.files, *texts[0])
        else:
            values |= shared
            dims |= family.layout.dims
