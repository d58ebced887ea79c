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
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def _open(index: Any, options: GribOptions) -> Any:
    """Return the ``Dataset`` of cfgrib for the fields of an index."""
    given: dict[str, Any] = {"values_dtype": np.dtype(options.values_dtype)}
    given |= {name: tuple(getattr(options, name)) for name in ("read_keys", "time_dims", "encode_cf")}
    given |= {name: dict(getattr(options, name) or {}) for name in ("extra_coords", "coords_as_attributes")}
    return cfgrib.open_from_index(index, errors=options.errors, squeeze=options.squeeze, **given)


@dataclass(frozen=True, slots=True)
class Cube:
    """One variable as cfgrib returns it. ``parameter`` identifies a parameter that eccodes does not know."""

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
        return math.prod(self.variable.data.shape)

    @property
    def horizontal(self) -> list[str]:
        """The names of its grid: latitude, longitude, and dimensions without a coordinate."""
        own = [name for name in self.variable.dimensions if name not in self.coordinates]
        return [*own, *(name for name in _HORIZONTAL if name in self.coordinates)]

    @property
    def axes(self) -> list[str]:
        """The names of the coordinates that are independent axes, with one value or more."""
        names = self.coordinates.keys() - self.horizontal
        if {"time", "step"} <= names:
            names -= {"valid_time"}
        return [name for name in names if self.coordinates[name].dimensions in ((), (name,))]


def open_cubes(path: str, url: str, options: GribOptions) -> tuple[list[Cube], dict[str, str]]:
    """Return the cubes of a file (``url``) in the order of its fields, and omitted fields with reasons."""
    keys = cfgrib.compute_index_keys(tuple(options.time_dims), dict(options.extra_coords or {}))
    chosen = dict(options.filter_by_keys or {})
    stream = FileStream(path, errors=options.errors)
    # No index path, because the index would be a new file beside the original.
    index = open_fileindex(
        stream, "", sorted({*keys, *CHOICES, *_PARAMETER}), tuple(options.ignore_keys), chosen
    )
    if not len(index.field_ids_index):
        whole = open_fileindex(FileStream(path, errors=options.errors), "", sorted({*CHOICES, *chosen}))
        choices = []
        for key in dict.fromkeys((*chosen, *CHOICES[:2])):
            if key in whole:
                some = ", ".join(map(str, whole[key][:_LISTED]))
                more = len(whole[key]) - _LISTED
                choices.append(f"{key} {some}" + (f" and {more} more" if more > 0 else ""))
        raise InvalidInputError(
            f"{url}: filter_by_keys must match fields of the file, got "
            f"{', '.join(f'{key}={value}' for key, value in chosen.items())}; the file has "
            f"{'; '.join(choices)}",
            ErrorKind.KEY_NOT_FOUND,
        )
    skipped: dict[str, str] = {}
    cubes: list[Cube] = []
    for fields, parameter in _parameters(index):
        for cube in _cubes(fields, options, skipped):
            cubes.append(replace(cube, parameter=parameter))
            # Of several fields with equal keys, cfgrib reads only the first.
            hidden = sum(len(ids) - 1 for ids in cube.variable.data.field_id_index.values())
            if hidden:
                same = "with the same time, step, level and member as an earlier field"
                skipped[f"{cube.name} ({cube.key('typeOfLevel')})"] = f"{counted(hidden, 'field')} {same}"
    if not cubes:
        raise InvalidInputError(
            f"{url}: cfgrib cannot arrange any of the fields: {next(iter(skipped.values()))}",
            ErrorKind.UNIMPLEMENTED,
        )
    return cubes, skipped


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
        dataset = _open(index, options)
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
    grids, parts = index.get("md5GridSection", []), [dataset]
    if len(grids) > 1:
        # cfgrib uses the coordinates of the first field for all fields.
        some = [_open(index.subindex(md5GridSection=each), options) for each in grids]
        places = [[each.variables.get(name) for name in _HORIZONTAL] for each in some]
        parts = some if any(each != places[0] for each in places[1:]) else parts
    for part in parts:
        variables = dict(part.variables)
        name = next(name for name, each in variables.items() if isinstance(each.data, OnDiskArray))
        yield Cube(name, variables.pop(name), variables, part.attributes)


def _label(index: Any) -> str:
    """Return a name for fields without a cube."""
    field_ = index.first()
    name = field_.get("shortName", None)
    return str(name) if name not in (None, "unknown") else f"paramId_{field_.get('paramId', None)}"


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


#: One of several coordinates with the same name: the numbers of its cubes, and its values.
type _Variant = tuple[Sequence[int], Any]


def names_of(cubes: Sequence[Cube]) -> list[Names]:
    """Return for each cube the names of its variable, coordinates and dimensions in the dataset."""
    names: list[Names] = [
        {name: name for name in (*cube.coordinates, *cube.variable.dimensions)} for cube in cubes
    ]
    _rename_grids(cubes, names)
    axes = [cube.axes for cube in cubes]
    for axis in sorted({name for mine in axes for name in mine}):
        _rename_axis(cubes, names, axis, [i for i, mine in enumerate(axes) if axis in mine])
    for cube, own, mine in zip(cubes, names, axes, strict=True):
        # Coordinates along other axes, such as `valid_time(time, step)`, get the suffixes of their axes.
        for name, each in cube.coordinates.items():
            if name not in mine and name not in cube.horizontal:
                is_valid_time = name == "valid_time" and {"time", "step"} <= cube.coordinates.keys()
                on = ("time", "step") if is_valid_time else each.dimensions
                own[name] = name + "".join(dict.fromkeys(own[dim].removeprefix(dim) for dim in on))
    variables = [""] * len(cubes)
    same: dict[str, list[int]] = {}
    for i, cube in enumerate(cubes):
        same.setdefault(cube.name, []).append(i)
    for name, members in same.items():
        _name_variables(cubes, members, name, _VARIABLE_KEYS, variables)
    # Different variables or coordinates with one name get a number.
    owners: dict[str, Any] = {}
    for cube, name, own in zip(cubes, variables, names, strict=True):
        own[cube.name] = name
        for old, new in list(own.items()):
            if old == cube.name:
                identity: Any = (id(cube), "variable")
            elif old in cube.coordinates:
                each = cube.coordinates[old]
                identity = tuple(own[dim] for dim in each.dimensions), _digest(each)[1:]
            else:
                continue
            number, free = 1, new
            while owners.setdefault(free, identity) != identity:
                number += 1
                free = f"{new}_{number}"
            own[old] = free
    return names


# Coordinates


def _rename_grids(cubes: Sequence[Cube], names: list[Names]) -> None:
    members: dict[Any, list[int]] = {}
    for i, cube in enumerate(cubes):
        sizes = zip(cube.variable.dimensions, cube.variable.data.shape, strict=True)
        shape = tuple(size for name, size in sizes if name in cube.horizontal)
        values = (_digest(cube.coordinates.get(name)) for name in _HORIZONTAL)
        members.setdefault((tuple(cube.horizontal), shape, *values), []).append(i)
    variants = [(mine, np.broadcast_to(0, key[1])) for key, mine in members.items()]
    amounts = ["x".join(map(str, values.shape)) for _, values in variants]
    suffixes = _suffixes(cubes, variants, ("gridType",), amounts)
    for (mine, _), suffix in zip(variants, suffixes, strict=True):
        for i in mine:
            names[i].update({name: name + suffix for name in cubes[i].horizontal})


def _rename_axis(cubes: Sequence[Cube], names: list[Names], axis: str, having: Iterable[int]) -> None:
    members: dict[Any, list[int]] = {}
    for i in having:
        members.setdefault(_digest(cubes[i].coordinates[axis]), []).append(i)
    variants = [(mine, cubes[mine[0]].coordinates[axis].data) for mine in members.values()]
    amounts = []
    for _, values in variants:
        single = "" if axis in _KINDS else f"{float(np.ravel(values)[0]):g}"
        amounts.append(f"{np.size(values)}{_NOUNS.get(axis, 'levels')}" if np.size(values) > 1 else single)
    plain = axis in _KINDS or max(np.size(values) for _, values in variants) > 1
    suffixes = _suffixes(cubes, variants, _KINDS.get(axis, ()), amounts, plain=plain)
    for (mine, _), suffix in zip(variants, suffixes, strict=True):
        for i in mine:
            names[i][axis] = axis + suffix


# Coordinates


def _suffixes(
    cubes: Sequence[Cube],
    variants: Sequence[_Variant],
    keys: Sequence[str],
    amounts: Sequence[str],
    *,
    plain: bool = True,
) -> list[str]:
    """Return a different suffix for each variant. With ``plain`` that of the largest variant is empty."""
    if len(variants) == 1:
        return [""]

    def rank(number: int) -> tuple[Any, ...]:
        members, values = variants[number]
        mine = [cubes[i] for i in members]
        kinds = sorted({each.key("stepType") for each in mine})
        texts = sorted(f"{each.key('shortName')} {each.key('paramId')}" for each in mine)
        largest = max(each.size for each in mine)
        # Values come last: they decide only if keys and sizes are equal.
        return -np.size(values), _PLAIN not in kinds, kinds, -largest, texts, repr(values)

    order = sorted(range(len(variants)), key=rank)
    suffixes = [""] * len(variants)
    for key in keys:
        values = [{cubes[i].key(key) for i in members} for members, _ in variants]
        if all(len(each) == 1 for each in values) and len(set.union(*values)) == len(variants):
            suffixes = ["_" + _plain_text(*each) for each in values]
            order.sort(key=lambda number: values[number] != {_PLAIN})
            break
    else:
        taken = {""}
        for number in order[1:] if plain else order:
            suffixes[number] = _free("_" + amounts[number] if amounts[number] else "", taken)
            taken.add(suffixes[number])
    if plain:
        suffixes[order[0]] = ""
    return suffixes


def _digest(variable: Any) -> Any:
    """Return a value that is equal for equal coordinates."""
    if variable is None:
        return None
    values = np.asarray(variable.data)
    return variable.dimensions, values.shape, values.dtype.str, values.tobytes()


# Variables


def _name_variables(
    cubes: Sequence[Cube], members: Sequence[int], name: str, keys: Sequence[str], names: list[str]
) -> None:
    """Name cubes with the same name. For each key, the value with the largest cubes keeps the plain name."""
    if len(members) == 1:
        names[members[0]] = name
        return
    if not keys:
        taken: set[str] = set()
        places = {
            i: repr([(each, _digest(value)) for each, value in sorted(cubes[i].coordinates.items())])
            for i in members
        }
        for i in sorted(members, key=lambda i: (-cubes[i].size, places[i])):
            names[i] = _free(name, taken)
            taken.add(names[i])
        return
    groups: dict[str, list[int]] = {}
    for i in members:
        groups.setdefault(cubes[i].key(keys[0]), []).append(i)
    largest = {value: max(cubes[i].size for i in mine) for value, mine in groups.items()}
    order = sorted(groups, key=lambda value: (value != _PLAIN, -largest[value], value not in _FIRST, value))
    for value in order:
        suffix = "" if value == order[0] else "_" + (_plain_text(value) or "other")
        _name_variables(cubes, groups[value], name + suffix, keys[1:], names)


def _plain_text(value: str) -> str:
    return re.sub(r"\W+", "_", value).strip("_")


def _free(wanted: str, taken: Iterable[str]) -> str:
    """Return a free name: the wanted name, or with a suffix ``_2``, ``_3``, ..."""
    numbered = (f"{wanted}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if name not in taken)
