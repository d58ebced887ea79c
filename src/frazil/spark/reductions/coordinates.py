"""Coordinates of results: copied as they are stored, or computed; never those of somebody else's arrays.

A coordinate that is there already with the same values stays, so that results of several jobs can be in one
group. One with other values is replaced, unless an array that the job does not write has its dimensions: that
array would have got other labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.repository.session import Session
from frazil.spark.reductions.fields import Field, arrays_of, coordinates_of, dimensions, open_array


def put_coordinate(
    session: Session,
    path: str,
    values: NDArray[Any],
    attributes: Mapping[str, Any],
    *,
    writes: Collection[str],
    dims: tuple[str, ...] | None = None,
) -> None:
    """Write a coordinate that was computed; its dimension has its name unless ``dims`` says otherwise."""
    name = path.rpartition("/")[2]
    dims = dims or (name,)
    text = values.dtype.kind in "UOT"
    if _stays(session, path, dims, values.astype(str) if text else values, attributes, writes, {name}):
        return
    array = zarr.create_array(
        session.store,
        name=path.strip("/"),
        shape=values.shape,
        chunks=tuple(max(1, n) for n in values.shape),
        dtype=cast("Any", str) if text else values.dtype,
        attributes=dict(attributes),
        dimension_names=dims,
        overwrite=True,
    )
    array[...] = values.astype(object) if text else values


def copy_coordinates(
    source: Session,
    session: Session,
    field: Field,
    dims: Sequence[str],
    path: str,
    *,
    writes: Collection[str],
    without: str = "",
) -> None:
    """Coordinates of a field that have only the dimensions ``dims``, to where ``path`` is."""
    parent = path.strip("/").rpartition("/")[0]
    among = coordinates_of(field, arrays_of(source, field.parent), dims)
    for name, array in among.items():
        to = f"{parent}/{name}".strip("/")
        if name == without:
            continue
        values, attributes = np.asarray(array[...]), dict(array.attrs)
        if not _stays(session, to, dimensions(array), values, attributes, writes, among.keys()):
            zarr.from_array(session.store, data=array, name=to, overwrite=True)


def _stays(
    session: Session,
    path: str,
    dims: tuple[str, ...],
    values: NDArray[Any],
    attributes: Mapping[str, Any],
    writes: Collection[str],
    others: Collection[str],
) -> bool:
    """Whether a coordinate is there as it should be. Raises ``InvalidInputError`` if it must not change."""
    try:
        there = open_array(session, path)
    except NodeNotFoundError:
        return False
    if there.shape == values.shape and dimensions(there) == dims and dict(there.attrs) == dict(attributes):
        found = np.asarray(there[...])
        found = found.astype(values.dtype) if values.dtype.kind == "U" else found
        floats = values.dtype.kind == "f" and found.dtype.kind == "f"
        if found.dtype == values.dtype and np.array_equal(found, values, equal_nan=floats):
            return True
    parent, _, name = path.strip("/").rpartition("/")
    mine = {each.strip("/") for each in writes}
    for other, array in arrays_of(session, parent).items():
        is_mine = f"{parent}/{other}".strip("/") in mine or other in others or other == name
        if not is_mine and set(dims) <= set(dimensions(array)):
            raise InvalidInputError(
                f"to: expected a group where `{name}` is as in the results, found another `{name}` that "
                f"`{other}` is labelled with; give the results a group of their own",
                ErrorKind.NOT_ALLOWED,
            )
    return False
