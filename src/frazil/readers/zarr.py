"""The reader of Zarr versions 2 and 3: a group of arrays, or one array, in a directory or bucket.

A chunk of Zarr is an object, so it can have a reference; a shard has one reference. Metadata of version 2 are
converted to version 3: dimensions are not an attribute, the fill value becomes the ``_FillValue`` of xarray,
compressors and filters become codecs.

A group is not one file, so its fingerprint covers its metadata, and the names, sizes and times of all its
objects.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final, override
from urllib.parse import quote

import numpy as np
import zarr
from numpy.typing import NDArray
from xarray.backends.zarr import FillValueCoder
from zarr.abc.codec import ArrayArrayCodec
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.dtype import VariableLengthUTF8
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from frazil.errors import ErrorKind, ReadOnlyError, StorageError
from frazil.readers.base_reader import (
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    bytes_codec,
    json_value,
)
from frazil.readers.files import File, damaged, local_path, object_storage
from frazil.storage.base import ObjectInfo, Storage
from frazil.storage.local import local_filesystem_storage

#: The attribute of version 2 that holds the names of dimensions.
_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"


def variable_schema(name: str, array: Any) -> VariableSchema:
    """Return the schema of an array, with metadata of version 2 converted to version 3."""
    dims = dimension_names(array)
    dtype = np.dtypes.StringDType() if is_text(array) else np.dtype(array.dtype)
    return VariableSchema(
        name,
        dims,
        tuple(array.shape),
        dtype,
        _attrs(array, dtype),
        fill_value(array, dtype),
        tuple(array.shards or array.chunks) if dims else (),
        _compression(array),
    )


def is_text(array: Any) -> bool:
    """Return whether the values are strings of variable length."""
    return type(array.metadata.dtype if array.metadata.zarr_format == 2 else array.metadata.data_type) is (
        VariableLengthUTF8
    )


def dimension_names(array: Any) -> tuple[str, ...]:
    """Return the dimensions of an array. A dimension without a name gets one from the name of the array."""
    if array.metadata.zarr_format == 2:
        names = array.attrs.get(_DIMENSIONS) or ()
    else:
        names = array.metadata.dimension_names or ()
    names = tuple(names) if len(names) == array.ndim else (None,) * array.ndim
    return tuple(name or f"{array.basename or 'dim'}_{at}" for at, name in enumerate(names))


def _attrs(array: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return attributes as xarray reads them: the fill value of version 2 marks missing values."""
    attrs = {name: each for name, each in array.attrs.items() if name != _DIMENSIONS}
    if array.metadata.zarr_format == 2:
        if array.metadata.fill_value is not None:
            attrs["_FillValue"] = json_value(np.asarray(array.metadata.fill_value))
    elif "_FillValue" in attrs:
        with suppress(TypeError, ValueError):  # another library wrote it, so it stays as it is
            attrs["_FillValue"] = json_value(FillValueCoder.decode(attrs["_FillValue"], _coder_dtype(dtype)))
    return attrs


def _coder_dtype(dtype: np.dtype[Any]) -> Any:
    return {"T": "string", "S": "bytes"}.get(dtype.kind, dtype)


def fill_value(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return the value of missing chunks."""
    value = array.metadata.fill_value
    if value is None:
        return "" if dtype.kind == "T" else np.zeros((), dtype)[()]
    return str(value) if dtype.kind == "T" else np.asarray(value).astype(dtype)[()]


def _compression(array: Any) -> str | None:
    if array.metadata.zarr_format == 2:
        each = [*(array.filters or ()), *(array.compressors or ())]
        return ", ".join(str(codec.get_config()["id"]) for codec in each) or None
    names = [str(codec["name"]) for codec in array.metadata.to_dict()["codecs"]]
    return ", ".join(name for name in names if name != "bytes") or None


_BLOSC_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")


def codecs_of(array: Any) -> list[dict[str, Any]] | str:
    """Return the codecs of an array as codecs of version 3, or the reason why there are none."""
    metadata = array.metadata
    if metadata.zarr_format == 3:
        grid = metadata.to_dict()["chunk_grid"]["name"]
        return list(metadata.to_dict()["codecs"]) if grid == "regular" else f"chunks of a grid {grid!r}"
    dtype = np.dtype(array.dtype)
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    to_bytes = {"name": "vlen-utf8"} if is_text(array) else bytes_codec(dtype)
    if metadata.order == "F" and array.ndim > 1:
        order = list(range(array.ndim))[::-1]
        before.append({"name": "transpose", "configuration": {"order": order}})
    for each in metadata.filters or ():
        config = each.get_config()
        if config["id"] == "vlen-utf8":
            continue
        codec = _codec(config, dtype)
        if isinstance(codec, str):
            return codec
        is_array = issubclass(get_codec_class(codec["name"]), ArrayArrayCodec)
        if is_array and metadata.order == "F" and array.ndim > 1:
            return f"{config['id']} of an array in Fortran order"
        (before if is_array else after).append(codec)
    if metadata.compressor is not None:
        codec = _codec(metadata.compressor.get_config(), dtype)
        if isinstance(codec, str):
            return codec
        after.append(codec)
    return [*before, to_bytes, *after]


def _codec(config: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any] | str:
    """Return a codec of version 2 as a codec of version 3, or the reason why there is none."""
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


class StorageStore(Store):
    """A store with the objects below ``prefix``. Methods that write raise ``ReadOnlyError``."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, storage: Storage, prefix: str = "") -> None:
        super().__init__(read_only=True)
        self._storage = storage
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageStore) and (self._storage, self._prefix) == (
            other._storage,
            other._prefix,
        )

    @override
    def with_read_only(self, read_only: bool = False) -> StorageStore:
        if not read_only:
            raise ReadOnlyError("the source of an ingest is read-only", ErrorKind.READ_ONLY_STORE)
        return self

    @override
    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        start: int = 0
        stop: int | None = None
        name = self._prefix + key
        try:
            match byte_range:
                case RangeByteRequest():
                    start, stop = byte_range.start, byte_range.end
                case OffsetByteRequest():
                    start = byte_range.offset
                case SuffixByteRequest():
                    info = self._storage.head(name)
                    start = max(0, info.size - byte_range.suffix) if info else 0
            return prototype.buffer.from_bytes(bytes(await self._storage.get_async(name, start, stop)))
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise

    @override
    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return list(await asyncio.gather(*(self.get(key, prototype, each) for key, each in key_ranges)))

    @override
    async def exists(self, key: str) -> bool:
        return self._storage.head(self._prefix + key) is not None

    @override
    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    @override
    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        inside = (self._prefix + prefix).rpartition("/")[0]
        for info in self._storage.list(inside):
            key = info.key.removeprefix(self._prefix)
            if key.startswith(prefix):
                yield key

    @override
    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        below = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        names = dict.fromkeys([key[len(below) :].split("/")[0] async for key in self.list_prefix(below)])
        for name in names:
            yield name

    @override
    async def set(self, key: str, value: Buffer) -> None:
        raise ReadOnlyError("the source of an ingest is read-only", ErrorKind.READ_ONLY_STORE)

    @override
    async def delete(self, key: str) -> None:
        raise ReadOnlyError("the source of an ingest is read-only", ErrorKind.READ_ONLY_STORE)


class ZarrReader(Reader):
    """The reader of one group, or of a single array, which becomes one variable with its name."""

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
        self._cached_arrays: dict[str, Any] | None = None
        self._fingerprint = ""
        with self.library_call("a group or an array of Zarr"):
            self._node = zarr.open(
                StorageStore(storage, prefix), mode="r", path=self.group.strip("/") or None
            )

    @override
    def contents(self) -> FileContents:
        with self.library_call("readable metadata"):
            return self._read_contents()

    @override
    def fingerprint(self) -> str:
        return self._fingerprint

    @override
    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        with self.library_call(f"values of {name!r}"):
            values = np.asarray(self._arrays()[name][tuple(slice(*each) for each in bounds)])
        return values.astype(variable.dtype, copy=False)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        variable = self.variable(name)
        array = self._arrays()[name]
        with self.library_call(f"the chunks of {name!r}"):
            codecs = codecs_of(array)
            if isinstance(codecs, str):
                return NotVirtual(codecs)
            try:
                objects = self._list_objects()
            except StorageError as error:
                return NotVirtual(f"its chunks cannot be listed: {error.message}")
        return self._references(array, variable, codecs, objects)

    def _references(
        self,
        array: Any,
        variable: VariableSchema,
        codecs: list[dict[str, Any]],
        objects: Mapping[str, ObjectInfo],
    ) -> ChunkReferences:
        chunks = variable.chunks or ()
        inside = f"{array.path}/" if array.path else ""
        names = _chunk_names(array, inside, objects)
        numbers = re.findall(r"\d+", "\n".join(names)) if chunks else ()
        index = np.fromiter(map(int, numbers), np.int64).reshape(len(names), len(chunks))
        grid = [-(-size // chunk) for size, chunk in zip(variable.shape, chunks, strict=True)]
        rows = np.flatnonzero(np.all(index < np.array(grid, np.int64), axis=1))  # an array may have shrunk
        keys = list(map(inside.__add__, map(names.__getitem__, rows.tolist())))
        sizes = map(attrgetter("size"), map(objects.__getitem__, keys))
        base = self.file.location.rstrip("/") + "/"
        urls = map(base.__add__, map(quote, keys) if base.startswith("file:") else keys)
        return ChunkReferences(
            chunks=tuple(chunks),
            codecs=codecs,
            dtype=variable.dtype,
            fill_value=fill_value(array, variable.dtype),
            locations=tuple(urls),
            index=index[rows].astype(np.uint32),
            offset=np.zeros(len(rows), np.uint64),
            length=np.fromiter(sizes, np.uint64, len(rows)),
            location=np.arange(len(rows), dtype=np.uint32),
        )

    # the schema

    def _read_contents(self) -> FileContents:
        variables, skipped = [], {}
        for name, array in self._arrays().items():
            if array.dtype.kind in "VO" and not is_text(array):
                skipped[name] = "a structured or object dtype: ingest its fields as separate arrays"
            else:
                variables.append(variable_schema(name, array))
        sizes: dict[str, int] = {}
        for each in variables:
            for dim, size in zip(each.dims, each.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    expected = f"{sizes[dim]} values of {each.name!r} along {dim!r}, as others have"
                    raise damaged(self.file.url, expected, size)
        node = self._node if isinstance(self._node, zarr.Group) else None
        attrs = {} if node is None else dict(node.attrs)
        groups = () if node is None else tuple(f"/{each.path}" for _, each in node.groups())
        self._set_state()
        return FileContents(
            variables, {k: json_value(v) for k, v in attrs.items()}, sizes, frozenset(), groups, skipped
        )

    def _arrays(self) -> dict[str, Any]:
        if self._cached_arrays is None:
            if isinstance(self._node, zarr.Group):
                self._cached_arrays = dict(sorted(self._node.arrays()))
            else:
                name = self._node.basename or self.file.url.rstrip("/").rpartition("/")[2]
                self._cached_arrays = {name: self._node}
        return self._cached_arrays

    def _set_state(self) -> None:
        """Set size, time and fingerprint from all objects, or from the metadata if they cannot be listed."""
        try:
            objects = sorted(self._list_objects().items())
        except StorageError:
            objects = []
        hashed = hashlib.sha256(repr([each.metadata for each in self._arrays().values()]).encode())
        hashed.update("\n".join(f"{key} {each.size} {each.modified}" for key, each in objects).encode())
        self.file.size = sum(each.size for _, each in objects)
        self.file.modified = max((each.modified for _, each in objects), default=None)
        self._fingerprint = hashed.hexdigest()[:32]

    def _list_objects(self) -> Mapping[str, ObjectInfo]:
        """Return every object of the group by its key, or raise ``StorageError`` if they cannot be listed."""
        if self._objects is None:
            start = f"{self._prefix}/" if self._prefix else ""
            infos = self._storage.list(_joined(self._prefix, self.group.strip("/")))
            self._objects = {each.key[len(start) :]: each for each in infos}
        return self._objects


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _chunk_names(array: Any, inside: str, objects: Mapping[str, ObjectInfo]) -> list[str]:
    """Return the keys of the stored chunks of an array, relative to the array (``inside``)."""
    ndim = array.ndim
    example = array.metadata.encode_chunk_key((7,) * ndim)
    if not ndim:
        return [example] if inside + example in objects else []
    below = map(itemgetter(slice(len(inside), None)), filter(methodcaller("startswith", inside), objects))
    pattern = re.escape(example).replace("7", "(?:0|[1-9][0-9]*)")
    return re.findall(f"^{pattern}$", "\n".join(below), re.MULTILINE)
