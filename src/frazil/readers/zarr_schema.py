"""The schema of one Zarr array of version 2 or 3."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import numpy as np
from xarray.backends.zarr import FillValueCoder
from zarr.core.dtype import VariableLengthUTF8

from frazil.readers.attribute_values import json_value
from frazil.readers.reader import VariableSchema

#: The attribute of version 2 that holds the names of dimensions.
_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"


def variable_schema(name: str, array: Any) -> VariableSchema:
    """Return the schema of an array, with metadata of version 2 converted to version 3."""
    dims = dimension_names(array)
    dtype = np.dtypes.StringDType() if is_text(array) else np.dtype(array.dtype)
    return VariableSchema(
        name,
        dims,
        tuple(array.shape),
        dtype,
        _attrs(array, dtype),
        fill_value(array, dtype),
        tuple(array.shards or array.chunks) if dims else (),
        _compression(array),
    )


def is_text(array: Any) -> bool:
    """Return whether the values are strings of variable length."""
    return type(array.metadata.dtype if array.metadata.zarr_format == 2 else array.metadata.data_type) is (
        VariableLengthUTF8
    )


def dimension_names(array: Any) -> tuple[str, ...]:
    """Return the dimensions of an array. A dimension without a name gets one from the name of the array."""
    if array.metadata.zarr_format == 2:
        names = array.attrs.get(_DIMENSIONS) or ()
    else:
        names = array.metadata.dimension_names or ()
    names = tuple(names) if len(names) == array.ndim else (None,) * array.ndim
    return tuple(name or f"{array.basename or 'dim'}_{at}" for at, name in enumerate(names))


def _attrs(array: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return attributes as xarray reads them: the fill value of version 2 marks missing values."""
    attrs = {name: each for name, each in array.attrs.items() if name != _DIMENSIONS}
    if array.metadata.zarr_format == 2:
        if array.metadata.fill_value is not None:
            attrs["_FillValue"] = json_value(np.asarray(array.metadata.fill_value))
    elif "_FillValue" in attrs:
        with suppress(TypeError, ValueError):  # another library wrote it, so it stays as it is
            attrs["_FillValue"] = json_value(FillValueCoder.decode(attrs["_FillValue"], _coder_dtype(dtype)))
    return attrs


def _coder_dtype(dtype: np.dtype[Any]) -> Any:
    return {"T": "string", "S": "bytes"}.get(dtype.kind, dtype)


def fill_value(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return the value of missing chunks."""
    value = array.metadata.fill_value
    if value is None:
        return "" if dtype.kind == "T" else np.zeros((), dtype)[()]
    return str(value) if dtype.kind == "T" else np.asarray(value).astype(dtype)[()]


def _compression(array: Any) -> str | None:
    if array.metadata.zarr_format == 2:
        each = [*(array.filters or ()), *(array.compressors or ())]
        return ", ".join(str(codec.get_config()["id"]) for codec in each) or None
    names = [str(codec["name"]) for codec in array.metadata.to_dict()["codecs"]]
    return ", ".join(name for name in names if name != "bytes") or None
