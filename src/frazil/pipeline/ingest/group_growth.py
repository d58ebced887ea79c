"""The driver's changes of the group: longer arrays, moved references, and the labels of the dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr

from frazil.arrays.fill_values import fill_box, is_fill, missing_element
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.pipeline.ingest.arrays import TargetArray, create, open_target, target_array
from frazil.pipeline.ingest.axis import Axis
from frazil.pipeline.ingest.chunk_alignment import can_shift
from frazil.pipeline.ingest.existing import ExistingGroup, GroupChange, axis_of, dims_of
from frazil.pipeline.ingest.items import longest_chunk
from frazil.pipeline.ingest.planned_array import PlannedArray
from frazil.repository.session.session import Session


def create_group(change: GroupChange) -> None:
    """Create the group with the attributes of the first file. Existing attributes of the group stay."""
    root = zarr.open_group(change.session.store, path=change.existing.path, mode="a", zarr_format=3)
    first = min(int(each.files[0]) for each in change.dataset.families)
    with change.request.access.open(change.inspection.urls[first]) as reader:
        attrs = reader.schema().attrs
    root.attrs.update({name: value for name, value in attrs.items() if name not in root.attrs})


def add_dimensions(change: GroupChange) -> None:
    """Give existing arrays the dimension, if they were equal in all earlier files and differ now."""
    dataset, existing, axis = change.dataset, change.existing, change.axis
    dim = dataset.dim
    if dim is None or axis is None or not existing.arrays_along(dim):
        return
    for family in dataset.families:
        longest = longest_chunk(dataset.inspection.length[family.files])
        for name in family.along & family.layout.individual & existing.arrays.keys():
            existing.add_dimension(name, dim, len(axis.old), longest)


def grow_arrays(
    change: GroupChange, arrays: Sequence[PlannedArray], axis: Axis, dim: str
) -> tuple[list[PlannedArray], list[int]]:
    """Resize the arrays of the group, and move the chunks that can be moved as a whole.

    Returns all arrays, and the numbers of those that get no values from files, but whose steps tasks move.
    """
    existing = change.existing
    result = list(arrays)
    number_of = {each.target.path.rpartition("/")[2]: number for number, each in enumerate(arrays)}
    has_moves = axis.first_moved < len(axis.old)
    bystanders = []
    for name in existing.arrays_along(dim):
        array = existing.arrays[name]
        at = axis_of(array, dim)
        shape = (*array.shape[:at], axis.length, *array.shape[at + 1 :])
        if shape != array.shape:
            array.resize(shape)
            if name != dim and not has_moves:
                _clear(array, at, len(axis.old), axis.length)
        if name == dim or not has_moves:
            continue
        number = number_of.get(name, len(result))
        if number == len(result):
            result.append(PlannedArray(_bystander(existing, name, at, shape), existed=True))
        target = result[number].target
        if can_shift(target, axis):
            _shift_chunks(change.session, target, axis)
            step = target.grid[at]
            free = np.setdiff1d(np.arange(-(-axis.length // step)), axis.old[::step] // step)
            for part in np.split(free, np.flatnonzero(np.diff(free) != 1) + 1) if len(free) else ():
                _clear(array, at, int(part[0]) * step, min((int(part[-1]) + 1) * step, axis.length))
            result[number] = replace(result[number], shifted=True)
        elif target.codecs:
            raise InvalidInputError(
                f"mode 'backfill' of a virtual ingest can move only whole chunks of `{target.path}` "
                f"({target.grid[at]} steps), but the new labels are within chunks. Copy this variable",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        elif number >= len(arrays):
            bystanders.append(number)
    return result, bystanders


def _clear(array: zarr.Array[Any], axis: int, start: int, stop: int) -> None:
    """Make elements missing that no chunk has, if the fill value of the array is not a missing value."""
    missing = missing_element(array)
    if not is_fill(array, missing):
        box = [(start, stop) if at == axis else (0, size) for at, size in enumerate(array.shape)]
        fill_box(array, box, missing)


def _bystander(existing: ExistingGroup, name: str, axis: int, shape: tuple[int, ...]) -> TargetArray:
    array = existing.arrays[name]
    return TargetArray(
        existing.path_of(name),
        name,
        dims_of(array),
        shape,
        array.dtype,
        array.chunks,
        axis,
        array.fill_value,
        dict(array.attrs),
        array.shards,
    )


def _shift_chunks(session: Session, target: TargetArray, axis: Axis) -> None:
    """Move references: chunk ``i`` along the axis moves to the new position of its first step."""
    at, step = target.axis or 0, target.grid[target.axis or 0]
    workspace = session.workspace
    table = workspace.ref_table(target.path)
    if not len(table):
        return
    index = table.index.copy()
    index[:, at] = (axis.old[::step] // step)[index[:, at]]
    moved = replace(table, index=index).sorted()
    workspace.set_refs(target.path, ChunkTable.merge_tables([ChunkTable.from_absent(table.index), moved]))


def write_labels(change: GroupChange, axis: Axis) -> None:
    """Write the labels of the dimension, from the first label that is new or moves."""
    dataset, existing, store = change.dataset, change.existing, change.session.store
    dim = dataset.dim
    if dim is None or axis.labels is None or dim not in dataset.variables:
        return
    path = existing.path_of(dim).strip("/")
    if dim not in existing.arrays:
        variable = replace(dataset.variables[dim], dims=(dim,), shape=(-1,))
        create(store, target_array(variable, path, dim, axis.length))
        start = 0
    else:
        start = min(axis.first_moved, len(axis.old))
    array = open_target(store, path)
    if array.shape[0] != axis.length:
        array.resize((axis.length,))
    if start < axis.length:
        array[start:] = np.asarray(axis.labels[start:]).astype(array.dtype)
