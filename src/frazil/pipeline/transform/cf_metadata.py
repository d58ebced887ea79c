"""The meaning of an array by the CF conventions: its missing values, its packing, its coordinates.

Operations that compute with values unpack them as xarray does: missing values (``_FillValue``,
``missing_value``) become NaN, ``scale_factor`` and ``add_offset`` are applied. Their results are written
unpacked, with NaN for missing values and without attributes of the packing. Times stay numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from frazil import cf
from frazil.pipeline.transform.array_info import (
    ArrayInfo,
    Json,
    Values,
    array_info,
    companion_paths,
    open_array,
)
from frazil.repository.session.session import Session

#: Attributes that describe only the stored values.
_OF_STORED: Final = cf.PACKED | {"valid_min", "valid_max", "valid_range", "actual_range"}


def is_packed(array: ArrayInfo) -> bool:
    """Return whether the values of an array differ from the stored ones."""
    return not cf.coding_of(array.attributes, array.dtype, times=False).is_plain


def unpacked(array: ArrayInfo, values: Values) -> Values:
    """Return stored values without packing, with NaN for missing values."""
    return cf.decoded(values, array.attributes)


def unpacked_dtype(array: ArrayInfo) -> np.dtype[Any]:
    """Return the data type of the unpacked values."""
    return unpacked(array, np.zeros((1,) * array.ndim, array.dtype)).dtype


def unpacked_attributes(array: ArrayInfo) -> Json:
    """Return the attributes of an array, without those that describe only its stored values."""
    attributes = array.attributes
    if not is_packed(array):
        return attributes
    return {
        key: value
        for key, value in attributes.items()
        if key not in _OF_STORED and (key, value) != cf.BOOLEAN
    }


# Coordinates


def is_coordinate(array: ArrayInfo, coordinates: set[str]) -> bool:
    """Return whether an array is a coordinate: of a dimension, or one of the paths of `coordinate_paths`."""
    return (array.ndim == 1 and array.dims[0] == array.name) or array.path in coordinates


def coordinate_paths(arrays: Sequence[ArrayInfo]) -> set[str]:
    """Return the paths that arrays name as coordinates, bounds or grid mappings."""
    return {path for array in arrays for path in companion_paths(array) if path != array.path}


def bounds_path(array: ArrayInfo) -> str | None:
    """Return the path of the bounds of a coordinate; None if it does not name bounds."""
    name = array.attributes.get("bounds")
    return f"{array.group.rstrip('/')}/{name}" if isinstance(name, str) else None


def coordinate_of(session: Session, array: ArrayInfo, dim: str | None) -> ArrayInfo | None:
    """Return the coordinate variable of a dimension of an array; None if there is none."""
    path = f"{array.group.rstrip('/')}/{dim}"
    node = session.workspace.node(path) if dim else None
    if node is None or node.array is None:
        return None
    coordinate = array_info(session, path)
    return coordinate if coordinate.dims == (dim,) else None


def coordinate_values(session: Session, array: ArrayInfo) -> Values:
    """Return all values of a coordinate, unpacked."""
    return unpacked(array, np.asarray(open_array(session, array.path)[...]))
