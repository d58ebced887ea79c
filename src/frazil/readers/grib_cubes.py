"""The hypercubes of a GRIB file, one for each variable.

cfgrib makes one hypercube of all its input fields, or raises an error. So it gets the fields of one
parameter, and if they have several types of levels, steps or grids, the fields of one type. `grib_names`
gives different names to hypercubes that have the same name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import cfgrib  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from cfgrib.dataset import OnDiskArray, open_fileindex  # type: ignore[import-untyped]
from cfgrib.messages import FileStream  # type: ignore[import-untyped]

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError

#: Keys that an error lists to help the user choose fields.
CHOICES: Final = ("typeOfLevel", "stepType", "dataType", "gridType", "numberOfPoints")
#: Keys that distinguish parameters that eccodes does not know (``paramId`` 0).
_PARAMETER: Final = ("discipline", "parameterCategory", "parameterNumber")
_LISTED: Final = 12


@dataclass(frozen=True, slots=True)
class GribOptions:
    """The options of the reader, as in ``cfgrib.open_file``. None means no keys or coordinates."""

    filter_by_keys: Mapping[str, Any] | None = None
    squeeze: bool = True
    time_dims: Sequence[str] = ("time", "step")
    read_keys: Sequence[str] = ()
    extra_coords: Mapping[str, str] | None = None
    ignore_keys: Sequence[str] = ()
    encode_cf: Sequence[str] = ("parameter", "time", "geography", "vertical")
    coords_as_attributes: Mapping[str, str] | None = None
    values_dtype: Any = "float32"
    errors: str = "raise"

    def open(self, index: Any) -> Any:
        """Return the ``Dataset`` of cfgrib for the fields of an index."""
        return cfgrib.open_from_index(
            index,
            read_keys=tuple(self.read_keys),
            time_dims=tuple(self.time_dims),
            extra_coords=dict(self.extra_coords or {}),
            errors=self.errors,
            squeeze=self.squeeze,
            encode_cf=tuple(self.encode_cf),
            coords_as_attributes=dict(self.coords_as_attributes or {}),
            values_dtype=np.dtype(self.values_dtype),
        )


@dataclass(frozen=True, slots=True)
class Cube:
    """One variable with its coordinates, as cfgrib returns them. ``attrs`` are the attributes of the file.

    ``parameter`` identifies a parameter that eccodes does not know; empty if eccodes knows it.
    """

    name: str
    variable: Any
    coordinates: Mapping[str, Any]
    attrs: Mapping[str, Any]
    parameter: str = ""

    def key(self, name: str) -> str:
        """Return the value of a key that all fields of the cube share, as text; empty if there is none."""
        if name == "parameter":
            return self.parameter
        if name == "gridShape":
            data = self.variable.data
            return "x".join(map(str, data.shape[len(data.shape) - data.geo_ndim :]))
        return str(self.variable.attributes.get(f"GRIB_{name}", ""))

    @property
    def size(self) -> int:
        """The number of values."""
        return int(np.prod(self.variable.data.shape, dtype=object))


@dataclass(frozen=True, slots=True)
class Cubes:
    """The cubes of a file, in the order of its fields. ``skipped`` are omitted fields, with the reasons."""

    cubes: tuple[Cube, ...]
    skipped: Mapping[str, str]


def open_cubes(path: str, url: str, options: GribOptions) -> Cubes:
    """Read the keys of all fields of a file, and arrange the fields. ``url`` is its name in errors."""
    keys = cfgrib.compute_index_keys(tuple(options.time_dims), dict(options.extra_coords or {}))
    chosen = dict(options.filter_by_keys or {})
    stream = FileStream(path, errors=options.errors)
    # No index path, because the index would be a new file beside the original.
    index = open_fileindex(
        stream, "", sorted({*keys, *CHOICES, *_PARAMETER}), tuple(options.ignore_keys), chosen
    )
    if not len(index.field_ids_index):
        raise _no_field(url, path, chosen, options)
    skipped: dict[str, str] = {}
    cubes: list[Cube] = []
    for fields, parameter in _parameters(index):
        for cube in _cubes(fields, options, skipped):
            cubes.append(replace(cube, parameter=parameter))
            _note_hidden(cube, skipped)
    if not cubes:
        raise InvalidInputError(
            f"{url}: cfgrib cannot arrange any of the fields: {next(iter(skipped.values()))}",
            ErrorKind.UNIMPLEMENTED,
        )
    return Cubes(tuple(cubes), skipped)


def _parameters(index: Any) -> Iterator[tuple[Any, str]]:
    """Yield the fields of each parameter, and an identification if eccodes does not know the parameter."""
    for parameter in index["paramId"]:
        fields = index.subindex(paramId=parameter)
        if parameter:
            yield fields, ""
            continue
        for values in itertools.product(*(fields.get(key, ["undef"]) for key in _PARAMETER)):
            those = fields.subindex(
                {key: value for key, value in zip(_PARAMETER, values, strict=True) if key in fields}
            )
            if len(those.field_ids_index):
                yield those, "_".join(map(str, values))


def _cubes(index: Any, options: GribOptions, skipped: dict[str, str]) -> Iterator[Cube]:
    """Yield the hypercubes of the fields of one parameter."""
    try:
        dataset = options.open(index)
    except cfgrib.DatasetBuildError as error:
        key = error.args[1] if len(error.args) > 2 else None
        values = index.get(key, []) if key is not None else []
        if len(values) < 2:
            skipped[_label(index)] = " ".join(str(error).split())
            return
        for value in values:
            yield from _cubes(index.subindex({key: value}), options, skipped)
        return
    except (KeyError, ValueError, NotImplementedError) as error:
        skipped[_label(index)] = f"{type(error).__name__}: {error}"
        return
    grids = index.get("md5GridSection", [])
    if len(grids) > 1:
        parts = [options.open(index.subindex(md5GridSection=each)) for each in grids]
        # cfgrib uses the coordinates of the first field for all fields.
        if any(not _same_grid(parts[0], each) for each in parts[1:]):
            yield from map(_cube, parts)
            return
    yield _cube(dataset)


def _cube(dataset: Any) -> Cube:
    variables = dict(dataset.variables)
    name = next(name for name, each in variables.items() if isinstance(each.data, OnDiskArray))
    return Cube(name, variables.pop(name), variables, dataset.attributes)


def _same_grid(first: Any, second: Any) -> bool:
    names = ("latitude", "longitude")
    return all(first.variables.get(name) == second.variables.get(name) for name in names)


def _label(index: Any) -> str:
    """Return a name for fields without a cube."""
    field_ = index.first()
    name = field_.get("shortName", None)
    return str(name) if name not in (None, "unknown") else f"paramId_{field_.get('paramId', None)}"


def _note_hidden(cube: Cube, skipped: dict[str, str]) -> None:
    """Record the hidden fields of a cube: of several fields with equal keys, cfgrib reads only the first."""
    hidden = sum(len(ids) - 1 for ids in cube.variable.data.field_id_index.values())
    if hidden:
        skipped[f"{cube.name} ({cube.key('typeOfLevel')})"] = (
            f"{counted(hidden, 'field')} with the same time, step, level and member as an earlier field"
        )


def _no_field(url: str, path: str, chosen: Mapping[str, Any], options: GribOptions) -> InvalidInputError:
    whole = open_fileindex(FileStream(path, errors=options.errors), "", sorted({*CHOICES, *chosen}))
    choices = [
        f"{key} {_listed(whole[key])}" for key in dict.fromkeys((*chosen, *CHOICES[:2])) if key in whole
    ]
    return InvalidInputError(
        f"{url}: filter_by_keys must match fields of the file, got {_equal(chosen)}; the file has "
        f"{'; '.join(choices)}",
        ErrorKind.KEY_NOT_FOUND,
    )


def _equal(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in chosen.items())


def _listed(values: Sequence[Any]) -> str:
    some = ", ".join(map(str, values[:_LISTED]))
    return some + (f" and {len(values) - _LISTED} more" if len(values) > _LISTED else "")
