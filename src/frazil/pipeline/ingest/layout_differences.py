"""Describes the differences between the layouts of two files, which decide whether they fit one dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from frazil.pipeline.ingest.file_layout import ANY, MISSING, FileLayout, VirtualChunks, native
from frazil.readers.reader import NotVirtual, VariableSchema

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
