"""The weights of cells: from latitudes, from an array of xarray, or from arrays by dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    Field,
    coordinate,
    coordinates_of,
    dimensions,
    open_array,
    require_same_labels,
)
from frazil.pipeline.reductions.options import Weights
from frazil.pipeline.reductions.partials import Values


def weights_of(lookup: ArrayLookup, field: Field, weights: Weights | None) -> Values | None:
    """Return weights with as many axes as the array, of length 1 along axes where they do not vary.

    Raises ``InvalidInputError`` for weights that are not numbers or do not have dimensions of the array.
    """
    if weights is None:
        return None
    out: Values = np.ones((1,) * len(field.dims))
    lengths = dict(zip(field.dims, field.shape, strict=True))
    for dims, values in _arrays_by_dims(lookup, field, weights).items():
        _require_weights(field, dims, values)
        order = sorted(range(len(dims)), key=lambda axis: field.dims.index(dims[axis]))
        shape = [lengths[dim] if dim in dims else 1 for dim in field.dims]
        out = out * values.astype(np.float64).transpose(order).reshape(shape)
    return out


def _arrays_by_dims(lookup: ArrayLookup, field: Field, weights: Any) -> dict[tuple[str, ...], Values]:
    session = lookup.session
    if isinstance(weights, str):
        if weights != "coslat":
            raise InvalidInputError(
                f"weights must be 'coslat' or arrays, got {weights!r}", ErrorKind.UNKNOWN_CHOICE
            )
        name = latitude_of(lookup, field)
        latitude = coordinate(session, field.parent, name)
        dims = dimensions(open_array(session, f"{field.parent}/{name}"))
        return {dims: np.cos(np.deg2rad(latitude.values))}
    if isinstance(weights, xr.DataArray):
        require_same_labels(session, field, weights, "weights")
        return {tuple(map(str, weights.dims)): weights.values}
    if isinstance(weights, Mapping):
        return {(dim,): np.asarray(values) for dim, values in weights.items()}
    raise InvalidInputError(
        f"weights must be 'coslat', a DataArray, or arrays by dimension, got {weights!r}",
        ErrorKind.INVALID_ARGUMENT,
    )


def _require_weights(field: Field, dims: tuple[str, ...], values: Values) -> None:
    lengths = dict(zip(field.dims, field.shape, strict=True))
    if not set(dims) <= set(field.dims) or tuple(map(lengths.__getitem__, dims)) != values.shape:
        raise InvalidInputError(
            f"weights must have the lengths of dimensions of `{field.path}`, {lengths}, got "
            f"{dict(zip(dims, values.shape, strict=False))}",
            ErrorKind.INVALID_ARGUMENT,
        )
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"weights must be numbers, got the type {values.dtype}", ErrorKind.INVALID_ARGUMENT
        )
    if np.isnan(values).any():
        raise InvalidInputError("weights must be numbers, got NaN", ErrorKind.INVALID_ARGUMENT)


def latitude_of(arrays: ArrayLookup, field: Field) -> str:
    """Return the name of the latitude among the coordinates of an array, or raise ``InvalidInputError``."""
    coordinates = coordinates_of(field, arrays, field.dims)
    for name, array in coordinates.items():
        if array.attrs.get("standard_name") == "latitude" or name in ("lat", "latitude"):
            return name
    raise InvalidInputError(
        f"`{field.path}` must have a coordinate with the standard_name `latitude`, got "
        f"{', '.join(coordinates) or 'none'}",
        ErrorKind.UNSUPPORTED_ARRAY,
    )
