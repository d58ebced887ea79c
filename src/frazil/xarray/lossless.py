"""Checks whether values can be stored in an array without loss: encode like xarray, decode, and compare.

When xarray appends, it encodes values with the packing, units and type of the existing array, and zarr casts
the result to the array's type. Neither checks that the numbers fit. ``ArrayForm`` does the same two steps,
decodes the result and compares it with the values:

* numbers in integer arrays, texts, booleans and times must be equal;
* packed numbers may differ by half a step (``scale_factor / 2``);
* numbers in floating point arrays may differ by the rounding of their type.

A missing value must be missing again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.coders import CFDatetimeCoder
from xarray.conventions import decode_cf_variable

from frazil.errors import ErrorKind, InvalidInputError
from frazil.xarray.xarray_internals import encode_variable

#: Encoding that changes values. The rest of the encoding only changes bytes.
_VALUES: Final = (
    "dtype",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "units",
    "calendar",
)
#: Number of elements that are checked at a time.
_SLAB: Final = 1 << 22
_TEXT: Final = "UTO"
#: Kind of values -> kinds of arrays for them. Objects are times or texts, which only their values show.
_STORES: Final = {"b": "b", **dict.fromkeys("iuf", "iufc"), "c": "c", **dict.fromkeys("Mm", "iuf"), "S": "S"}
_STORES.update(dict.fromkeys("UT", _TEXT))


def mismatch(message: str) -> InvalidInputError:
    """Return the error for data that do not agree with the stored data."""
    return InvalidInputError(message, ErrorKind.DATA_MISMATCH)


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """The form in which an array stores values: its type, attributes, and the encoding that xarray uses."""

    name: str
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any]
    encoding: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, stored: xr.Variable, decoded: xr.Variable) -> ArrayForm:
        """Return the form of a variable from its stored form and its form after xarray decodes it."""
        encoding = {key: decoded.encoding[key] for key in _VALUES if key in decoded.encoding}
        return cls(name, stored.dtype, dict(stored.attrs), encoding)

    @property
    def packed(self) -> bool:
        """Whether the array has a scale factor or an offset."""
        return "scale_factor" in self.attrs or "add_offset" in self.attrs

    def text(self) -> str:
        """Return the type and the attributes that change values, for messages."""
        items = (f"{key} {self.attrs[key]}" for key in _VALUES if key in self.attrs)
        return ", ".join([str(self.dtype), *items])

    def holds_all(self, variable: xr.Variable) -> bool:
        """Return whether the types alone show that no value is lost."""
        coded = set(_VALUES) & self.attrs.keys()
        if self.dtype.kind == "f" and _is_nan(self.attrs.get("_FillValue", np.nan)):
            coded -= {"_FillValue"}
        # numpy considers a cast from 64-bit integers to 64-bit floats safe, although it rounds.
        long = variable.dtype.kind in "iu" and variable.dtype.itemsize == 8 and self.dtype.kind not in "iu"
        plain = variable.dtype.kind in "biufc" and not coded and not long
        return plain and np.can_cast(variable.dtype, self.dtype, "safe")

    def require_kind(self, variable: xr.Variable) -> None:
        """Raise ``InvalidInputError`` if the array cannot store the type of a variable."""
        kind = "b" if self.attrs.get("dtype") == "bool" else self.dtype.kind
        if kind not in _STORES.get(variable.dtype.kind, kind):
            raise mismatch(
                f"`{self.name}` must have values of the stored kind ({self.text()}), got {variable.dtype}. "
                "Convert them (ds.astype)"
            )

    def typed(self, variable: xr.Variable) -> xr.Variable:
        """Return a variable whose texts have the stored type.

        For xarray, texts of two lengths, or of fixed and variable length, have incompatible types.
        """
        if (
            variable.dtype.kind not in "SUT"
            or self.dtype.kind not in _TEXT + "S"
            or variable.dtype == self.dtype
        ):
            return variable
        return variable.astype(self.dtype if self.dtype.kind in "SU" else object, keep_attrs=True)

    def numbers(self, dims: tuple[Hashable, ...], values: NDArray[Any], attrs: Mapping[str, Any]) -> Any:
        """Return the numbers that xarray and zarr store for values.

        ``attrs`` are the attributes of the variable of the values.
        """
        try:
            with np.errstate(all="ignore"):
                variable = xr.Variable(dims, values, dict(attrs), dict(self.encoding))
                encoded = encode_variable(variable, self.name)
                numbers = np.asarray(encoded.data).astype(self.dtype)
                original = self._original(dims, values, attrs)
                back = self.decode(dims, numbers, original)
                same = self._same(dims, original, numbers, back)
        except (ValueError, TypeError, ArithmeticError, Warning) as error:
            raise mismatch(
                f"`{self.name}` must have values that the stored array ({self.text()}) can hold, got "
                f"{values.dtype}, which cannot be stored there: {error}"
            ) from error
        if not same.all():
            raise mismatch(self._message(values, original, back, ~same))
        return numbers

    def require_exact(self, variable: xr.Variable) -> None:
        """Check a variable in memory, one slab at a time."""
        if self.holds_all(variable):
            return
        values = np.asarray(variable.values)
        if not variable.ndim:
            self.numbers(variable.dims, values, variable.attrs)
            return
        step = max(_SLAB // max(values[:1].size, 1), 1)
        for start in range(0, len(values), step):
            self.numbers(variable.dims, values[start : start + step], variable.attrs)

    def _original(self, dims: tuple[Hashable, ...], values: NDArray[Any], attrs: Mapping[str, Any]) -> Any:
        """Return the values, or the times of numbers with units of time (``decode_times=False``)."""
        if values.dtype.kind not in "iuf" or " since " not in str(attrs.get("units")):
            return values
        times = {key: attrs[key] for key in ("units", "calendar") if key in attrs}
        return decode_cf_variable(self.name, xr.Variable(dims, values, times)).values

    def decode(self, dims: tuple[Hashable, ...], numbers: NDArray[Any], original: NDArray[Any]) -> Any:
        """Return stored numbers as xarray reads them. Times have the type of ``original``."""
        kind = original.dtype.kind
        times: CFDatetimeCoder | bool = True
        if kind == "M":
            unit: Any = np.datetime_data(original.dtype)[0]
            times = CFDatetimeCoder(use_cftime=False, time_unit=unit)
        elif kind == "O" and original.size and hasattr(original.flat[0], "calendar"):
            times = CFDatetimeCoder(use_cftime=True)
        is_timedelta = kind == "m" or str(self.attrs.get("dtype", "")).startswith("timedelta64")
        variable = xr.Variable(dims, numbers, dict(self.attrs))
        return decode_cf_variable(
            self.name,
            variable,
            decode_times=times,
            decode_timedelta=is_timedelta,
            concat_characters=False,
            stack_char_dim=False,
        ).values

    def _same(
        self, dims: tuple[Hashable, ...], original: NDArray[Any], numbers: NDArray[Any], back: NDArray[Any]
    ) -> NDArray[np.bool_]:
        kinds = original.dtype.kind, back.dtype.kind
        if kinds[0] in _TEXT and kinds[1] in _TEXT:
            return np.asarray(original.astype(object) == back.astype(object), np.bool_)
        numeric = kinds[0] in "iuf" and kinds[1] in "iuf"
        if not numeric and kinds[0] != kinds[1]:
            return np.zeros(original.shape, np.bool_)
        if kinds[0] in "Mm":
            same = (original == back) | (np.isnat(original) & np.isnat(back))
            if self.dtype.kind == "f":
                above = self.decode(dims, np.nextafter(numbers, np.inf, dtype=self.dtype), original)
                same |= np.abs(back - original) <= np.abs(above - back)
            return np.asarray(same)
        if kinds[0] in "iu" and kinds[1] == "f" and not self.packed:
            # As floats, both would be rounded in the same way.
            return np.asarray(np.isfinite(back) & (back.astype(original.dtype) == original))
        same = original == back
        if kinds[0] in "fc" or self.packed:
            same |= np.isnan(original) & np.isnan(back)
        if self.packed or self.dtype.kind in "fc":
            finite = np.isfinite(original) & np.isfinite(back)
            same |= finite & (np.abs(back - original) <= self._tolerance(original, back))
        return np.asarray(same)

    def _tolerance(self, original: NDArray[Any], back: NDArray[Any]) -> Any:
        types = [each for each in (self.dtype, original.dtype, back.dtype) if each.kind in "fc"]
        eps = max(float(np.finfo(each).eps) for each in types)
        offset = abs(float(self.attrs.get("add_offset", 0)))
        rounding = 2 * eps * np.maximum(np.abs(original), offset) + float(
            max(np.finfo(each).smallest_subnormal for each in types)
        )
        if self.dtype.kind in "iu":
            return rounding + abs(float(self.attrs.get("scale_factor", 1))) * 0.5000001
        return rounding

    def _message(
        self, values: NDArray[Any], original: NDArray[Any], back: NDArray[Any], losses: NDArray[np.bool_]
    ) -> str:
        at = tuple(int(each[0]) for each in np.nonzero(losses)) if losses.ndim else ()
        new, read = cell(original, at), cell(back, at)
        return (
            f"`{self.name}` must have values that the stored array ({self.text()}) can hold, got {new} "
            f"(one of {int(losses.sum())} such values), which would be read back as {read}. "
            + self._advice(original)
        )

    def _advice(self, original: NDArray[Any]) -> str:
        if " since " in str(self.attrs.get("units")):
            if original.dtype.kind not in "MO":
                return (
                    f"Decode the times first, or pass numbers in {self.attrs['units']!r} with this attribute."
                )
            return (
                "Append times that these units can hold, or write the array again with finer units "
                "(encoding={...: {'units': ...}})."
            )
        if self.packed and self.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            scale, offset = (float(self.attrs.get(k, d)) for k, d in (("scale_factor", 1), ("add_offset", 0)))
            low, high = sorted((limits.min * scale + offset, limits.max * scale + offset))
            return (
                f"It holds {low:g} to {high:g}, and missing values only if it has a _FillValue. Mask other "
                "values (ds.where), or write the array again with another encoding."
            )
        if self.dtype.kind in "SU":
            return (
                "Write the array again with a type for texts of any length: "
                f"ds[{self.name!r}].astype(object)."
            )
        return "Convert or mask the values, or write the array again with another type or _FillValue."


def _is_nan(value: Any) -> bool:
    return bool(np.asarray(value).dtype.kind == "f" and np.isnan(value))


def plain(value: Any) -> str:
    """Return an attribute's value for a message, without the names of numpy types."""
    return repr(value.tolist() if isinstance(value, np.generic | np.ndarray) else value)


def cell(values: Any, at: tuple[int, ...]) -> str:
    """Return one value for a message."""
    value = values[at]
    return repr(value.item()) if isinstance(value, np.generic) and value.dtype.kind in "biufc" else str(value)
