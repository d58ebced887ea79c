"""The reader of GRIB editions 1 and 2, with cfgrib and eccodes.

A GRIB file is a sequence of messages. Each message is a field with two dimensions. cfgrib makes arrays of the
fields, with CF attributes, and with the dimensions ``time``, ``step``, ``number`` and levels if there are
several of these. Fields that do not fit one hypercube of cfgrib become variables of the same dataset:
`grib_cubes` describes their names. eccodes decodes the values as float32, with NaN for missing values.

gribberish decodes the packings below to the same float32 as eccodes (design/031), for references. Both
libraries decode the first message of each packing and grid of a variable. So a version of gribberish that
decodes other values is found when a file is inspected.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import IO, Any, Final, override

import numpy as np
from numpy.typing import NDArray

from frazil.extras import needs
from frazil.readers.base_reader import (
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    json_value,
    references_to_file,
)
from frazil.readers.files import File, damaged
from frazil.readers.grib_cubes import GribOptions, Names, names_of, open_cubes

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


def check_messages(file: File) -> None:
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
#: The codec treats variables of these names as coordinates.
_COORDINATES: Final = ("latitude", "longitude")
_SEVERAL: Final = "several fields in one message: the codec gribberish reads the first"


def message_references(
    url: str, path: str, variable: VariableSchema, array: Any
) -> ChunkReferences | NotVirtual:
    """Return references with the location ``url`` to the messages of an array on disk of cfgrib."""
    with needs("a reference to GRIB"):
        decode = importlib.import_module("gribberish").parse_grib_array
    rows = [(index, ids[0]) for index, ids in array.field_id_index.items()]
    if any(not isinstance(at, int) for _, at in rows):
        return NotVirtual(_SEVERAL)
    decoded: set[Packing] = set()
    lengths = []
    with open(path, "rb") as stream:
        for index, at in rows:
            stream.seek(at)
            head = stream.read(_FIRST)
            if edition(head) != 2:
                return NotVirtual("GRIB edition 1: the codec gribberish decodes edition 2")
            size = length(head)
            lengths.append(size)
            coding = packing(stream, at, size)
            if coding is None:
                raise damaged(url, f"sections up to the end of the message at byte {at}", "other lengths")
            if coding in decoded:
                continue
            decoded.add(coding)
            stream.seek(at)
            if reason := _why_not(coding, decode, stream.read(size), array, index, at):
                return NotVirtual(reason)
    header = len(variable.shape) - array.geo_ndim
    grid_index = np.zeros((len(rows), len(variable.shape)), np.uint32)
    grid_index[:, :header] = np.array([index for index, _ in rows], np.uint32).reshape(len(rows), header)
    name = "values" if variable.name in _COORDINATES else variable.name
    return references_to_file(
        url,
        (1,) * header + variable.shape[header:],
        [{"name": CODEC, "configuration": {"var": name}}],
        variable.dtype,
        np.array(np.nan, variable.dtype)[()],
        grid_index,
        np.array([at for _, at in rows], np.uint64),
        np.array(lengths, np.uint64),
    )


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
        return "rows in alternating directions (alternativeRowScanning)"
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
    option_names = tuple(each.name for each in fields(GribOptions))

    def __init__(self, file: File, group: str = "/", **options: Any) -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise damaged(file.url, f"a group {self.group}", "a GRIB file: use filter_by_keys")
        check_messages(file)
        values = GribOptions(**options)
        self._stack = ExitStack()
        self._path = self._stack.enter_context(file.local())
        try:
            with self.library_call("fields of GRIB"):
                self._cubes, self._skipped = open_cubes(self._path, file.url, values)
            self._names = names_of(self._cubes)
        except BaseException:
            self._stack.close()
            raise
        self._arrays: dict[str, Any] = {}
        self._coordinates: dict[str, Any] = {}
        for cube, names in zip(self._cubes, self._names, strict=True):
            self._arrays[names[cube.name]] = cube.variable.data
            for name, each in cube.coordinates.items():
                self._coordinates.setdefault(names[name], each.data)

    @override
    def close(self) -> None:
        self._stack.close()

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
    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        data = self._arrays[name] if name in self._arrays else self._coordinates[name]
        with self.library_call(f"values of {name!r}"):
            values = data[tuple(slice(start, stop) for start, stop in bounds)] if bounds else data
        return np.asarray(values).astype(variable.dtype, copy=False).reshape(shape)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to messages of edition 2, if gribberish decodes them as eccodes does."""
        variable = self.variable(name)
        array = self._arrays.get(name)
        if array is None:
            return NotVirtual("coordinates are copied")
        with self.library_call(f"messages of {name!r}"):
            return message_references(self.file.location, self._path, variable, array)


def _schema(name: str, variable: Any, names: Names) -> VariableSchema:
    attrs = _attrs(variable.attributes)
    if "coordinates" in attrs:
        attrs["coordinates"] = " ".join(names[each] for each in attrs["coordinates"].split())
    dims = tuple(names[dim] for dim in variable.dimensions)
    return VariableSchema(name, dims, tuple(variable.data.shape), np.dtype(variable.data.dtype), attrs)


def _attrs(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_value(each) for name, each in attributes.items() if name not in _HIDDEN}
