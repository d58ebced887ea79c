"""The arrays that rows are written to: their creation, the growth of dimensions, the modes of writing.

`frazil.spark.write_table` describes the modes. An axis of numbers, times or durations is
in order if its values only rise or only fall; new values keep that order. An axis of one value rises. Text
and unsorted values have no order: their new values are added behind the existing ones, in ascending order. A
dimension without coordinates grows to the largest number of a cell.

The chunks of new arrays do not depend on the number of rows of the first batch: with one chunk of a
coordinate for each batch, every batch would read all chunks of the batches before it. A column without an
array next to existing ones gets their dimensions, and the chunks of the first of them by name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import zarr
from numpy.typing import NDArray

from frazil.arguments import conflicting, misfit, require_choice, require_column_name
from frazil.arrays.box_writing import fill_box, is_fill, missing_element
from frazil.arrow.grid import COLUMN_TYPE, COMPLEX, decoder, dims_of, is_number
from frazil.arrow.write_layout import (
    NAN_AS_TEXT,
    UNITS,
    Box,
    Distinct,
    RowAxis,
    RowLayout,
    as_type,
    encode,
    layout_if_any,
    layout_of,
    misplaced,
    open_array,
    open_arrays,
    to_numpy,
)
from frazil.cf import BOOLEAN
from frazil.errors import InvalidInputError
from frazil.format.columns import I64
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows are written: see `frazil.spark.write_table`."""

    mode: str = "upsert"
    dims: Sequence[str] | None = None
    append_dim: str | None = None
    chunks: Mapping[str, int] | None = None
    partitions: int | None = None
    merge_schema: bool = False


#: Returns which of some columns have nulls.
type Nulls = Callable[[Sequence[str]], Collection[str]]

OVERWRITE: Final = "overwrite-region"
MODES: Final = ("append", "backfill", "insert", OVERWRITE, "upsert")
#: Modes in which every dimension may grow.
GROWING: Final = ("upsert", "backfill")


@dataclass(frozen=True, slots=True)
class AxisGrowth:
    """An axis with new coordinates: all ``values``, and the new position of each ``old`` one, ascending."""

    values: pa.Array
    old: I64

    @property
    def first_moved(self) -> int:
        """The first position whose coordinate changes; the old size if none changes."""
        moved = self.old != np.arange(len(self.old))
        return int(np.argmax(moved)) if moved.any() else len(self.old)


def ascending(values: pa.Array) -> pa.Array:
    """Return the values in ascending order."""
    half = pa.types.is_float16(values.type)  # Arrow cannot order them
    return values.take(pc.sort_indices(values.cast(pa.float32()) if half else values))


def grow_axis(axis: RowAxis, fresh: pa.Array) -> AxisGrowth:
    """Return the axis with new coordinates at their places in order. ``fresh``: none of them exists."""
    assert axis.values is not None
    new = ascending(fresh.cast(axis.values.type))
    every = pa.concat_arrays([axis.values, new])
    down = _direction(axis.values)
    numbers = _numbers(every)
    if down is None or numbers is None:
        return AxisGrowth(every, np.arange(axis.size))
    order = np.argsort(numbers, kind="stable")
    order = order[::-1] if down else order
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return AxisGrowth(every.take(pa.array(order)), positions[: axis.size])


def require_behind(axis: RowAxis, fresh: pa.Array) -> None:
    """Raise ``InvalidInputError`` (``invalid-chunk-index``) for coordinates that mode append may not add."""
    place, last, early = "behind the last cell", str(axis.size - 1), ""
    if axis.values is None:
        first = fresh.cast(pa.int64()).to_numpy(zero_copy_only=False).min(initial=axis.size)
        early = str(first) if first < axis.size else ""
    elif (growth := grow_axis(axis, fresh)).first_moved < axis.size:
        falls = _direction(growth.values)
        places = {True: "below the last one, as the axis falls,", False: "above the last one"}
        place = "behind the last one" if falls is None else places[falls]
        last = coordinate_text(axis.values[axis.size - 1])
        early = coordinate_text(growth.values[growth.first_moved])
    if early:
        raise misplaced(
            f"New coordinates must be {place} along {axis.name}, {last}, in mode append, got {axis.name} = "
            f"{early}. Mode upsert (or backfill) inserts it in order. If several streams write to one axis, "
            "use such a mode, or give each stream an axis of its own"
        )


def box_around(layout: RowLayout, distinct: Distinct) -> Box | None:
    """Return the box around rows with these existing coordinates; None without rows."""
    positions = [axis.find_positions(distinct[axis.name]) for axis in layout.axes]
    if not all(map(len, positions)):
        return None
    return tuple((int(at.min()), int(at.max()) + 1) for at in positions)


def box_text(layout: RowLayout, box: Box) -> str:
    """Return the first and the last coordinate of a box along each dimension, for a message."""
    parts = []
    for axis, (start, stop) in zip(layout.axes, box, strict=True):
        first, last = (
            at if axis.values is None else coordinate_text(axis.values[at]) for at in (start, stop - 1)
        )
        parts.append(f"{axis.name} = {first}" + ("" if first == last else f" to {last}"))
    return ", ".join(parts)


def coordinate_text(value: pa.Scalar) -> str:
    """Return a coordinate for a message, with times in UTC."""
    if pa.types.is_date(value.type):
        return str(value)
    if pa.types.is_timestamp(value.type) and value.is_valid:
        text = str(np.datetime64(value.cast(pa.int64()).as_py(), value.type.unit))
        return text.removesuffix(".000000") + ("Z" if value.type.tz is not None else "")
    return repr(value.as_py())


def _direction(values: pa.Array) -> bool | None:
    """Return True if the values fall, False if they rise (or are fewer than two), None without order."""
    numbers = _numbers(values)
    if numbers is None:
        return None
    if (numbers[1:] > numbers[:-1]).all():
        return False
    return True if (numbers[1:] < numbers[:-1]).all() else None


def _numbers(values: pa.Array) -> NDArray[Any] | None:
    """Return numbers or times in the order of the values, or None for values without order."""
    kinds = (is_number, pa.types.is_timestamp, pa.types.is_duration, pa.types.is_date)
    if values.null_count or not any(is_kind(values.type) for is_kind in kinds):
        return None
    numbers = to_numpy(values)
    return None if numbers.dtype.kind == "f" and np.isnan(numbers).any() else numbers


#: The integer for a missing time: that of NaT.
_NO_TIME: Final = -(1 << 63)
#: The text for a missing text: the symbol for null.
NO_TEXT: Final = "\u2400"
#: The fill values of signed integers in netCDF, above the least integer, by the number of bits.
_ABOVE_LEAST: Final = {8: 1, 16: 1, 32: 1, 64: 2}
#: Elements in a chunk of a new array.
_CHUNK: Final = 1 << 20
#: The least number of elements in a chunk of a new coordinate, and of cells along the first dimension.
LABELS: Final = 4096


def create_arrays(
    session: Session, group: str, schema: pa.Schema, distinct: Distinct, options: WriteOptions, nulls: Nulls
) -> list[str]:
    """Create arrays for columns of these types, on the coordinates of the rows in ascending order.

    Returns the names of the dimensions that keep an existing coordinate.
    """
    dims, chunks = list(options.dims or ()), options.chunks or {}
    missing = [dim for dim in dims if dim not in schema.names]
    variables = [name for name in schema.names if name not in dims]
    if missing or not variables:
        raise misfit(f"Rows need columns for {', '.join(dims)} and one more, got {', '.join(schema.names)}")
    unknown = [dim for dim in chunks if dim not in dims]
    if unknown:
        raise InvalidInputError(f"chunks must be for {', '.join(dims)}, got {', '.join(unknown)}")
    node = zarr.open_group(session.store, path=group.strip("/"), mode="a", zarr_format=3)
    sizes, existing = [], []
    for dim in dims:
        coordinate = open_array(session, group, dim)
        if coordinate is not None and dims_of(coordinate) == (dim,):
            sizes.append(coordinate.shape[0])
            existing.append(dim)
            continue
        values = ascending(distinct[dim])
        if pa.types.is_float16(values.type):  # pandas has no index of float16
            values = values.cast(pa.float32())
        sizes.append(len(values))
        step = max(chunks.get(dim, 0), LABELS)
        create_array(node, dim, values.type, (len(values),), [dim], (step,))
        array = open_array(session, group, dim)
        assert array is not None
        codec = decoder(array.path, array.dtype, array.attrs.asdict())
        array[...] = encode(as_type(values, codec.type, dim), codec, np.dtype(array.dtype), dim)
    # Chunks of whole rows along the last dimensions. Along the first one, with room for later batches.
    left, steps = _CHUNK, []
    for size, dim in zip(reversed(sizes), reversed(dims), strict=True):
        length = max(size, LABELS) if dim == dims[0] else max(size, 1)
        steps.append(chunks.get(dim, min(length, left)))
        left = max(1, left // steps[-1])
    _create_variables(node, schema, variables, tuple(sizes), dims, tuple(reversed(steps)), nulls)
    return existing


def _create_variables(
    group: zarr.Group,
    schema: pa.Schema,
    names: Sequence[str],
    shape: tuple[int, ...],
    dims: Sequence[str],
    chunks: tuple[int, ...],
    nulls: Nulls,
) -> None:
    kinds = pa.types.is_integer, pa.types.is_boolean
    plain = [name for name in names if any(is_kind(schema.field(name).type) for is_kind in kinds)]
    with_nulls = nulls(plain) if plain else set()
    for name in names:
        column = schema.field(name).type
        create_array(group, name, column, shape, dims, chunks, has_nulls=name in with_nulls)


def create_array(
    group: zarr.Group,
    name: str,
    column: pa.DataType,
    shape: tuple[int, ...],
    dims: Sequence[str],
    chunks: tuple[int, ...],
    *,
    has_nulls: bool = False,
) -> None:
    """Create an array for a column. Raise ``InvalidInputError`` for a type that no array has.

    Cells without a row are null for texts, numbers with a fraction, times and durations, and for integers and
    booleans that ``has_nulls``. Others are zero or false.
    """
    require_column_name(name)
    dtype: Any = "int64"
    attributes: dict[str, Any] = {}
    if pa.types.is_timestamp(column) or pa.types.is_date(column):
        attributes = {"units": UNITS, "calendar": "proleptic_gregorian"}
        if pa.types.is_date(column) or column.tz is None:
            attributes[COLUMN_TYPE] = "date" if pa.types.is_date(column) else "timestamp_ntz"
    elif pa.types.is_duration(column):
        attributes = {"units": "microseconds", "dtype": "timedelta64[us]"}
    elif pa.types.is_string(column) or pa.types.is_large_string(column):
        dtype = str
    elif pa.types.is_boolean(column) or pa.types.is_integer(column) or pa.types.is_floating(column):
        dtype = np.dtype(column.to_pandas_dtype()).name
    elif column in COMPLEX.values():
        dtype = next(each for each, kind in COMPLEX.items() if kind == column)
    else:
        raise misfit(
            f"The column {name} must have numbers, booleans, text, times, durations, or complex numbers as "
            f"STRUCT<real: DOUBLE, imag: DOUBLE>, got {column}"
        )
    fill: Any = complex(np.nan, np.nan) if column in COMPLEX.values() else None
    if has_nulls and pa.types.is_boolean(column):
        dtype, attributes = "int8", dict([BOOLEAN])
    if name not in dims and dtype is str:
        fill = attributes["missing_value"] = NO_TEXT  # xarray opens no texts with a _FillValue
    elif has_nulls and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        # Those of netCDF: the least numbers of most types are also common values.
        fill = attributes["_FillValue"] = (
            int(limits.min + _ABOVE_LEAST[limits.bits]) if limits.min else limits.max
        )
    if name not in dims and pa.types.is_floating(column):
        fill, attributes["_FillValue"] = np.nan, NAN_AS_TEXT
    if name not in dims and "units" in attributes:
        fill = attributes["_FillValue"] = _NO_TIME
    group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=fill,
        dimension_names=list(dims),
        attributes=attributes,
    )


def new_columns(session: Session, group: str, names: Sequence[str]) -> list[str]:
    """Return the columns that are neither an array nor a dimension of an array among them, if one is."""
    arrays, _ = open_arrays(session, group, names)
    dims = {dim for name, array in arrays.items() if dims_of(array) != (name,) for dim in dims_of(array)}
    return [name for name in names if dims and name not in arrays and name not in dims]


def add_columns(
    session: Session, group: str, schema: pa.Schema, chunks: Mapping[str, int], nulls: Nulls
) -> None:
    """Create arrays for new columns. ``chunks`` replaces chunks by dimension."""
    added = new_columns(session, group, schema.names)
    if not added:
        return
    layout = layout_of(session, group, [name for name in schema.names if name not in added])
    sibling = layout.variables[0]
    dims = [axis.name for axis in layout.axes]
    steps = tuple(chunks.get(dim, sibling.chunks[sibling.axes.index(axis)]) for axis, dim in enumerate(dims))
    node = zarr.open_group(session.store, path=group.strip("/"), mode="r+", zarr_format=3)
    _create_variables(node, schema, added, layout.shape, dims, steps, nulls)


_log: Final = logging.getLogger(__name__)

#: A coordinate that grows gets larger chunks if it has more chunks than this, each smaller than ``LABELS``.
_PIECES: Final = 16
#: Bytes of an array that are moved at a time.
_MOVED: Final = 64 << 20


def prepare(
    session: Session, group: str, schema: pa.Schema, distinct: Distinct, options: WriteOptions, nulls: Nulls
) -> RowLayout:
    """Create the arrays, or let them grow, for rows with these columns; return the layout of the rows.

    ``distinct`` has the coordinates of all rows by dimension. ``nulls`` is called for new arrays only, and
    only for rows: without rows, each new column may get nulls later.
    """
    if not any(map(len, distinct.values())):
        nulls = set
    mode, dims, append_dim = options.mode, options.dims, options.append_dim
    require_choice("mode", mode, MODES)
    if append_dim is not None and mode != "append":
        raise conflicting(f"append_dim must be given with mode append, got {append_dim!r} with mode {mode}")
    if options.merge_schema:
        add_columns(session, group, schema, options.chunks or {}, nulls)
    layout = layout_if_any(session, group, schema.names, dims)
    if layout is None:
        if append_dim is not None:
            require_choice("append_dim", append_dim, dims or ())
        existing = create_arrays(session, group, schema, distinct, options, nulls)
        layout = layout_of(session, group, schema.names)
        if not existing:
            return layout
    if dims and tuple(dims) != tuple(axis.name for axis in layout.axes):
        raise misfit(f"dims must be {', '.join(axis.name for axis in layout.axes)}, got {', '.join(dims)}")
    additions = _new_coordinates(layout, distinct, mode, append_dim)
    if mode == OVERWRITE and (box := box_around(layout, distinct)) is not None:
        _log.info("mode %s clears %s in `%s`", OVERWRITE, box_text(layout, box), layout.group)
        for each in layout.variables:
            own = [box[axis] for axis in each.axes]
            fill_box(array_at(session, each.path, "r+"), own, each.missing, only_whole=True)
        return replace(layout, cleared=(box,), edges=layout.find_edges([box]))
    if not additions:
        return layout
    added = [name for name, values in additions.items() if _grow(session, layout, name, values)]
    return _clear_added(session, layout, layout_of(session, group, schema.names), added)


def _clear_added(session: Session, before: RowLayout, layout: RowLayout, added: Sequence[str]) -> RowLayout:
    """Return the layout with the cells that the dimensions ``added`` have got as cleared cells.

    Here, whole chunks of the written arrays are cleared, and all new cells of the other arrays of the group.
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
    layout: RowLayout, distinct: Distinct, mode: str, append_dim: str | None
) -> dict[str, pa.Array]:
    """Return the coordinates to add, by dimension."""
    along = append_dim or layout.axes[0].name
    if append_dim is not None:
        require_choice("append_dim", append_dim, [axis.name for axis in layout.axes])
    out: dict[str, pa.Array] = {}
    for axis in layout.axes:
        values = distinct[axis.name]
        positions = axis.find_positions(values)
        fresh = values.filter(pa.array(positions < 0))
        is_appended = mode == "append" and axis.name == along
        if is_appended and len(fresh) < len(values):
            existing = coordinate_text(values.filter(pa.array(positions >= 0))[0])
            raise misplaced(
                f"Rows must be new along {along} in mode append, got {along} = {existing}. Use mode upsert"
            )
        if len(fresh) and not is_appended and mode not in GROWING:
            raise misplaced(
                f"The coordinates must exist in the repository in mode {mode}, got {axis.name} = "
                f"{coordinate_text(fresh[0])}. Mode upsert adds it"
                + ("" if mode == "append" else f", mode append if it is behind the others along {axis.name}")
            )
        if is_appended and axis.size:
            require_behind(axis, fresh)
        if len(fresh):
            out[axis.name] = fresh
    return out


def _grow(session: Session, layout: RowLayout, name: str, fresh: pa.Array) -> bool:
    """Make a dimension of the group longer. Return whether the new cells are behind the others."""
    axis = next(each for each in layout.axes if each.name == name)
    growth = None
    if axis.values is None:
        numbers = fresh.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if numbers.min() < 0:
            raise misplaced(f"The numbers of cells must be at least 0, got {name} = {numbers.min()}")
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


def _write_labels(session: Session, array: zarr.Array[Any], growth: AxisGrowth) -> None:
    """Write the coordinates of an axis that has grown, from the first new one on."""
    codec = decoder(array.path, array.dtype, array.attrs.asdict())
    name = array.path.rpartition("/")[2]
    start = growth.first_moved
    if codec.calendar is not None:
        raise misfit(
            f"Times of the calendar {codec.calendar} must exist in `{array.path}`, got new ones. Rows cannot "
            "add them, because they are texts here: add them with `frazil.xarray` or `ingest`"
        )
    new = encode(growth.values.slice(start), codec, np.dtype(array.dtype), name)
    (step,) = regular_grid(array)
    if step < LABELS and len(growth.values) > _PIECES * step:
        new, start = np.concatenate([np.asarray(array[:start]), new]), 0
        path = "/" + array.path.strip("/")
        document = json.loads(session.workspace.require_array(path).user_data)
        if all(each.get("name") != "sharding_indexed" for each in document["codecs"]):
            length = array.shape[0]
            array.resize((0,))
            grid = {"name": "regular", "configuration": {"chunk_shape": [LABELS]}}
            document |= {"shape": [length], "chunk_grid": grid}
            session.workspace.set_node(path, json.dumps(document).encode())
            array = zarr.open_array(session.store, path=path.strip("/"), mode="r+", zarr_format=3)
    array[start:] = new


def _move(array: zarr.Array[Any], axis: int, growth: AxisGrowth) -> None:
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
