"""The reader of HDF5 and NetCDF-4, with h5py.

It reads the conventions of NetCDF-4 as the NetCDF library does. Dimension scales are dimensions. A dataset
that is only a scale is not a variable. ``_nc4_non_coord_x`` is the variable ``x``. A dataset that is shorter
than its unlimited dimension is filled up with the fill value. Datasets without scales get dimensions
``phony_dim_0``, ..., one for each length.

Chunks can have references if Zarr has codecs for all filters. A chunk may skip filters (its *filter mask*),
if all chunks of the variable skip the same filters.
"""

from __future__ import annotations

import importlib.util
import math
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, override

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.readers.base_reader import (
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    bytes_codec,
    references_to_file,
)
from frazil.readers.files import BlockStream, File
from frazil.readers.hdf5_schema import (
    NOT_A_COORDINATE,
    ChunkMap,
    CompoundField,
    chunk_map,
    codec_of,
    fields_of,
    filters_of,
    read_group,
    read_values,
    require_size,
    why_not,
    zero,
)

#: Packages whose wheels have a folder ``plugins``. netCDF4 is in the extra ``pipeline``, and has the filters
#: of NetCDF-4: zstd, blosc, bzip2. hdf5plugin has these, and bitshuffle, lz4, blosc2, zfp, ...
PLUGIN_PACKAGES: Final = ("netCDF4", "hdf5plugin")


def add_plugins() -> None:
    """Make the filters of the installed `PLUGIN_PACKAGES` available to HDF5."""
    for name in PLUGIN_PACKAGES:
        package = importlib.util.find_spec(name)
        if package is not None:
            for folder in package.submodule_search_locations or ():
                h5py.h5pl.append(str(Path(folder, "plugins")).encode())


#: The largest number of bytes that are read before the library needs them.
_PREFETCH: Final = 1 << 30

add_plugins()

#: ``(start, stop)`` for each dimension.
type Bounds = tuple[tuple[int, int], ...]


class Hdf5Reader(Reader):
    """The reader of one group of an HDF5 or NetCDF-4 file."""

    format = "hdf5"
    caches_schema = True
    library_errors = (OSError, RuntimeError, KeyError, ValueError, TypeError, UnicodeError)
    names_error_type = False
    option_names = ("compound",)

    def __init__(self, file: File, group: str = "/", compound: Literal["skip", "fields"] = "skip") -> None:
        super().__init__(file, group)
        if compound not in ("skip", "fields"):
            raise InvalidInputError(
                f"compound must be skip or fields, got {str(compound)!r}", ErrorKind.UNKNOWN_CHOICE
            )
        self.options = (compound,)
        self._stream = None if file.path else file.open()
        with self.library_call("an HDF5 file"):
            self._file = h5py.File(self._stream or file.path, "r")
        self._datasets: dict[str, h5py.Dataset] = {}
        self._maps: dict[str, ChunkMap] = {}
        self._sparse: dict[str, bool] = {}

    @cached_property
    def _fields(self) -> dict[str, tuple[str, CompoundField]]:
        """The key of the dataset and the field of each variable that is a field of a compound type."""
        return fields_of(self._file[self.group]) if self.options == ("fields",) else {}

    @override
    def close(self) -> None:
        self._file.close()
        if self._stream is not None:
            self._stream.close()

    @override
    def contents(self) -> FileContents:
        with self.library_call("readable metadata"):
            return read_group(self.file, self._file, self.group, with_fields=self.options == ("fields",))

    @override
    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        dataset = self._dataset(name)
        box = self._stored_box(name, bounds)
        shape = tuple(stop - start for start, stop in bounds)
        if box is None:
            return np.full(shape, zero(variable.dtype, variable.fill_value), variable.dtype)
        inside = tuple(slice(*each) for each in box)
        if isinstance(self._stream, BlockStream) and dataset.chunks is not None and name not in self._fields:
            # The library reads one chunk after the other, the stream reads them in parallel.
            with self.library_call(f"the chunks of {name!r}"):
                chunks, wanted = self._chunks_in(name, box)
            start, length = chunks.offset[wanted], chunks.length[wanted]
            if length.sum() <= _PREFETCH:
                self._stream.prefetch(zip(start.tolist(), (start + length).tolist(), strict=True))
        _, field = self._fields.get(name, ("", None))
        with self.library_call(f"values of {name!r}"):
            values = read_values(dataset, inside) if field is None else field.read(dataset, inside)
        if isinstance(self._stream, BlockStream):
            self._stream.prefetch(())
        # Dtypes of h5py have metadata (enumerations), which would make equal dtypes different.
        values = values.astype(variable.dtype, copy=False)
        values = values if variable.dtype.kind == "T" else values.view(variable.dtype)
        if values.shape == shape:
            return values
        whole = np.full(shape, zero(variable.dtype, variable.fill_value), variable.dtype)
        whole[tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, bounds, strict=True))] = values
        return whole

    @override
    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        variable = self.variable(name)
        if self._stored_box(name, self.region(name, region)) is not None:
            return None
        return np.full((), zero(variable.dtype, variable.fill_value), variable.dtype)

    def _stored_box(self, name: str, bounds: Bounds) -> Bounds | None:
        """Return the box around the stored chunks of a region, if few are stored; None without any."""
        dataset = self._dataset(name)
        shape = dataset.shape
        if name in self._fields:
            shape += self._fields[name][1].shape
        ends = zip(bounds, shape, strict=True)
        inside = tuple((min(start, size), min(stop, size)) for (start, stop), size in ends)
        if any(start >= stop for start, stop in inside):
            return inside if 0 in shape or bounds == inside else None
        if name in self._fields:
            return inside
        with self.library_call(f"the chunks of {name!r}"):
            if name not in self._sparse:
                if dataset.chunks is None:
                    contiguous = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
                    self._sparse[name] = contiguous and not dataset.id.get_storage_size()
                else:
                    grid = [
                        -(-size // step) for size, step in zip(dataset.shape, dataset.chunks, strict=True)
                    ]
                    self._sparse[name] = 2 * dataset.id.get_num_chunks() < math.prod(grid)
            if not self._sparse[name]:
                return inside
            chunks, wanted = self._chunks_in(name, inside)
        index = chunks.index[wanted]
        if not len(index):
            return None
        corners = zip(index.min(axis=0).tolist(), index.max(axis=0).tolist(), chunks.shape, strict=True)
        return tuple(
            (max(low * size, start), min((high + 1) * size, stop))
            for (low, high, size), (start, stop) in zip(corners, inside, strict=True)
        )

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to the chunks, if Zarr has codecs for all filters. A million take a second."""
        variable = self.variable(name)
        dataset = self._dataset(name)
        if name in self._fields:
            return NotVirtual("a field of a compound type: its bytes lie between those of other fields")
        with self.library_call(f"the chunks of {name!r}"):
            reason = why_not(dataset)
            filters = filters_of(dataset)
            candidates = list(map(codec_of, filters))
            if reason is None and None in candidates:
                reason = f"{filters[candidates.index(None)].name}: no codec in Zarr"
            if reason is not None:
                return NotVirtual(reason)
            chunks = self._chunk_map(name)
        if len(np.unique(chunks.mask)) > 1:
            return NotVirtual("its chunks were encoded with different filters")
        mask = int(chunks.mask[0]) if len(chunks.mask) else 0
        codecs = [each for bit, each in enumerate(candidates) if each is not None and not mask >> bit & 1]
        shape, length = chunks.shape, chunks.length
        if not codecs and shape and 0 < variable.shape[0] < shape[0]:
            # A file of one day may have chunks of 512 steps. Chunks of the used steps fit other files.
            shape = (variable.shape[0], *shape[1:])
            length = np.full_like(length, math.prod(shape) * variable.dtype.itemsize)
        references = references_to_file(
            self.file.location,
            shape,
            [bytes_codec(variable.dtype), *codecs],
            variable.dtype,
            zero(variable.dtype, variable.fill_value),
            chunks.index,
            chunks.offset,
            length,
        )
        return references if chunks.compact is None else references.with_inline({0: chunks.compact})

    def _dataset(self, name: str) -> h5py.Dataset:
        """Return the dataset of a variable of the schema."""
        if name not in self._datasets:
            group = self._file[self.group]
            key = NOT_A_COORDINATE + name
            key, _ = self._fields.get(name, (key if key in group else name, None))
            self._datasets[name] = group[key]
        return self._datasets[name]

    # chunks

    def _chunk_map(self, name: str) -> ChunkMap:
        chunks = self._maps.get(name)
        if chunks is None:
            chunks = self._maps[name] = chunk_map(self._dataset(name))
            ends = chunks.offset + chunks.length
            if chunks.compact is None and len(ends):
                require_size(self.file, name, int(ends.max()))
        return chunks

    def _chunks_in(self, name: str, bounds: Bounds) -> tuple[ChunkMap, NDArray[np.bool_]]:
        """Return the chunks of a variable, and a mask of the stored chunks of a region."""
        chunks = self._chunk_map(name)
        first = [start // size for (start, _), size in zip(bounds, chunks.shape, strict=True)]
        last = [-(-stop // size) for (_, stop), size in zip(bounds, chunks.shape, strict=True)]
        return chunks, ((chunks.index >= first) & (chunks.index < last)).all(axis=1)
