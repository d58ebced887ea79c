"""What the CF conventions say of an array: its missing values, its packing, its coordinates.

Operations that compute with values unpack them as xarray does: missing values (``_FillValue``,
``missing_value``) become NaN, ``scale_factor`` and ``add_offset`` are applied. Their results are written
unpacked, with NaN for what is missing, and say nothing of the packing any more. Times stay numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from frazil.jobs import cf
from frazil.pipeline.transform.arrays import ArrayInfo, Json, info, named_by, open_array
from frazil.pipeline.transform.block_job import Values
from frazil.repository.session.session import Session

#: What is said of the stored values, and not true of others.
_OF_STORED: Final = cf.PACKED | {"valid_min", "valid_max", "valid_range", "actual_range"}

_LATITUDE: Final = frozenset(
    {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"}
)
_LONGITUDE: Final = frozenset({"degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese"})
_KINDS: Final = {
    "latitude": (_LATITUDE, frozenset({"lat", "latitude", "nav_lat"})),
    "longitude": (_LONGITUDE, frozenset({"lon", "longitude", "nav_lon"})),
}


def is_packed(array: ArrayInfo) -> bool:
    """Whether its values are not what is stored."""
    return cf.is_packed(array.attributes, array.dtype)


def unpacked(array: ArrayInfo, values: Values) -> Values:
    """Values as they are meant."""
    return cf.decoded(values, array.attributes)


def unpacked_dtype(array: ArrayInfo) -> np.dtype[Any]:
    return unpacked(array, np.zeros((1,) * array.ndim, array.dtype)).dtype


def unpacked_attributes(array: ArrayInfo) -> Json:
    """Its attributes, without those that are true of the stored values alone."""
    attributes = array.attributes
    if not is_packed(array):
        return attributes
    return {
        key: value
        for key, value in attributes.items()
        if key not in _OF_STORED and (key, value) != cf.BOOLEAN
    }


# Coordinates


def is_coordinate(array: ArrayInfo, named: set[str]) -> bool:
    """Whether it says where values are: ``named`` are the paths that other arrays name, see `coordinates`."""
    return (array.ndim == 1 and array.dims[0] == array.name) or array.path in named


def coordinates(session: Session, arrays: Sequence[ArrayInfo]) -> set[str]:
    """Paths of the arrays that others name as coordinates, bounds or grid mappings."""
    return {path for array in arrays for path in named_by(array) if path != array.path}


def bounds_of(array: ArrayInfo) -> str | None:
    """The path of the bounds of a coordinate."""
    name = array.attributes.get("bounds")
    return f"{array.group.rstrip('/')}/{name}" if isinstance(name, str) else None


def coordinate_of(session: Session, array: ArrayInfo, dim: str | None) -> ArrayInfo | None:
    """The coordinate variable of a dimension."""
    path = f"{array.group.rstrip('/')}/{dim}"
    node = session.workspace.nodes.node(path) if dim else None
    if node is None or node.array is None:
        return None
    found = info(session, path)
    return found if found.dims == (dim,) else None


def kind_of(coordinate: ArrayInfo) -> str | None:
    """``latitude``, ``longitude`` or None, by standard name, units, or name."""
    attributes = coordinate.attributes
    for kind, (units, names) in _KINDS.items():
        said = attributes.get("standard_name"), str(attributes.get("units", "")).lower()
        if said[0] == kind or said[1] in units or (not any(said) and coordinate.name.lower() in names):
            return kind
    return None


def values_of(session: Session, array: ArrayInfo) -> Values:
    """All values of a coordinate, as they are meant."""
    return unpacked(array, np.asarray(open_array(session, array.path)[...]))
