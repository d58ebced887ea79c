"""Arrays as operations see them: their ``zarr.json``, their meaning by CF, arguments and options.

The ``zarr.json`` of a new array is that of its source with some members replaced, so members that an
operation does not know stay. Values are unpacked as xarray does, except times.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.codec import ArrayArrayCodec, Codec
from zarr.core.metadata.v3 import ArrayV3Metadata

from frazil import cf
from frazil.arguments import misfit
from frazil.arrays.array import Array
from frazil.errors import InvalidInputError
from frazil.jobs.job import BoundedRunOptions
from frazil.repository.paths import DERIVED, HIDDEN
from frazil.repository.session.session import Session

type Shape = tuple[int, ...]
type Json = dict[str, Any]
type Values = NDArray[Any]

#: Bytes of an element of a type without a fixed size, estimated.
_VARIABLE: Final = 64
SHARDING: Final = "sharding_indexed"
#: The group of the tables of derived arrays. No operation reads them.
TABLES: Final = DERIVED
#: The group of the states of reductions, at the paths of their results.
STATES: Final = f"/{HIDDEN}/states"
#: Codecs that serialize an array to bytes.
SERIALIZERS: Final = frozenset(
    {"bytes", "vlen-utf8", "vlen-bytes", "vlen-array", "packbits", "pcodec", "zfpy"}
)
_SHARD_INDEX: Final = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
#: Attributes of CF that name other arrays.
_NAMING_ATTRIBUTES: Final = ("coordinates", "bounds", "climatology", "grid_mapping", "ancillary_variables")


@dataclass(frozen=True)
class ArrayInfo:
    """One array of a version: its path and its ``zarr.json``."""

    path: str
    document: Json

    @cached_property
    def shape(self) -> Shape:
        """The length of each axis."""
        return tuple(self.document["shape"])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @cached_property
    def grid(self) -> Shape:
        """The shape that is written as one: a shard, or a chunk."""
        grid = self.document["chunk_grid"]
        if grid["name"] != "regular":
            raise misfit(f"`{self.path}` must have chunks of one shape, got a {grid['name']} grid")
        return tuple(grid["configuration"]["chunk_shape"])

    @property
    def shards(self) -> Shape | None:
        """The shape of the shards; None without sharding."""
        return None if self._sharding is None else self.grid

    @property
    def chunks(self) -> Shape:
        """The shape that is decoded as one: a chunk, also inside of a shard."""
        inner = self._sharding
        return self.grid if inner is None else tuple(inner["chunk_shape"])

    @property
    def codecs(self) -> list[Json]:
        """The codecs of a chunk: with sharding, those inside of the shards."""
        inner = self._sharding
        return list(self.document["codecs"] if inner is None else inner["codecs"])

    @property
    def _sharding(self) -> Json | None:
        first = self.document["codecs"][0]
        return first["configuration"] if first["name"] == SHARDING else None

    @property
    def dims(self) -> tuple[str | None, ...]:
        """The name of each dimension, or None."""
        names = self.document.get("dimension_names")
        return tuple(names) if names else (None,) * self.ndim

    @property
    def attributes(self) -> Json:
        """A copy of the attributes."""
        return dict(self.document.get("attributes") or {})

    @cached_property
    def array(self) -> zarr.Array[Any]:
        """An empty array of this kind, for its data type and fill value."""
        self.grid  # noqa: B018  # it refuses irregular grids
        return _empty_array(json.dumps(self.document))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type as numpy has it."""
        # The array of the least metadata: appends and equal results share it.
        least: Json = {**self.document, "shape": self.grid, "attributes": {}, "dimension_names": None}
        return np.dtype(_empty_array(json.dumps(least)).dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory, estimated for strings and objects."""
        return _VARIABLE if self.dtype.kind in "OT" else max(self.dtype.itemsize, 1)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The path of the group that holds the array."""
        return self.path.rpartition("/")[0] or "/"

    def axis(self, name: str | int) -> int | None:
        """Return the number of a dimension, by name or number; None if the array does not have it."""
        if isinstance(name, str):
            return self.dims.index(name) if name in self.dims else None
        return int(name) % self.ndim if -self.ndim <= int(name) < self.ndim else None

    def with_layout(
        self,
        path: str,
        *,
        shape: Shape | None = None,
        chunks: Shape | None = None,
        shards: Shape | None = None,
        codecs: list[Json] | None = None,
        **members: Any,
    ) -> ArrayInfo:
        """Return a copy at ``path`` with another shape, chunks, codecs or other ``members`` of ``zarr.json``.

        None keeps a shape or codecs. ``chunks`` and ``shards`` belong together: with ``chunks``, ``shards``
        None means no sharding; without ``chunks`` both stay. Raises ``InvalidInputError``
        (``invalid-array-metadata``) for shards that are not a multiple of the chunks.
        """
        document = copy.deepcopy({**self.document, **members})
        if shape is not None:
            document["shape"] = list(shape)
        if chunks is None:
            chunks, shards = self.chunks, self.shards
        inner = codecs if codecs is not None else self.codecs
        if shards is not None:
            if len(chunks) != len(shards) or any(map(np.remainder, shards, chunks)):
                raise misfit(
                    f"The shards of `{path}` must be a multiple of its chunks {chunks}, got {shards}"
                )
            settings = self._sharding or {"index_codecs": list(_SHARD_INDEX), "index_location": "end"}
            settings = {**settings, "chunk_shape": list(chunks), "codecs": inner}
            inner = [{"name": SHARDING, "configuration": settings}]
        document["codecs"] = inner
        grid = {"chunk_shape": list(chunks if shards is None else shards)}
        document["chunk_grid"] = {"name": "regular", "configuration": grid}
        return ArrayInfo(path, document)

    def with_dtype(
        self,
        path: str,
        dtype: Any,
        *,
        shape: Shape,
        dims: Sequence[str | None],
        chunks: Shape,
        fill_value: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> ArrayInfo:
        """Return an array of another data type at ``path``, without shards.

        It has the compressors of this array if the serializers of both are known. ``fill_value`` None is NaN,
        NaT or zero; ``attributes`` None are those of this array.
        """
        dtype = np.dtype(dtype)
        document = json.loads(
            _default_document(dtype) if fill_value is None else _document(dtype, fill_value)
        )
        document["attributes"] = self.attributes if attributes is None else dict(attributes)
        document["shape"] = list(map(int, shape))
        if any(name is not None for name in dims):
            document["dimension_names"] = list(dims)
        typed = ArrayInfo(path, document)
        old, new = self.codecs, typed.codecs
        if old[0]["name"] in SERIALIZERS and new[0]["name"] in SERIALIZERS:
            new = [new[0], *old[1:]]
        return typed.with_layout(path, chunks=chunks, codecs=new)

    def encoded(self) -> bytes:
        """Return ``zarr.json`` as bytes."""
        return json.dumps(self.document).encode()


@lru_cache(256)
def _empty_array(document: str) -> zarr.Array[Any]:
    """Return an array without chunks. Nobody may change it."""
    metadata = ArrayV3Metadata.from_dict(json.loads(document))
    return zarr.Array(zarr.AsyncArray(metadata, zarr.storage.StorePath(zarr.storage.MemoryStore())))


def _document(dtype: np.dtype[Any], fill_value: Any) -> bytes:
    """Return the ``zarr.json`` of an array of a data type, of one element."""
    template = zarr.create_array(
        zarr.storage.MemoryStore(), shape=(1,), chunks=(1,), dtype=dtype, fill_value=fill_value
    )
    return document_of(template)


def document_of(array: zarr.Array[Any]) -> bytes:
    """Return the ``zarr.json`` of an array of zarr."""
    buffers = array.metadata.to_buffer_dict(zarr.core.buffer.default_buffer_prototype())
    return bytes(buffers["zarr.json"].to_bytes())


@lru_cache(64)
def _default_document(dtype: np.dtype[Any]) -> bytes:
    missing = {"f": np.nan, "c": np.nan, "m": "NaT", "M": "NaT"}.get(dtype.kind)
    fill_value = np.zeros((), dtype)[()] if missing is None else np.array(missing, dtype)[()]
    return _document(dtype, fill_value)


def open_array(session: Session, path: str) -> Array:
    """Return the array at a path of a session, for reads and writes of whole selections."""
    return Array(session, path)


def array_info(session: Session, path: str) -> ArrayInfo:
    """Return the array at a path."""
    node = session.workspace.require_array("/" + path.strip("/"))
    return ArrayInfo(node.path, json.loads(node.user_data))


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple. Raise ``InvalidInputError`` for other values."""
    several = (
        (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    )
    if not all(isinstance(each, str) for each in several):
        raise InvalidInputError(f"paths, dims and how must be text, got {names!r}")
    return several


def arrays_below(session: Session, paths: Sequence[str]) -> list[ArrayInfo]:
    """Return the arrays at these paths and below them, without hidden ones, in the order of their paths."""
    workspace = session.workspace
    nodes = workspace.node_table()
    all_paths, rows = nodes.paths_list(), np.arange(len(nodes))
    array_paths: dict[str, None] = {}
    for path in paths:
        absolute = "/" + path.strip("/")
        if workspace.require_node(absolute).array is not None:
            array_paths[absolute] = None
        below = nodes.below(absolute)
        arrays = rows[below][nodes.is_array[below]]
        array_paths.update(dict.fromkeys(map(all_paths.__getitem__, arrays.tolist())))
    return [array_info(session, path) for path in sorted(array_paths) if f"/{HIDDEN}/" not in path]


def with_companions(session: Session, arrays: Sequence[ArrayInfo]) -> list[ArrayInfo]:
    """Return the arrays, and the coordinates, bounds and grid mappings that belong to them by CF."""
    collected = {each.path: each for each in arrays}
    pending = list(arrays)
    while pending:
        for path in companion_paths(pending.pop()):
            node = None if path in collected else session.workspace.node(path)
            if node is not None and node.array is not None:
                collected[path] = array_info(session, path)
                pending.append(collected[path])
    return [collected[path] for path in sorted(collected)]


def companion_paths(array: ArrayInfo) -> Iterator[str]:
    """Yield the paths that an array's dimensions and CF attributes name. A path may have no node."""
    names = [name for name in array.dims if name]
    for key in _NAMING_ATTRIBUTES:
        value = array.attributes.get(key)
        if isinstance(value, str):
            names += value.replace(":", " ").split()
    for name in names:
        yield f"{array.group.rstrip('/')}/{name}"


#: Lengths of chunks or shards: one for each axis, or by dimension. -1 is the whole axis.
type Lengths = Sequence[int] | Mapping[str, int]

#: Values with at most this number of elements are recorded in full.
_SHORT: Final = 64


class ChunkRunOptions(BoundedRunOptions, total=False):
    """The options of `BoundedRunOptions`, and the chunks of the results.

    Attributes:
        chunks: The chunk lengths of the results: one for each axis, or a mapping of dimensions. -1 is the
            whole axis. The default, None, keeps the chunk lengths of the source.
    """

    chunks: Lengths | None


class GridRunOptions(ChunkRunOptions, total=False):
    """The options of `ChunkRunOptions`, and the shards of the results.

    Attributes:
        shards: The shard lengths of the results, in the same form as ``chunks`` and a multiple of them. The
            default, None, makes no shards.
    """

    shards: Lengths | None


def chunk_lengths(
    sizes: Sequence[int] | Mapping[Any, int] | None,
    array: ArrayInfo,
    default: Shape | None,
    argument: str,
    *,
    inner: Shape | None = None,
) -> Shape | None:
    """Return the shape of chunks or shards of an argument; ``default`` for None.

    A mapping replaces single axes of the default; -1 is the whole axis. ``inner`` are the chunks inside of
    shards: a shard of -1 is rounded up to whole chunks. Raises ``InvalidInputError``
    (``invalid-array-metadata``), which names ``argument``, for a wrong number of lengths and for lengths
    below 1.
    """
    if sizes is None:
        return default
    out: list[Any]
    if isinstance(sizes, Mapping):
        out = list(default or inner or array.chunks)
        for name, length in sizes.items():
            axis = array.axis(name)
            if axis is not None:
                out[axis] = length
    else:
        out = list(sizes) if isinstance(sizes, Sequence) else []
    steps = inner or (1,) * len(out)
    whole = [
        -(-max(n, 1) // step) * step if length == -1 else length
        for length, n, step in zip(out, array.shape, steps, strict=False)
    ]
    integers = all(isinstance(length, int | np.integer) for length in whole)
    if len(out) != array.ndim or not integers or any(length < 1 for length in whole):
        raise misfit(
            f"{argument} must be {array.ndim} lengths of at least 1 (or -1) for `{array.path}`, got {sizes}"
        )
    return tuple(map(int, whole))


def clipped_chunks(chunks: Shape, shape: Sequence[int]) -> Shape:
    """Return chunks that are no longer than an array of this shape, and at least 1 long."""
    return tuple(max(min(chunk, n), 1) for chunk, n in zip(chunks, shape, strict=True))


def require_dimensions(names: Sequence[Any], arrays: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` for a dimension that no array has."""
    for name in names:
        if all(array.axis(name) is None for array in arrays):
            dims = ", ".join(sorted({str(dim) for array in arrays for dim in array.dims if dim}))
            raise misfit(
                f"A dimension must be one of the arrays' ({dims or 'none has a name'}), got {name!r}"
            )


def codec_documents(codecs: Sequence[Codec | Mapping[str, Any]] | None, old: list[Json]) -> list[Json] | None:
    """Return a chain of codecs as metadata. A chain without a serializer gets the one of ``old``.

    A ``bytes`` codec without a byte order gets the old byte order. Raises ``InvalidInputError`` for a value
    that is neither a codec of zarr nor its metadata.
    """
    if codecs is None:
        return None
    if not all(isinstance(each, Codec | Mapping) for each in codecs):
        raise misfit(f"codecs must be zarr codecs or their metadata, got {codecs!r}")
    chain = [dict(each) if isinstance(each, Mapping) else dict(each.to_dict()) for each in codecs]
    ordered = next((each for each in old if each["name"] == "bytes"), {})
    chain = [{**ordered, **each} if each["name"] == "bytes" else each for each in chain]
    if any(each["name"] in SERIALIZERS or each["name"] == SHARDING for each in chain):
        return chain
    serializers = [each for each in old if each["name"] in SERIALIZERS]
    filters = [  # codecs that make arrays of arrays
        each
        for each, codec in zip(chain, codecs, strict=True)
        if isinstance(codec, ArrayArrayCodec) or each["name"] == "transpose"
    ]
    return [*filters, *serializers, *(each for each in chain if each not in filters)]


def record_of(value: Any) -> Any:
    """Return a value for the parameters of a job, as JSON; long values as their size, ends and hash."""
    if isinstance(value, slice):
        return [str(value.start), str(value.stop), str(value.step)]
    values = np.asarray(value)
    if values.size <= _SHORT:
        return values.tolist() if values.dtype.kind in "iufb" else values.astype(str).tolist()
    content = values.tobytes() if values.dtype.kind != "O" else repr(values.tolist()).encode()
    return {
        "size": values.size,
        "first": record_of(values.flat[0]),
        "last": record_of(values.flat[-1]),
        "sha256": hashlib.sha256(content).hexdigest()[:24],
    }


def record_of_lengths(lengths: Lengths | None) -> Any:
    """Return the argument ``chunks`` or ``shards`` for the parameters of a job, as JSON."""
    if lengths is None:
        return None
    if isinstance(lengths, Mapping):
        return {str(dim): length for dim, length in lengths.items()}
    return list(lengths) if isinstance(lengths, Sequence) else str(lengths)


#: Attributes that describe only the stored values.
_OF_STORED: Final = cf.PACKED | {"valid_min", "valid_max", "valid_range", "actual_range"}


def unpacked(array: ArrayInfo, values: Values) -> Values:
    """Return stored values without packing, with NaN for missing values."""
    return cf.decoded(values, array.attributes)


def unpacked_dtype(array: ArrayInfo) -> np.dtype[Any]:
    """Return the data type of the unpacked values."""
    return unpacked(array, np.zeros((1,) * array.ndim, array.dtype)).dtype


def unpacked_attributes(array: ArrayInfo) -> Json:
    """Return the attributes of an array, without those that describe only its stored values."""
    attributes = array.attributes
    if cf.coding_of(attributes, array.dtype, times=False).is_plain:
        return attributes
    return {
        key: value
        for key, value in attributes.items()
        if key not in _OF_STORED and (key, value) != cf.BOOLEAN
    }


# Coordinates


def is_coordinate(array: ArrayInfo, coordinates: set[str]) -> bool:
    """Return whether an array is a coordinate: of a dimension, or one of the paths of `coordinate_paths`."""
    return (array.ndim == 1 and array.dims[0] == array.name) or array.path in coordinates


def coordinate_paths(arrays: Sequence[ArrayInfo]) -> set[str]:
    """Return the paths that arrays name as coordinates, bounds or grid mappings."""
    return {path for array in arrays for path in companion_paths(array) if path != array.path}


def bounds_path(array: ArrayInfo) -> str | None:
    """Return the path of the bounds of a coordinate; None if it does not name bounds."""
    name = array.attributes.get("bounds")
    return f"{array.group.rstrip('/')}/{name}" if isinstance(name, str) else None


def coordinate_of(session: Session, array: ArrayInfo, dim: str | None) -> ArrayInfo | None:
    """Return the coordinate variable of a dimension of an array; None if there is none."""
    path = f"{array.group.rstrip('/')}/{dim}"
    node = session.workspace.node(path) if dim else None
    if node is None or node.array is None:
        return None
    coordinate = array_info(session, path)
    return coordinate if coordinate.dims == (dim,) else None


def coordinate_values(session: Session, array: ArrayInfo) -> Values:
    """Return all values of a coordinate, unpacked."""
    return unpacked(array, np.asarray(open_array(session, array.path)[...]))
