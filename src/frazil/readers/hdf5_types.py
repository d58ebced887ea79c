"""Converts types of HDF5 to dtypes of numpy, and attributes to JSON.

HDF5 has types that no array can hold: compound types, sequences of different lengths, long doubles, bit
fields. The fields of a compound type can be arrays of their own. A variable of such a type, or an attribute
that the library cannot read, is left out with a reason. The other variables and attributes of the file are
not affected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.readers.attribute_values import decoded, json_value, text

#: Attributes that libraries write for internal use.
_HIDDEN: Final = frozenset(
    {
        "CLASS",
        "NAME",
        "DIMENSION_LIST",
        "DIMENSION_LABELS",
        "REFERENCE_LIST",
        "_NCProperties",
        "_NCOPY",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
    }
)
#: The errors of h5py for types that numpy does not have. Damaged files raise other errors (``OSError``).
_NO_TYPE: Final = (TypeError, ValueError, NotImplementedError)


def dtype_of(dataset: h5py.Dataset) -> np.dtype[Any] | str:
    """Return the dtype of the values, or the reason why there is none."""
    if dataset.shape is None:
        return "a null dataspace: it has no values"
    try:
        dtype: np.dtype[Any] = dataset.dtype
    except _NO_TYPE as error:
        return f"a type that numpy does not have ({error})"
    return array_dtype(dtype)


def array_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | str:
    """Return the dtype of an array for values of a type of HDF5, or the reason why there is none."""
    string = h5py.check_string_dtype(dtype)
    if string is not None and string.length != 1:
        return np.dtypes.StringDType()  # includes strings of fixed length, as in the NetCDF library
    if dtype.kind == "O":
        return f"{_kind_of_object(dtype)}: no array can hold these"
    if dtype.names is not None:
        return "a compound type: the option compound with the value 'fields' makes an array of each field"
    if dtype.kind == "V":
        return "an opaque type or an array type: no array can hold these"
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        return f"long doubles ({dtype}): Zarr has no such dtype"
    return np.dtype(dtype.str)


def _kind_of_object(dtype: np.dtype[Any]) -> str:
    if h5py.check_ref_dtype(dtype) is not None:
        return "references to other objects"
    return "sequences of different lengths"


@dataclass(frozen=True, slots=True)
class CompoundField:
    """A field of a compound type, or of a compound field of it: ``path`` are the names from outside in.

    ``shape`` is the shape of its values in one element, usually ``()``.
    """

    path: tuple[str, ...]
    dtype: np.dtype[Any] | str
    shape: tuple[int, ...] = ()

    def read(self, dataset: h5py.Dataset, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the values of the field in a region of its dataset. Texts become strings."""
        values = np.asarray(dataset.fields(self.path[0])[region[: dataset.ndim]])
        for name in self.path[1:]:
            values = values[name]
        inner: Any = (..., *region[dataset.ndim :])
        values = np.asarray(values[inner])
        return decoded(values) if values.dtype.kind == "O" or values.dtype.char == "S" else values


def is_compound(dataset: h5py.Dataset) -> bool:
    """Return whether the elements of a dataset have fields."""
    try:
        return dataset.shape is not None and dataset.dtype.names is not None
    except _NO_TYPE:
        return False


def compound_fields(dtype: np.dtype[Any], path: tuple[str, ...] = ()) -> Iterator[CompoundField]:
    """Yield the fields of a compound type, with the fields of its compound fields."""
    for name in dtype.names or ():
        inner = dtype[name]
        base, shape = inner.subdtype or (inner, ())
        if base.names is not None and not shape:
            yield from compound_fields(base, (*path, name))
        else:
            yield CompoundField((*path, name), array_dtype(base), shape)


def read_values(dataset: h5py.Dataset, region: tuple[slice, ...]) -> NDArray[Any]:
    """Return the values of a region. Texts become strings."""
    if dataset.dtype.kind != "O":
        values = np.asarray(dataset[region])
        return decoded(values) if values.dtype.kind == "S" and values.dtype.itemsize > 1 else values
    try:
        return np.asarray(dataset.astype("T")[region])
    except (OSError, TypeError, UnicodeDecodeError):
        # h5py cannot convert texts that are not UTF-8, and texts of some of its older files.
        return decoded(np.asarray(dataset[region]))


def fill_value(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> Any:
    """Return the fill value of a dataset; None if it is not defined."""
    if dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    value = dataset.fillvalue
    if dtype.kind == "T":
        return text(value) if isinstance(value, bytes) else str(value or "")
    return np.asarray(value).astype(dtype)[()]


def zero(dtype: np.dtype[Any], fill: Any) -> Any:
    """Return the value of elements that were never written: the fill value, or else zero."""
    if fill is not None:
        return fill
    return "" if dtype.kind == "T" else np.zeros((), dtype)[()]


def attributes(node: h5py.Group | h5py.Dataset) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the attributes of the user, and the attributes that cannot be read, with the reasons."""
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name in node.attrs:
        if name in _HIDDEN:
            continue
        try:
            values[name] = _attribute(node.attrs[name])
        except _NO_TYPE as error:
            unreadable[name] = f"an attribute of a type that numpy does not have ({error})"
    return values, unreadable


def _attribute(value: Any) -> Any:
    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SOU" else []
    return json_value(value)


def text_attribute(node: h5py.Dataset, name: str) -> str:
    """Return an attribute that is text; an empty text if it does not exist."""
    value = node.attrs.get(name, b"")
    return text(bytes(value)) if isinstance(value, bytes | np.bytes_) else str(value)
