"""The reader of GRIB editions 1 and 2, with cfgrib and eccodes.

A GRIB file is a sequence of messages. Each message is a field with two dimensions. cfgrib makes arrays of the
fields, with CF attributes, and with the dimensions ``time``, ``step``, ``number`` and levels if there are
several of these. Some fields do not fit one hypercube of cfgrib: 2 m temperature and 10 m wind, accumulated
and instant values, several grids. They become variables of the same dataset with different levels, steps or
grids. `grib_names` describes their names. ``filter_by_keys={"typeOfLevel": "surface"}`` chooses fields.

eccodes decodes the values as float32, with NaN for values that the bitmap marks as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import Any, Final, override

import numpy as np
from numpy.typing import NDArray

from frazil.readers.attribute_values import json_value
from frazil.readers.base_reader import FileContents, Reader
from frazil.readers.file_errors import damaged
from frazil.readers.files import File
from frazil.readers.grib_cubes import Cube, Cubes, GribOptions, open_cubes
from frazil.readers.grib_messages import check_messages
from frazil.readers.grib_names import Names, names_of
from frazil.readers.grib_references import message_references
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema

#: Attributes that are left out: cfgrib writes the time of its call into this one.
_HIDDEN: Final = frozenset({"history"})


class GribReader(Reader):
    """The reader of the fields of one GRIB file as one dataset.

    Its options are those of `GribOptions` and of ``cfgrib.open_file``: ``filter_by_keys``, ``squeeze``,
    ``time_dims``, ``read_keys``, ...
    """

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
                self._cubes = open_cubes(self._path, file.url, values)
            self._names = names_of(self._cubes.cubes)
        except BaseException:
            self._stack.close()
            raise
        self._arrays = {
            names[cube.name]: cube.variable.data
            for cube, names in zip(self._cubes.cubes, self._names, strict=True)
        }

    @override
    def close(self) -> None:
        self._stack.close()

    @override
    def contents(self) -> FileContents:
        return _contents(self._cubes, self._names)

    @override
    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        data = self._arrays.get(name)
        if data is None:
            data = self._coordinate(name)
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

    def _coordinate(self, name: str) -> Any:
        return next(
            cube.coordinates[own].data
            for cube, names in zip(self._cubes.cubes, self._names, strict=True)
            for own in cube.coordinates
            if names[own] == name
        )


def _contents(cubes: Cubes, names: Sequence[Names]) -> FileContents:
    """Return the contents of one dataset with all cubes."""
    variables: dict[str, VariableSchema] = {}
    dims: dict[str, int] = {}
    for cube, own in zip(cubes.cubes, names, strict=True):
        shape = cube.variable.data.shape
        dims |= {own[dim]: size for dim, size in zip(cube.variable.dimensions, shape, strict=True)}
        for name, each in cube.coordinates.items():
            variables.setdefault(own[name], _schema(own[name], each, own))
        variables[own[cube.name]] = _schema(own[cube.name], cube.variable, own)
    return FileContents(
        list(variables.values()), _shared_attrs(cubes.cubes), dims, skipped=dict(cubes.skipped)
    )


def _schema(name: str, variable: Any, names: Names) -> VariableSchema:
    attrs = _attrs(variable.attributes)
    if "coordinates" in attrs:
        attrs["coordinates"] = " ".join(names[each] for each in attrs["coordinates"].split())
    dims = tuple(names[dim] for dim in variable.dimensions)
    return VariableSchema(name, dims, tuple(variable.data.shape), np.dtype(variable.data.dtype), attrs)


def _shared_attrs(cubes: Sequence[Cube]) -> dict[str, Any]:
    """Return the attributes that all fields of the file share."""
    attrs = dict(cubes[0].attrs)
    for cube in cubes[1:]:
        attrs = {name: value for name, value in attrs.items() if cube.attrs.get(name) == value}
    return _attrs(attrs)


def _attrs(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_value(each) for name, each in attributes.items() if name not in _HIDDEN}
