"""Checks whether a dataset agrees with the stored group, before anything is written.

When xarray appends, it uses the stored encoding and attributes, and zarr casts the result. Neither checks
that the values fit. ``ArrayForm`` does both steps, decodes the result and compares it with the values. Packed
numbers may differ by half a step, floating point numbers by their rounding; all others must be equal.

The only public writer of xarray for zarr is ``to_zarr``, and it has no hook for another writer of dask
arrays. So Frazil uses some functions of xarray that are not public. This module imports all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.coders import CFDatetimeCoder
from xarray.conventions import decode_cf_variable, decode_cf_variables

from frazil.errors import ErrorKind, InvalidInputError

try:
    from xarray.backends.common import ArrayWriter
    from xarray.backends.zarr import ZarrStore, encode_zarr_variable
    from xarray.namedarray.parallelcompat import get_chunked_array_type

    # xarray has moved its writers: before 2025.9, they are in the module of readers
    _module = "writers" if find_spec("xarray.backends.writers") else "api"
    dump_to_store = import_module(f"xarray.backends.{_module}").dump_to_store
    attrgetter("_validate_and_autodetect_region", "_validate_encoding")(ZarrStore)
    _in_memory = attrgetter("_in_memory")
    _in_memory(xr.Variable)
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"frazil.xarray uses functions of xarray that are not public, and xarray {xr.__version__} lacks one "
        f"({error}). Install an older xarray (Frazil is tested with 2025.6 to 2026.9), or write with "
        "`dataset.to_zarr(session.store, consolidated=False)`"
    ) from error

__all__ = ["ArrayWriter", "ZarrStore", "dump_to_store"]

#: Older versions of xarray use the same encoding for all formats of zarr.
_FORMAT: Final[dict[str, Any]] = (
    {"zarr_format": 3} if "zarr_format" in signature(encode_zarr_variable).parameters else {}
)


def encode_variable(variable: xr.Variable, name: str) -> xr.Variable:
    """Return the variable that xarray stores for a variable."""
    encoded: xr.Variable = encode_zarr_variable(variable, name=name, **_FORMAT)
    return encoded


def is_cubed(data: Any) -> bool:
    """Return whether values are an array of Cubed. This does not import Cubed."""
    return type(data).__module__.partition(".")[0] == "cubed"


def is_lazy(variable: xr.Variable) -> bool:
    """Return whether the values of a variable are still to be read or computed."""
    return not _in_memory(variable)


#: Encoding that changes values. The rest of the encoding only changes bytes.
_VALUES: Final = (
    *("dtype", "scale_factor", "add_offset", "_FillValue", "missing_value"),
    *("_Unsigned", "units", "calendar"),
)
#: Number of elements that are checked at a time.
_SLAB: Final = 1 << 22
_TEXT: Final = "UTO"
#: Kind of values -> kinds of arrays for them. Objects are times or texts, which only their values show.
_STORES: Final = {"b": "b", **dict.fromkeys("iuf", "iufc"), "c": "c", **dict.fromkeys("Mm", "iuf"), "S": "S"}
_STORES.update(dict.fromkeys("UT", _TEXT))


#: The calendars of datetime64.
_PLAIN: Final = ("standard", "gregorian", "proleptic_gregorian")


def _calendar(values: NDArray[Any]) -> str | None:
    """Return the calendar of times; None for other values."""
    if values.dtype.kind == "M":
        return _PLAIN[0]
    return getattr(values.flat[0], "calendar", None) if values.size else None


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

    @property
    def packed(self) -> bool:
        """Whether the array has a scale factor or an offset."""
        return "scale_factor" in self.attrs or "add_offset" in self.attrs

    def text(self) -> str:
        """Return the type and the attributes that change values, for messages."""
        items = (f"{key} {self.attrs[key]}" for key in _VALUES if key in self.attrs)
        return ", ".join([str(self.dtype), *items])

    def holds_all(self, variable: xr.Variable) -> bool:
        """Return whether the types show that no value is lost."""
        coded = set(_VALUES) & self.attrs.keys()
        fill = self.attrs.get("_FillValue", np.nan)
        if self.dtype.kind == "f" and np.asarray(fill).dtype.kind == "f" and np.isnan(fill):
            coded -= {"_FillValue"}
        # numpy considers a cast from 64-bit integers to 64-bit floats safe, although it rounds.
        long = variable.dtype.kind in "iu" and variable.dtype.itemsize == 8 and self.dtype.kind not in "iu"
        plain = variable.dtype.kind in "biufc" and not coded and not long
        return plain and np.can_cast(variable.dtype, self.dtype, "safe")

    def typed(self, variable: xr.Variable) -> xr.Variable:
        """Return a variable whose texts have the stored type. For xarray, others are incompatible."""
        if (
            variable.dtype.kind not in "SUT"
            or self.dtype.kind not in _TEXT + "S"
            or variable.dtype == self.dtype
        ):
            return variable
        return variable.astype(self.dtype if self.dtype.kind in "SU" else object, keep_attrs=True)

    def numbers(self, dims: tuple[Hashable, ...], values: NDArray[Any], attrs: Mapping[str, Any]) -> Any:
        """Return the numbers that xarray and zarr store for values of a variable with ``attrs``."""
        try:
            with np.errstate(all="ignore"):
                variable = xr.Variable(dims, values, dict(attrs), dict(self.encoding))
                encoded = encode_variable(variable, self.name)
                numbers = np.asarray(encoded.data).astype(self.dtype)
                original = self._original(dims, values, attrs)
                back = self.decode(dims, numbers, original)
                same = self._same(dims, original, numbers, back)
        except (ValueError, TypeError, ArithmeticError, Warning) as error:
            calendar, own = self.attrs.get("calendar"), _calendar(values)
            problem = f"{values.dtype}, which cannot be stored there: {error}"
            if None not in (calendar, own) and calendar not in (own, *(_PLAIN if own in _PLAIN else ())):
                problem = f"times of the calendar {own}. Convert them: ds.convert_calendar({calendar!r})"
            raise mismatch(
                f"`{self.name}` must have values that the stored array ({self.text()}) can hold, got "
                f"{problem}"
            ) from error
        if not same.all():
            raise mismatch(self._message(values, original, back, ~same))
        return numbers

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


def plain(value: Any) -> str:
    """Return an attribute's value for a message, without the names of numpy types."""
    return repr(value.tolist() if isinstance(value, np.generic | np.ndarray) else value)


def cell(values: Any, at: tuple[int, ...]) -> str:
    """Return one value for a message."""
    value = values[at]
    return repr(value.item()) if isinstance(value, np.generic) and value.dtype.kind in "biufc" else str(value)


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The stored variables of a group, read on demand."""

    variables: Mapping[str, xr.Variable]
    dims: Mapping[str, tuple[Hashable, ...]]
    forms: Mapping[str, ArrayForm]
    sizes: Mapping[Hashable, int]

    @classmethod
    def open(cls, target: ZarrStore, names: Collection[Hashable]) -> StoredGroup:
        """Return the group to which xarray will write variables of these names."""
        variables = {}
        for name in target.array_keys():
            with suppress(KeyError):  # no names of dimensions: not an array of xarray
                variables[name] = target.open_store_variable(name)  # type: ignore[no-untyped-call]  # xarray
        # xarray finds its encoding for appends in the same way. It changes its arguments.
        decoded, _, _ = decode_cf_variables(
            {name: each.copy(deep=False) for name, each in variables.items() if name in names}, {}
        )
        forms = {}
        for name, each in decoded.items():
            encoding = {key: each.encoding[key] for key in _VALUES if key in each.encoding}
            forms[name] = ArrayForm(name, variables[name].dtype, dict(variables[name].attrs), encoding)
        present = {**variables, **decoded}
        sizes = {dim: size for each in present.values() for dim, size in each.sizes.items()}
        return cls(variables, {name: each.dims for name, each in present.items()}, forms, sizes)

    def with_dim(self, dim: Hashable) -> set[str]:
        """Return the names of the variables with a dimension."""
        return {name for name, dims in self.dims.items() if dim in dims}

    def numbers(self, name: str, region: Mapping[Any, slice]) -> np.ndarray[Any, Any]:
        """Return the stored values of a variable or of a region of it, without decoding."""
        variable = self.variables[name]
        return np.asarray(variable.isel({dim: region[dim] for dim in variable.dims if dim in region}).values)


Check = Literal["variables", "attributes", "packing", "static", "values", "order"]

#: Attributes that define the values. Other attributes are texts for readers and may differ.
_MEANING: Final = (
    *("units", "calendar", "standard_name", "positive", "cell_methods"),
    *("flag_values", "flag_masks", "flag_meanings", "formula_terms", "grid_mapping"),
    *("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"),
)
#: Attributes that xarray moves to the encoding of decoded variables.
_DECODED: Final = ("calendar", "grid_mapping", "formula_terms")
#: Attributes of a coordinate reference system, a variable that consists only of its attributes.
_REFERENCE_SYSTEM: Final = ("grid_mapping_name", "crs_wkt", "spatial_ref")
_CALENDARS: Final = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
#: Calendars that are equal since 1582.
_WESTERN: Final = {"standard", "proleptic_gregorian"}


@dataclass(frozen=True, slots=True)
class Writing:
    """One write: the dataset, the stored group, and the options."""

    dataset: xr.Dataset
    stored: StoredGroup
    append_dim: Hashable | None = None
    region: Mapping[Any, slice] = field(default_factory=dict)
    compute_options: Mapping[str, Any] = field(default_factory=dict)
    accept: frozenset[str] = frozenset()

    def shared(self) -> Iterator[tuple[str, xr.Variable, ArrayForm]]:
        """Yield name, new variable and stored form of each variable that already exists."""
        for name, variable in self.dataset.variables.items():
            if str(name) in self.stored.forms:
                yield str(name), variable, self.stored.forms[str(name)]

    def is_static(self, variable: xr.Variable) -> bool:
        """Return whether the values must be equal to the stored values and are not written."""
        grows = self.append_dim is None or self.append_dim in variable.dims
        return not grows and "static" not in self.accept


def require_agreement(writing: Writing) -> xr.Dataset:
    """Return the dataset to write. Values of lazy arrays are checked when they are computed."""
    for name, check in _CHECKS.items():
        if name in writing.accept:
            continue
        with _named(name), warnings.catch_warnings():
            # xarray only warns when it writes. This function refuses the values that xarray would change.
            warnings.simplefilter("ignore")
            check(writing)
    return writing.dataset if "values" in writing.accept else _to_write(writing)


@contextmanager
def _named(check: str) -> Iterator[None]:
    """Add to an error how to skip its check."""
    try:
        yield
    except InvalidInputError as error:
        message = error.message.rstrip(".")
        raise mismatch(f"{message}. To skip this check, pass accept=[{check!r}]") from error.__cause__


def _variables(writing: Writing) -> None:
    stored, dim = writing.stored, writing.append_dim
    for name, variable, _ in writing.shared():
        if set(stored.dims[name]) != set(variable.dims):
            raise mismatch(
                f"`{name}` must have the stored dimensions {stored.dims[name]}, got {variable.dims}"
            )
    for each, size in writing.dataset.sizes.items():
        old = stored.sizes.get(each, size)
        if each != dim and each not in writing.region and old != size:
            raise mismatch(
                f"dimension `{each}` must have the stored size {old}, got {size}. Select or reindex the "
                "dataset (ds.sel, ds.reindex), or write it to another group"
            )
    extra = sorted(str(name) for name in writing.dataset.variables if str(name) not in stored.variables)
    if extra and (dim is not None or writing.region):
        raise mismatch(
            f"the variables must be stored variables ({', '.join(sorted(stored.variables))}), got "
            f"`{extra[0]}`, which has no values for the stored part. Write it for the stored part first "
            f"(mode='a') or drop it: ds.drop_vars({extra})"
        )
    if dim is not None and (
        missing := sorted(stored.with_dim(dim) - set(map(str, writing.dataset.variables)))
    ):
        raise mismatch(
            f"the dataset must have all stored variables with the dimension `{dim}`, got none with the "
            f"name `{missing[0]}`: its array would be shorter than the others. Add it to the dataset "
            f"(missing: {', '.join(missing)})"
        )


def _attributes(writing: Writing) -> None:
    for name, variable, form in writing.shared():
        own = {key: variable.encoding[key] for key in _DECODED if key in variable.encoding}
        own |= variable.attrs
        keys: Iterator[str] | tuple[str, ...] = _MEANING
        if any(key in form.attrs for key in _REFERENCE_SYSTEM):
            keys = tuple(form.attrs)
        for key in keys:
            if key not in form.attrs or own.get(key) is None:
                continue
            old, new = form.attrs[key], own[key]
            is_same = _same(old, new)
            if key == "calendar" and not is_same:
                ours, theirs = (_CALENDARS.get(str(a).lower(), str(a).lower()) for a in (old, new))
                is_same = ours == theirs or (variable.dtype.kind == "M" and {ours, theirs} <= _WESTERN)
            if not is_same:
                raise mismatch(
                    f"`{name}` must have the stored {key} {plain(old)}, got {plain(new)}. Convert the "
                    f"values, or correct ds[{name!r}].attrs[{key!r}]"
                )


def _packing(writing: Writing) -> None:
    for name, variable, form in writing.shared():
        own = {key: variable.encoding.get(key) for key in ("scale_factor", "add_offset")}
        if not form.packed or form.dtype.kind not in "iu" or all(each is None for each in own.values()):
            continue
        for key, default in (("scale_factor", 1.0), ("add_offset", 0.0)):
            old, new = form.attrs.get(key, default), own[key]
            new = default if new is None else new
            if float(old) != float(new):
                raise mismatch(
                    f"`{name}` must have the stored {key} {plain(old)}, got {plain(new)} in the encoding of "
                    "the dataset: its values would be rounded to other steps. To accept these steps, delete "
                    f"the encoding: ds[{name!r}].encoding = {{}}"
                )


def _static(writing: Writing) -> None:
    """Check that variables that do not grow, mostly coordinates, are equal to the stored variables."""
    if writing.append_dim is not None:
        for name, variable, form in writing.shared():
            if writing.is_static(variable):
                _require_equal(writing, name, variable, form)
        return
    dataset, stored = writing.dataset, writing.stored
    for label in dataset.indexes:
        dim = str(label)
        if dim not in stored.forms or dim not in stored.sizes:
            continue
        along = {str(name) for name, each in dataset.variables.items() if dim in each.dims} - {dim}
        if writing.region or (along and stored.with_dim(dim) - along - {dim}):
            _require_equal(writing, dim, dataset.variables[dim], stored.forms[dim])


def _require_equal(writing: Writing, name: str, variable: xr.Variable, form: ArrayForm) -> None:
    variable = variable.transpose(*writing.stored.dims[name])
    # Values that are not written may have fewer bits than the stored values. Labels are written.
    rounded = writing.is_static(variable)
    equal = partial(_equal, form=form, dims=variable.dims, attrs=variable.attrs, rounded=rounded)
    if variable.chunks is not None:
        manager, data = get_chunked_array_type(variable.data), variable.data
        spec = {"spec": data.spec} if is_cubed(data) else {}  # all arrays of a plan of Cubed have one
        lazy = writing.stored.variables[name].chunk(
            dict(zip(variable.dims, variable.chunks, strict=True)),
            chunked_array_type=manager,
            from_array_kwargs=spec,
        )
        stored = lazy.data
        chunks = tuple((1,) * len(sizes) for sizes in variable.chunks)
        compared = _map_blocks(equal, data, stored, dtype=np.bool_, chunks=chunks)
        manager.compute(compared, **writing.compute_options)
    else:
        equal(variable.values, writing.stored.numbers(name, writing.region))


def _equal(
    values: Any, stored: Any, *, form: ArrayForm, dims: Any, attrs: Mapping[str, Any], rounded: bool
) -> Any:
    """Compare values with the stored numbers. Return a block for dask."""
    values, stored = np.asarray(values), np.asarray(stored)
    new = form.numbers(dims, values, attrs)
    if new.shape != stored.shape:
        raise mismatch(f"`{form.name}` must have the stored shape {stored.shape}, got {new.shape}")
    differs = np.asarray(new != stored, np.bool_)
    if rounded and new.dtype.kind == values.dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            differs &= np.asarray(new.astype(values.dtype) != stored.astype(values.dtype))
    if new.dtype.kind in "fc":
        differs &= ~(np.isnan(new) & np.isnan(stored))
    if not differs.any():
        return np.zeros((1,) * values.ndim, np.bool_)
    at = tuple(int(each[0]) for each in np.nonzero(differs)) if differs.ndim else ()
    old = form.decode(dims, stored, values)
    raise mismatch(
        f"`{form.name}` must have the stored values, got others: at {at} {cell(old, at)} is stored, and "
        f"{cell(values, at)} is new. If only the order differs, reorder the dataset like the group "
        f"(ds.reindex, ds.sel). To keep the stored values, use ds.drop_vars({form.name!r})"
    )


def _values(writing: Writing) -> None:
    for name, variable, form in writing.shared():
        kind = "b" if form.attrs.get("dtype") == "bool" else form.dtype.kind
        if kind not in _STORES.get(variable.dtype.kind, kind):
            raise mismatch(
                f"`{name}` must have values of the stored kind ({form.text()}), got {variable.dtype}. "
                "Convert them (ds.astype)"
            )
        if variable.chunks is not None or writing.is_static(variable) or form.holds_all(variable):
            continue
        values = np.asarray(variable.values)
        step = max(_SLAB // max(values[:1].size, 1), 1) if variable.ndim else 1
        for start in range(0, len(values), step) if variable.ndim else (0,):
            slab = values[start : start + step] if variable.ndim else values
            form.numbers(variable.dims, slab, variable.attrs)


def _to_write(writing: Writing) -> xr.Dataset:
    """Return the dataset in types that xarray accepts, with checks in its lazy arrays."""
    changed = {}
    for name, variable, form in writing.shared():
        new = variable
        if variable.chunks is not None and not writing.is_static(variable) and not form.holds_all(variable):
            check = partial(_checked_block, form=form, dims=variable.dims, attrs=variable.attrs)
            data = _map_blocks(check, variable.data, dtype=variable.dtype)
            new = variable.copy(deep=False, data=data)
        new = form.typed(new)
        if new is not variable:
            changed[name] = new
    return writing.dataset.assign(changed) if changed else writing.dataset


def _map_blocks(function: Callable[..., Any], data: Any, *others: Any, dtype: Any, **options: Any) -> Any:
    """Map a function over the blocks of lazy arrays. Dask does not call it for an empty block."""
    if not is_cubed(data):
        options["meta"] = np.empty((0,) * data.ndim, dtype)
    return get_chunked_array_type(data).map_blocks(function, data, *others, dtype=dtype, **options)


def _checked_block(values: Any, *, form: ArrayForm, dims: Any, attrs: Mapping[str, Any]) -> Any:
    with _named("values"):
        form.numbers(dims, np.asarray(values), attrs)
    return values


def _order(writing: Writing) -> None:
    """Check the labels of the growing dimension: each is new, and they continue the stored order."""
    dim = str(writing.append_dim)
    form = writing.stored.forms.get(dim)
    if form is None or writing.stored.dims[dim] != (dim,):
        return
    variable = writing.dataset.variables[dim]
    values = np.asarray(variable.values)
    new = form.numbers(variable.dims, values, variable.attrs)
    stored = writing.stored.numbers(dim, {})
    if wrong := _out_of_order(stored, new, is_time=" since " in str(form.attrs.get("units"))):
        last = form.decode(variable.dims, stored[-1:], values) if len(stored) else stored
        after = f"after the last stored label, {cell(last, (0,))}" if len(last) else "in one direction"
        raise mismatch(
            f"`{dim}` must have new labels that continue in order {after}, got "
            f"{cell(values, (wrong - 1,))}. Sort the dataset (ds.sortby) and remove the stored labels "
            f"(ds.sel), or replace the stored values with region={{{dim!r}: 'auto'}}"
        )


def _out_of_order(stored: NDArray[Any], new: NDArray[Any], *, is_time: bool) -> int:
    """Return the position in ``new``, from 1, of the first label out of order. 0 if there is none."""
    together = np.concatenate([stored, new])
    up, down = (together[1:] > together[:-1], together[1:] < together[:-1])
    before = max(len(stored) - 1, 0)
    ordered = together.dtype.kind in "iuf" and len(together) > 1
    for steps in (up, down):
        # One label has no direction, but time always increases.
        has_direction = steps[:before].all() if before else steps[0:1].all() or (is_time and steps is up)
        if ordered and has_direction:
            wrong = np.flatnonzero(~steps[before:])
            return int(wrong[0]) + 1 + (not len(stored)) if len(wrong) else 0
    _, first = np.unique(new, return_index=True)
    again = np.isin(new, stored)
    again |= ~np.isin(np.arange(len(new)), first)
    return int(np.argmax(again)) + 1 if again.any() else 0


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        return old.strip() == new.strip()
    one, other = np.asarray(old), np.asarray(new)
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc" and other.dtype.kind in "fc"))


#: In the order of their cost, from the cheapest check.
_CHECKS: Final[Mapping[Check, Callable[[Writing], None]]] = {
    "variables": _variables,
    "attributes": _attributes,
    "packing": _packing,
    "static": _static,
    "order": _order,
    "values": _values,
}
#: Names for ``to_icechunk(accept=...)``.
CHECKS: Final[tuple[Check, ...]] = tuple(_CHECKS)
