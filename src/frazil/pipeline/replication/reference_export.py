"""Exports of the references of a version: for kerchunk, as JSON or Parquet, and as a dataset of VirtualiZarr.

The references of kerchunk describe arrays by metadata of version 2 of Zarr, which xarray reads in another
way: the fill value marks missing values there. So the fill value of an exported array is its ``_FillValue``,
or none if all chunks exist.

A folder of Parquet has ``.zmetadata``, and for each array the files ``refs.N.parq``. Each of them has one row
for each chunk of a part of the grid, in C order.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends.zarr import FillValueCoder
from zarr.core.metadata.v3 import ArrayV3Metadata

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.format.ids import chunk_key
from frazil.format.manifest import ChunkKind
from frazil.jobs.job import Source, Version, takes_versions
from frazil.lazy_names import ModuleOnDemand
from frazil.pipeline.replication.export import documents_of, named_when_complete, new_file
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.storage.foreign_objects import address_of
from frazil.zarr_names import parse_dtype

#: The row of ``urls`` of an inline reference.
INLINE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """References, n rows: ranges of the objects ``urls[source]``, or inline bytes.

    ``index`` has the coordinates of chunks, uint32 of shape (n, ndim). ``source``, ``offset`` and ``length``
    have shape (n,). ``inline`` has the bytes of the rows whose source is ``INLINE``, in their order.
    """

    index: NDArray[np.uint32]
    urls: list[str]
    source: NDArray[np.int64]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    inline: list[bytes]

    def __len__(self) -> int:
        return len(self.source)

    def inline_rows(self) -> list[int]:
        """Return the rows of inline references."""
        return np.flatnonzero(self.source == INLINE).tolist()

    def positions(self, grid: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the positions of the chunks in a grid, in C order."""
        if not grid:
            return np.zeros(len(self), np.int64)
        return np.asarray(np.ravel_multi_index(tuple(self.index.T.astype(np.int64)), grid), np.int64)


def references_of(session: Session, path: str) -> References:
    """Return the references of an array. Native chunks are ranges of chunk files, which must have a URL."""
    table = session.chunk_table(path).prune()
    context = session.workspace.context
    is_native, is_virtual = table.kind == ChunkKind.NATIVE, table.kind == ChunkKind.VIRTUAL
    urls = context.virtual.urls(table.foreign.locations.texts())
    source = np.where(is_virtual, table.source.astype(np.int64), INLINE)
    if is_native.any():
        address = address_of(context.storage, "")
        if address is None:
            raise InvalidInputError(
                f"the chunks of `{path}` must have URLs, but {int(is_native.sum())} are in "
                f"{context.storage.label()}. Copy the repository to a folder or a bucket first",
                ErrorKind.UNSUPPORTED_ARRAY,
            )
        source[is_native] = len(urls) + table.source[is_native]
        root = address[0].rstrip("/") + "/"
        urls += [root + chunk_key(each.tobytes()) for each in table.chunk_ids]
    inline = table.inline.take(table.source[table.kind == ChunkKind.INLINE]).blobs()
    return References(table.index, urls, source, table.offset, table.length, inline)


if TYPE_CHECKING:
    from virtualizarr import manifests
else:
    manifests = ModuleOnDemand("virtualizarr.manifests")


@takes_versions
def virtual_dataset(source: Source, *, group: str = "/") -> xr.Dataset:
    """Return the references of a group as a virtual dataset of VirtualiZarr.

    VirtualiZarr combines such datasets, and writes them as references of other kinds. Native chunks are
    ranges of the chunk files of the repository. The dataset has no values.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        group: The path of the group. Default: the root group.

    Returns:
        A dataset whose variables are ``ManifestArray``.

    Raises:
        InvalidInputError: An array has native chunks without a URL (``unsupported-array``).
        MissingExtraError: VirtualiZarr is not installed (``missing-extra``).
        NodeNotFoundError: There is no such group.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import virtual_dataset
        >>> repo = frazil.Repository.create("day.ice")
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(
        ...         store, name="t", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["x"]
        ...     )
        ...     array[:] = 7
        >>> virtual = virtual_dataset(repo)
        >>> type(virtual["t"].data).__name__, dict(virtual.sizes)
        ('ManifestArray', {'x': 4})
    """
    session, path = Version.of(source).session(), absolute(group)
    workspace = session.workspace
    with needs("frazil.pipeline.virtual_dataset"):
        manifest_group = manifests.ManifestGroup
    paths = (f"{path.rstrip('/')}/{name}" for name in workspace.children(path))
    arrays = {
        each.rpartition("/")[2]: _manifest_array(session, each) for each in paths if workspace.is_array(each)
    }
    attrs = json.loads(workspace.require_node(path).user_data).get("attributes", {})
    dataset: xr.Dataset = manifest_group(arrays, attributes=attrs).to_virtual_dataset()
    return dataset


def _manifest_array(session: Session, path: str) -> manifests.ManifestArray:
    document = json.loads(session.workspace.require_node(path).user_data)
    chunk_grid = document["chunk_grid"]
    if chunk_grid["name"] != "regular":
        raise InvalidInputError(
            f"`{path}` must have a regular chunk grid, got {chunk_grid['name']!r}",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    steps = chunk_grid["configuration"]["chunk_shape"]
    grid = tuple(-(-n // step) for n, step in zip(document["shape"], steps, strict=True))
    references = references_of(session, path)
    positions = references.positions(grid)
    urls = np.array([*references.urls, "__inlined__"], np.dtypes.StringDType())  # source -1: inline

    def cells(values: NDArray[Any]) -> Any:
        array = np.zeros(grid, values.dtype)
        array.reshape(-1)[positions] = values
        return array

    coordinates = map(tuple, references.index[references.inline_rows()].tolist())
    manifest = manifests.ChunkManifest.from_arrays(
        paths=cells(urls[references.source]),
        offsets=cells(references.offset),
        lengths=cells(references.length),
        validate_paths=False,
        inlined=dict(zip(coordinates, references.inline, strict=True)),
    )
    return manifests.ManifestArray(ArrayV3Metadata.from_dict(document), manifest)


if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
else:
    pa, pq = ModuleOnDemand("pyarrow"), ModuleOnDemand("pyarrow.parquet")

#: The number of chunks that one file of Parquet describes.
_RECORD: Final = 100_000


@takes_versions
def export_kerchunk(
    source: Source, path: str | Path, *, arrays: Sequence[str] = ("*",), overwrite: bool = False
) -> Path:
    """Write the references of a version for kerchunk, which fsspec and xarray read without Frazil.

    Virtual chunks are ranges of their files, and native chunks are ranges of the chunk files of the
    repository, so the references are valid until a garbage collection or a compaction removes these. Inline
    chunks are part of the result.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        path: A file with the ending ``.json``, or a folder with the ending ``.parquet`` or ``.parq``. The
            folder that contains it must exist.
        arrays: Patterns of the paths of arrays, as in ``fnmatch``, with the groups above them. Default: all
            groups and arrays, except the groups ``.frazil``.
        overwrite: Whether an existing file or the files of an existing folder are replaced. Default: False.

    Returns:
        The path.

    Raises:
        AlreadyExistsError: The path exists (``not-allowed``).
        InvalidInputError: ``invalid-argument`` for another ending. ``unsupported-array`` for an array that
            version 2 of Zarr cannot describe (shards, other codecs), or whose native chunks have no URL.

    Examples:
        >>> import json, frazil, zarr
        >>> from frazil.pipeline import export_kerchunk
        >>> repo = frazil.Repository.create("ice")
        >>> with repo.transaction("main", message="an array") as store:
        ...     zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
        >>> references = json.loads(export_kerchunk(repo, "t.json").read_text())
        >>> sorted(references["refs"])
        ['.zattrs', '.zgroup', 't/.zarray', 't/.zattrs', 't/0', 't/1']
    """
    write = _FORMATS.get(Path(path).suffix)
    if write is None:
        raise InvalidInputError(f"path must end with one of {', '.join(_FORMATS)}, got {str(path)!r}")
    target = new_file(path, overwrite=overwrite)
    session = Version.of(source).session()
    documents: dict[str, Any] = {".zgroup": {"zarr_format": 2}}
    references: dict[str, _Exported] = {}
    for node, (document, is_array) in documents_of(session, arrays).items():
        start, attrs = f"{node}/".lstrip("/"), json.loads(document).get("attributes", {})
        if not is_array:
            documents |= {f"{start}.zgroup": {"zarr_format": 2}, f"{start}.zattrs": attrs}
            continue
        columns, metadata = references_of(session, node), ArrayV3Metadata.from_dict(json.loads(document))
        try:
            own = _documents_v2(metadata, len(columns))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"`{node}` must be an array that version 2 of Zarr can describe, which kerchunk uses: "
                f"{error}. Use export_zarr, or virtual_dataset",
                ErrorKind.UNSUPPORTED_ARRAY,
            ) from error
        documents |= {start + name: each for name, each in own.items()}
        grid = tuple(-(-n // step) for n, step in zip(metadata.shape, own[".zarray"]["chunks"], strict=True))
        # fsspec reads paths of local files without percent codes
        urls = [unquote(url) if url.startswith("file:") else url for url in columns.urls]
        references[start] = _Exported(columns, urls, grid)
    write(target, documents, references)
    return target


@dataclass(frozen=True, slots=True, eq=False)
class _Exported:
    """The references of an array, with URLs for fsspec, and the shape of its chunk grid."""

    columns: References
    urls: list[str]
    grid: tuple[int, ...]


def _write_json(path: Path, documents: Mapping[str, Any], references: Mapping[str, _Exported]) -> None:
    refs: dict[str, Any] = {key: json.dumps(each) for key, each in documents.items()}
    for start, each in references.items():
        columns = each.columns
        numbers = [map(str, column) for column in columns.index.T.tolist()]
        names = list(map(".".join, zip(*numbers, strict=True))) if numbers else ["0"] * len(columns)
        keys = list(map(start.__add__, names))
        ranges = zip(
            map([*each.urls, ""].__getitem__, columns.source.tolist()),
            columns.offset.tolist(),
            columns.length.tolist(),
            strict=True,
        )
        refs |= zip(keys, map(list, ranges), strict=True)
        for row, data in zip(columns.inline_rows(), columns.inline, strict=True):
            refs[keys[row]] = f"base64:{base64.b64encode(data).decode()}"
    with named_when_complete(path) as part:
        part.write_text(json.dumps({"version": 1, "refs": refs}))


def _write_parquet(path: Path, documents: Mapping[str, Any], references: Mapping[str, _Exported]) -> None:
    path.mkdir(exist_ok=True)
    for start, each in references.items():
        columns, cells = each.columns, math.prod(each.grid)
        positions = columns.positions(each.grid)
        urls, blobs = pa.array(each.urls, pa.string()), pa.array(columns.inline, pa.binary())
        blob = np.cumsum(columns.source == INLINE) - 1
        ends = np.searchsorted(positions, np.arange(0, cells + _RECORD, _RECORD))
        (path / start).mkdir(parents=True, exist_ok=True)
        for record in np.flatnonzero(np.diff(ends)).tolist():
            rows = slice(ends[record], ends[record + 1])
            first = record * _RECORD
            at, is_inline = positions[rows] - first, columns.source[rows] == INLINE

            count = min(_RECORD, cells - first)
            source = _spread(count, at, columns.source[rows])
            inline = _spread(count, at, np.where(is_inline, blob[rows], -1))
            table = pa.table(
                {
                    "path": urls.take(pa.array(source, mask=source < 0)),
                    "offset": np.maximum(_spread(count, at, columns.offset[rows]), 0),
                    "size": np.maximum(_spread(count, at, columns.length[rows]), 0),
                    "raw": blobs.take(pa.array(inline, mask=inline < 0)),
                }
            )
            pq.write_table(table, path / start / f"refs.{record}.parq", compression="zstd")
    with named_when_complete(path / ".zmetadata") as part:
        part.write_text(json.dumps({"metadata": documents, "record_size": _RECORD}))


def _spread(count: int, at: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int64]:
    """Return a column of ``count`` rows with values at some rows, and -1 at the others."""
    column = np.full(count, -1, np.int64)
    column[at] = values
    return column


_FORMATS: Final = {".json": _write_json, ".parquet": _write_parquet, ".parq": _write_parquet}


# Metadata of version 2


def _documents_v2(metadata: ArrayV3Metadata, count: int) -> dict[str, Any]:
    """Return ``.zarray`` and ``.zattrs`` of an array with ``count`` chunks. Raises ``ValueError``."""
    document = metadata.to_dict()
    grid: Any = document["chunk_grid"]
    if grid["name"] != "regular":
        raise ValueError(f"its chunk grid is {grid['name']!r}")
    chunks = list(grid["configuration"]["chunk_shape"])
    filters, compressor, order, endian = _codecs_v2(document["codecs"], len(chunks))
    dtype = metadata.data_type.to_native_dtype()
    if endian == "big":
        dtype = dtype.newbyteorder(">")
    data_type = parse_dtype(dtype, zarr_format=2)
    names: Any = data_type.to_json(zarr_format=2)
    attrs = dict(metadata.attributes)
    mask, fill = attrs.pop("_FillValue", None), metadata.fill_value
    is_full = count == math.prod(-(-n // step) for n, step in zip(metadata.shape, chunks, strict=True))
    if mask is not None:
        mask = FillValueCoder.decode(mask, dtype) if dtype.kind not in "TO" else mask
        if not is_full and not (mask == fill or (mask != mask and fill != fill)):  # NaN
            raise ValueError(f"chunks are missing, and the fill value {fill} is not the _FillValue {mask}")
        fill = mask
    elif is_full or fill == data_type.default_scalar():
        fill = None
    if all(metadata.dimension_names or (None,)) or not chunks:
        attrs["_ARRAY_DIMENSIONS"] = list(metadata.dimension_names or ())
    array = {
        "zarr_format": 2,
        "shape": list(metadata.shape),
        "chunks": chunks,
        "dtype": names["name"],
        "fill_value": None if fill is None else data_type.to_json_scalar(fill, zarr_format=2),
        "order": order,
        "filters": filters or None,
        "compressor": compressor,
    }
    return {".zarray": array, ".zattrs": attrs}


def _codecs_v2(codecs: Any, ndim: int) -> tuple[list[dict[str, Any]], dict[str, Any] | None, str, str | None]:
    """Return the filters, the compressor, the order and the endianness. Raises ``ValueError``."""
    filters: list[dict[str, Any]] = []
    order, endian, compressors = "C", None, 0
    for codec in codecs:
        name, options = codec["name"], dict(codec.get("configuration") or {})
        if name == "bytes":
            endian, compressors = options.get("endian"), len(filters)
        elif name == "transpose" and not filters and list(options["order"]) == list(range(ndim))[::-1]:
            order = "F"
        elif name == "blosc":
            options = {key: options[key] for key in ("cname", "clevel", "shuffle", "blocksize")}
            options["shuffle"] = ("noshuffle", "shuffle", "bitshuffle").index(options["shuffle"])
            filters.append({"id": name, **options})
        elif name in ("vlen-utf8", "gzip", "zstd", "crc32c") or name.startswith("numcodecs."):
            filters.append({"id": name.removeprefix("numcodecs."), **options})
            compressors = len(filters) if name == "vlen-utf8" else compressors
        else:
            raise ValueError(f"it has the codec {name!r} ({options})")
    if order == "F" and compressors:
        raise ValueError("it has filters of an array in Fortran order")
    return (
        filters[:-1] if len(filters) > compressors else filters,
        (filters[-1] if len(filters) > compressors else None),
        order,
        endian,
    )
