"""The chunks of an HDF5 dataset: their filters, and their positions in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.readers.attribute_values import text


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


def _blosc(values: tuple[int, ...]) -> dict[str, Any] | None:
    if len(values) < 7 or values[5] > 2 or values[6] >= len(_BLOSC_NAMES):
        return None
    return {
        "name": "blosc",
        "configuration": {
            "typesize": values[2],
            "cname": _BLOSC_NAMES[values[6]],
            "clevel": values[4],
            "shuffle": _BLOSC_SHUFFLES[values[5]],
            "blocksize": 0,
        },
    }


def _numcodec(name: str, **names: int) -> Callable[[tuple[int, ...]], dict[str, Any]]:
    def codec(values: tuple[int, ...]) -> dict[str, Any]:
        return {
            "name": f"numcodecs.{name}",
            "configuration": {key: values[at] for key, at in names.items() if at < len(values)},
        }

    return codec


#: Number of an HDF5 filter -> function that makes a Zarr codec from the values of the filter.
CODECS: Final[dict[int, Callable[[tuple[int, ...]], dict[str, Any] | None]]] = {
    1: _numcodec("zlib", level=0),
    2: _numcodec("shuffle", elementsize=0),
    3: _numcodec("fletcher32"),
    307: _numcodec("bz2", level=0),
    32001: _blosc,
    32015: lambda values: {
        "name": "zstd",
        "configuration": {"level": values[0] if values else 3, "checksum": False},
    },
}


def filters_of(dataset: h5py.Dataset) -> list[Filter]:
    """Return the filters of a dataset, in the order of encoding."""
    plist = dataset.id.get_create_plist()
    rows = map(plist.get_filter, range(plist.get_nfilters()))
    return [Filter(code, text(name) or f"filter {code}", tuple(values)) for code, _, values, name in rows]


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


# Positions of chunks


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
    shape = dataset.chunks
    if shape is None:
        return _one_chunk(dataset)
    records: list[Any] = []
    dataset.id.chunk_iter(records.append)
    count, ndim = len(records), dataset.ndim

    def column(name: str) -> NDArray[np.int64]:
        return np.fromiter(map(attrgetter(name), records), np.int64, count)

    offsets = map(attrgetter("chunk_offset"), records)
    first = np.fromiter(chain.from_iterable(offsets), np.int64, count * ndim).reshape(count, ndim)
    return ChunkMap(
        shape, first // np.array(shape), column("byte_offset"), column("size"), column("filter_mask")
    )


def _one_chunk(dataset: h5py.Dataset) -> ChunkMap:
    shape = tuple(max(size, 1) for size in dataset.shape)
    # The library returns an offset even if no bytes are stored.
    length = dataset.id.get_storage_size() if dataset.size else 0
    compact = dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT
    rows = min(length, 1)
    offset = dataset.id.get_offset() if length and not compact else 0
    ones = np.ones(rows, np.int64)
    return ChunkMap(
        shape,
        np.zeros((rows, dataset.ndim), np.int64),
        ones * offset,
        ones * length,
        ones * 0,
        dataset[()].tobytes() if compact and rows else None,
    )
