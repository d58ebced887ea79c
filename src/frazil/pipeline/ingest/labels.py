"""Labelled dimensions that grow: stations, levels, or members in any order, and not all in each file.

The dimension has the labels of the group, and then new labels in the order of the files. No stored value
moves. A file has its values at the positions of its labels, and all other values of its steps stay.

    variables with the concat dimension    tasks put the values of each file at its positions
    all others, such as names and places   the driver joins them by label, and files must agree on a label
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import target_array
from frazil.pipeline.ingest.inspection import COMPARED, Inspection, LabelledValues
from frazil.pipeline.ingest.options import FileProblem
from frazil.pipeline.ingest.steps import positions, same
from frazil.readers.base_reader import VariableSchema

type Places = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class GrownDims:
    """The labels of all files and of the group, and the values that files have for labels only.

    ``labels`` and ``before`` are the labels, and the number of those of the group, by dimension. ``values``
    are the joined variables. ``places`` are the positions of the labels of a file, by its code in
    `Inspection.labelled`. ``groups`` is a number for each code: codes of two groups have no common label.
    """

    labels: Mapping[str, NDArray[Any]]
    before: Mapping[str, int]
    values: Mapping[str, NDArray[Any]]
    places: Mapping[int, Places]
    groups: Mapping[int, int]

    def parts(self, inspection: Inspection, files: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the files in parts that have no common label."""
        if not self.labels:
            return [files]
        codes = inspection.labelled[files].tolist()
        numbers = np.array([self.groups.get(code, -1) for code in codes], np.int64)
        return [files[numbers == number] for number in np.unique(numbers).tolist()]

    def length(self, dim: str, size: int) -> int:
        """Return the length of a dimension: ``size`` if it does not grow."""
        return len(self.labels[dim]) if dim in self.labels else size


NO_GROWN_DIMS = GrownDims({}, {}, {}, {}, {})


def join_labels(
    inspection: Inspection,
    files: NDArray[np.int64],
    variables: Mapping[str, VariableSchema],
    stored: Mapping[str, NDArray[Any]],
    *,
    is_lenient: bool = False,
) -> tuple[GrownDims, list[FileProblem]]:
    """Return the labels of files, and the files whose values for a label differ from those of earlier files.

    ``stored`` are the labels and the joined variables of the group. ``is_lenient``: earlier values stay.
    """
    codes, first = np.unique(inspection.labelled[files], return_index=True)
    order = codes[np.argsort(first)].tolist()
    sets: dict[int, LabelledValues] = {code: inspection.labelled_values[code] for code in order}
    dims = list(dict.fromkeys(dim for each in sets.values() for dim in each.labels))
    if not dims:
        return NO_GROWN_DIMS, []
    labels = {
        dim: _union(
            [*([stored[dim]] if dim in stored else []), *(each.labels[dim] for each in sets.values())]
        )
        for dim in dims
    }
    places = {
        code: {dim: positions(labels[dim], each.labels[dim]) for dim in dims} for code, each in sets.items()
    }
    before = {dim: len(stored.get(dim, ())) for dim in dims}
    values: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[np.bool_]] = {}
    problems: list[FileProblem] = []
    names = {name for each in sets.values() for name in each.values}
    old = LabelledValues("", {}, {name: each for name, each in stored.items() if name in names})
    for code, each in [(None, old), *sets.items()]:
        own = places[code] if code is not None else {dim: np.arange(size) for dim, size in before.items()}
        for name, mine in each.values.items():
            named = variables[name].dims
            at = np.ix_(*(own.get(dim, np.arange(size)) for dim, size in zip(named, mine.shape, strict=True)))
            if name not in values:
                shape = tuple(
                    len(labels[dim]) if dim in labels else size
                    for dim, size in zip(named, mine.shape, strict=True)
                )
                missing = target_array(replace(variables[name], dtype=mine.dtype), name, None, 0).missing
                values[name], known[name] = np.full(shape, missing, mine.dtype), np.zeros(shape, np.bool_)
            wrong = known[name][at] & ~same(values[name][at], mine.astype(values[name].dtype))
            if wrong.any() and code is not None and not is_lenient:
                where = files[inspection.labelled[files] == code]
                text = (
                    f"{name} has other values than earlier files, or than the repository, for the same label"
                )
                problems += [FileProblem(file, "values", text) for file in where.tolist()]
            new = ~known[name][at]
            values[name][at] = np.where(new, mine, values[name][at])
            known[name][at] = True
    groups = np.array([_groups([places[code][dim] for code in order], len(labels[dim])) for dim in dims])
    _, numbers = np.unique(groups, axis=1, return_inverse=True)
    group_of = dict(zip(order, numbers.ravel().tolist(), strict=True))
    return GrownDims(labels, before, {**values, **labels}, places, group_of), problems


def _union(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the labels of all parts once, in the order in which they come."""
    every = np.concatenate(parts)
    _, first = np.unique(every, return_index=True)
    joined = every[np.sort(first)]
    with np.errstate(invalid="ignore"):
        if parts[0].dtype.kind in "iuf" and (joined.astype(parts[0].dtype) != joined).any():
            raise misfit(
                f"labels must fit the dtype {parts[0].dtype} of the first labels, got {every.dtype}. "
                "Ingest the files into another group"
            )
    return joined.astype(parts[0].dtype)


def _groups(places: Sequence[NDArray[np.int64]], length: int) -> list[int]:
    """Return a number for each set of positions: sets with a common position have the same number."""
    owner = np.full(length, -1, np.int64)
    group = np.arange(len(places))
    for number, mine in enumerate(places):
        others = np.unique(owner[mine])
        group[np.isin(group, group[others[others >= 0]])] = number
        owner[mine] = number
    return group.tolist()


def stored_labels(
    dims: Sequence[str],
    variables: Mapping[str, VariableSchema],
    values_of: Callable[[str], NDArray[Any] | None],
) -> dict[str, NDArray[Any]]:
    """Return the labels of the group, and its variables that only have dimensions that grow."""
    result: dict[str, NDArray[Any]] = {}
    for name, each in variables.items():
        if not {*each.dims} & {*dims}:
            continue
        if name in dims and each.dims != (name,):
            raise misfit(
                f"grow must name dimensions whose labels in the group have no other dimension, got {name!r} "
                f"on {', '.join(each.dims)}. Write the group again with grow"
            )
        if (values := values_of(name)) is not None:
            result[name] = values.astype(np.dtypes.StringDType()) if values.dtype.kind == "O" else values
        elif name in dims:
            raise InvalidInputError(
                f"grow must name dimensions whose labels have at most {COMPARED:,} bytes, got {name!r}",
                ErrorKind.UNIMPLEMENTED,
            )
    return result
