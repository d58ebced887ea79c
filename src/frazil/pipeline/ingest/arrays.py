"""The arrays that a dataset gets: chunks, codecs, attributes.

Attributes are those of the files, so that xarray sees in the store what it sees in the files. Only
``_FillValue`` is written as xarray writes it into Zarr; the fill value of the array, which chunks that nobody
wrote have, is the same value.

Chunks are 16 to 64 MB unless the caller chooses them: whole steps of the dimension in which the dataset
grows where steps are smaller than that, else parts of steps, on the borders of the chunks in the files.
"""

from __future__ import annotations

import base64
import json
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import zarr
import zarr.errors
from numpy.typing import NDArray
from zarr.core.buffer import cpu

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.file_layout import VirtualChunks
from frazil.readers.reader import VariableSchema
from frazil.zarr_store.arrays import array_at

TARGET: Final = 16 << 20
LARGEST: Final = 64 << 20
#: A chunk may be larger than the array by this much, in bytes: the array will grow.
GROWTH: Final = 1 << 20
#: What strings of any length are taken to need.
_STRING: Final = 32


@dataclass(frozen=True, slots=True)
class TargetArray:
    """An array to be written. ``axis`` is the number of its concat dimension, None if it does not have it.

    ``window`` is the part of it that files have, ``(start, stop)`` for each dimension; None if they have all.
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

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The window, extended to the borders of chunks; along the axis all steps."""
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
        """The shape of what is written at once: a shard, or a chunk."""
        return self.shards or self.chunks

    @property
    def itemsize(self) -> int:
        return _STRING if self.dtype.kind == "T" else self.dtype.itemsize

    @property
    def row(self) -> int:
        """Bytes of one step of the concat dimension."""
        shape = [size for at, size in enumerate(self.shape) if at != self.axis]
        return int(np.prod(shape, dtype=object)) * self.itemsize


def choose_chunks(
    shape: tuple[int, ...], itemsize: int, axis: int | None, native: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Chunks of 16 to 64 MB, in whole steps along ``axis`` if they are not too large.

    >>> choose_chunks((100_000, 180, 360), 4, axis=0)
    (65, 180, 360)
    >>> choose_chunks((10, 4000, 8000), 8, axis=0, native=(1, 1000, 1000))
    (1, 1000, 8000)
    """
    chunks = [max(size, 1) for size in shape]
    if axis is not None:
        chunks[axis] = 1
    step = list(native) if native is not None else [1] * len(shape)
    while (bytes_ := int(np.prod(chunks, dtype=object)) * itemsize) > LARGEST:
        # The first dimension that can be cut: parts next to each other in memory stay together.
        cut = next((i for i, size in enumerate(chunks) if i != axis and size > step[i]), None)
        if cut is None:
            cut = next((i for i, size in enumerate(chunks) if size > 1), None)
            if cut is None:
                break
        parts = -(-bytes_ // LARGEST)
        wanted = -(-chunks[cut] // parts)
        chunks[cut] = min(chunks[cut] - 1, max(step[cut], wanted // step[cut] * step[cut], 1))
    if axis is not None:
        row = max(int(np.prod(chunks, dtype=object)) * itemsize, 1)
        growing = max(shape[axis], GROWTH // row, 1)
        chunks[axis] = max(min(-(-TARGET // row), growing), 1)
    return tuple(chunks)


#: The arguments of ``zarr.create_array`` that ``encoding`` may have.
ENCODING: Final = ("chunks", "shards", "compressors", "filters", "serializer")


def require_sizes(chunks: Mapping[str, Any], encoding: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ``InvalidInputError`` (``invalid-argument``) for sizes of chunks that no file can have."""
    sizes = [(f"chunks of {dim}", size) for dim, size in chunks.items()]
    for name, each in encoding.items():
        if unknown := sorted(each.keys() - set(ENCODING)):
            raise InvalidInputError(
                f"encoding of {name}: expected {', '.join(ENCODING)}, found {unknown[0]!r}: the rest is "
                "as in the files",
                ErrorKind.INVALID_ARGUMENT,
            )
        for key in ("chunks", "shards"):
            if each.get(key) is not None:
                sizes += [(f"{key} of {name}", size) for size in each[key]]
    for what, size in sizes:
        if (
            not isinstance(size, int | np.integer)
            or size < (-1 if what.startswith("chunks") else 1)
            or not size
        ):
            raise InvalidInputError(
                f"{what}: expected a number of at least 1, or -1 for all, found {size!r}",
                ErrorKind.INVALID_ARGUMENT,
            )


def target_array(
    variable: VariableSchema,
    path: str,
    dim: str | None,
    length: int,
    chunks: Mapping[str, int] | None = None,
    encoding: Mapping[str, Any] | None = None,
    virtual: VirtualChunks | None = None,
) -> TargetArray:
    """The array for a variable. ``encoding`` are arguments of ``zarr.create_array``, ``chunks`` sizes by
    dimension.
    """
    axis = variable.dims.index(dim) if dim in variable.dims else None
    shape = tuple(length if i == axis else size for i, size in enumerate(variable.shape))
    given = dict(encoding or {})
    attrs = {name: value for name, value in variable.attrs.items() if name != "_FillValue"}
    fill = variable.attrs.get("_FillValue")
    encoded = encoded_fill(fill, variable.dtype)
    if encoded is not None:
        attrs["_FillValue"] = encoded
    if virtual is not None:
        return TargetArray(
            path, variable.name, variable.dims, shape, virtual.dtype, virtual.chunks, axis,
            virtual.fill_value, attrs, codecs=virtual.codecs,
        )  # fmt: skip
    itemsize = _STRING if variable.dtype.kind == "T" else variable.dtype.itemsize
    own = given.pop("chunks", None)
    if own is None:
        own = choose_chunks(shape, itemsize, axis, variable.chunks)
        own = tuple(
            max(
                size
                if (chunks or {}).get(name, -1) == -1 and name in (chunks or {})
                else (chunks or {}).get(name, each),
                1,
            )
            for name, size, each in zip(variable.dims, shape, own, strict=True)
        )
    elif len(own) != len(shape):
        raise InvalidInputError(
            f"expected chunks of {variable.name} with {len(shape)} sizes, found {own}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    own = tuple(max(size, 1) if each == -1 else each for size, each in zip(shape, own, strict=True))
    shards = given.pop("shards", None)
    return TargetArray(
        path, variable.name, variable.dims, shape, native(variable.dtype), tuple(map(int, own)), axis,
        fill_of(variable), attrs, None if shards is None else tuple(shards), given,
    )  # fmt: skip


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in this machine's byte order: arrays do not have the order of the file."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def fill_of(variable: VariableSchema) -> Any:
    """The value of chunks that nobody has written."""
    fill = variable.attrs.get("_FillValue")
    kind = variable.dtype.kind
    if kind == "T":
        return ""
    if kind == "S":
        return b""
    if fill is not None and np.ndim(fill) == 0:
        return np.asarray(fill).astype(variable.dtype)[()]
    if kind == "f":
        return np.array(np.nan, variable.dtype)[()]
    return np.zeros((), variable.dtype)[()] if variable.fill_value is None else variable.fill_value


def encoded_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """``_FillValue`` in the attributes of a Zarr array: floats as base64 of a little-endian double, as xarray
    has it; None where xarray has no form for it.
    """
    if value is None or np.ndim(value):
        return None
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    if dtype.kind in "iu":
        return int(value)
    return None


#: A fill value that changes nothing: what is not a number is none with and without it.
NAN_FILL: Final = encoded_fill(np.nan, np.dtype(np.float64))


def create(store: Any, target: TargetArray) -> None:
    """Create the array, without chunks."""
    with warnings.catch_warnings():
        # Characters have no place in the specification yet. Every zarr since 3.1 reads them.
        warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
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
            raise InvalidInputError(
                f"expected an encoding that zarr can make `{target.path}` ({target.dtype}) with, found "
                f"{keywords}: {error}",
                ErrorKind.INVALID_ARRAY_METADATA,
            ) from error
    if target.codecs:
        _set_codecs(store, f"{target.path.strip('/')}/zarr.json", target.codecs)


def _set_codecs(store: Any, key: str, codecs: tuple[str, ...]) -> None:
    """Write codecs into the metadata of an array: some are no arguments of ``create_array``."""
    document = json.loads(store.get_sync(key).to_bytes())
    document["codecs"] = list(map(json.loads, codecs))
    store.set_sync(key, cpu.Buffer.from_bytes(json.dumps(document).encode()))


def open_target(store: Any, path: str) -> zarr.Array[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
        return array_at(store, path, "r" if store.read_only else "r+")


def read_labels(array: zarr.Array[Any]) -> NDArray[Any]:
    values = np.asarray(array[:])
    return values if values.dtype.kind != "O" else values.astype(np.dtypes.StringDType())
