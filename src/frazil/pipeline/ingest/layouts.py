"""The layout of a file: the part of its schema that many files share, and the differences of two layouts.

A ``FileLayout`` is the schema of a file without the properties that each file has for itself: the length and
labels along the dimension in which files follow each other, the origin of its times, its packing, the values
of its scalars. A hundred thousand files of one archive have a few layouts. So a file is a row of columns with
the code of its layout.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.readers.file_schema import FileSchema, NotVirtual, VariableSchema, codecs_with_axis

#: The length of the concat dimension in a layout: it differs from file to file.
ANY: Final = -1

#: Attributes that may differ from file to file if values are unpacked.
PACKING: Final = ("scale_factor", "add_offset")
#: The attributes with the numbers that mean a missing value.
MISSING: Final = ("_FillValue", "missing_value")


@dataclass(frozen=True, slots=True)
class VirtualChunks:
    """The chunks of a variable for references: chunk shape, codecs, dtype and fill value as in Zarr.

    Chunks of plain bytes can be cut along the concat dimension at multiples of ``unit`` steps, and their
    length along it is `ANY`. For other chunks ``unit`` is 0.
    """

    chunks: tuple[int, ...]
    codecs: tuple[Any, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    unit: int = 0


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of a file.

    ``dims`` are its dimensions without the concat dimension. ``values`` are digests of small variables
    without the concat dimension. ``individual`` are variables without the concat dimension whose values may
    differ from file to file (see `individual_names`). ``adds_axis``: files do not have the concat dimension,
    and each file is one step of it. ``virtual`` are the chunks of data for references, None for copies.
    ``skipped`` are variables that no array can hold, and attributes that cannot be read, with the reasons.
    """

    format: str
    variables: Mapping[str, VariableSchema]
    dims: Mapping[str, int]
    unlimited: frozenset[str]
    values: Mapping[str, str]
    individual: frozenset[str] = frozenset()
    adds_axis: bool = False
    virtual: Mapping[str, VirtualChunks | NotVirtual] | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A hash of the layout, 32 hexadecimal digits."""
        parts = [self.format, sorted(self.unlimited), sorted(self.individual), self.adds_axis]
        mappings = (self.variables, self.dims, self.values, self.virtual or {}, self.skipped)
        parts += [sorted(map(repr, each.items())) for each in mappings]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def has_concat_dim(self, name: str) -> bool:
        """Return whether a variable has the concat dimension."""
        return ANY in self.variables[name].shape

    def is_converted(self, name: str) -> bool:
        """Return whether each file may have its own dtype and missing values of a variable.

        These are numeric coordinates with the concat dimension or with individual values.
        """
        variable = self.variables[name]
        follows = self.has_concat_dim(name) or name in self.individual
        return variable.coordinate and follows and variable.dtype.kind in "iuf"

    @property
    def data(self) -> frozenset[str]:
        """The names of the data variables; only those with the concat dimension, if there are any."""
        data = [name for name, variable in self.variables.items() if not variable.coordinate]
        return frozenset(filter(self.has_concat_dim, data)) or frozenset(data) or frozenset(self.variables)


#: ``(variable, attribute, value)`` for each attribute that may differ from file to file.
type OwnAttributes = tuple[tuple[str, str, Any], ...]


def layout_of(
    schema: FileSchema,
    dim: str | None,
    values: Mapping[str, str],
    individual: frozenset[str] = frozenset(),
    virtual: Mapping[str, VirtualChunks | NotVirtual] | None = None,
) -> tuple[FileLayout, OwnAttributes]:
    """Return the layout of a file, and its own attributes."""
    own = tuple(
        sorted(
            (name, attribute, variable.attrs[attribute])
            for name, variable in schema.variables.items()
            for attribute in own_attributes(variable)
        )
    )
    layout = FileLayout(
        schema.format,
        {name: _without_own(each, dim) for name, each in schema.variables.items()},
        {name: size for name, size in schema.dims.items() if name != dim},
        schema.unlimited,
        values,
        individual,
        dim not in schema.dims,
        virtual,
        schema.skipped,
    )
    return layout, own


def individual_names(schema: FileSchema, dim: str | None) -> frozenset[str]:
    """Return the variables without the concat dimension whose values may differ from file to file.

    These are scalars, their bounds, and times. Grid mappings are excluded, because their values have no
    meaning.
    """
    variables = {name: each for name, each in schema.variables.items() if dim not in each.dims}
    scalars = {name: each for name, each in variables.items() if not each.dims}
    mappings = {each.attrs.get("grid_mapping") for each in schema.variables.values()}
    scalars = {
        name: each
        for name, each in scalars.items()
        if name not in mappings and "grid_mapping_name" not in each.attrs
    }
    bounds = {str(each.attrs.get(key)) for each in scalars.values() for key in ("bounds", "climatology")}
    times = {
        name
        for name, each in variables.items()
        if each.coordinate and name not in schema.dims and is_time(each.attrs.get("units"))
    }
    return frozenset({*scalars, *(bounds & variables.keys()), *times})


def stacked(layout: FileLayout, dim: str, names: Collection[str]) -> FileLayout:
    """Return the layout with these variables along a dimension that they do not have in the files.

    Individual variables are always copied: they are small, and one value may be repeated for many steps.
    """
    variables = {
        name: _along(each, dim) if name in names and dim not in each.dims else each
        for name, each in layout.variables.items()
    }
    virtual = {
        name: _with_axis(each) if name in names and isinstance(each, VirtualChunks) else each
        for name, each in (layout.virtual or {}).items()
        if not (name in names and name in layout.individual)
    }
    values = {name: digest for name, digest in layout.values.items() if name not in names}
    return replace(
        layout,
        variables=variables,
        values=values,
        virtual=None if layout.virtual is None else virtual,
    )


def _with_axis(each: VirtualChunks) -> VirtualChunks:
    codecs = codecs_with_axis(map(json.loads, each.codecs))
    texts = tuple(json.dumps(codec, sort_keys=True) for codec in codecs)
    return replace(each, chunks=(1, *each.chunks), codecs=texts)


def _along(variable: VariableSchema, dim: str) -> VariableSchema:
    chunks = None if variable.chunks is None else (1, *variable.chunks)
    return replace(variable, dims=(dim, *variable.dims), shape=(ANY, *variable.shape), chunks=chunks)


def own_attributes(variable: VariableSchema) -> list[str]:
    """Return the names of the attributes that may differ from file to file: packing, and units of times."""
    names: list[str] = [name for name in PACKING if name in variable.attrs]
    return [*names, "units"] if is_time(variable.attrs.get("units")) else names


def with_own(variable: VariableSchema, own: OwnAttributes) -> VariableSchema:
    """Return a variable of a layout with the own attributes of a file."""
    mine = {attribute: value for name, attribute, value in own if name == variable.name}
    return replace(variable, attrs={**variable.attrs, **mine}) if mine else variable


def _without_own(variable: VariableSchema, dim: str | None) -> VariableSchema:
    own = set(own_attributes(variable))
    attrs = {name: value for name, value in variable.attrs.items() if name not in own}
    sizes = zip(variable.dims, variable.shape, strict=True)
    shape = tuple(ANY if name == dim else size for name, size in sizes)
    return replace(variable, attrs=attrs, shape=shape)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in the byte order of this machine, which copies have."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def values_digest(values: NDArray[Any]) -> str:
    """Return a digest of the values of a small variable, 16 hexadecimal digits."""
    hashed = hashlib.sha256(f"{values.shape}".encode())
    plain = np.ascontiguousarray(values)
    if plain.dtype.kind in "TOU":
        hashed.update(repr(plain.tolist()).encode())
    else:
        hashed.update(plain.dtype.newbyteorder("<").str.encode())
        hashed.update(plain.astype(plain.dtype.newbyteorder("<")).tobytes())
    return hashed.hexdigest()[:16]


# Attributes that change the meaning of the stored numbers.
_MEANING: Final = (
    "units",
    "calendar",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "flag_values",
    "flag_masks",
)


def meaning(layout: FileLayout) -> tuple[Any, ...]:
    """Return the properties that files of one dataset must share, except values.

    The result is equal for layouts that differ only in storage, such as compression.
    """
    return (
        layout.adds_axis,
        tuple(sorted(layout.dims.items())),
        tuple(sorted((name, repr(_meaning(layout, name))) for name in layout.variables)),
        repr(sorted((name, repr(_without_unit(each))) for name, each in (layout.virtual or {}).items())),
    )


def _without_unit(each: VirtualChunks | NotVirtual) -> VirtualChunks | NotVirtual:
    """Return the chunks without their unit: chunks that can be cut may have different lengths."""
    return replace(each, unit=0) if isinstance(each, VirtualChunks) else each


def _meaning(layout: FileLayout, name: str) -> tuple[Any, ...]:
    variable, converted = layout.variables[name], layout.is_converted(name)
    attrs = {each: variable.attrs[each] for each in _meaning_names(converted) if each in variable.attrs}
    return variable.dims, variable.shape, "number" if converted else native(variable.dtype), attrs


def _meaning_names(converted: bool) -> tuple[str, ...]:
    """Return the attributes that change the meaning of the numbers of a variable."""
    return tuple(name for name in _MEANING if not (converted and name in MISSING))


def differences(layout: FileLayout, expected: FileLayout) -> list[tuple[str, str]]:
    """Return the differences that exclude one dataset, as pairs of a kind of problem and a text."""
    result: list[tuple[str, str]] = []
    missing, more = expected.variables.keys() - layout.variables, layout.variables.keys() - expected.variables
    if missing or more:
        parts = [f"without {', '.join(sorted(missing))}"] * bool(missing)
        parts += [f"with {', '.join(sorted(more))}"] * bool(more)
        result.append(("variables", " and ".join(parts)))
    if layout.adds_axis != expected.adds_axis:
        has = ["does not have" if layout.adds_axis else "has", "have it" if layout.adds_axis else "do not"]
        result.append(("dims", f"{has[0]} the concat dimension, but other files {has[1]}"))
    for name in sorted(layout.variables.keys() & expected.variables):
        converted = layout.is_converted(name) and expected.is_converted(name)
        result += _variable_differences(layout.variables[name], expected.variables[name], converted)
    for name in sorted((layout.virtual or {}).keys() & (expected.virtual or {})):
        chunks, expected_chunks = (layout.virtual or {})[name], (expected.virtual or {})[name]
        if repr(_without_unit(chunks)) != repr(_without_unit(expected_chunks)):
            text = f"{name} is stored as {_storage(chunks)} and not {_storage(expected_chunks)}"
            result.append(("chunks", text))
    return result


def value_differences(values: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Return a text that names the variables with other values (by their digests); "" if there are none."""
    both = sorted(values.keys() & expected.keys())
    return "; ".join(f"{name} has other values" for name in both if values[name] != expected[name])


def _storage(each: VirtualChunks | NotVirtual) -> str:
    if isinstance(each, NotVirtual):
        return each.reason
    names = ", ".join(
        str(codec.get("name", codec)) if isinstance(codec, dict) else str(codec) for codec in each.codecs
    )
    chunks = ", ".join("any" if size == ANY else str(size) for size in each.chunks)
    return f"{each.dtype} in chunks of ({chunks}) ({names})"


def _variable_differences(
    variable: VariableSchema, expected: VariableSchema, converted: bool
) -> Iterable[tuple[str, str]]:
    name = variable.name
    if (variable.dims, variable.shape) != (expected.dims, expected.shape):
        yield "dims", f"{name} has dimensions {_dims(variable)} and not {_dims(expected)}"
    if not converted and native(variable.dtype) != native(expected.dtype):
        yield "dtype", f"{name} is {variable.dtype} and not {expected.dtype}"
    for attribute in _meaning_names(converted):
        value, other = variable.attrs.get(attribute), expected.attrs.get(attribute)
        if repr(value) != repr(other):
            kind = "units" if attribute in ("units", "calendar") else "attributes"
            yield kind, f"{name} has {attribute} {value!r} and not {other!r}"


def _dims(variable: VariableSchema) -> str:
    sizes = zip(variable.dims, variable.shape, strict=True)
    return "(" + ", ".join(name if size == ANY else f"{name}: {size}" for name, size in sizes) + ")"


def attribute_differences(layout: FileLayout, expected: FileLayout) -> list[str]:
    """Return the attributes that differ without changing the meaning of the numbers."""
    result = []
    for name in sorted(layout.variables.keys() & expected.variables):
        attrs, others = layout.variables[name].attrs, expected.variables[name].attrs
        names = sorted((attrs.keys() | others.keys()) - {*_MEANING})
        result += [f"{name}.{each}" for each in names if repr(attrs.get(each)) != repr(others.get(each))]
    return result
