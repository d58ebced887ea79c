"""Decodes stored values by the CF conventions, for reductions, rules and transformations.

xarray decodes missing values, packing and unsigned integers. It uses the attributes that xarray and other
libraries write to Zarr: a fill value is a number, or the base64 text of eight bytes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError

_MISSING: Final = ("_FillValue", "missing_value")
#: Attributes of arrays whose values differ from the stored numbers.
PACKED: Final = frozenset({*_MISSING, "scale_factor", "add_offset", "_Unsigned"})

#: The attribute with which xarray marks integers as booleans.
BOOLEAN: Final = ("dtype", "bool")


def is_packed(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    """Return whether the values of an array differ from the stored numbers."""
    return dtype.kind in "iuf" and (not PACKED.isdisjoint(attributes) or _is_boolean(attributes, dtype))


def _is_boolean(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" and attributes.get(BOOLEAN[0]) == BOOLEAN[1]


def decoded(values: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    """Return decoded values. Missing values become NaN, and times stay numbers.

    >>> decoded(np.array([1, 2, -9], "i2"), {"_FillValue": -9, "scale_factor": 0.5}).tolist()
    [0.5, 1.0, nan]
    >>> decoded(np.array([1, 0], "i1"), {"dtype": "bool"}).tolist()
    [True, False]
    """
    if not is_packed(attributes, values.dtype):
        return values
    packing = {name: value for name, value in attributes.items() if name in PACKED}
    if _is_boolean(attributes, values.dtype):
        packing |= [BOOLEAN]
    for name in _MISSING:
        if name in packing:
            packing[name] = _missing(packing[name], values.dtype)
    variable = xr.Variable([f"d{axis}" for axis in range(values.ndim)], values, packing)
    decoded_variable = xr.conventions.decode_cf_variable(
        "values", variable, decode_times=False, decode_timedelta=False
    )
    return np.asarray(decoded_variable.values)


def _missing(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return one or several missing values in the dtype of the array: 0.1 is another number as a float32."""
    if isinstance(value, list):
        return [_missing(each, dtype) for each in value]
    if isinstance(value, str):
        return fill_value(value, dtype)
    return dtype.type(value) if dtype.kind == "f" else value


def fill_value(text: str, dtype: np.dtype[Any]) -> Any:
    """Return a ``_FillValue`` that xarray wrote for Zarr format 3: eight bytes in base64 for floats.

    >>> fill_value("AAAAAADYjsA=", np.dtype("f4"))
    np.float32(-987.0)
    """
    try:
        if dtype.kind == "f":
            return dtype.type(struct.unpack("<d", base64.standard_b64decode(text))[0])
        return dtype.type(int(text))
    except (ValueError, struct.error) as error:
        raise InvalidInputError(
            f"_FillValue must be a number of type {dtype}, got {text!r}", ErrorKind.INVALID_ARRAY_METADATA
        ) from error
