"""The reader of HDF5 and NetCDF-4, with h5py.

It reads the conventions of NetCDF-4 as the NetCDF library does. Dimension scales are dimensions. A dataset
that is only a scale is not a variable. ``_nc4_non_coord_x`` is the variable ``x``. A dataset that is shorter
than its unlimited dimension is filled up with the fill value. Datasets without scales get dimensions
``phony_dim_0``, ..., one for each length.

Chunks can have references if Zarr has codecs for all filters. A chunk may skip filters (its *filter mask*),
if all chunks of the variable skip the same filters.

HDF5 has types that no array can hold: compound types, sequences of different lengths, long doubles, bit
fields. A variable of such a type, or an attribute that the library cannot read, is left out with a reason.
The other variables and attributes of the file are not affected.

A dataset refers to its scales by their addresses in the file. The library searches the file for the name at
an address. So one pass over the members of a group makes a table of addresses and names instead.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, override

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.readers.base_reader import (
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    bytes_codec,
    decoded,
    json_value,
    references_to_file,
    text,
)
from frazil.readers.files import BlockStream, SourceFile, damaged, no_group


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of a pipeline. ``values`` are its parameters."""

    id: int
    name: str
    values: tuple[int, ...]

    @property
    def words(self) -> str:
        """The name and level of the filter, such as ``"zlib 4"``."""
        level = f" {self.values[_LEVELS[self.id]]}" if self.id in _LEVELS and self.values else ""
        return _NAMES.get(self.id, self.name) + level


_NAMES: Final = {1: "zlib", 2: "shuffle", 3: "fletcher32", 307: "bzip2", 32001: "blosc", 32015: "zstd"}
_LEVELS: Final = {1: 0, 307: 0, 32001: 4, 32015: 0}
_BLOSC_NAMES: Final = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_BLOSC_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")


def filters_of(plist: h5py.h5p.PropDCID) -> list[Filter]:
    """Return the filters of a dataset by its creation properties, in the order of encoding."""
    rows = map(plist.get_filter, range(plist.get_nfilters()))
    return [
        # Plugins have sentences as names: `H5Z-ZFP-1.1.1 (ZFP-1.0.0) github.com/LLNL/H5Z-ZFP; ...`
        Filter(code, re.split("[;:,(]| see ", text(name))[0].strip() or f"filter {code}", tuple(values))
        for code, _, values, name in rows
    ]


def codec_of(each: Filter) -> dict[str, Any] | None:
    """Return the codec of Zarr for a filter; None if Zarr has none."""
    values = each.values
    match each.id:
        case 1 | 2 | 307:
            key = "elementsize" if each.id == 2 else "level"
            name = {1: "zlib", 2: "shuffle", 307: "bz2"}[each.id]
            return {"name": f"numcodecs.{name}", "configuration": {key: values[0]} if values else {}}
        case 3:
            return {"name": "numcodecs.fletcher32", "configuration": {}}
        case 32001 if len(values) >= 7 and values[5] <= 2 and values[6] < len(_BLOSC_NAMES):
            blosc = {"typesize": values[2], "cname": _BLOSC_NAMES[values[6]], "clevel": values[4]}
            shuffle = _BLOSC_SHUFFLES[values[5]]
            return {"name": "blosc", "configuration": {**blosc, "shuffle": shuffle, "blocksize": 0}}
        case 32015:
            level = values[0] if values else 3
            return {"name": "zstd", "configuration": {"level": level, "checksum": False}}
    return None


def why_not(dataset: h5py.Dataset) -> str | None:
    """Return the reason why the chunks of a dataset cannot be chunks of a Zarr array; None if they can."""
    dtype = dataset.dtype
    if dtype.kind == "O":
        return "strings of variable length: their chunks have addresses in a heap of the file"
    if dtype.kind == "S":
        return None if dtype.itemsize == 1 else "strings of fixed length: only the library knows their ends"
    if h5py.check_enum_dtype(dtype) is None and not dataset.id.get_type().equal(h5py.h5t.py_create(dtype)):
        return "its numbers are stored in another format than in memory"
    return None


@dataclass(frozen=True, slots=True)
class ChunkMap:
    """The stored chunks of a dataset, as columns. ``compact`` are the values in the header of the dataset."""

    shape: tuple[int, ...]
    index: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    mask: NDArray[np.int64]
    compact: bytes | None = None


def chunk_map(dataset: h5py.Dataset) -> ChunkMap:
    """Return the positions of the chunks of a dataset in its file. A contiguous dataset is one chunk."""
    shape, ndim = dataset.chunks, dataset.ndim
    if shape is None:
        # The library returns an offset even if no bytes are stored.
        length = dataset.id.get_storage_size() if dataset.size else 0
        compact = dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT
        offset = dataset.id.get_offset() if length and not compact else 0
        ones = np.ones(min(length, 1), np.int64)
        values = dataset[()].tobytes() if compact and len(ones) else None
        shape = tuple(max(size, 1) for size in dataset.shape)
        index = np.zeros((len(ones), ndim), np.int64)
        return ChunkMap(shape, index, ones * offset, ones * length, ones * 0, values)
    records: list[Any] = []
    dataset.id.chunk_iter(records.append)
    count = len(records)
    offsets, lengths, masks = (
        np.fromiter(map(attrgetter(name), records), np.int64, count)
        for name in ("byte_offset", "size", "filter_mask")
    )
    places = chain.from_iterable(map(attrgetter("chunk_offset"), records))
    first = np.fromiter(places, np.int64, count * ndim).reshape(count, ndim)
    return ChunkMap(shape, first // np.array(shape), offsets, lengths, masks)


#: Attributes that libraries write for internal use.
_HIDDEN: Final = (
    *("CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"),
    *("_NCProperties", "_NCOPY", "_Netcdf4Coordinates", "_Netcdf4Dimid", "_nc3_strict"),
)
#: The errors of h5py for types that numpy does not have. Damaged files raise other errors (``OSError``).
_NO_TYPE: Final = (TypeError, ValueError, NotImplementedError)


def array_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | str:
    """Return the dtype of an array for values of a type of HDF5, or the reason why there is none."""
    string = h5py.check_string_dtype(dtype)
    if string is not None and string.length != 1:
        return np.dtypes.StringDType()  # includes strings of fixed length, as in the NetCDF library
    if dtype.kind == "O":
        is_reference = h5py.check_ref_dtype(dtype) is not None
        kind = "references to other objects" if is_reference else "sequences of different lengths"
        return f"{kind}: no array can hold these"
    if dtype.names is not None:
        return "a compound type: the option compound with the value 'fields' makes an array of each field"
    if dtype.kind == "V":
        return "an opaque type or an array type: no array can hold these"
    if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        return f"long doubles ({dtype}): Zarr has no such dtype"
    return np.dtype(dtype.str)


@dataclass(frozen=True, slots=True)
class CompoundField:
    """A field with values of a ``shape``; ``path`` are the names of compound types from outside in."""

    path: tuple[str, ...]
    dtype: np.dtype[Any] | str
    shape: tuple[int, ...] = ()

    def read(self, dataset: h5py.Dataset, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the values of the field in a region of its dataset. Texts become strings."""
        values = np.asarray(dataset.fields(self.path[0])[region[: dataset.ndim]])
        for name in self.path[1:]:
            values = values[name]
        inner: Any = (..., *region[dataset.ndim :])
        values = np.asarray(values[inner])
        return decoded(values) if values.dtype.kind == "O" or values.dtype.char == "S" else values


def is_compound(dataset: h5py.Dataset) -> bool:
    """Return whether the elements of a dataset have fields."""
    try:
        return dataset.shape is not None and dataset.dtype.names is not None
    except _NO_TYPE:
        return False


def compound_fields(dtype: np.dtype[Any], path: tuple[str, ...] = ()) -> Iterator[CompoundField]:
    """Yield the fields of a compound type, with the fields of its compound fields."""
    for name in dtype.names or ():
        inner = dtype[name]
        base, shape = inner.subdtype or (inner, ())
        if base.names is not None and not shape:
            yield from compound_fields(base, (*path, name))
        else:
            yield CompoundField((*path, name), array_dtype(base), shape)


def read_values(dataset: h5py.Dataset, region: tuple[slice, ...]) -> NDArray[Any]:
    """Return the values of a region. Texts become strings."""
    if dataset.dtype.kind != "O":
        values = np.asarray(dataset[region])
        return decoded(values) if values.dtype.kind == "S" and values.dtype.itemsize > 1 else values
    try:
        values = np.asarray(dataset.astype("T")[region])
        values.tolist()  # numpy decodes a text only when it makes an object of it
        return values
    except (OSError, TypeError, UnicodeDecodeError):
        # h5py cannot convert texts that are not UTF-8, and texts of some of its older files.
        return decoded(np.asarray(dataset[region]))


def fill_value(dataset: h5py.Dataset, dtype: np.dtype[Any], plist: h5py.h5p.PropDCID) -> Any:
    """Return the fill value of a dataset with these creation properties; None if it is not defined."""
    if plist.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    if dtype.kind in "iuf":
        number = np.zeros((), dtype)
        plist.get_fill_value(number)
        return number[()]
    value = dataset.fillvalue
    if dtype.kind == "T":
        return text(value) if isinstance(value, bytes) else str(value or "")
    return np.asarray(value).astype(dtype)[()]


def zero(dtype: np.dtype[Any], fill: Any) -> Any:
    """Return the value of elements that were never written: the fill value, or else zero."""
    if fill is not None:
        return fill
    return "" if dtype.kind == "T" else np.zeros((), dtype)[()]


def encoded(name: str) -> bytes:
    """Return a name of h5py as the bytes in the file."""
    return name.encode(errors="surrogateescape")


def attribute_names(dataset: h5py.Dataset, plist: h5py.h5p.PropDCID) -> list[str]:
    """Return the names of the attributes of a dataset, in the order in which h5py yields them."""
    names: list[bytes] = []
    by_creation = plist.get_attr_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
    index = h5py.h5.INDEX_CRT_ORDER if by_creation else h5py.h5.INDEX_NAME
    h5py.h5a.iterate(dataset.id, names.append, index_type=index)
    return [name.decode(errors="surrogateescape") for name in names]


_LIST: Final = h5py.vlen_dtype(h5py.ref_dtype)
_TEXT: Final = h5py.string_dtype()
#: The types of most attributes that are no texts. Types that derive from them are not among them.
_NUMBERS: Final = (h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID)


def attribute(node: h5py.Group | h5py.Dataset, name: str) -> Any:
    """Return the value of an attribute as h5py does, but in less time if it is usual."""
    stored = h5py.h5a.open(node.id, encoded(name))
    kind = stored.get_type()
    with suppress(TypeError, RuntimeError):  # it has another shape, or none
        if name == "DIMENSION_LIST" and isinstance(kind, h5py.h5t.TypeVlenID):
            scales = np.empty(len(node.shape), _LIST)
            stored.read(scales)
            return scales
        is_text, size = isinstance(kind, h5py.h5t.TypeStringID), kind.get_size()
        if is_text and kind.is_variable_str():
            if stored.shape == ():
                value = np.empty((), _TEXT)
                stored.read(value)
                return value.item().decode(errors="surrogateescape")
        elif stored.get_storage_size() != size:
            pass  # not one value
        elif type(kind) in _NUMBERS:
            value = np.empty(stored.shape, kind.dtype)  # of the shape () or (1,)
            stored.read(value, kind)
            return value if value.ndim else value[()]
        elif is_text and kind.get_strpad() == h5py.h5t.STR_NULLTERM:  # as NetCDF writes it
            value = np.empty((), f"S{size}")
            stored.read(value, kind)
            return value.item().partition(b"\0")[0]
    return node.attrs[name]


def attributes(
    node: h5py.Group | h5py.Dataset, names: Iterable[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the attributes of the user, and the attributes that cannot be read, with the reasons."""
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name in names:
        if name in _HIDDEN:
            continue
        try:
            value = attribute(node, name)
            if isinstance(value, h5py.Empty):
                value = "" if value.dtype.kind in "SOU" else []
            values[name] = json_value(value)
        except _NO_TYPE as error:
            unreadable[name] = f"an attribute of a type that numpy does not have ({error})"
    return values, unreadable


#: The prefix of a variable that has the name of a dimension, but is not its coordinate.
NOT_A_COORDINATE: Final = "_nc4_non_coord_"
#: The attribute NAME of a scale that is not a variable begins with this text.
_NOT_A_VARIABLE: Final = "This is a netCDF dimension but not a netCDF variable"


def is_scale(dataset: h5py.Dataset) -> bool:
    """Return whether a dataset is a dimension scale."""
    return bool(h5py.h5ds.is_scale(dataset.id))


class Scopes:
    """The dimensions of the datasets of one group: scales of this group and of its parent groups."""

    def __init__(self, group: h5py.Group, members: Iterable[tuple[str, h5py.Dataset]]) -> None:
        self._file = group.file
        self._above: h5py.Group | None = None if group.name == "/" else group.parent
        self._by_address: dict[int, tuple[str, int]] = {}
        self._by_id: dict[int, str] = {}
        self._scales: list[tuple[str, h5py.Dataset]] = []  # without an entry in `_by_id`
        self._phony: dict[int, list[str]] = {}
        #: The lengths of dimensions of parent groups.
        self.sizes: dict[str, int] = {}
        self._add(members)

    def dims(self, name: str, dataset: h5py.Dataset, attrs: Collection[str]) -> tuple[str, ...]:
        """Return the names of the dimensions of a dataset with these attributes."""
        if "CLASS" in attrs and is_scale(dataset):
            if len(dataset.shape) > 1 and "_Netcdf4Coordinates" in attrs:
                ids = list(map(int, dataset.attrs["_Netcdf4Coordinates"]))
                if len(ids) == len(dataset.shape):
                    return tuple(map(self._dim_of_id, ids))
            return (name, *self._without_scale(dataset.shape[1:])) if dataset.ndim else ()
        if "DIMENSION_LIST" not in attrs:
            return self._without_scale(dataset.shape)
        attached = attribute(dataset, "DIMENSION_LIST")
        bare = [size for size, scales in zip(dataset.shape, attached, strict=True) if not len(scales)]
        missing = iter(self._without_scale(bare))
        names = []
        for scales in attached:
            if not len(scales):
                names.append(next(missing))
                continue
            scale = h5py.h5r.dereference(scales[0], self._file.id)
            address = h5py.h5o.get_info(scale).addr
            while address not in self._by_address and self._above is not None:
                self._add_above()
            if address not in self._by_address:  # the scale is not in a parent group
                outside = h5py.Dataset(scale)
                self._by_address[address] = _named(outside.name.rpartition("/")[2], outside)
            dim, self.sizes[dim] = self._by_address[address]
            names.append(dim)
        return tuple(names)

    def _dim_of_id(self, number: int) -> str:
        """Return the name of the dimension with an id of NetCDF."""
        while True:
            for key, dataset in self._scales:
                if "_Netcdf4Dimid" in dataset.attrs:
                    self._by_id.setdefault(int(dataset.attrs["_Netcdf4Dimid"]), key)
            self._scales.clear()
            if number in self._by_id or self._above is None:
                return self._by_id[number]
            self._add_above()

    def _add_above(self) -> None:
        """Add the scales of the next parent group. Those behind links may be in other files."""
        group = self._above
        assert group is not None
        self._above = None if group.name == "/" else group.parent
        keys = [key for key in group if isinstance(group.get(key, getlink=True), h5py.HardLink)]
        members = ((key, group[key]) for key in keys)
        self._add((key, each) for key, each in members if isinstance(each, h5py.Dataset))

    def _add(self, members: Iterable[tuple[str, h5py.Dataset]]) -> None:
        for key, dataset in members:
            if is_scale(dataset):
                self._by_address.setdefault(h5py.h5o.get_info(dataset.id).addr, _named(key, dataset))
                self._scales.append((key, dataset))

    def _without_scale(self, shape: Iterable[int]) -> tuple[str, ...]:
        """Return dimensions without scales: one name for each length, two names for a square."""
        names: list[str] = []
        for size in shape:
            candidates = self._phony.setdefault(size, [])
            free = next((each for each in candidates if each not in names), None)
            if free is None:
                free = f"phony_dim_{sum(map(len, self._phony.values()))}"
                candidates.append(free)
            names.append(free)
        return tuple(names)


def _named(key: str, scale: h5py.Dataset) -> tuple[str, int]:
    """Return the dimension of a scale, and its length."""
    return key.removeprefix(NOT_A_COORDINATE), scale.shape[0] if scale.shape else 0


def read_group(
    file: SourceFile, root: h5py.File, path: str, *, with_fields: bool
) -> tuple[FileContents, dict[str, h5py.Dataset]]:
    """Return the contents of the group at ``path``, and its datasets. ``with_fields``: of compound types."""
    group = root.get(path)
    if not isinstance(group, h5py.Group):
        raise no_group(file.url, path, f"the file has the groups {_group_paths(root)}")
    members: dict[str, h5py.Dataset] = {}
    own: list[tuple[str, h5py.Dataset]] = []  # of the group itself: not the targets of soft links
    attrs, unreadable = attributes(group, group.attrs)
    skipped = {f":{name}": reason for name, reason in unreadable.items()}
    keys, has_groups = list(group), False
    for key in keys:
        # The classes of h5py for links and members take four times as long.
        kind = group.id.links.get_info(encoded(key)).type
        if kind == h5py.h5l.TYPE_EXTERNAL:
            link = group.get(key, getlink=True)
            actual = f"{key!r}, a link to {link.path!r} in {link.filename!r}: ingest that file"
            raise damaged(file.url, "all data in this file", actual)
        try:
            member = h5py.h5o.open(group.id, encoded(key))
        except KeyError:
            skipped[key] = "a link without a target"
            continue
        has_groups |= isinstance(member, h5py.h5g.GroupID)
        if isinstance(member, h5py.h5d.DatasetID):
            members[key] = h5py.Dataset(member, readonly=True)
            own += [(key, members[key])] if kind == h5py.h5l.TYPE_HARD else []
    schema = _GroupSchema(file, Scopes(group, own), with_fields, frozenset(keys), skipped)
    for key, dataset in members.items():
        schema.add_dataset(key.removeprefix(NOT_A_COORDINATE), dataset)
    # Variables get the full length of their unlimited dimensions.
    sizes = {dim: max(size, schema.scopes.sizes.get(dim, 0)) for dim, size in schema.dims.items()}
    variables = []
    for each in schema.variables:
        lengths = zip(each.dims, each.shape, strict=True)
        shape = tuple(sizes[dim] if dim in schema.unlimited else size for dim, size in lengths)
        for dim, size in zip(each.dims, shape, strict=True):
            if sizes[dim] != size:
                expected = f"{sizes[dim]} values of {each.name!r} along {dim!r}, as in other variables"
                raise damaged(file.url, expected, size)
        variables.append(each if shape == each.shape else replace(each, shape=shape))
    used = {dim for each in variables for dim in each.dims} | schema.unlimited
    dims = {dim: size for dim, size in sizes.items() if dim in used or size}
    groups = tuple(_group_paths(group)) if has_groups else ()
    return FileContents(variables, attrs, dims, frozenset(schema.unlimited), groups, skipped), members


@dataclass(slots=True)
class _GroupSchema:
    """Collects the variables and dimensions of one group. ``names`` are the names of its members."""

    file: SourceFile
    scopes: Scopes
    with_fields: bool
    names: frozenset[str]
    skipped: dict[str, str]
    variables: list[VariableSchema] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    unlimited: set[str] = field(default_factory=set)

    def add_dataset(self, name: str, dataset: h5py.Dataset) -> None:
        """Add a dataset as a variable, several variables, a dimension, or a skipped name."""
        plist = dataset.id.get_create_plist()
        names = attribute_names(dataset, plist)
        if "NAME" in names and is_scale(dataset):
            scale = attribute(dataset, "NAME")
            scale = text(bytes(scale)) if isinstance(scale, bytes | np.bytes_) else str(scale)
            if scale.startswith(_NOT_A_VARIABLE):
                self.dims[name] = dataset.shape[0]
                self.unlimited.update([name] if dataset.maxshape[0] is None else [])
                return
        dtype: np.dtype[Any] | str = "a null dataspace: it has no values"
        if dataset.shape is not None:
            try:
                dtype = array_dtype(dataset.dtype)
            except _NO_TYPE as error:
                dtype = f"a type that numpy does not have ({error})"
        has_fields = self.with_fields and is_compound(dataset)
        if isinstance(dtype, str) and not has_fields:
            self.skipped[name] = dtype
            return
        layout = plist.get_layout()
        if plist.get_external_count() or layout == h5py.h5d.VIRTUAL:
            actual = f"{name!r}, whose data are in other files"
            raise damaged(self.file.url, "all data in this file", actual)
        if layout == h5py.h5d.CONTIGUOUS and (size := dataset.id.get_storage_size()):
            require_size(self.file, name, dataset.id.get_offset() + size)
        dims = self.scopes.dims(name, dataset, names)
        for dim, size, largest in zip(dims, dataset.shape, dataset.maxshape, strict=True):
            self.dims[dim] = max(size, self.dims.get(dim, 0))
            self.unlimited.update([dim] if largest is None else [])
        attrs, unreadable = attributes(dataset, names)
        self.skipped |= {f"{name}:{each}": reason for each, reason in unreadable.items()}
        if has_fields:
            self._add_fields(name, dataset, dims, attrs)
        elif not isinstance(dtype, str):
            flags = h5py.check_enum_dtype(dataset.dtype)
            if flags and dtype.kind != "b":
                attrs.setdefault("flag_values", list(flags.values()))
                attrs.setdefault("flag_meanings", " ".join(each.replace(" ", "_") for each in flags))
            codec = ", ".join(each.words for each in filters_of(plist)) or None
            fill = fill_value(dataset, dtype, plist)
            chunks = plist.get_chunk() if layout == h5py.h5d.CHUNKED else None
            variable = VariableSchema(name, dims, dataset.shape, dtype, attrs, fill, chunks, codec)
            self.variables.append(variable)

    def _add_fields(
        self, name: str, dataset: h5py.Dataset, dims: tuple[str, ...], attrs: dict[str, Any]
    ) -> None:
        """Add each field of a compound type as a variable with the attributes of the dataset."""
        attrs.pop("_FillValue", None)  # a compound value
        taken = {*self.names, *(each.name for each in self.variables)}
        for each in compound_fields(dataset.dtype):
            own = "_".join((name, *each.path))
            if isinstance(each.dtype, str) or own in taken:
                self.skipped[own] = "another variable has this name" if own in taken else str(each.dtype)
                continue
            taken.add(own)
            inner = tuple(f"{own}_dim_{at}" for at in range(len(each.shape)))
            self.dims |= dict(zip(inner, each.shape, strict=True))
            shape = (*dataset.shape, *each.shape)
            self.variables.append(VariableSchema(own, (*dims, *inner), shape, each.dtype, dict(attrs)))


def require_size(file: SourceFile, name: str, end: int) -> None:
    """Raise ``FormatError`` if the file is shorter than ``end`` bytes, where the variable ``name`` ends."""
    if end > file.size:
        raise damaged(
            file.url, f"at least {end} bytes ({name!r} ends there)", f"{file.size}: it is truncated"
        )


def _group_paths(group: h5py.Group) -> list[str]:
    """Return the paths of all groups below a group."""
    paths: list[str] = []
    group.visititems(lambda _, each: paths.append(each.name) if isinstance(each, h5py.Group) else None)
    return paths


#: Packages whose wheels have a folder ``plugins``. netCDF4 is in the extra ``pipeline``, and has the filters
#: of NetCDF-4: zstd, blosc, bzip2. hdf5plugin has these, and bitshuffle, lz4, blosc2, zfp, ...
PLUGIN_PACKAGES: Final = ("netCDF4", "hdf5plugin")


def add_plugins() -> None:
    """Make the filters of the installed `PLUGIN_PACKAGES` available to HDF5."""
    for name in PLUGIN_PACKAGES:
        package = importlib.util.find_spec(name)
        if package is not None:
            for folder in package.submodule_search_locations or ():
                h5py.h5pl.append(str(Path(folder, "plugins")).encode())


#: The largest number of bytes that are read before the library needs them.
_PREFETCH: Final = 1 << 30

add_plugins()


class Hdf5Reader(Reader):
    """The reader of one group of an HDF5 or NetCDF-4 file."""

    format = "hdf5"
    caches_schema = True
    library_errors: ClassVar[tuple[type[Exception], ...]] = (
        OSError,
        RuntimeError,
        KeyError,
        ValueError,
        TypeError,
        UnicodeError,
    )
    names_error_type = False
    option_names: ClassVar[tuple[str, ...]] = ("compound",)

    def __init__(
        self, file: SourceFile, group: str = "/", compound: Literal["skip", "fields"] = "skip"
    ) -> None:
        super().__init__(file, group)
        if compound not in ("skip", "fields"):
            raise InvalidInputError(
                f"compound must be skip or fields, got {str(compound)!r}", ErrorKind.UNKNOWN_CHOICE
            )
        self.options: tuple[Any, ...] = (compound,)
        self._stream = None if file.path else self._stack.enter_context(file.open())
        with self.library_call("an HDF5 file"):
            self._file = self._stack.enter_context(h5py.File(self._stream or file.path, "r"))
        self._datasets: dict[str, h5py.Dataset] = {}
        self._maps: dict[str, ChunkMap] = {}
        self._sparse: dict[str, bool] = {}

    @cached_property
    def _fields(self) -> dict[str, tuple[str, CompoundField]]:
        """The key of the dataset and the field of each variable that is a field of a compound type."""
        fields: dict[str, tuple[str, CompoundField]] = {}
        group = self._file[self.group] if self.options == ("fields",) else {}
        for key in group:
            member = group.get(key)
            if isinstance(member, h5py.Dataset) and is_compound(member):
                for each in compound_fields(member.dtype):
                    name = "_".join((key.removeprefix(NOT_A_COORDINATE), *each.path))
                    if name not in group:
                        fields.setdefault(name, (key, each))
        return fields

    @override
    def contents(self) -> FileContents:
        with self.library_call("readable metadata"):
            with_fields = self.options == ("fields",)
            contents, members = read_group(self.file, self._file, self.group, with_fields=with_fields)
        # `schema` reads the labels next. A file may have too many datasets to keep them all open.
        short = {each.name for each in contents.variables if len(each.dims) < 2}
        ranked = sorted(members, key=methodcaller("startswith", NOT_A_COORDINATE))
        named = {key.removeprefix(NOT_A_COORDINATE): members[key] for key in ranked}
        self._datasets.update((name, named[name]) for name in short & named.keys())
        return contents

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        name, dataset = variable.name, self._dataset(variable.name)
        box = self._stored_box(name, bounds)
        shape = tuple(stop - start for start, stop in bounds)
        if box is None:
            return np.full(shape, zero(variable.dtype, variable.fill_value), variable.dtype)
        inside = tuple(slice(*each) for each in box)
        if isinstance(self._stream, BlockStream) and dataset.chunks is not None and name not in self._fields:
            # The library reads one chunk after the other, the stream reads them in parallel.
            with self.library_call(f"the chunks of {name!r}"):
                chunks, rows = self._chunks_in(name, box)
            start, length = chunks.offset[rows], chunks.length[rows]
            if length.sum() <= _PREFETCH:
                self._stream.prefetch(zip(start.tolist(), (start + length).tolist(), strict=True))
        _, field = self._fields.get(name, ("", None))
        with self.library_call(f"values of {name!r}"):
            values = read_values(dataset, inside) if field is None else field.read(dataset, inside)
        if isinstance(self._stream, BlockStream):
            self._stream.prefetch(())
        # Dtypes of h5py have metadata (enumerations), which would make equal dtypes different.
        values = values.astype(variable.dtype, copy=False)
        values = values if variable.dtype.kind == "T" else values.view(variable.dtype)
        if values.shape == shape:
            return values
        whole = np.full(shape, zero(variable.dtype, variable.fill_value), variable.dtype)
        whole[tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, bounds, strict=True))] = values
        return whole

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        variable = self.variable(name)
        if self._stored_box(name, self.region(name, region)) is not None:
            return None
        return np.full((), zero(variable.dtype, variable.fill_value), variable.dtype)

    def _stored_box(self, name: str, bounds: Bounds) -> Bounds | None:
        """Return the box around the stored chunks of a region, if few are stored; None without any."""
        dataset = self._dataset(name)
        shape = dataset.shape
        if name in self._fields:
            shape += self._fields[name][1].shape
        ends = zip(bounds, shape, strict=True)
        inside = tuple((min(start, size), min(stop, size)) for (start, stop), size in ends)
        if any(start >= stop for start, stop in inside):
            return inside if 0 in shape or bounds == inside else None
        if name in self._fields:
            return inside
        with self.library_call(f"the chunks of {name!r}"):
            if name not in self._sparse:
                if dataset.chunks is None:
                    contiguous = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
                    self._sparse[name] = contiguous and not dataset.id.get_storage_size()
                else:
                    grid = [
                        -(-size // step) for size, step in zip(dataset.shape, dataset.chunks, strict=True)
                    ]
                    self._sparse[name] = 2 * dataset.id.get_num_chunks() < math.prod(grid)
            if not self._sparse[name]:
                return inside
            chunks, rows = self._chunks_in(name, inside)
        index = chunks.index[rows]
        if not len(index):
            return None
        corners = zip(index.min(axis=0).tolist(), index.max(axis=0).tolist(), chunks.shape, strict=True)
        return tuple(
            (max(low * size, start), min((high + 1) * size, stop))
            for (low, high, size), (start, stop) in zip(corners, inside, strict=True)
        )

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to the chunks, if Zarr has codecs for all filters. A million take a second."""
        variable = self.variable(name)
        dataset = self._dataset(name)
        if name in self._fields:
            return NotVirtual("a field of a compound type: its bytes lie between those of other fields")
        with self.library_call(f"the chunks of {name!r}"):
            reason = why_not(dataset)
            filters = filters_of(dataset.id.get_create_plist())
            candidates = list(map(codec_of, filters))
            if reason is None and None in candidates:
                reason = f"{filters[candidates.index(None)].name}: no codec in Zarr"
            if reason is not None:
                return NotVirtual(reason)
            chunks = self._chunk_map(name)
        if len(np.unique(chunks.mask)) > 1:
            return NotVirtual("its chunks were encoded with different filters")
        mask = int(chunks.mask[0]) if len(chunks.mask) else 0
        codecs = [each for bit, each in enumerate(candidates) if each is not None and not mask >> bit & 1]
        shape, length = chunks.shape, chunks.length
        if not codecs and shape and 0 < variable.shape[0] < shape[0]:
            # A file of one day may have chunks of 512 steps. Chunks of the used steps fit other files.
            shape = (variable.shape[0], *shape[1:])
            length = np.full_like(length, math.prod(shape) * variable.dtype.itemsize)
        references = references_to_file(
            self.file.location,
            shape,
            [bytes_codec(variable.dtype), *codecs],
            variable.dtype,
            zero(variable.dtype, variable.fill_value),
            chunks.index,
            chunks.offset,
            length,
        )
        return references if chunks.compact is None else references.with_inline({0: chunks.compact})

    def _dataset(self, name: str) -> h5py.Dataset:
        """Return the dataset of a variable of the schema."""
        if name not in self._datasets:
            group = self._file[self.group]
            key = NOT_A_COORDINATE + name
            key, _ = self._fields.get(name, (key if key in group else name, None))
            self._datasets[name] = group[key]
        return self._datasets[name]

    # chunks

    def _chunk_map(self, name: str) -> ChunkMap:
        chunks = self._maps.get(name)
        if chunks is None:
            chunks = self._maps[name] = chunk_map(self._dataset(name))
            ends = chunks.offset + chunks.length
            if chunks.compact is None and len(ends):
                require_size(self.file, name, int(ends.max()))
        return chunks

    def _chunks_in(self, name: str, bounds: Bounds) -> tuple[ChunkMap, NDArray[np.bool_]]:
        """Return the chunks of a variable, and a mask of the stored chunks of a region."""
        chunks = self._chunk_map(name)
        first = [start // size for (start, _), size in zip(bounds, chunks.shape, strict=True)]
        last = [-(-stop // size) for (_, stop), size in zip(bounds, chunks.shape, strict=True)]
        return chunks, ((chunks.index >= first) & (chunks.index < last)).all(axis=1)
