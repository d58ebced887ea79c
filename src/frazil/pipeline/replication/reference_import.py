"""Imports of references of kerchunk, from JSON or Parquet, into a session.

Metadata of version 2 of Zarr become metadata of version 3, as in an ingest of Zarr. The layout of a folder of
Parquet is described in `frazil.pipeline.replication.reference_export`.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import cpu
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import MemoryStore

from frazil.arrays.array import read
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, StorageError
from frazil.lazy_names import ModuleOnDemand
from frazil.pipeline.replication.reference_export import INLINE, References
from frazil.readers.files import SourceFile, damaged, find_file, local_path, object_storage
from frazil.readers.zarr import chunk_names, codecs_of, fill_attributes, variable_schema
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.repository.session.virtual_refs import VirtualRows, set_rows
from frazil.storage import system
from frazil.storage.local import local_filesystem_storage
from frazil.zarr_names import UnstableSpecificationWarning, parse_dtype

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
else:
    pa, pq = ModuleOnDemand("pyarrow"), ModuleOnDemand("pyarrow.parquet")

_DOCUMENTS: Final = frozenset({".zgroup", ".zarray", ".zattrs", "zarr.json"})
#: The columns of a file of Parquet, which may lack some.
_COLUMNS: Final = {"path": "string", "offset": "int64", "size": "int64", "raw": "binary"}


def import_kerchunk(
    source: str | os.PathLike[str] | Mapping[str, Any],
    session: Session,
    *,
    group: str = "/",
    checksum: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Set the groups, arrays and references of kerchunk in a session, which the caller commits.

    The repository needs a virtual chunk container for each location. Inline chunks become chunks of the
    repository.

    Args:
        source: Path or URL of a JSON file or of a folder of Parquet files, or the references as a mapping.
        session: The writable session.
        group: The group for the nodes. Default: the root group.
        checksum: A time after which the files must not change, or the etag of a single file. A later read of
            a changed file raises an error. References of kerchunk have no checksum. Default: no check.
        storage_options: Options of the storage of ``source`` by name, as in ``storage_from_url``.

    Returns:
        The paths of the arrays.

    Raises:
        FormatError: ``invalid-file-format`` if the source is damaged, or is not a set of references;
            ``undecodable-chunk`` if the codecs of an array cannot decode one of its chunks. A chunk of a file
            that cannot be read now is not decoded.
        InvalidInputError: ``unsupported-array`` for an array with codecs that version 3 of Zarr does not
            have, and for references that fsspec must expand; ``no-container-for-virtual-chunk`` for a
            location without a container; ``invalid-virtual-ref`` for a relative path.
        ReadOnlyError: The session is read only.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import import_kerchunk
        >>> array = '{"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i2", "fill_value": 0, '
        >>> array += '"order": "C", "filters": null, "compressor": null}'
        >>> refs = {".zgroup": '{"zarr_format": 2}', "t/.zarray": array, "t/0": "base64:AQACAA=="}
        >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        >>> import_kerchunk({"version": 1, "refs": refs}, session)
        ['/t']
        >>> frazil.read(session, "t").tolist()
        [1, 2]
    """
    label = source if isinstance(source, str) else type(source).__name__
    try:
        if isinstance(source, Mapping):
            refs: _Refs = _JsonRefs.of(source)
        else:
            label = os.fspath(source)
            refs = _opened(label, storage_options)
        return _set_nodes(session, refs, absolute(group), checksum)
    except IcechunkError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise damaged(str(label), "references of kerchunk", f"{type(error).__name__}: {error}") from error


def _set_nodes(session: Session, refs: _Refs, root: str, checksum: datetime | str | None) -> list[str]:
    """Set the nodes below ``root``. Return the paths of the arrays."""
    store = MemoryStore({key: cpu.Buffer.from_bytes(data) for key, data in refs.documents().items()})
    is_new = any(key.endswith("zarr.json") for key in refs.documents())
    workspace, paths = session.workspace, []
    parents = root.strip("/").split("/") if root != "/" else []
    for end in range(len(parents)):
        above = "/" + "/".join(parents[:end])
        if workspace.node(above) is None:
            workspace.set_node(above, b'{"zarr_format":3,"node_type":"group","attributes":{}}')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        top = zarr.open_group(store, mode="r", zarr_format=3 if is_new else 2, use_consolidated=False)
        for name, node in [("", top), *sorted(top.members(max_depth=None))]:
            path = absolute("/".join(filter(None, (root.strip("/"), name))))
            workspace.set_node(path, json.dumps(_document_v3(path, node)).encode())
            if isinstance(node, zarr.Array):
                references = refs.references(name, node)
                _set_references(session, path, references, checksum)
                _require_decodable(session, path, node, references)
                paths.append(path)
    return paths


def _document_v3(path: str, node: Any) -> dict[str, Any]:
    """Return the metadata of a node of version 2 or 3, as version 3."""
    if isinstance(node, zarr.Group):
        return {"zarr_format": 3, "node_type": "group", "attributes": node.attrs.asdict()}
    if node.metadata.zarr_format == 3:
        return {**node.metadata.to_dict(), "chunk_key_encoding": {"name": "default"}}
    codecs, schema = codecs_of(node), variable_schema(path, node)
    if isinstance(codecs, str):
        raise InvalidInputError(
            f"`{path}` must have codecs of version 3 of Zarr, got {codecs}", ErrorKind.UNSUPPORTED_ARRAY
        )
    attrs = {key: value for key, value in schema.attrs.items() if key != "_FillValue"}
    attrs = fill_attributes(schema.attrs.get("_FillValue"), schema.dtype) | attrs
    metadata = ArrayV3Metadata(
        shape=schema.shape,
        data_type=parse_dtype(schema.dtype, zarr_format=3),
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": tuple(node.chunks)}},
        chunk_key_encoding={"name": "default"},
        fill_value=schema.fill_value,
        codecs=codecs,
        attributes=attrs,
        dimension_names=schema.dims,
    )
    return metadata.to_dict()


def _set_references(
    session: Session, path: str, references: References, checksum: datetime | str | None
) -> None:
    workspace, is_range = session.workspace, references.source != INLINE
    if is_range.any():
        if not references.length[is_range].all():
            raise InvalidInputError(
                f"references of `{path}` must have an offset and a length, but "
                f"{int((references.length[is_range] == 0).sum())} name a whole file. Add the sizes of the "
                "files",
                ErrorKind.UNSUPPORTED_ARRAY,
            )
        rows = VirtualRows.of(
            references.index[is_range],
            references.urls,
            references.source[is_range].astype(np.uint32),
            references.offset[is_range],
            references.length[is_range],
            checksum,
        )
        if set_rows(workspace, path, rows):
            for url in rows.locations:
                workspace.context.virtual.find_container(url)
    for row, data in zip(references.inline_rows(), references.inline, strict=True):
        workspace.write_chunk(path, tuple(references.index[row].tolist()), data)


def _require_decodable(session: Session, path: str, node: zarr.Array[Any], references: References) -> None:
    """Decode one chunk of an array, or raise ``FormatError``. Files that cannot be read here are not read."""
    if not len(references.index):
        return
    index = references.index[len(references.index) // 2]
    corner = [at * step for at, step in zip(index.tolist(), node.shards or node.chunks, strict=True)]
    with suppress(StorageError, InvalidInputError):  # no such file, or no authorization
        read(session, path, tuple(corner))


def _location(path: str) -> str:
    """Return the location of a file of fsspec as a URL."""
    path = system.files.path_of_url("", path.removeprefix("file://"))
    scheme, separator, rest = path.partition("://")
    if not separator:
        if not os.path.isabs(path):
            raise InvalidInputError(
                f"a reference must name its file by a URL or an absolute path, got {path!r}. Join the "
                "relative paths to their folder, and import the references again",
                ErrorKind.INVALID_VIRTUAL_REF,
            )
        return system.files.file_url(path)
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


def _unsupported(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"references of kerchunk must name each range, got {what}. Expand them with fsspec, and import the "
        "result",
        ErrorKind.UNSUPPORTED_ARRAY,
    )


#: Other names of schemes in fsspec.
_SCHEMES: Final = {"s3a": "s3", "gcs": "gs", "abfs": "az"}


@dataclass(frozen=True, slots=True, eq=False)
class _JsonRefs:
    """The references of a JSON document by key. ``keys`` are those of chunks, in ascending order."""

    refs: Mapping[str, Any]
    keys: list[str]
    templates: Mapping[str, str]

    @staticmethod
    def of(document: Mapping[str, Any]) -> _JsonRefs:
        """Return the references of a document of version 0 or 1."""
        refs = document.get("refs", document)
        if document.get("gen"):
            raise _unsupported("generated references (`gen`)")
        keys = sorted(key for key in refs if key.rpartition("/")[2] not in _DOCUMENTS)
        return _JsonRefs(refs, keys, document.get("templates") or {})

    def documents(self) -> dict[str, bytes]:
        """Return the documents of Zarr by key."""
        names = (key for key in self.refs if key.rpartition("/")[2] in _DOCUMENTS)
        return {key: self._bytes(self.refs[key]) for key in names}

    def references(self, name: str, array: Any) -> References:
        """Return the references of an array."""
        start = f"{name}/" if name else ""
        low, high = bisect_left(self.keys, start), bisect_left(self.keys, start + "\U0010ffff")
        names, index = chunk_names(array, [key[len(start) :] for key in self.keys[low:high]])
        values = [self.refs[start + each] for each in names]
        ranges = [each if isinstance(each, list) else None for each in values]
        urls: dict[str, int] = {}
        source = [INLINE if each is None else urls.setdefault(each[0], len(urls)) for each in ranges]
        spans = [each[1:] if each and len(each) > 1 else (0, 0) for each in ranges]
        offset, length = np.array(spans, np.uint64).reshape(len(spans), 2).T
        inline = [self._bytes(each) for each in values if not isinstance(each, list)]
        return References(
            index, list(map(self._url, urls)), np.array(source, np.int64), offset, length, inline
        )

    def _url(self, text: str) -> str:
        for name, value in self.templates.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        if "{{" in text:
            raise _unsupported(f"the template with parameters {text!r}")
        return _location(text)

    @staticmethod
    def _bytes(value: Any) -> bytes:
        if isinstance(value, dict):
            return json.dumps(value).encode()
        if isinstance(value, str):
            is_coded = value.startswith("base64:")
            return base64.b64decode(value.removeprefix("base64:")) if is_coded else value.encode()
        return bytes(value)


@dataclass(frozen=True, slots=True, eq=False)
class _ParquetRefs:
    """The references of a folder of Parquet files."""

    folder: SourceFile
    metadata: Mapping[str, Any]
    record: int

    def documents(self) -> dict[str, bytes]:
        """Return the documents of Zarr by key."""
        return {key: json.dumps(each).encode() for key, each in self.metadata.items()}

    def references(self, name: str, array: Any) -> References:
        """Return the references of an array."""
        chunks = array.chunks
        grid = tuple(-(-n // step) for n, step in zip(array.shape, chunks, strict=True)) or (1,)
        parts = list(self._parts(name, math.prod(grid)))
        positions = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in parts)])
        table = pa.concat_tables([_whole_table(pa.table({})), *(rows for _, rows in parts)])
        paths = table["path"].combine_chunks().dictionary_encode()
        indices = paths.indices.fill_null(INLINE).to_numpy(zero_copy_only=False)
        source = np.where(table["raw"].is_valid().to_numpy(), INLINE, indices)
        index = np.stack(np.unravel_index(positions, grid), axis=1)[:, : len(chunks)]
        return References(
            index.astype(np.uint32),
            [_location(each) for each in paths.dictionary.to_pylist()],
            source.astype(np.int64),
            table["offset"].fill_null(0).to_numpy().astype(np.uint64),
            table["size"].fill_null(0).to_numpy().astype(np.uint64),
            table["raw"].drop_null().to_pylist(),
        )

    def _parts(self, name: str, cells: int) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """Yield the positions in the grid of the references in each file, and the rows of the file."""
        storage, prefix = self.folder.storage, f"{self.folder.key}/{name}/".lstrip("/")
        assert storage is not None
        keys = {each.key for each in storage.list(prefix.rstrip("/"))}
        for record in range(-(-cells // self.record)):
            key, first = f"{prefix}refs.{record}.parq", record * self.record
            if key in keys:
                table = _whole_table(pq.read_table(io.BytesIO(storage.get(key))))[: cells - first]
                stored = table["path"].is_valid().to_numpy() | table["raw"].is_valid().to_numpy()
                yield first + np.flatnonzero(stored), table.filter(stored)


def _whole_table(table: pa.Table) -> pa.Table:
    """Return a table with all columns."""
    empty = {name: pa.nulls(len(table), pa.type_for_alias(alias)) for name, alias in _COLUMNS.items()}
    names = table.column_names
    return pa.table(
        {name: table[name].cast(each.type) if name in names else each for name, each in empty.items()}
    )


type _Refs = _JsonRefs | _ParquetRefs


def _opened(url: str, storage_options: Mapping[str, Any] | None) -> _Refs:
    """Return the references at a path or URL: of a folder with ``.zmetadata``, or of a JSON file."""
    path = local_path(url)
    if path is not None:
        storage, key = local_filesystem_storage(path), ""
        is_folder = os.path.isdir(path)
    else:
        storage, key = object_storage(url, storage_options)
        key = key.rstrip("/")
        is_folder = storage.head(f"{key}/.zmetadata") is not None
    if not is_folder:
        file = find_file(url, storage_options)
        return _JsonRefs.of(json.loads(file.read(0, file.size)))
    document = json.loads(bytes(storage.get(f"{key}/.zmetadata".lstrip("/"))))
    folder = SourceFile(url, 0, storage=storage, key=key)
    return _ParquetRefs(folder, document["metadata"], int(document.get("record_size", 10_000)))
