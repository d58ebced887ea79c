"""Schema evolution: columns of rows without an array become arrays beside the existing ones.

A new array has the dimensions of the existing arrays of the rows, and the chunks of the first of them by
name. Its cells without a row are null for numbers with a fraction, times and durations, else zero, false or
an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import zarr

from frazil.repository.session.session import Session
from frazil.spark.tables.new_arrays import create_array
from frazil.spark.tables.write_layout import dims_of, layout_of, open_array


def new_columns(session: Session, group: str, names: Sequence[str]) -> list[str]:
    """Return the columns that are neither an array nor a dimension of an array among the columns.

    Without an array among the columns, the result is empty: such arrays are created on the dimensions that
    the caller passes.
    """
    arrays = {name: array for name in names if (array := open_array(session, group, name)) is not None}
    dims = {dim for name, array in arrays.items() if dims_of(array) != (name,) for dim in dims_of(array)}
    return [name for name in names if dims and name not in arrays and name not in dims]


def add_columns(session: Session, group: str, schema: pa.Schema, chunks: Mapping[str, int]) -> list[str]:
    """Create arrays for new columns, and return their names. ``chunks`` replaces chunks by dimension.

    Raises the errors of `layout_of` for the other columns, and ``InvalidInputError``
    (``invalid-array-metadata``) for a type that no array has.
    """
    added = new_columns(session, group, schema.names)
    if not added:
        return []
    layout = layout_of(session, group, [name for name in schema.names if name not in added])
    sibling = layout.variables[0]
    dims = [axis.name for axis in layout.axes]
    steps = tuple(chunks.get(dim, sibling.chunks[sibling.axes.index(axis)]) for axis, dim in enumerate(dims))
    node = zarr.open_group(session.store, path=group.strip("/"), mode="r+", zarr_format=3)
    for name in added:
        create_array(node, name, schema.field(name).type, layout.shape, dims, steps)
    return added
