"""Prepares the arrays for rows: creates them, lets dimensions grow, enforces modes.

The module `axes` explains the modes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr

from frazil.arrays.fill_values import fill_box, is_fill, missing_element
from frazil.arrays.zarr_arrays import array_at
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.spark.tables.added_columns import add_columns
from frazil.spark.tables.axes import (
    GROWING,
    MODES,
    OVERWRITE,
    Growth,
    box_around,
    box_text,
    coordinate_text,
    grow_axis,
    require_behind,
)
from frazil.spark.tables.decoding import decoder
from frazil.spark.tables.encoding import encode
from frazil.spark.tables.new_arrays import LABELS, create_arrays
from frazil.spark.tables.write_layout import Distinct, Layout, dims_of, layout_of, open_array
from frazil.spark.tables.write_options import WriteOptions

_log: Final = logging.getLogger(__name__)

#: A coordinate that grows gets larger chunks if it has more chunks than this, each smaller than ``LABELS``.
_PIECES: Final = 16
#: Bytes of an array that are moved at a time.
_MOVED: Final = 64 << 20


def prepare(
    session: Session,
    group: str,
    schema: pa.Schema,
    distinct: Distinct,
    options: WriteOptions,
) -> Layout:
    """Create the arrays, or let them grow, for rows with these columns; return the layout of the rows.

    ``distinct`` has the coordinates of all rows by dimension. Raises ``InvalidInputError``
    (``invalid-chunk-index``) if a mode does not allow the coordinates, and the errors of ``layout_of``.
    """
    mode, dims, append_dim = options.mode, options.dims, options.append_dim
    if mode not in MODES:
        raise InvalidInputError(
            f"mode must be one of {', '.join(MODES)}, got {mode!r}", ErrorKind.UNKNOWN_CHOICE
        )
    if append_dim is not None and mode != "append":
        raise InvalidInputError(
            f"append_dim must be given with mode append only, got {append_dim!r} with mode {mode}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    if options.merge_schema:
        add_columns(session, group, schema, options.chunks or {})
    try:
        layout = layout_of(session, group, schema.names)
    except NodeNotFoundError:
        if not dims:
            raise
        _require_append_dim(append_dim, dims)
        existing = create_arrays(session, group, schema, distinct, dims, options.chunks or {})
        layout = layout_of(session, group, schema.names)
        if not existing:
            return layout
    if dims and tuple(dims) != tuple(axis.name for axis in layout.axes):
        raise InvalidInputError(
            f"dims must be the dimensions of the existing arrays, "
            f"{', '.join(axis.name for axis in layout.axes)}, got {', '.join(dims)}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    if mode == OVERWRITE:
        _new_coordinates(layout, distinct, mode, append_dim)
        return _clear_region(session, layout, distinct)
    additions = _new_coordinates(layout, distinct, mode, append_dim)
    if not additions:
        return layout
    added = [name for name, values in additions.items() if _grow(session, layout, name, values)]
    return _clear_added(session, layout, layout_of(session, group, schema.names), added)


def _clear_region(session: Session, layout: Layout, distinct: Distinct) -> Layout:
    """Return the layout with the box around the rows as cleared cells, after whole chunks are cleared."""
    box = box_around(layout, distinct)
    if box is None:
        return layout
    _log.info("mode %s clears %s in `%s`", OVERWRITE, box_text(layout, box), layout.group)
    for each in layout.variables:
        own = [box[axis] for axis in each.axes]
        fill_box(array_at(session, each.path, "r+"), own, each.missing, only_whole=True)
    return replace(layout, cleared=(box,), edges=layout.find_edges([box]))


def _clear_added(session: Session, before: Layout, layout: Layout, added: Sequence[str]) -> Layout:
    """Return the layout with the cells that the dimensions ``added`` have got as cleared cells.

    Arrays of the group that the rows do not have are cleared here, the others only in whole chunks.
    """
    ends = {new.name: (old.size, new.size) for old, new in zip(before.axes, layout.axes, strict=True)}
    columns = {each.name for each in layout.variables}
    clears_edges = False
    for name in session.workspace.children(layout.group):
        array = open_array(session, layout.group, name)
        dims = () if array is None else dims_of(array)
        if array is None or dims == (name,):
            continue
        missing = missing_element(array)
        if is_fill(array, missing):
            continue
        clears_edges |= name in columns
        for dim in (dim for dim in added if dim in dims):
            box = [ends[dim] if each == dim else (0, n) for each, n in zip(dims, array.shape, strict=True)]
            fill_box(array, box, missing, only_whole=name in columns)
    boxes = [
        tuple(ends[each.name] if each.name == dim else (0, each.size) for each in layout.axes)
        for dim in added
    ]
    return replace(layout, cleared=tuple(boxes), edges=layout.find_edges(boxes if clears_edges else []))


def _new_coordinates(
    layout: Layout, distinct: Distinct, mode: str, append_dim: str | None
) -> dict[str, pa.Array]:
    """Return the coordinates to add, by dimension."""
    along = append_dim or layout.axes[0].name
    _require_append_dim(append_dim, [axis.name for axis in layout.axes])
    out: dict[str, pa.Array] = {}
    for axis in layout.axes:
        values = distinct[axis.name]
        positions = axis.find_positions(values)
        fresh = values.filter(pa.array(positions < 0))
        is_appended = mode == "append" and axis.name == along
        if is_appended and len(fresh) < len(values):
            existing = coordinate_text(values.filter(pa.array(positions >= 0))[0])
            raise InvalidInputError(
                f"Rows must be new along {along} in mode append, got {along} = {existing}, which exists. "
                "Mode upsert overwrites it",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        if len(fresh) and not is_appended and mode not in GROWING:
            raise InvalidInputError(
                f"The coordinates must exist in the repository in mode {mode}, got {axis.name} = "
                f"{coordinate_text(fresh[0])}. Mode upsert adds it"
                + ("" if mode == "append" else f", mode append if it is behind the others along {axis.name}"),
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        if is_appended and axis.size:
            require_behind(axis, fresh)
        if len(fresh):
            out[axis.name] = fresh
    return out


def _require_append_dim(append_dim: str | None, dims: Sequence[str]) -> None:
    if append_dim is not None and append_dim not in dims:
        raise InvalidInputError(
            f"append_dim must be one of the dimensions {', '.join(dims)}, got {append_dim!r}",
            ErrorKind.UNKNOWN_CHOICE,
        )


def _grow(session: Session, layout: Layout, name: str, fresh: pa.Array) -> bool:
    """Make a dimension longer in all arrays of the group that have it, and move their elements.

    Return whether the new cells are behind the others, and not cleared.
    """
    axis = next(each for each in layout.axes if each.name == name)
    growth = None
    if axis.values is None:
        numbers = fresh.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if numbers.min() < 0:
            raise InvalidInputError(
                f"The numbers of cells must be at least 0, got {name} = {numbers.min()}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        size = int(numbers.max()) + 1
    else:
        growth = grow_axis(axis, fresh)
        size = len(growth.values)
    for each in session.workspace.children(layout.group):
        array = open_array(session, layout.group, each)
        if array is None or name not in dims_of(array):
            continue
        dims = dims_of(array)
        array.resize(tuple(size if dim == name else n for dim, n in zip(dims, array.shape, strict=True)))
        if growth is not None and each == name and dims == (name,):
            _write_labels(session, array, growth)
        elif growth is not None:
            for at in (at for at, dim in enumerate(dims) if dim == name):
                _move(array, at, growth)
    return growth is None or growth.first_moved == axis.size


def _write_labels(session: Session, array: zarr.Array[Any], growth: Growth) -> None:
    """The coordinates of an axis that has grown, from the first new one on."""
    codec = decoder(array.path, array.dtype, array.attrs.asdict())
    name = array.path.rpartition("/")[2]
    start = growth.first_moved
    if codec.calendar is not None:
        raise InvalidInputError(
            f"Times of the calendar {codec.calendar} must exist in `{array.path}`, got new ones. Rows cannot "
            "add them, because they are texts here: add them with `frazil.xarray` or `ingest`",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    new = encode(growth.values.slice(start), codec, np.dtype(array.dtype), name)
    (step,) = regular_grid(array)
    if step < LABELS and len(growth.values) > _PIECES * step:
        new = np.concatenate([np.asarray(array[:start]), new])
        start = 0
        array = _recut(session, array)
    array[start:] = new


def _recut(session: Session, array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Return the array without its elements, in larger chunks; unchanged if it has shards."""
    path = "/" + array.path.strip("/")
    node = session.workspace.require_array(path)
    document = json.loads(node.user_data)
    if any(codec.get("name") == "sharding_indexed" for codec in document["codecs"]):
        return array
    length = array.shape[0]
    array.resize((0,))
    document |= {"shape": [length]}
    document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [LABELS]}}
    session.workspace.set_node(path, json.dumps(document).encode())
    return zarr.open_array(session.store, path=path.strip("/"), mode="r+", zarr_format=3)


def _move(array: zarr.Array[Any], axis: int, growth: Growth) -> None:
    """Move the elements of an array that has its new shape to the new positions of their coordinates.

    From the end to the start, in pieces of whole chunks: no element moves to a lower position, so a piece is
    read before it is overwritten. Cells without an element are cleared.
    """
    first = growth.first_moved
    old = growth.old
    if first == len(old):
        return
    grid, missing = regular_grid(array), missing_element(array)
    one = max(1, array.nbytes // max(array.shape[axis], 1))
    step = grid[axis] * max(1, _MOVED // (one * grid[axis]))
    for start in reversed(range(first - first % step, array.shape[axis], step)):
        stop = min(start + step, array.shape[axis])
        low, high = np.searchsorted(old, [start, stop])
        shape = tuple(stop - start if at == axis else size for at, size in enumerate(array.shape))
        block = np.full(shape, missing, array.dtype)
        if high > low:
            source = _along(array.ndim, axis, slice(int(low), int(high)))
            block[_along(array.ndim, axis, old[low:high] - start)] = array[source]
        array[_along(array.ndim, axis, slice(start, stop))] = block


def _along(ndim: int, axis: int, selection: Any) -> tuple[Any, ...]:
    return tuple(selection if at == axis else slice(None) for at in range(ndim))
