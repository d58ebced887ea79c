"""The arrays of a dataset: chunks, codecs, attributes; and chunks of plain bytes, which references can cut.

The attributes are those of the files, so xarray reads from the store the same as from the files. Only
``_FillValue`` is written in the form that xarray uses in Zarr. The fill value of the array, which is the
value of missing chunks, is the same value.

Chunks have 1 to 64 MiB of decoded values unless the caller chooses them. Along the dimension in which the
dataset grows, a chunk of data has at most the steps of one file, and the borders of files are borders of
chunks: a file that is appended writes no chunk of an older file. So the chunks of small files are smaller. If
a step is larger than 64 MiB, a chunk is a part of a step, on the borders of the chunks in the files.

A variable without compression is stored as values one after the other. A reference to a part of them is
possible if the part is a run of bytes: whole steps of one dimension, and one index in each dimension before
it. So files of different lengths can have one chunk shape:

    files of 120, 120 and 60 steps     chunks of 60
    one more file of 12 steps          chunks of 12; stored references are cut too

Chunks along the concat dimension are as long as the borders of all files allow.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import zarr
import zarr.errors
from numpy.typing import NDArray
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

from frazil.arguments import misfit
from frazil.cf import coding_of, missing_element_of
from frazil.errors import ErrorKind, FormatError
from frazil.format.chunk_table import ChunkKind, ChunkTable
from frazil.format.columns import Ragged
from frazil.pipeline.ingest.inspection import ANY, VirtualChunks, native
from frazil.readers.base_reader import ChunkReferences, VariableSchema, bytes_codec
from frazil.readers.zarr import fill_attributes
from frazil.repository.session.session import Session
from frazil.zarr_names import UnstableSpecificationWarning
from frazil.zarr_store.arrays import array_at

#: The sizes of a chunk of decoded values, in bytes: the smallest, the usual, the largest.
SMALLEST: Final = 1 << 20
TARGET: Final = 16 << 20
LARGEST: Final = 64 << 20
#: Files without a common divisor of steps share chunks, if chunks of the divisor had fewer bytes than this.
FEWEST: Final = 4 << 10
#: A chunk may be larger than the array by this many bytes: the array will grow.
GROWTH: Final = 1 << 20
#: The assumed size of a string of variable length, in bytes.
_STRING: Final = 32


@dataclass(frozen=True, slots=True)
class TargetArray:
    """An array to be written.

    ``axis`` is the index of its concat dimension, None if it does not have one. ``window`` is the part of the
    array that files have, ``(start, stop)`` for each dimension; None if they have the whole array.
    ``chunk_reason`` says why a new array of data has its chunks.
    """

    path: str
    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    axis: int | None
    fill_value: Any = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    shards: tuple[int, ...] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    codecs: tuple[str, ...] = ()
    window: tuple[tuple[int, int], ...] | None = None
    chunk_reason: str = ""

    @property
    def chunk_bytes(self) -> int:
        """The bytes of the decoded values of a chunk."""
        return int(np.prod(self.chunks, dtype=object)) * self.itemsize

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The window, extended to the borders of chunks, with all steps along the axis."""
        if self.window is None:
            return tuple((0, size) for size in self.shape)
        return tuple(
            (0, size) if at == self.axis else (low // step * step, min(-(-high // step) * step, size))
            for at, ((low, high), size, step) in enumerate(
                zip(self.window, self.shape, self.grid, strict=True)
            )
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the unit of writing: a shard, or else a chunk."""
        return self.shards or self.chunks

    @property
    def step(self) -> int:
        """The number of steps of a unit of writing along the concat dimension."""
        return self.grid[self.axis or 0]

    @property
    def missing(self) -> Any:
        """The element of a cell without a value: see `missing_element`."""
        element = missing_element_of(self.attrs, self.dtype)
        return self.fill_value if element is None else element

    @property
    def itemsize(self) -> int:
        """The bytes of one element, an estimate for strings."""
        return _STRING if self.dtype.kind == "T" else self.dtype.itemsize

    @property
    def row(self) -> int:
        """The bytes of one step of the concat dimension."""
        shape = [size for at, size in enumerate(self.shape) if at != self.axis]
        return int(np.prod(shape, dtype=object)) * self.itemsize


def choose_chunks(
    shape: tuple[int, ...], itemsize: int, axis: int | None, native: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Return the shape of chunks of up to 64 MiB, in whole steps along ``axis`` unless steps are larger."""
    chunks = [max(size, 1) for size in shape]
    if axis is not None:
        chunks[axis] = 1
    step = list(native) if native is not None else [1] * len(shape)
    while (bytes_ := int(np.prod(chunks, dtype=object)) * itemsize) > LARGEST:
        # Cut the first dimension that can be cut, so that elements next to each other stay in one chunk.
        cut = next((i for i, size in enumerate(chunks) if i != axis and size > step[i]), None)
        if cut is None:
            cut = next((i for i, size in enumerate(chunks) if size > 1), None)
            if cut is None:
                break
        parts = -(-bytes_ // LARGEST)
        target = -(-chunks[cut] // parts)
        chunks[cut] = min(chunks[cut] - 1, max(step[cut], target // step[cut] * step[cut], 1))
    if axis is not None:
        row = max(int(np.prod(chunks, dtype=object)) * itemsize, 1)
        growing = max(shape[axis], GROWTH // row, 1)
        chunks[axis] = max(min(-(-TARGET // row), growing), 1)
    return tuple(chunks)


def choose_steps(lengths: NDArray[np.int64], row: int) -> tuple[int, str]:
    """Return the steps of a chunk of data along the axis, which divide the steps of each file, and why."""
    lengths = lengths[lengths > 0]
    if not len(lengths):
        return 1, "the steps of a file"
    row = max(row, 1)
    common, shortest = int(np.gcd.reduce(lengths)), int(lengths.min())
    if common < shortest and common * row < FEWEST:
        return min(shortest, max(TARGET // row, 1)), "the steps of the shortest file"
    small = np.arange(1, math.isqrt(common) + 1)
    small = small[common % small == 0]
    divisors = np.union1d(small, common // small)
    sizes = divisors * row
    usual = divisors[(sizes >= SMALLEST) & (sizes <= TARGET)]
    larger = divisors[(sizes > TARGET) & (sizes <= LARGEST)]
    if common * row <= TARGET:
        steps = common
    elif len(usual):
        steps = int(usual[-1])
    elif len(larger):
        steps = int(larger[0])
    else:
        steps = max(TARGET // row, 1)
    if steps == shortest:
        return steps, "the steps of a file"
    if steps == common:
        return steps, "the common divisor of the steps of all files"
    return steps, "a part of the steps of each file"


def target_array(
    variable: VariableSchema,
    path: str,
    dim: str | None,
    length: int,
    chunks: Mapping[str, int] | None = None,
    encoding: Mapping[str, Any] | None = None,
    virtual: VirtualChunks | None = None,
) -> TargetArray:
    """Return the array for a variable. ``length`` is the length of the concat dimension ``dim``."""
    axis = variable.dims.index(dim) if dim in variable.dims else None
    shape = tuple(length if i == axis or size == ANY else size for i, size in enumerate(variable.shape))
    options, kind = dict(encoding or {}), variable.dtype.kind
    attrs = {name: value for name, value in variable.attrs.items() if name != "_FillValue"}
    fill, other = variable.attrs.get("_FillValue"), variable.attrs.get("missing_value")
    attrs = fill_attributes(fill, variable.dtype) | attrs
    if virtual is not None:
        return TargetArray(
            path, variable.name, variable.dims, shape, virtual.dtype, virtual.chunks, axis,
            virtual.fill_value, attrs, codecs=virtual.codecs,
        )  # fmt: skip
    own = options.pop("chunks", None)
    if own is None:
        itemsize = _STRING if kind == "T" else variable.dtype.itemsize
        own = choose_chunks(shape, itemsize, axis, variable.chunks)
        own = [(chunks or {}).get(name, each) for name, each in zip(variable.dims, own, strict=True)]
    elif len(own) != len(shape):
        raise misfit(f"chunks of {variable.name} must have {len(shape)} sizes, got {own}")
    own = tuple(max(size, 1) if each == -1 else int(each) for size, each in zip(shape, own, strict=True))
    shards = options.pop("shards", None)
    # The fill value of the array is a missing value of the variable, if it has one.
    if fill is None and kind in "iu" and isinstance(other, int | np.integer):
        fill = coding_of({"missing_value": int(other)}, variable.dtype).missing_element()
    if kind in "TS":
        fill = "" if kind == "T" else b""
    elif fill is not None and np.ndim(fill) == 0:
        fill = np.asarray(fill).astype(variable.dtype)[()]
    elif kind == "f":
        fill = np.array(np.nan, variable.dtype)[()]
    else:
        fill = np.zeros((), variable.dtype)[()] if variable.fill_value is None else variable.fill_value
    return TargetArray(
        path, variable.name, variable.dims, shape, native(variable.dtype), own, axis,
        fill, attrs, None if shards is None else tuple(shards), options,
    )  # fmt: skip


#: A fill value without effect: NaN means a missing value with and without this attribute.
NAN_FILL: Final = fill_attributes(np.nan, np.dtype(np.float64))["_FillValue"]


def create(store: Any, target: TargetArray) -> None:
    """Create the array in a store, without chunks."""
    with warnings.catch_warnings():
        # The specification of Zarr has no characters yet, but zarr reads them since version 3.1.
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        try:
            zarr.create_array(
                store,
                name=target.path.strip("/"),
                shape=target.shape,
                dtype=target.dtype,
                chunks=target.chunks,
                shards=target.shards,
                fill_value=target.fill_value,
                attributes=dict(target.attrs),
                dimension_names=target.dims,
                **target.keywords,
            )
        except (TypeError, ValueError) as error:
            keywords = {"chunks": target.chunks, "shards": target.shards, **target.keywords}
            raise misfit(
                f"encoding of `{target.path}` ({target.dtype}) must be one that zarr accepts, got "
                f"{keywords}: {error}"
            ) from error
    if target.codecs:  # ``create_array`` does not accept all of them
        key = f"{target.path.strip('/')}/zarr.json"
        document = json.loads(store.get_sync(key).to_bytes())
        document["codecs"] = list(map(json.loads, target.codecs))
        store.set_sync(key, cpu.Buffer.from_bytes(json.dumps(document).encode()))


def open_target(store: Any, path: str) -> zarr.Array[Any]:
    """Open an array, for writing if the store can be written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        return array_at(store, path, "r" if store.read_only else "r+")


#: The parts of the metadata of an array that depend on its dtype.
_OF_DTYPE: Final = ("data_type", "fill_value", "codecs")
#: The codecs that can have values of any dtype.
_ANY_DTYPE: Final = frozenset({"bytes", "zstd", "gzip", "blosc", "crc32c", "transpose", "sharding_indexed"})


def widen_array(session: Session, target: TargetArray) -> bytes:
    """Give an array of the group the dtype of the target, and return its old metadata: its chunks stay."""
    stored = session.workspace.require_array(target.path).user_data
    fresh: dict[str, Any] = {}
    zarr.create_array(
        MemoryStore(fresh), shape=(), dtype=target.dtype, fill_value=target.fill_value, zarr_format=3
    )
    document, other = json.loads(stored), json.loads(fresh["zarr.json"].to_bytes())
    document |= {name: other[name] for name in ("data_type", "fill_value")}
    document["codecs"] = [_of_size(each, target) for each in document["codecs"]]
    document["attributes"] = dict(target.attrs)
    session.workspace.set_node(target.path, json.dumps(document).encode())
    return stored


def _of_size(codec: dict[str, Any], target: TargetArray) -> dict[str, Any]:
    """Return a codec for values of the dtype of the target."""
    if codec["name"] not in _ANY_DTYPE:
        raise misfit(
            f"`{target.path}` must have codecs of any dtype to get {target.dtype}, got {codec['name']!r}. "
            "Ingest the files into another group"
        )
    config = dict(codec.get("configuration", {}))
    if codec["name"] == "bytes" and not config:  # the old dtype has one byte
        return bytes_codec(target.dtype)
    if "typesize" in config:
        config["typesize"] = target.dtype.itemsize
    if "codecs" in config:
        config["codecs"] = [_of_size(each, target) for each in config["codecs"]]
    return {**codec, "configuration": config} if config else codec


def narrow_array(session: Session, path: str, stored: bytes) -> None:
    """Give an array the dtype and the codecs of older metadata, in a session that only reads old chunks."""
    workspace = session.workspace
    document, old = json.loads(workspace.require_array(path).user_data), json.loads(stored)
    workspace.set_node(path, json.dumps(document | {name: old[name] for name in _OF_DTYPE}).encode())


def read_labels(array: zarr.Array[Any]) -> NDArray[Any]:
    """Return all values of a coordinate, strings with the dtype ``StringDType``."""
    values = np.asarray(array[:])
    return values if values.dtype.kind != "O" else values.astype(np.dtypes.StringDType())


def cut_chunks(
    index: NDArray[Any], large: tuple[int, ...], small: tuple[int, ...], axis: int, itemsize: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the indices of the small chunks of large chunks, and the bytes before each small chunk.

    ``small`` has one step in each dimension before the axis, and the length of ``large`` in each dimension
    after it. A remainder of ``large`` along the axis is left out.
    """
    counts = np.array(large, np.int64) // np.array(small, np.int64)
    inside = np.indices(counts.tolist()).reshape(len(counts), -1).T
    places = index.astype(np.int64)[:, None, :] * counts + inside[None]
    before = np.arange(math.prod(large[:axis]), dtype=np.int64) * large[axis]
    steps = np.arange(counts[axis], dtype=np.int64) * small[axis]
    starts = (before[:, None] + steps).ravel() * math.prod(large[axis + 1 :]) * itemsize
    return places.reshape(-1, len(counts)).astype(np.uint32), starts


def cut_shape(chunks: tuple[int, ...], axis: int, steps: int) -> tuple[int, ...]:
    """Return the shape of chunks that are cut to ``steps`` along an axis."""
    if chunks[axis] == steps:
        return chunks
    return (*(1,) * axis, steps, *chunks[axis + 1 :])


def cut_references(references: ChunkReferences, chunks: tuple[int, ...], axis: int) -> ChunkReferences:
    """Return references to parts of chunks of plain bytes, for chunks of another shape (see `cut_shape`)."""
    if references.chunks == chunks:
        return references
    itemsize = references.dtype.itemsize
    _require_full(references.length, references.chunks, itemsize, references.locations[0])
    index, starts = cut_chunks(references.index, references.chunks, chunks, axis, itemsize)
    parts, size = len(starts), math.prod(chunks) * itemsize
    inline = {
        row * parts + part: data[start : start + size]
        for row, data in references.inline.items()
        for part, start in enumerate(starts.tolist())
    }
    offset = np.repeat(references.offset, parts) + np.tile(starts, len(references.offset)).astype(np.uint64)
    return replace(
        references,
        chunks=chunks,
        index=index,
        offset=offset,
        length=np.full(len(offset), size, np.uint64),
        location=np.repeat(references.location, parts),
        inline=inline,
    )


def recut_array(session: Session, path: str, chunks: tuple[int, ...], axis: int, itemsize: int) -> None:
    """Give an array of plain bytes another chunk shape, by changing only its references."""
    workspace = session.workspace
    document = json.loads(workspace.require_array(path).user_data)
    grid = document["chunk_grid"]["configuration"]
    large, grid["chunk_shape"] = tuple(grid["chunk_shape"]), list(chunks)
    table = workspace.ref_table(path)
    workspace.set_node(path, json.dumps(document).encode())
    if not len(table):
        return
    _require_full(table.length, large, itemsize, path)
    index, starts = cut_chunks(table.index, large, chunks, axis, itemsize)
    parts, rows, size = len(starts), len(table), math.prod(chunks) * itemsize
    inline = np.repeat(table.kind == ChunkKind.INLINE, parts)
    source = np.repeat(table.source, parts)
    inside = np.tile(starts, rows)
    blobs = table.inline.starts[source[inline]] + inside[inline]
    source[inline] = np.arange(len(blobs), dtype=source.dtype)
    offset = np.repeat(table.offset, parts) + inside.astype(np.uint64)
    offset[inline] = 0
    small = replace(
        table,
        index=index,
        kind=np.repeat(table.kind, parts),
        source=source,
        offset=offset,
        length=np.full(rows * parts, size, np.uint64),
        inline=Ragged(table.inline.values, blobs, np.full(len(blobs), size, np.int64)),
    )
    counts = [-(-size // step) for size, step in zip(document["shape"], chunks, strict=True)]
    small = small.select_chunks((small.index < np.array(counts, np.int64)).all(axis=1)).sorted()
    workspace.set_refs(path, ChunkTable.merge_tables([ChunkTable.from_absent(table.index), small]))


def _require_full(length: NDArray[Any], chunks: tuple[int, ...], itemsize: int, where: str) -> None:
    expected = math.prod(chunks) * itemsize
    wrong = np.flatnonzero(length != expected)
    if len(wrong):
        raise FormatError(
            f"{where}: each chunk of {chunks} must have {expected} bytes, got {int(length[wrong[0]])}",
            ErrorKind.INVALID_FILE_FORMAT,
        )
