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
import json
import math
import re
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import compress
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final, override
from urllib.parse import quote

import numpy as np
import zarr
from numpy.typing import NDArray
from xarray.backends.zarr import FillValueCoder
from zarr.abc.codec import ArrayArrayCodec
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, cpu
from zarr.core.dtype import VariableLengthUTF8
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.registry import get_codec_class
from zarr.storage import MemoryStore

from frazil.errors import ErrorKind, IcechunkError, ReadOnlyError, StorageError
from frazil.readers.base_reader import (
    INLINE,
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    bytes_codec,
    json_value,
)
from frazil.readers.files import SourceFile, damaged, find_file, local_path, object_storage
from frazil.storage import system
from frazil.storage.base import ObjectInfo, Storage
from frazil.storage.local import local_filesystem_storage
from frazil.zarr_names import UnknownCodecError, UnstableSpecificationWarning, parse_dtype

#: The attribute of version 2 that holds the names of dimensions.
_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"


def variable_schema(name: str, array: Any) -> VariableSchema:
    """Return the schema of an array, with metadata of version 2 converted to version 3."""
    metadata, is_old = array.metadata, array.metadata.zarr_format == 2
    dtype = np.dtypes.StringDType() if is_text(array) else np.dtype(array.dtype)
    names = (array.attrs.get(_DIMENSIONS) if is_old else metadata.dimension_names) or ()
    names = tuple(names) if len(names) == array.ndim else (None,) * array.ndim
    dims = tuple(each or f"{array.basename or 'dim'}_{at}" for at, each in enumerate(names))
    attrs = {key: each for key, each in array.attrs.items() if key != _DIMENSIONS}
    if is_old:
        codecs = [*(array.filters or ()), *(array.compressors or ())]
        compression = [str(each.get_config()["id"]) for each in codecs]
        if metadata.fill_value is not None:  # marks missing values, as xarray reads it
            attrs["_FillValue"] = json_value(np.asarray(metadata.fill_value))
    else:
        named = [str(each["name"]) for each in metadata.to_dict()["codecs"]]
        compression = [each for each in named if each != "bytes"]
        if "_FillValue" in attrs:
            coded: Any = {"T": "string", "S": "bytes"}.get(dtype.kind, dtype)
            with suppress(TypeError, ValueError):  # another library wrote it, so it stays as it is
                attrs["_FillValue"] = json_value(FillValueCoder.decode(attrs["_FillValue"], coded))
    return VariableSchema(
        name,
        dims,
        tuple(array.shape),
        dtype,
        attrs,
        fill_value(array, dtype),
        tuple(array.shards or array.chunks) if dims else (),
        ", ".join(compression) or None,
    )


def is_text(array: Any) -> bool:
    """Return whether the values are strings of variable length."""
    return type(array.metadata.dtype if array.metadata.zarr_format == 2 else array.metadata.data_type) is (
        VariableLengthUTF8
    )


def fill_value(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return the value of missing chunks."""
    value = array.metadata.fill_value
    if value is None:
        return "" if dtype.kind == "T" else np.zeros((), dtype)[()]
    return str(value) if dtype.kind == "T" else np.asarray(value).astype(dtype)[()]


def fill_attributes(value: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the attribute by which xarray masks a fill value in Zarr; none if it has no form for it.

    xarray cannot open an array of texts with ``_FillValue``, but masks texts with ``missing_value``.
    """
    if dtype.kind in "TU":
        return {"missing_value": value} if isinstance(value, str) else {}
    with suppress(TypeError, ValueError):
        number = complex(*value) if dtype.kind == "c" and np.ndim(value) else value
        if value is not None and not np.ndim(number) and dtype.kind in "biufc":
            return {"_FillValue": FillValueCoder.encode(number, dtype)}
    return {}


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
    is_transposed = metadata.order == "F" and array.ndim > 1
    if is_transposed:
        order = list(range(array.ndim))[::-1]
        before.append({"name": "transpose", "configuration": {"order": order}})
    for each in (*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())):
        config = each.get_config()
        if config["id"] == "vlen-utf8":
            continue
        codec = _codec(config, dtype)
        if isinstance(codec, str):
            return codec
        is_array = each is not metadata.compressor and issubclass(
            get_codec_class(codec["name"]), ArrayArrayCodec
        )
        if is_array and is_transposed:
            return f"{config['id']} of an array in Fortran order"
        (before if is_array else after).append(codec)
    return [*before, {"name": "vlen-utf8"} if is_text(array) else bytes_codec(dtype), *after]


def _codec(config: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any] | str:
    """Return a codec of version 2 as a codec of version 3, or the reason why there is none."""
    options, name = {key: each for key, each in config.items() if key != "id"}, config["id"]
    if name == "blosc":
        automatic = 2 if dtype.itemsize == 1 else 1
        shuffle = options.get("shuffle", 1)
        options = {
            "typesize": max(dtype.itemsize, 1),
            "cname": options["cname"],
            "clevel": options["clevel"],
            "shuffle": _BLOSC_SHUFFLES[shuffle if shuffle >= 0 else automatic],
            "blocksize": options.get("blocksize", 0),
        }
    elif name == "zstd":
        options = {"checksum": False, **options}
    elif name != "gzip":
        try:
            get_codec_class(f"numcodecs.{name}")
        except UnknownCodecError:
            return f"{name}: no codec in version 3 of Zarr"
        name = f"numcodecs.{name}"
    return {"name": name, "configuration": options}


def chunk_names(array: Any, names: Iterable[str]) -> tuple[list[str], NDArray[np.uint32]]:
    """Return the names that are keys of chunks in the grid of an array, and their coordinates (n, ndim)."""
    example = array.metadata.encode_chunk_key((7,) * array.ndim)
    pattern = re.escape(example)
    if array.ndim:
        pattern = pattern.replace("7", "(?:0|[1-9][0-9]*)")
    keys = re.findall(f"^{pattern}$", "\n".join(names), re.MULTILINE)
    numbers = re.findall(r"\d+", "\n".join(keys)) if array.ndim else []
    index = np.fromiter(map(int, numbers), np.int64).reshape(len(keys), array.ndim)
    chunks = array.shards or array.chunks
    grid = [-(-size // chunk) for size, chunk in zip(array.shape, chunks, strict=True)]
    inside = np.all(index < np.array(grid, np.int64), axis=1)  # an array may have shrunk
    return list(compress(keys, inside.tolist())), index[inside].astype(np.uint32)


class StorageStore(Store):
    """A store with the objects below ``prefix``. Methods that write raise ``ReadOnlyError``."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, storage: Storage, prefix: str = "") -> None:
        super().__init__(read_only=True)
        inside = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._place = self._storage, self._prefix = storage, inside

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageStore) and self._place == other._place

    @override
    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        start, name = 0, self._prefix + key
        stop: int | None = None
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
        for name in dict.fromkeys([key[len(below) :].split("/")[0] async for key in self.list_prefix(below)]):
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
            url, storage, prefix = system.files.file_url(path), local_filesystem_storage(path), ""
        else:
            url = url.rstrip("/")
            storage, prefix = object_storage(url, storage_options)
        super().__init__(SourceFile(url, 0, storage=storage, key=prefix), group)
        self._storage, self._prefix = storage, prefix
        self._fingerprint = ""
        with self.library_call("a group or an array of Zarr"):
            self._node = zarr.open(
                StorageStore(storage, prefix), mode="r", path=self.group.strip("/") or None
            )

    @override
    def contents(self) -> FileContents:
        with self.library_call("readable metadata"):
            variables, skipped = [], {}
            for name, array in self._arrays.items():
                if array.dtype.kind in "VO" and not is_text(array):
                    skipped[name] = "a structured or object dtype: only fields of HDF5 can be separate arrays"
                else:
                    variables.append(variable_schema(name, array))
            sizes: dict[str, int] = {}
            for each in variables:
                for dim, size in zip(each.dims, each.shape, strict=True):
                    if sizes.setdefault(dim, size) != size:
                        expected = f"{sizes[dim]} values of {each.name!r} along {dim!r}, as others have"
                        raise damaged(self.file.url, expected, size)
            node = self._node if isinstance(self._node, zarr.Group) else None
            attrs = {} if node is None else {name: json_value(each) for name, each in node.attrs.items()}
            groups = () if node is None else tuple(f"/{each.path}" for _, each in node.groups())
            try:
                objects = sorted(self._objects.items())
            except StorageError:  # the fingerprint covers only the metadata
                objects = []
            hashed = hashlib.sha256(repr([each.metadata for each in self._arrays.values()]).encode())
            hashed.update("\n".join(f"{key} {each.size} {each.modified}" for key, each in objects).encode())
            self.file.size = sum(each.size for _, each in objects)
            self.file.modified = max((each.modified for _, each in objects), default=None)
            self._fingerprint = hashed.hexdigest()[:32]
            return FileContents(variables, attrs, sizes, frozenset(), groups, skipped)

    @override
    def fingerprint(self) -> str:
        return self._fingerprint

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        with self.library_call(f"values of {variable.name!r}"):
            values = np.asarray(self._arrays[variable.name][tuple(slice(*each) for each in bounds)])
        return values.astype(variable.dtype, copy=False)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        variable = self.variable(name)
        array = self._arrays[name]
        with self.library_call(f"the chunks of {name!r}"):
            codecs = codecs_of(array)
            if isinstance(codecs, str):
                return NotVirtual(codecs)
            try:
                objects = self._objects
            except StorageError as error:
                return NotVirtual(f"its chunks cannot be listed: {error.message}")
        chunks = variable.chunks or ()
        inside = f"{array.path}/" if array.path else ""
        mine = filter(methodcaller("startswith", inside), objects)
        names, index = chunk_names(array, map(itemgetter(slice(len(inside), None)), mine))
        keys = list(map(inside.__add__, names))
        sizes = map(attrgetter("size"), map(objects.__getitem__, keys))
        base = self.file.location.rstrip("/") + "/"
        return ChunkReferences(
            chunks=tuple(chunks),
            codecs=codecs,
            dtype=variable.dtype,
            fill_value=fill_value(array, variable.dtype),
            locations=tuple(map(base.__add__, map(quote, keys) if base.startswith("file:") else keys)),
            index=index,
            offset=np.zeros(len(keys), np.uint64),
            length=np.fromiter(sizes, np.uint64, len(keys)),
            location=np.arange(len(keys), dtype=np.uint32),
        )

    # the schema

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        if isinstance(self._node, zarr.Group):
            return dict(sorted(self._node.arrays()))
        return {self._node.basename or self.file.url.rstrip("/").rpartition("/")[2]: self._node}

    @cached_property
    def _objects(self) -> Mapping[str, ObjectInfo]:
        """Every object of the group by its key. Raises ``StorageError`` if they cannot be listed."""
        start = f"{self._prefix}/" if self._prefix else ""
        infos = self._storage.list("/".join(filter(None, (self._prefix, self.group.strip("/")))))
        return {each.key[len(start) :]: each for each in infos}


#: The number of values of a chunk of plain bytes that are compared: chunks without codecs can be large.
_PLAIN: Final = 1 << 16


def why_unreadable(
    reader: Reader, name: str, references: ChunkReferences, storage_options: Mapping[str, Any] | None
) -> str | None:
    """Return the reason why the chunks of a variable are not its values; None if one chunk has them.

    A reader derives codecs, dtypes and places of chunks from the metadata of a file. This check finds files
    whose chunks have another form than their metadata say, before references to them are committed.
    """
    in_file = np.flatnonzero(references.location != INLINE)
    if not len(in_file):
        return None
    row = int(in_file[np.argsort(references.length[in_file], kind="stable")[len(in_file) // 2]])
    chunks, start = references.chunks, int(references.offset[row])
    length = int(references.length[row])
    if references.is_plain:  # one run of bytes along the last dimension
        chunks = (*(1 for _ in chunks[:-1]), min(chunks[-1], _PLAIN)) if chunks else ()
        length = min(length, math.prod(chunks) * references.dtype.itemsize)
    corner = [at * step for at, step in zip(references.index[row].tolist(), references.chunks, strict=True)]
    shape = reader.variable(name).shape
    region = tuple(
        slice(at, min(at + step, size)) for at, step, size in zip(corner, chunks, shape, strict=True)
    )
    expected = reader.read(name, region)
    location = references.locations[int(references.location[row])]
    file = reader.file if location == reader.file.location else find_file(location, storage_options)
    data = file.read(start, start + length)
    try:
        values = _decoded(references, chunks, data)[tuple(map(slice, expected.shape))]
        is_equal = np.array_equal(values, expected, equal_nan=expected.dtype.kind in "fcmM")
    except IcechunkError:
        raise
    except Exception as error:  # a codec may raise any error
        return f"its chunks cannot be decoded: {type(error).__name__}: {' '.join(str(error).split())}"
    return None if is_equal else "its chunks have other values when their codecs decode them"


def _decoded(references: ChunkReferences, chunks: tuple[int, ...], data: bytes) -> NDArray[Any]:
    """Return the values of the bytes of a chunk, as zarr decodes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        metadata = ArrayV3Metadata(
            shape=chunks,
            data_type=parse_dtype(references.dtype, zarr_format=3),
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunks}},
            chunk_key_encoding={"name": "default"},
            fill_value=references.fill_value,
            codecs=references.codecs,
            attributes={},
            dimension_names=None,
        )
        documents = {
            "zarr.json": json.dumps(metadata.to_dict()).encode(),
            "/".join(("c", *("0" for _ in chunks))): data,
        }
        store = MemoryStore({key: cpu.Buffer.from_bytes(each) for key, each in documents.items()})
        return np.asarray(zarr.open_array(store, mode="r")[...])
