"""Zarr, versions 2 and 3, by zarr: a group of arrays, or one array, in a directory or in a bucket.

A chunk of Zarr is an object, so all of it can be referred to where it is; a shard as a whole. Metadata of
version 2 are told as those of version 3: dimensions are no attribute, the fill value is xarray's
``_FillValue``, compressors and filters are codecs.

A group has no bytes of its own that could tell whether it changed: its fingerprint is of its metadata and of
the names, sizes and times of all its objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import zarr
from numpy.typing import NDArray
from xarray.backends.zarr import FillValueCoder
from zarr.abc.codec import ArrayArrayCodec
from zarr.core.dtype import VariableLengthUTF8
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from frazil.errors import IcechunkError, StorageError
from frazil.readers.conventions import BaseReader, Parts, bytes_codec, json_value
from frazil.readers.files import File, damaged, local_path, object_storage
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.storage_store import StorageStore
from frazil.storage.base import ObjectInfo
from frazil.storage.constructors import local_filesystem_storage

_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"
_BLOSC_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")


class ZarrReader(BaseReader):
    """The arrays of one group; of an array alone, one variable with the last part of its name."""

    format = "zarr"

    def __init__(self, url: str, group: str = "/", *, storage_options: dict[str, Any] | None = None) -> None:
        path = local_path(url)
        if path is not None:
            url, storage, prefix = f"file://{quote(path)}", local_filesystem_storage(path), ""
        else:
            url = url.rstrip("/")
            storage, prefix = object_storage(url, storage_options)
        super().__init__(File(url, 0, storage=storage, key=prefix), group)
        self._storage, self._prefix = storage, prefix
        self._objects: Mapping[str, ObjectInfo] | None = None
        self._found_arrays: dict[str, Any] | None = None
        self._fingerprint = ""
        with self._reading("a group or an array of Zarr"):
            self._node = zarr.open(
                StorageStore(storage, prefix), mode="r", path=self.group.strip("/") or None
            )

    def parts(self) -> Parts:
        with self._reading("readable metadata"):
            return self._parts()

    def fingerprint(self) -> str:
        return self._fingerprint

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        with self._reading(f"values of {name!r}"):
            values = np.asarray(self._arrays()[name][tuple(slice(*each) for each in bounds)])
        return values.astype(variable.dtype, copy=False)

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        variable = self.variable(name)
        array = self._arrays()[name]
        with self._reading(f"the chunks of {name!r}"):
            codecs = _codecs(array)
            if isinstance(codecs, str):
                return NotVirtual(codecs)
            try:
                there = self._listed()
            except StorageError as error:
                return NotVirtual(f"its chunks cannot be listed: {error.message}")
        return self._found(array, variable, codecs, there)

    def _found(
        self,
        array: Any,
        variable: VariableSchema,
        codecs: list[dict[str, Any]],
        there: Mapping[str, ObjectInfo],
    ) -> ChunkReferences:
        chunks = variable.chunks or ()
        inside = f"{array.path}/" if array.path else ""
        names = _chunk_names(array, inside, there)
        numbers = re.findall(r"\d+", "\n".join(names)) if chunks else ()
        index = np.fromiter(map(int, numbers), np.int64).reshape(len(names), len(chunks))
        grid = [-(-size // chunk) for size, chunk in zip(variable.shape, chunks, strict=True)]
        rows = np.flatnonzero(np.all(index < np.array(grid, np.int64), axis=1))  # an array may have shrunk
        keys = list(map(inside.__add__, map(names.__getitem__, rows.tolist())))
        sizes = map(attrgetter("size"), map(there.__getitem__, keys))
        base = self.file.url.rstrip("/") + "/"
        urls = map(base.__add__, map(quote, keys) if base.startswith("file:") else keys)
        return ChunkReferences(
            chunks=tuple(chunks),
            codecs=codecs,
            dtype=variable.dtype,
            fill_value=_fill(array, variable.dtype),
            locations=tuple(urls),
            index=index[rows].astype(np.uint32),
            offset=np.zeros(len(rows), np.uint64),
            length=np.fromiter(sizes, np.uint64, len(rows)),
            location=np.arange(len(rows), dtype=np.uint32),
        )

    # the schema

    def _parts(self) -> Parts:
        variables, skipped = [], {}
        for name, array in self._arrays().items():
            dims = _dims(array)
            if array.dtype.kind in "VO" and not _is_text(array):
                skipped[name] = "a structured or object dtype: ingest its fields as arrays of their own"
            else:
                variables.append(_schema(name, array, dims))
        sizes: dict[str, int] = {}
        for each in variables:
            for dim, size in zip(each.dims, each.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    expected = f"{sizes[dim]} values of {each.name!r} along {dim!r}, as others have"
                    raise damaged(self.file.url, expected, size)
        node = self._node if isinstance(self._node, zarr.Group) else None
        attrs = {} if node is None else dict(node.attrs)
        groups = () if node is None else tuple(f"/{each.path}" for _, each in node.groups())
        self._state()
        return Parts(
            variables, {k: json_value(v) for k, v in attrs.items()}, sizes, frozenset(), groups, skipped
        )

    def _arrays(self) -> dict[str, Any]:
        if self._found_arrays is None:
            if isinstance(self._node, zarr.Group):
                self._found_arrays = dict(sorted(self._node.arrays()))
            else:
                name = self._node.basename or self.file.url.rstrip("/").rpartition("/")[2]
                self._found_arrays = {name: self._node}
        return self._found_arrays

    def _state(self) -> None:
        """Size, time and fingerprint: of all objects, or of the metadata alone where none can be listed."""
        try:
            listed = sorted(self._listed().items())
        except StorageError:
            listed = []
        hashed = hashlib.sha256(repr([each.metadata for each in self._arrays().values()]).encode())
        hashed.update("\n".join(f"{key} {each.size} {each.modified}" for key, each in listed).encode())
        self.file.size = sum(each.size for _, each in listed)
        self.file.modified = max((each.modified for _, each in listed), default=None)
        self._fingerprint = hashed.hexdigest()[:32]

    def _listed(self) -> Mapping[str, ObjectInfo]:
        """Every object of the group by its key. Raises ``StorageError`` where none can be listed."""
        if self._objects is None:
            start = f"{self._prefix}/" if self._prefix else ""
            found = self._storage.list(_joined(self._prefix, self.group.strip("/")))
            self._objects = {each.key[len(start) :]: each for each in found}
        return self._objects

    @contextmanager
    def _reading(self, expected: str) -> Iterator[None]:
        try:
            yield
        except IcechunkError:
            raise
        except Exception as error:  # zarr lets through what its codecs and the parser of JSON raise
            raise damaged(self.file.url, expected, f"{type(error).__name__}: {error}") from error


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _chunk_names(array: Any, inside: str, there: Mapping[str, ObjectInfo]) -> list[str]:
    """The keys of chunks that are there, below the array."""
    ndim = array.ndim
    example = array.metadata.encode_chunk_key((7,) * ndim)
    if not ndim:
        return [example] if inside + example in there else []
    below = map(itemgetter(slice(len(inside), None)), filter(methodcaller("startswith", inside), there))
    pattern = re.escape(example).replace("7", "(?:0|[1-9][0-9]*)")
    return re.findall(f"^{pattern}$", "\n".join(below), re.MULTILINE)


def _schema(name: str, array: Any, dims: tuple[str, ...]) -> VariableSchema:
    dtype = np.dtypes.StringDType() if _is_text(array) else np.dtype(array.dtype)
    return VariableSchema(
        name,
        dims,
        tuple(array.shape),
        dtype,
        _attrs(array, dtype),
        _fill(array, dtype),
        tuple(array.shards or array.chunks) if dims else (),
        _words(array),
    )


def _is_text(array: Any) -> bool:
    return type(array.metadata.dtype if array.metadata.zarr_format == 2 else array.metadata.data_type) is (
        VariableLengthUTF8
    )


def _dims(array: Any) -> tuple[str, ...]:
    if array.metadata.zarr_format == 2:
        names = array.attrs.get(_DIMENSIONS) or ()
    else:
        names = array.metadata.dimension_names or ()
    names = tuple(names) if len(names) == array.ndim else (None,) * array.ndim
    return tuple(name or f"{array.basename or 'dim'}_{at}" for at, name in enumerate(names))


def _attrs(array: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Attributes as xarray sees them: a fill value of version 2 says which values are missing."""
    attrs = {name: each for name, each in array.attrs.items() if name != _DIMENSIONS}
    if array.metadata.zarr_format == 2:
        if array.metadata.fill_value is not None:
            attrs["_FillValue"] = json_value(np.asarray(array.metadata.fill_value))
    elif "_FillValue" in attrs:
        with suppress(TypeError, ValueError):  # written by others than xarray: as it is
            attrs["_FillValue"] = json_value(FillValueCoder.decode(attrs["_FillValue"], _coder_dtype(dtype)))
    return attrs


def _coder_dtype(dtype: np.dtype[Any]) -> Any:
    return {"T": "string", "S": "bytes"}.get(dtype.kind, dtype)


def _fill(array: Any, dtype: np.dtype[Any]) -> Any:
    value = array.metadata.fill_value
    if value is None:
        return "" if dtype.kind == "T" else np.zeros((), dtype)[()]
    return str(value) if dtype.kind == "T" else np.asarray(value).astype(dtype)[()]


def _words(array: Any) -> str | None:
    if array.metadata.zarr_format == 2:
        each = [*(array.filters or ()), *(array.compressors or ())]
        return ", ".join(str(codec.get_config()["id"]) for codec in each) or None
    names = [str(codec["name"]) for codec in array.metadata.to_dict()["codecs"]]
    return ", ".join(name for name in names if name != "bytes") or None


# codecs


def _codecs(array: Any) -> list[dict[str, Any]] | str:
    """The codecs of version 3, or why there are none."""
    metadata = array.metadata
    if metadata.zarr_format == 3:
        grid = metadata.to_dict()["chunk_grid"]["name"]
        return list(metadata.to_dict()["codecs"]) if grid == "regular" else f"chunks of a grid {grid!r}"
    dtype = np.dtype(array.dtype)
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    to_bytes = {"name": "vlen-utf8"} if _is_text(array) else bytes_codec(dtype)
    if metadata.order == "F" and array.ndim > 1:
        order = list(range(array.ndim))[::-1]
        before.append({"name": "transpose", "configuration": {"order": order}})
    for each in metadata.filters or ():
        config = each.get_config()
        if config["id"] == "vlen-utf8":
            continue
        found = _codec(config, dtype)
        if isinstance(found, str):
            return found
        is_array = issubclass(get_codec_class(found["name"]), ArrayArrayCodec)
        if is_array and metadata.order == "F" and array.ndim > 1:
            return f"{config['id']} of an array in Fortran's order"
        (before if is_array else after).append(found)
    if metadata.compressor is not None:
        found = _codec(metadata.compressor.get_config(), dtype)
        if isinstance(found, str):
            return found
        after.append(found)
    return [*before, to_bytes, *after]


def _codec(config: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any] | str:
    """A codec of version 2 as one of version 3."""
    options = {key: each for key, each in config.items() if key != "id"}
    match config["id"]:
        case "blosc":
            shuffle = options.get("shuffle", 1)
            name = (
                _BLOSC_SHUFFLES[shuffle]
                if shuffle >= 0
                else "bitshuffle"
                if dtype.itemsize == 1
                else "shuffle"
            )
            return {
                "name": "blosc",
                "configuration": {
                    "typesize": max(dtype.itemsize, 1),
                    "cname": options["cname"],
                    "clevel": options["clevel"],
                    "shuffle": name,
                    "blocksize": options.get("blocksize", 0),
                },
            }
        case "gzip":
            return {"name": "gzip", "configuration": {"level": options["level"]}}
        case "zstd":
            settings = {"level": options["level"], "checksum": options.get("checksum", False)}
            return {"name": "zstd", "configuration": settings}
        case name:
            try:
                get_codec_class(f"numcodecs.{name}")
            except UnknownCodecError:
                return f"{name}: no codec in version 3 of Zarr"
            return {"name": f"numcodecs.{name}", "configuration": options}
