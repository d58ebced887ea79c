"""Rows with coordinates go into arrays.

A column with the name of a coordinate (an array of one dimension that has its name) says where the values
of the other columns belong; those are arrays with these dimensions. A value that is there is replaced,
other places are left alone, and so is what a NULL would fill. Labels that a coordinate does not have are an
error, or are appended to it, in order; then every array with that dimension grows.

Values are those that xarray shows: times in the units of their coordinate, packed data unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr
from numpy.typing import NDArray
from xarray.coding.times import encode_cf_datetime

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.session import Session

#: What to do with two rows of one place.
DUPLICATES: Final = ("error", "last")


@dataclass(frozen=True, slots=True)
class Rows:
    """How rows are written: the group, coordinates that may grow, ``error`` or ``last`` for duplicates."""

    group: str = "/"
    append: tuple[str, ...] = ()
    duplicates: str = "error"


def check(session: Session, columns: Sequence[str], how: Rows) -> tuple[list[str], list[str]]:
    """Which columns are coordinates and which are variables.

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for a column without an array, for a variable
    with a dimension that has no column, and without any variable.
    """
    group = _group(session, how)
    arrays = {name: group.get(name) for name in columns}
    for name, array in arrays.items():
        if not isinstance(array, zarr.Array):
            raise _refused(f"expected an array for the column `{name}` in the group {how.group}, found none")
    coords = [name for name in columns if _dims(arrays[name]) == (name,)]
    variables = [name for name in columns if name not in coords]
    if not variables:
        raise _refused(f"expected columns that are no coordinates, found {', '.join(columns)}")
    for name in variables:
        lacking = [str(dim) for dim in _dims(arrays[name]) if dim not in coords]
        if lacking or not _dims(arrays[name]):
            raise _refused(
                f"expected a column and a coordinate for each dimension of `{name}` {_dims(arrays[name])}, "
                f"found none for {', '.join(lacking) or 'it'}"
            )
    unused = [name for name in how.append if name not in coords]
    if unused:
        raise _refused(f"expected columns of coordinates to append to, found {', '.join(unused)}")
    return coords, variables


def write_rows(session: Session, table: pa.Table, how: Rows) -> None:
    """Write the rows through a session.

    Raises ``InvalidInputError`` as `check` does; for coordinates that are NULL or not there
    (``invalid-chunk-index``), for values that do not fit, and for two rows of one place, unless the last
    one is to win.
    """
    coords, variables = check(session, table.column_names, how)
    if not len(table):
        return
    group = _group(session, how)
    places = {name: _places(group, name, table[name], name in how.append) for name in coords}
    _once(table, places, how)
    for name in variables:
        _write(_array(group, name), table[name], places)


def _write(array: zarr.Array[Any], column: pa.ChunkedArray, places: dict[str, NDArray[np.int64]]) -> None:
    there = np.flatnonzero(column.is_valid().to_numpy())
    if not len(there):
        return
    at = [places[str(dim)][there] for dim in _dims(array)]
    # Of several rows of one place the last one counts: the first one when looked at from behind.
    flat = np.ravel_multi_index(tuple(at), array.shape)
    last = len(flat) - 1 - np.unique(flat[::-1], return_index=True)[1]
    values = encoded(_numpy(column.take(pa.array(there[last]))), array)
    array.vindex[tuple(index[last] for index in at)] = values


def _once(table: pa.Table, places: dict[str, NDArray[np.int64]], how: Rows) -> None:
    if how.duplicates == "last":
        return
    keys = np.stack(list(places.values()), axis=1)
    _, first, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
    if counts.max() > 1:
        row = int(first[np.argmax(counts)])
        found = ", ".join(f"{name}={table[name][row].as_py()}" for name in places)
        raise InvalidInputError(
            f"expected one row for each place, found {counts.max()} for {found}: with the option "
            "duplicates=last the last one is taken",
            ErrorKind.INVALID_CHUNK_INDEX,
        )


def _places(group: zarr.Group, name: str, column: pa.ChunkedArray, append: bool) -> NDArray[np.int64]:
    """The index of each label; of new ones too, after they were appended."""
    if column.null_count:
        raise InvalidInputError(
            f"expected a value of the coordinate `{name}` in each row, found {column.null_count} NULL",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    array = _array(group, name)
    known = np.asarray(array[:])
    labels = encoded(_numpy(column), array)
    found = _find(known, labels)
    if (found < 0).any():
        new = np.unique(labels[found < 0])
        if not append:
            raise InvalidInputError(
                f"expected labels of the coordinate `{name}`, found {len(new)} others ({new[0]}, ...): "
                f"with the option append-dim={name} they are appended",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        _grow(group, name, len(known) + len(new))
        _array(group, name)[len(known) :] = new
        found = _find(np.concatenate([known, new]), labels)
    return found


def _find(known: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """The first index of each label in what is known, in any order; -1 where there is none."""
    if not len(known):
        return np.full(len(labels), -1, np.int64)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)
    return np.where(known[order[at]] == labels, order[at], -1)


def _grow(group: zarr.Group, dim: str, length: int) -> None:
    for _, array in group.arrays():
        dims = _dims(array)
        if dim in dims:
            array.resize(tuple(length if d == dim else n for d, n in zip(dims, array.shape, strict=True)))


def encoded(values: NDArray[Any], array: zarr.Array[Any]) -> NDArray[Any]:
    """Values as an array stores them: times by its ``units``, numbers by ``scale_factor`` and ``add_offset``.

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for values that its type cannot hold.
    """
    attrs, dtype = array.attrs, array.dtype
    if values.dtype.kind == "M" and dtype.kind != "M":
        if "units" not in attrs:
            raise _refused(f"expected an attribute `units` of the times in `{array.path}`, found none")
        calendar = str(attrs.get("calendar", "standard"))
        values = encode_cf_datetime(values, str(attrs["units"]), calendar, dtype=dtype)[0]
    if "scale_factor" in attrs or "add_offset" in attrs:
        values = (values - float(str(attrs.get("add_offset", 0)))) / float(str(attrs.get("scale_factor", 1)))
    if dtype.kind in "iu" and values.dtype.kind == "f":
        missing = np.isnan(values)
        if missing.any() and "_FillValue" not in attrs:
            raise _refused(f"expected numbers for `{array.path}` ({dtype}), found NaN and no `_FillValue`")
        values = np.where(missing, float(str(attrs.get("_FillValue", 0))), np.round(values))
    try:
        stored = np.asarray(values).astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise _refused(f"expected {dtype} for `{array.path}`, found {values.dtype}") from error
    if dtype.kind in "iu" and values.dtype.kind in "iuf" and not np.array_equal(stored, values):
        raise _refused(f"expected numbers that fit into {dtype} for `{array.path}`, found others")
    return stored


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    return np.asarray(column.to_numpy())


def _group(session: Session, how: Rows) -> zarr.Group:
    return zarr.open_group(session.store, path=how.group.strip("/"), mode="r+")


def _array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    found = group[name]
    assert isinstance(found, zarr.Array)
    return found


def _dims(array: Any) -> tuple[str | None, ...]:
    names: tuple[str | None, ...] | None = array.metadata.dimension_names
    return names or (None,) * array.ndim


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError(message, ErrorKind.INVALID_ARRAY_METADATA)
