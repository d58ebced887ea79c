"""The reader of Zarr versions 2 and 3: a group of arrays, or one array, in a directory or bucket.

A chunk of Zarr is an object, so it can have a reference; a shard has one reference. Metadata of version 2 are
converted to version 3: dimensions are not an attribute, the fill value becomes the ``_FillValue`` of xarray,
compressors and filters become codecs.

A group is not one file, so its fingerprint covers its metadata, and the names, sizes and times of all its
objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, override
from urllib.parse import quote

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import StorageError
from frazil.readers.attribute_values import json_value
from frazil.readers.base_reader import FileContents, Reader
from frazil.readers.file_errors import damaged
from frazil.readers.files import File, local_path, object_storage
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.storage_store import StorageStore
from frazil.readers.zarr_codecs import codecs_of
from frazil.readers.zarr_schema import fill_value, is_text, variable_schema
from frazil.storage.base import ObjectInfo
from frazil.storage.local import local_filesystem_storage


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
