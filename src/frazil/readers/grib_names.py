"""The names of the hypercubes of a GRIB file in one dataset.

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

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.readers.grib_cubes import Cube

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
