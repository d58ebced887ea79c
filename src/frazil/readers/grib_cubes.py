"""The hypercubes of a GRIB file, one for each variable, and their names in one dataset.

cfgrib makes one hypercube of all its input fields, or raises an error. So it gets the fields of one
parameter, and if they have several types of levels, steps or grids, the fields of one type. Hypercubes
that have the same name get different names.

The names are those of cfgrib. If two cubes have different variables or coordinates with the same name, the
larger one keeps the name (the instant values, of instant and accumulated values). The other one gets a suffix
that describes it:

    heightAboveGround_2, heightAboveGround_10      single levels: the level; no level keeps the plain name
    isobaricInhPa_25levels                         fewer levels than ``isobaricInhPa``
    step_accum, time_accum, valid_time_accum       times of another kind of step (``stepType``)
    number_cf                                      other members, of another kind (``dataType``)
    latitude_181x360, longitude_181x360            a smaller grid; or the type of the grid
    t_surface, prate_avg, t_fc                     variables: type of level, kind of step, kind of data

The names do not depend on values that change from file to file of an archive (times, data), and not on the
order of the fields. So files with the same kinds of fields get the same names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


#: Axes whose values change from file to file of an archive, and the keys that distinguish their cubes.
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("stepType", "dataType"),
    "step": ("stepType", "dataType"),
    "valid_time": ("stepType", "dataType"),
    "number": ("dataType", "stepType"),
}
#: The noun for the values of an axis in a suffix.
_NOUNS: Final[Mapping[str, str]] = {"time": "times", "step": "steps", "number": "members"}
#: Keys that distinguish variables of one name, the most descriptive key first.
_VARIABLE_KEYS: Final = (
    "parameter",
    "typeOfLevel",
    "stepType",
    "dataType",
    "gridType",
    "gridShape",
    "stepUnits",
    "uvRelativeToGrid",
    "shortName",
    "paramId",
)
#: Cubes of this ``stepType`` keep the plain name, whatever their size.
_PLAIN: Final = "instant"
#: Of variables of the same size, variables on these types of levels keep the plain name.
_FIRST: Final = ("isobaricInhPa", "surface")
_HORIZONTAL: Final = ("latitude", "longitude")

type Names = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Variant:
    """One of several coordinates with the same name: the numbers of its cubes, and its values."""

    members: tuple[int, ...]
    values: Any

    @property
    def size(self) -> int:
        """The number of values."""
        return int(np.size(self.values))


def names_of(cubes: Sequence[Cube]) -> list[Names]:
    """Return for each cube the names of its variable, coordinates and dimensions in the dataset."""
    names: list[Names] = [
        {name: name for name in (*cube.coordinates, *cube.variable.dimensions)} for cube in cubes
    ]
    _rename_grids(cubes, names)
    _rename_axes(cubes, names)
    _rename_dependent(cubes, names)
    for cube, name, own in zip(cubes, _variable_names(cubes), names, strict=True):
        own[cube.name] = name
    _require_distinct(cubes, names)
    return names


# Coordinates


def _horizontal(cube: Cube) -> list[str]:
    """Return the names of one grid: latitude, longitude, and dimensions without a coordinate."""
    own = [name for name in cube.variable.dimensions if name not in cube.coordinates]
    return [*own, *(name for name in _HORIZONTAL if name in cube.coordinates)]


def _is_axis(cube: Cube, name: str) -> bool:
    """Return whether a coordinate is an independent axis, with one value or more."""
    return (
        name not in _horizontal(cube)
        and not _is_valid_time(cube, name)
        and cube.coordinates[name].dimensions in ((), (name,))
    )


def _is_valid_time(cube: Cube, name: str) -> bool:
    return name == "valid_time" and {"time", "step"} <= cube.coordinates.keys()


def _rename_grids(cubes: Sequence[Cube], names: list[Names]) -> None:
    shapes = [_grid_shape(cube) for cube in cubes]
    variants = _variants(
        range(len(cubes)),
        lambda i: (
            tuple(_horizontal(cubes[i])), shapes[i],
            *(_digest(cubes[i].coordinates.get(name)) for name in _HORIZONTAL),
        ),
        lambda i: np.broadcast_to(0, shapes[i]),
    )  # fmt: skip
    suffixes = _suffixes(cubes, variants, ("gridType",), lambda each: "x".join(map(str, each.values.shape)))
    for variant, suffix in zip(variants, suffixes, strict=True):
        for i in variant.members:
            names[i].update({name: name + suffix for name in _horizontal(cubes[i])})


def _grid_shape(cube: Cube) -> tuple[int, ...]:
    sizes = dict(zip(cube.variable.dimensions, cube.variable.data.shape, strict=True))
    horizontal = _horizontal(cube)
    return tuple(size for name, size in sizes.items() if name in horizontal)


def _rename_axes(cubes: Sequence[Cube], names: list[Names]) -> None:
    axes = {name for cube in cubes for name in cube.coordinates if _is_axis(cube, name)}
    for axis in sorted(axes):
        _rename_axis(cubes, names, axis)


def _rename_axis(cubes: Sequence[Cube], names: list[Names], axis: str) -> None:
    having = [i for i, cube in enumerate(cubes) if axis in cube.coordinates and _is_axis(cube, axis)]
    variants = _variants(
        having, lambda i: _digest(cubes[i].coordinates[axis]), lambda i: cubes[i].coordinates[axis].data
    )
    single = axis not in _KINDS and max(each.size for each in variants) == 1
    suffixes = _suffixes(
        cubes, variants, _KINDS.get(axis, ()), lambda each: _amount(each, axis), plain=not single
    )
    for variant, suffix in zip(variants, suffixes, strict=True):
        for i in variant.members:
            names[i][axis] = axis + suffix


def _amount(variant: _Variant, axis: str) -> str:
    if variant.size > 1:
        return f"{variant.size}{_NOUNS.get(axis, 'levels')}"
    return "" if axis in _KINDS else f"{float(np.ravel(variant.values)[0]):g}"


def _rename_dependent(cubes: Sequence[Cube], names: list[Names]) -> None:
    """Give coordinates along other axes, such as ``valid_time(time, step)``, the suffixes of their axes."""
    for cube, own in zip(cubes, names, strict=True):
        for name, each in cube.coordinates.items():
            if name in _horizontal(cube) or _is_axis(cube, name):
                continue
            axes = ("time", "step") if _is_valid_time(cube, name) else each.dimensions
            suffixes = dict.fromkeys(own[axis].removeprefix(axis) for axis in axes)
            own[name] = name + "".join(suffixes)


def _variants(
    cubes: Iterable[int], identity: Callable[[int], Any], values: Callable[[int], Any]
) -> list[_Variant]:
    members: dict[Any, list[int]] = {}
    for i in cubes:
        members.setdefault(identity(i), []).append(i)
    return [_Variant(tuple(each), values(each[0])) for each in members.values()]


def _suffixes(
    cubes: Sequence[Cube],
    variants: Sequence[_Variant],
    keys: Sequence[str],
    amount: Callable[[_Variant], str],
    *,
    plain: bool = True,
) -> list[str]:
    """Return a different suffix for each variant. With ``plain`` that of the largest variant is empty."""
    if len(variants) == 1:
        return [""]

    def rank(number: int) -> tuple[Any, ...]:
        variant = variants[number]
        kinds = sorted({cubes[i].key("stepType") for i in variant.members})
        largest = max(cubes[i].size for i in variant.members)
        # Values come last: they decide only if keys and sizes are equal.
        return (
            -variant.size, _PLAIN not in kinds, kinds, -largest, _texts(cubes, variant), repr(variant.values)
        )  # fmt: skip

    order = sorted(range(len(variants)), key=rank)
    suffixes = [""] * len(variants)
    for key in keys:
        values = [{cubes[i].key(key) for i in each.members} for each in variants]
        if all(len(each) == 1 for each in values) and len(set.union(*values)) == len(variants):
            suffixes = ["_" + _plain_text(*each) for each in values]
            order.sort(key=lambda number: values[number] != {_PLAIN})
            break
    else:
        taken = {""}
        for number in order[1:] if plain else order:
            text = amount(variants[number])
            suffixes[number] = _free("_" + text if text else "", taken)
            taken.add(suffixes[number])
    if plain:
        suffixes[order[0]] = ""
    return suffixes


def _texts(cubes: Sequence[Cube], variant: _Variant) -> list[str]:
    return sorted(f"{cubes[i].key('shortName')} {cubes[i].key('paramId')}" for i in variant.members)


def _digest(variable: Any) -> Any:
    """Return a value that is equal for equal coordinates."""
    if variable is None:
        return None
    values = np.asarray(variable.data)
    return variable.dimensions, values.shape, values.dtype.str, values.tobytes()


# Variables


def _variable_names(cubes: Sequence[Cube]) -> list[str]:
    names = [""] * len(cubes)
    same: dict[str, list[int]] = {}
    for i, cube in enumerate(cubes):
        same.setdefault(cube.name, []).append(i)
    for name, members in same.items():
        _name_variables(cubes, members, name, _VARIABLE_KEYS, names)
    return names


def _name_variables(
    cubes: Sequence[Cube], members: Sequence[int], name: str, keys: Sequence[str], names: list[str]
) -> None:
    """Name cubes with the same name. For each key, the value with the largest cubes keeps the plain name."""
    if len(members) == 1:
        names[members[0]] = name
        return
    if not keys:
        taken: set[str] = set()
        for i in sorted(members, key=lambda i: (-cubes[i].size, repr(_place(cubes[i])))):
            names[i] = _free(name, taken)
            taken.add(names[i])
        return
    groups: dict[str, list[int]] = {}
    for i in members:
        groups.setdefault(cubes[i].key(keys[0]), []).append(i)
    order = sorted(
        groups,
        key=lambda value: (
            value != _PLAIN,
            -max(cubes[i].size for i in groups[value]),
            value not in _FIRST,
            value,
        ),
    )
    for value in order:
        suffix = "" if value == order[0] else "_" + (_plain_text(value) or "other")
        _name_variables(cubes, groups[value], name + suffix, keys[1:], names)


def _place(cube: Cube) -> Any:
    return [(name, _digest(each)) for name, each in sorted(cube.coordinates.items())]


def _plain_text(value: str) -> str:
    return re.sub(r"\W+", "_", value).strip("_")


def _free(wanted: str, taken: Iterable[str]) -> str:
    """Return a free name: the wanted name, or with a suffix ``_2``, ``_3``, ..."""
    taken = set(taken)
    return next(
        name
        for number in range(1, len(taken) + 2)
        if (name := wanted if number == 1 else f"{wanted}_{number}") not in taken
    )


def _require_distinct(cubes: Sequence[Cube], names: list[Names]) -> None:
    """Add a number to the name of a variable or coordinate if an earlier, different one has the same name."""
    owners: dict[str, Any] = {}
    for cube, own in zip(cubes, names, strict=True):
        for name, new in list(own.items()):
            if name == cube.name:
                identity: Any = (id(cube), "variable")
            elif name in cube.coordinates:
                each = cube.coordinates[name]
                identity = tuple(own[dim] for dim in each.dimensions), _digest(each)[1:]
            else:
                continue
            number = 1
            while owners.setdefault(new, identity) != identity:
                number += 1
                new = f"{own[name]}_{number}"
            own[name] = new
