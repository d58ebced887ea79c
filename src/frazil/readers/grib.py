"""The reader of GRIB editions 1 and 2, with cfgrib and eccodes.

A GRIB file is a sequence of messages. Each message is a field with two dimensions. cfgrib makes arrays of the
fields, with CF attributes, and with the dimensions ``time``, ``step``, ``number`` and levels if there are
several of these. Fields that do not fit one hypercube of cfgrib become variables of the same dataset:
their names are described below. eccodes decodes the values as float32, with NaN for missing values.

gribberish decodes the packings below to the same float32 as eccodes (design/031), for references. Both
libraries decode the first message of each packing and grid of a variable. So a version of gribberish that
decodes other values is found when a file is inspected.

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

import hashlib
import importlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import IO, Any, ClassVar, Final, override

import cfgrib  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from cfgrib.dataset import OnDiskArray, open_fileindex  # type: ignore[import-untyped]
from cfgrib.messages import FileStream  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.readers.base_reader import (
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    json_value,
    references_to_file,
)
from frazil.readers.files import SourceFile, damaged
from frazil.readers.grib_points import point_order, scanning

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
    kwargs: dict[str, Any] = {"values_dtype": np.dtype(options.values_dtype)}
    kwargs |= {name: tuple(getattr(options, name)) for name in ("read_keys", "time_dims", "encode_cf")}
    kwargs |= {name: dict(getattr(options, name) or {}) for name in ("extra_coords", "coords_as_attributes")}
    return cfgrib.open_from_index(index, errors=options.errors, squeeze=options.squeeze, **kwargs)


@dataclass(frozen=True, slots=True)
class Cube:
    """One variable as cfgrib returns it.

    ``parameter`` identifies a parameter that eccodes does not know. ``order`` has the place of the value of
    each point in the field of cfgrib, None if it is the same (see `point_order`).
    """

    name: str
    variable: Any
    coordinates: Mapping[str, Any]
    attrs: Mapping[str, Any]
    parameter: str = ""
    order: NDArray[np.int64] | None = None

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
    # No index path, because the index would be a new file next to the original.
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
    orders: dict[Any, NDArray[Any] | str | None] = {}
    cubes: list[Cube] = []
    for some, parameter in _parameters(index):
        for cube in _cubes(some, options, skipped, orders):
            cubes.append(replace(cube, parameter=parameter))
            # Of several fields with equal keys, cfgrib reads only the first.
            hidden = sum(len(ids) - 1 for ids in cube.variable.data.field_id_index.values())
            if hidden:
                same = "with the same time, step, level and member as an earlier field"
                skipped[f"{cube.name} ({cube.key('typeOfLevel')})"] = f"{counted(hidden, 'field')} {same}"
    if not cubes:
        raise InvalidInputError(
            f"{url}: none of the fields can be an array: {next(iter(skipped.values()))}",
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


def _cubes(
    index: Any, options: GribOptions, skipped: dict[str, str], orders: dict[Any, NDArray[Any] | str | None]
) -> Iterator[Cube]:
    """Yield the hypercubes of the fields of one parameter. ``orders`` are the orders of known grids."""
    try:
        dataset = _open(index, options)
    except cfgrib.DatasetBuildError as error:
        key = error.args[1] if len(error.args) > 2 else None
        values = index.get(key, []) if key is not None else []
        if len(values) < 2:
            skipped[_label(index)] = " ".join(str(error).split())
            return
        for value in values:
            yield from _cubes(index.subindex({key: value}), options, skipped, orders)
        return
    except (KeyError, ValueError, NotImplementedError) as error:
        skipped[_label(index)] = f"{type(error).__name__}: {error}"
        return
    grids, parts = index.get("md5GridSection", []), [dataset]
    if len(grids) > 1:
        # cfgrib uses the coordinates of the first field for all fields.
        some = [_open(index.subindex(md5GridSection=each), options) for each in grids]
        places = [
            [*map(each.variables.get, _HORIZONTAL), scanning(index.subindex(md5GridSection=grid).first())]
            for grid, each in zip(grids, some, strict=True)
        ]
        parts = some if any(each != places[0] for each in places[1:]) else parts
    for part in parts:
        variables = dict(part.variables)
        name = next(name for name, each in variables.items() if isinstance(each.data, OnDiskArray))
        variable = variables.pop(name)
        message = variable.data.index.first()
        grid = message.get("md5GridSection", None), scanning(message), variable.dimensions[-2:]
        if grid not in orders:
            orders[grid] = point_order(message, variables, variable.data.shape[-variable.data.geo_ndim :])
        order = orders[grid]
        if isinstance(order, str):
            skipped[_label(index)] = order
        else:
            yield Cube(name, variable, variables, part.attributes, order=order)


def _label(index: Any) -> str:
    """Return a name for fields without a cube."""
    field_ = index.first()
    name = field_.get("shortName", None)
    return str(name) if name not in (None, "unknown") else f"paramId_{field_.get('paramId', None)}"


#: Axes whose values change from file to file of an archive, and the keys that distinguish their cubes.
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("time", "step", "valid_time"), ("stepType", "dataType")),
    "number": ("dataType", "stepType"),
}
#: The noun for the values of an axis in a suffix.
_NOUNS: Final[Mapping[str, str]] = {"time": "times", "step": "steps", "number": "members"}
#: Keys that distinguish variables of one name, the most descriptive key first.
_VARIABLE_KEYS: Final = (
    *("parameter", "typeOfLevel", "stepType", "dataType", "gridType", "gridShape"),
    *("stepUnits", "uvRelativeToGrid", "shortName", "paramId"),
)
#: Cubes of this ``stepType`` keep the plain name, whatever their size.
_PLAIN: Final = "instant"
#: Of variables of the same size, variables on these types of levels keep the plain name.
_FIRST_LEVELS: Final = ("isobaricInhPa", "surface")
#: The coordinates of grids. The codec treats variables of these names as coordinates.
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
    _add_suffixes(cubes, names, variants, ("gridType",), amounts, lambda cube: cube.horizontal)


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
    _add_suffixes(cubes, names, variants, _KINDS.get(axis, ()), amounts, lambda _: [axis], plain=plain)


# Coordinates


def _add_suffixes(
    cubes: Sequence[Cube],
    names: list[Names],
    variants: Sequence[_Variant],
    keys: Sequence[str],
    amounts: Sequence[str],
    named: Callable[[Cube], Iterable[str]],
    *,
    plain: bool = True,
) -> None:
    """Add another suffix to the names of each variant. With ``plain`` the largest variant gets none."""
    if len(variants) == 1:
        return

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
    for (members, _), suffix in zip(variants, suffixes, strict=True):
        for i in members:
            names[i].update({name: name + suffix for name in named(cubes[i])})


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
    order = sorted(
        groups, key=lambda value: (value != _PLAIN, -largest[value], value not in _FIRST_LEVELS, value)
    )
    for value in order:
        suffix = "" if value == order[0] else "_" + (_plain_text(value) or "other")
        _name_variables(cubes, groups[value], name + suffix, keys[1:], names)


def _plain_text(value: str) -> str:
    return re.sub(r"\W+", "_", value).strip("_")


def _free(stem: str, taken: Iterable[str]) -> str:
    """Return a free name: the wanted name, or with a suffix ``_2``, ``_3``, ..."""
    numbered = (f"{stem}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([stem], numbered) if name not in taken)


#: A message of edition 1 with this bit in its length is larger than its length. Only eccodes knows the size.
_LARGE: Final = 0x800000
#: The bytes of section 0, and (`_HEAD`) of the number and length of the other sections.
_FIRST: Final = 16
#: The last bytes of a message.
_END: Final = b"7777"
_HEAD: Final = 5
#: The bytes of section 5 that all templates of grid points share, and byte 23 of complex packing.
_REPRESENTATION: Final = 23


@dataclass(frozen=True, slots=True)
class Packing:
    """The packing of a field in a message of edition 2.

    ``grid`` is a digest of section 3. ``template`` is the number of the template of section 5. ``bits`` is
    the number of bits of a value. ``empty``: no point has a value. ``missing`` is the management of missing
    values in complex packing (0: none). ``bitmap`` is the indicator of section 6, ``fields`` the number of
    fields.
    """

    grid: bytes
    template: int
    bits: int
    empty: bool
    missing: int
    bitmap: int
    fields: int


def check_messages(file: SourceFile) -> None:
    """Follow the lengths of the messages to the end of the file."""
    at, count = 0, 0
    with file.open() as stream:
        while True:
            stream.seek(at)
            head = stream.read(16) or b""
            if head[:4] != b"GRIB":
                break  # padding, or the end
            size = int.from_bytes(head[8:16] if head[7:8] == b"\2" else head[4:7], "big")
            if head[7:8] != b"\2" and size & _LARGE:
                break
            end = at + size
            if end > file.size or len(head) < 16:
                raise damaged(
                    file.url, f"message {count} of {size} bytes", f"{file.size - at} bytes: it is truncated"
                )
            if size < _FIRST + len(_END):
                raise damaged(file.url, f"message {count} of at least {_FIRST + len(_END)} bytes", size)
            last = end - len(_END)
            stream.seek(last)
            if stream.read(len(_END)) != _END:
                raise damaged(file.url, f"the end of message {count} (7777) at byte {last}", "other bytes")
            at, count = end, count + 1
    if not count:
        raise damaged(file.url, "a GRIB file", repr(file.head[:4]))


def edition(head: bytes) -> int:
    """Return the edition of the message with these first 16 bytes; 0 if it is not a message."""
    return head[7] if len(head) >= _FIRST and head[:4] == b"GRIB" else 0


def length(head: bytes) -> int:
    """Return the length in bytes of the message of edition 2 with these first 16 bytes."""
    return int.from_bytes(head[8:16], "big")


def packing(stream: IO[bytes], at: int, size: int) -> Packing | None:
    """Return the packing of the message at byte ``at``; None if its sections do not follow to its end."""
    place, end = at + _FIRST, at + size - 4
    grid, template, bits, empty, missing, bitmap, fields = b"", -1, -1, False, 0, -1, 0
    while place + _HEAD <= end:
        stream.seek(place)
        head = stream.read(_HEAD)
        if len(head) < _HEAD:
            return None
        long, section = int.from_bytes(head[:4], "big"), head[4]
        if long < _HEAD or place + long > end:
            return None
        if section == 3:
            grid = hashlib.sha256(stream.read(long - _HEAD)).digest()
        elif section == 5:
            body = head + stream.read(min(long, _REPRESENTATION) - _HEAD)
            empty = not any(body[5:9])
            template = int.from_bytes(body[9:11], "big")
            bits = body[19] if len(body) > 19 else -1
            missing = body[22] if template in (2, 3) and len(body) > 22 else 0
        elif section == 6:
            bitmap = (stream.read(1) or b"\0")[0]
        elif section == 7:
            fields += 1
        place += long
    return Packing(grid, template, bits, empty, missing, bitmap, fields) if place == end and fields else None


CODEC: Final = "gribberish"
#: Number -> name of the templates of section 5 that both libraries decode to the same values.
PACKINGS: Final = {
    0: "grid_simple",
    2: "grid_complex",
    3: "grid_complex_spatial_differencing",
    40: "grid_jpeg",
    42: "grid_ccsds",
}
#: Indicators of section 6: the message has a bitmap, or none is needed.
_BITMAPS: Final = (0, 255)
#: gribberish 1.9 never returns from a message of this template in which every point is missing.
_JPEG: Final = 40
#: gribberish rounds values of this template differently if they have more bits than `_CCSDS_BITS`.
_CCSDS: Final = 42
_CCSDS_BITS: Final = 24
_SEVERAL: Final = "several fields in one message: the codec gribberish reads the first"


def _why_not(
    packing: Packing, decode: Any, message: bytes, array: Any, index: tuple[int, ...], at: int
) -> str | None:
    """Return why the codec cannot decode a message at byte ``at`` as eccodes does; None if it can."""
    if packing.fields != 1:
        return _SEVERAL
    if packing.template not in PACKINGS:
        return f"packing template 5.{packing.template}: expected one of {', '.join(PACKINGS.values())}"
    if packing.template == _JPEG and packing.empty:
        return "a field of grid_jpeg without any value: the codec gribberish never returns from it"
    if packing.template == _CCSDS and packing.bits > _CCSDS_BITS:
        return f"grid_ccsds with {packing.bits} bits: gribberish rounds more than 24 bits unlike eccodes"
    if packing.bitmap not in _BITMAPS:
        return f"a bitmap that is not in the message (indicator {packing.bitmap})"
    if array.index.get_field(at).get("alternativeRowScanning", 0):
        return "alternativeRowScanning=1: the codec gribberish gives the points in another order"
    geography = (slice(None),) * array.geo_ndim
    expected = np.asarray(array[(*(slice(i, i + 1) for i in index), *geography)])
    try:
        values: NDArray[Any] = np.asarray(decode(message, 0, False, False)).astype(expected.dtype)
    except Exception as error:  # the Rust extension may raise any error
        return f"gribberish cannot decode it: {' '.join(str(error).split())}"
    if values.size != expected.size or not np.array_equal(values.ravel(), expected.ravel(), equal_nan=True):
        return "gribberish decodes other values than eccodes"
    return None


#: Attributes that are left out: cfgrib writes the time of its call into this one.
_HIDDEN: Final = frozenset({"history"})


class GribReader(Reader):
    """The reader of the fields of one GRIB file as one dataset. `GribOptions` are its options."""

    format = "grib"
    option_names: ClassVar[tuple[str, ...]] = tuple(each.name for each in fields(GribOptions))

    def __init__(self, file: SourceFile, group: str = "/", **options: Any) -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise damaged(file.url, f"a group {self.group}", "a GRIB file: use filter_by_keys")
        check_messages(file)
        values = GribOptions(**options)
        self._path = self._stack.enter_context(file.local())
        try:
            with self.library_call("fields of GRIB"):
                self._cubes, self._skipped = open_cubes(self._path, file.url, values)
            self._names = names_of(self._cubes)
        except BaseException:
            self._stack.close()
            raise
        self._arrays: dict[str, Any] = {}
        self._orders: dict[str, NDArray[np.int64]] = {}
        self._coordinates: dict[str, Any] = {}
        for cube, names in zip(self._cubes, self._names, strict=True):
            self._arrays[names[cube.name]] = cube.variable.data
            if cube.order is not None:
                self._orders[names[cube.name]] = cube.order
            for name, each in cube.coordinates.items():
                self._coordinates.setdefault(names[name], each.data)

    @override
    def contents(self) -> FileContents:
        variables: dict[str, VariableSchema] = {}
        dims: dict[str, int] = {}
        attrs = dict(self._cubes[0].attrs)  # those that all fields of the file share
        for cube, own in zip(self._cubes, self._names, strict=True):
            attrs = {name: value for name, value in attrs.items() if cube.attrs.get(name) == value}
            shape = cube.variable.data.shape
            dims |= {own[dim]: size for dim, size in zip(cube.variable.dimensions, shape, strict=True)}
            for name, each in cube.coordinates.items():
                variables.setdefault(own[name], _schema(own[name], each, own))
            variables[own[cube.name]] = _schema(own[cube.name], cube.variable, own)
        return FileContents(list(variables.values()), _attrs(attrs), dims, skipped=dict(self._skipped))

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        name, shape = variable.name, [stop - start for start, stop in bounds]
        data = self._arrays[name] if name in self._arrays else self._coordinates[name]
        region, order = tuple(slice(*each) for each in bounds), self._orders.get(name)
        with self.library_call(f"values of {name!r}"):
            if order is None:
                values = data[region] if bounds else data
            else:
                header, grid = region[: -data.geo_ndim], data.shape[-data.geo_ndim :]
                fields = data[(*header, *(slice(None),) * data.geo_ndim)]
                points = fields.reshape(*fields.shape[: len(header)], -1)[..., order]
                values = points.reshape(*fields.shape[: len(header)], *grid)[(..., *region[-data.geo_ndim :])]
        return np.asarray(values).astype(variable.dtype, copy=False).reshape(shape)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to messages of edition 2, if gribberish decodes them as eccodes does."""
        variable = self.variable(name)
        array = self._arrays.get(name)
        if array is None:
            return NotVirtual("coordinates are copied")
        if name in self._orders:
            mode = scanning(array.index.first())
            return NotVirtual(f"{mode}: the codec gribberish gives the points in another order")
        with self.library_call(f"messages of {name!r}"):
            return self._message_references(variable, array)

    def _message_references(self, variable: VariableSchema, array: Any) -> ChunkReferences | NotVirtual:
        """Return references to the messages of an array on disk of cfgrib."""
        with needs("a reference to GRIB"):
            decode = importlib.import_module("gribberish").parse_grib_array
        rows = [(index, ids[0]) for index, ids in array.field_id_index.items()]
        if any(not isinstance(at, int) for _, at in rows):
            return NotVirtual(_SEVERAL)
        decoded: set[Packing] = set()
        lengths = []
        with open(self._path, "rb") as stream:
            for index, at in rows:
                stream.seek(at)
                head = stream.read(_FIRST)
                if edition(head) != 2:
                    return NotVirtual("GRIB edition 1: the codec gribberish decodes edition 2")
                size = length(head)
                lengths.append(size)
                coding = packing(stream, at, size)
                if coding is None:
                    raise damaged(
                        self.file.url, f"sections up to the end of the message at byte {at}", "other lengths"
                    )
                if coding in decoded:
                    continue
                decoded.add(coding)
                stream.seek(at)
                if reason := _why_not(coding, decode, stream.read(size), array, index, at):
                    return NotVirtual(reason)
        header = len(variable.shape) - array.geo_ndim
        grid_index = np.zeros((len(rows), len(variable.shape)), np.uint32)
        grid_index[:, :header] = np.array([index for index, _ in rows], np.uint32).reshape(len(rows), header)
        name = "values" if variable.name in _HORIZONTAL else variable.name
        return references_to_file(
            self.file.location,
            (1,) * header + variable.shape[header:],
            [{"name": CODEC, "configuration": {"var": name}}],
            variable.dtype,
            np.array(np.nan, variable.dtype)[()],
            grid_index,
            np.array([at for _, at in rows], np.uint64),
            np.array(lengths, np.uint64),
        )


def _schema(name: str, variable: Any, names: Names) -> VariableSchema:
    attrs = _attrs(variable.attributes)
    if "coordinates" in attrs:
        attrs["coordinates"] = " ".join(names[each] for each in attrs["coordinates"].split())
    dims = tuple(names[dim] for dim in variable.dimensions)
    return VariableSchema(name, dims, tuple(variable.data.shape), np.dtype(variable.data.dtype), attrs)


def _attrs(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_value(each) for name, each in attributes.items() if name not in _HIDDEN}
