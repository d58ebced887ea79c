"""Checks that files fit the existing group: its dimensions, its lengths and its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.array_match import Windows
from frazil.pipeline.ingest.arrays import TargetArray, read_labels
from frazil.pipeline.ingest.axis import positions
from frazil.pipeline.ingest.dataset import scalar_time
from frazil.pipeline.ingest.existing import ExistingGroup, GroupChange, dims_of
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_layout import values_digest
from frazil.remedies import argument


def require_names(change: GroupChange) -> None:
    """Check that ``chunks`` and ``encoding`` name dimensions and variables of the files or of the group."""
    request, dataset, existing = change.request, change.dataset, change.existing
    schemas = {name: each for family in dataset.families for name, each in family.layout.variables.items()}
    variables = schemas.keys() | existing.arrays.keys()
    dims = {
        dim for family in dataset.families for each in family.layout.variables.values() for dim in each.dims
    }
    for array in existing.arrays.values():
        dims.update(dims_of(array))
    for option, names, choices in (
        ("chunks must name dimensions", request.chunks.keys(), dims),
        ("encoding must name variables", request.encoding.keys(), variables),
    ):
        if unknown := sorted(names - choices):
            raise InvalidInputError(
                f"{option} of the files ({', '.join(sorted(choices))}), got {unknown[0]!r}",
                ErrorKind.INVALID_ARGUMENT,
            )


def require_dimension(change: GroupChange) -> None:
    """Check that no existing array of data would need a new dimension."""
    request, dataset, existing = change.request, change.dataset, change.existing
    for family in dataset.families:
        for name, variable in family.layout.variables.items():
            if name not in existing.arrays or (variable.coordinate and name != dataset.dim):
                continue
            if not _needs_dimension(change, family, name):
                continue
            names = ", ".join(dims_of(existing.arrays[name]))
            best = dataset.dim or scalar_time(family.variables()) or "time"
            raise InvalidInputError(
                f"mode {request.mode!r} needs the dimension {best} of `{existing.path_of(name)}`, in which "
                f"files follow each other, but the array has ({names}): it was ingested from one file alone",
                ErrorKind.INVALID_ARRAY_METADATA,
            ).with_remedy(
                "Ingest that file again into a new group with {}, then other files can follow",
                argument(concat_dim=best),
            )


def _needs_dimension(change: GroupChange, family: Family, name: str) -> bool:
    """Return whether the array of a variable would need a dimension that it does not have."""
    dim, existing = change.dataset.dim, change.existing
    if dim is None:
        return change.request.mode == "append" and name not in family.values
    if dim not in family.layout.variables[name].dims or dim in dims_of(existing.arrays[name]):
        return False
    return family.layout.adds_axis or not existing.arrays_along(dim)


def windows_of(change: GroupChange, family: Family) -> dict[str, tuple[int, int]]:
    """Return for each dimension the part that the files have, if they do not have all of it.

    The labels of the files must be consecutive labels of the group.
    """
    request, dataset, existing = change.request, change.dataset, change.existing
    dims = [dim for dim in family.layout.dims if dim in existing.arrays and dim != dataset.dim]
    if request.mode in ("create", "append") or not dims:
        return {}
    with request.access.open(dataset.inspection.urls[int(family.files[0])]) as reader:
        coords = reader.schema().coords
    windows = {}
    for dim in dims:
        if dim not in coords:
            continue
        labels = read_labels(existing.arrays[dim])
        if np.array_equal(labels, coords[dim]):
            continue
        if "values" in request.allow and len(labels) == len(coords[dim]):
            continue
        rows = positions(labels, coords[dim])
        if not len(rows) or rows[0] < 0 or (np.diff(rows) != 1).any():
            raise InvalidInputError(
                f"labels of {dim} in the files must be consecutive labels of `/{existing.path}`, but they "
                "are not. Ingest the files into another group",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        windows[dim] = (int(rows[0]), int(rows[-1]) + 1)
    return windows


def require_same_values(
    array: zarr.Array[Any], family: Family, target: TargetArray, windows: Windows
) -> None:
    """Check that values without the concat dimension equal those of the group, if they are small enough."""
    expected = family.values.get(target.name)
    if expected is None:
        return
    part = tuple(slice(*windows[dim]) if dim in windows else slice(None) for dim in target.dims)
    if values_digest(np.asarray(array[part])) != expected:
        raise InvalidInputError(
            f"values of `{target.path}` must be those of the repository, but the files have other values",
            ErrorKind.INVALID_ARRAY_METADATA,
        ).with_remedy("{} keeps the values of the repository", argument(allow={"values"}))


def require_lengths(existing: ExistingGroup, targets: Sequence[TargetArray], dim: str | None) -> None:
    """Check that each dimension has one length in all arrays of the group."""
    new = {each.path.strip("/"): (each.path, each.dims, each.shape) for each in targets}
    stored = {
        path: (f"/{path}", dims_of(array), array.shape)
        for array in existing.arrays.values()
        if (path := array.path.strip("/")) not in new
    }
    _require_one_length([*stored.values(), *new.values()], dim)


def _require_one_length(
    sizes: Sequence[tuple[str, tuple[str, ...], tuple[int, ...]]], grows: str | None
) -> None:
    """Check that each dimension, except ``grows``, has one length in all arrays (path, dimensions, shape)."""
    lengths: dict[str, tuple[str, int]] = {}
    for path, dims, shape in sizes:
        for dim, size in zip(dims, shape, strict=True):
            other, expected = lengths.setdefault(dim, (path, size))
            if dim != grows and size != expected:
                raise InvalidInputError(
                    f"{dim} in `{path}` must have {expected} steps, as in `{other}`, got {size}. Ingest the "
                    "files into another group",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
    for path, dims, _ in sizes:
        name = path.rpartition("/")[2]
        if not dims and name in lengths:
            raise InvalidInputError(
                f"`{lengths[name][0]}` must not have the dimension {name}, because `{path}` is a scalar. "
                "Ingest the files into another group",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
