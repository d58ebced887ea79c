"""HDF5 and NetCDF-4, by h5py.

What NetCDF-4 adds to HDF5 is read as the NetCDF library reads it: dimension scales are dimensions, a dataset
that is only a scale is no variable, ``_nc4_non_coord_x`` is the variable ``x``, a dataset along an unlimited
dimension that is shorter than it is filled up. Datasets without scales get dimensions ``phony_dim_0``, ...
one for each length.

A chunk of HDF5 is bytes in the file that went through a pipeline of filters. Where Zarr has codecs for all
of them the bytes can stay where they are. A chunk may have left filters out (its *filter mask*): that is no
problem if all chunks of the variable left out the same.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.errors import IcechunkError
from frazil.readers.conventions import BaseReader, Parts, bytes_codec, one_location
from frazil.readers.files import Blocks, File, damaged, no_group
from frazil.readers.hdf5_chunks import CODECS, ChunkMap, chunk_map, filters_of, why_not
from frazil.readers.hdf5_dimensions import NOT_A_COORDINATE, Scopes, is_scale
from frazil.readers.hdf5_types import (
    attributes,
    dtype_of,
    fill_value,
    read_values,
    text_attribute,
    zero,
)
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema

_NOT_A_VARIABLE: Final = "This is a netCDF dimension but not a netCDF variable"
#: More than this is not read ahead of the library.
_PREFETCH: Final = 1 << 30

# Plugins for zstd, blosc and bzip2 come with the wheels of netCDF4; HDF5 looks into this directory.
_netcdf4 = importlib.util.find_spec("netCDF4")
if _netcdf4 is not None:
    for _place in _netcdf4.submodule_search_locations or ():
        h5py.h5pl.append(str(Path(_place, "plugins")).encode())


#: The first element, and the one after the last, for each dimension.
type Bounds = tuple[tuple[int, int], ...]


class Hdf5Reader(BaseReader):
    """One group of an HDF5 or NetCDF-4 file."""

    format = "hdf5"
    keeps_schema = True

    def __init__(self, file: File, group: str = "/") -> None:
        super().__init__(file, group)
        self._stream = None if file.path else file.open()
        with self._reading("an HDF5 file"):
            self._file = h5py.File(self._stream or file.path, "r")
        self._datasets: dict[str, h5py.Dataset] = {}
        self._maps: dict[str, ChunkMap] = {}
        self._sparse: dict[str, bool] = {}

    def close(self) -> None:
        self._file.close()
        if self._stream is not None:
            self._stream.close()

    def parts(self) -> Parts:
        with self._reading("readable metadata"):
            return self._parts()

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        dataset = self._dataset(name)
        box = self._written(name, bounds)
        shape = tuple(stop - start for start, stop in bounds)
        if box is None:
            return np.full(shape, zero(variable.dtype, variable.fill_value), variable.dtype)
        inside = tuple(slice(*each) for each in box)
        self._prefetch(name, inside)
        with self._reading(f"values of {name!r}"):
            values = read_values(dataset, inside)
        if isinstance(self._stream, Blocks):
            self._stream.prefetch(())
        # h5py's dtypes carry metadata (enumerations): without them they are equal to others
        values = values.astype(variable.dtype, copy=False)
        values = values if variable.dtype.kind == "T" else values.view(variable.dtype)
        if values.shape == shape:
            return values
        whole = np.full(shape, zero(variable.dtype, variable.fill_value), variable.dtype)
        whole[tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, bounds, strict=True))] = values
        return whole

    def constant(self, name: str, region: tuple[slice, ...]) -> NDArray[Any] | None:
        variable = self.variable(name)
        if self._written(name, self.region(name, region)) is not None:
            return None
        return np.full((), zero(variable.dtype, variable.fill_value), variable.dtype)

    def _written(self, name: str, bounds: Bounds) -> Bounds | None:
        """The part of a region that holds all that was written of it, None if nothing was.

        Where at least half of the chunks are there, it is all of the region that the dataset has.
        """
        dataset = self._dataset(name)
        ends = zip(bounds, dataset.shape, strict=True)
        inside = tuple((min(start, size), min(stop, size)) for (start, stop), size in ends)
        if any(start >= stop for start, stop in inside):
            return inside if 0 in dataset.shape or bounds == inside else None
        with self._reading(f"the chunks of {name!r}"):
            if not self._is_sparse(name, dataset):
                return inside
            chunks = self._map(name)
        first = [start // size for (start, _), size in zip(inside, chunks.shape, strict=True)]
        last = [-(-stop // size) for (_, stop), size in zip(inside, chunks.shape, strict=True)]
        index = chunks.index[((chunks.index >= first) & (chunks.index < last)).all(axis=1)]
        if not len(index):
            return None
        corners = zip(index.min(axis=0).tolist(), index.max(axis=0).tolist(), chunks.shape, strict=True)
        return tuple(
            (max(low * size, start), min((high + 1) * size, stop))
            for (low, high, size), (start, stop) in zip(corners, inside, strict=True)
        )

    def _is_sparse(self, name: str, dataset: h5py.Dataset) -> bool:
        if name not in self._sparse:
            if dataset.chunks is None:
                contiguous = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
                self._sparse[name] = contiguous and not dataset.id.get_storage_size()
            else:
                grid = [-(-size // step) for size, step in zip(dataset.shape, dataset.chunks, strict=True)]
                self._sparse[name] = 2 * dataset.id.get_num_chunks() < math.prod(grid)
        return self._sparse[name]

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """See the module; a million chunks take about a second."""
        variable = self.variable(name)
        dataset = self._dataset(name)
        with self._reading(f"the chunks of {name!r}"):
            why = why_not(dataset)
            filters = filters_of(dataset)
            found = [CODECS[each.id](each.values) if each.id in CODECS else None for each in filters]
            if why is None and None in found:
                why = f"{filters[found.index(None)].name}: no codec in Zarr"
            if why is not None:
                return NotVirtual(why)
            chunks = self._map(name)
        if len(np.unique(chunks.mask)) > 1:
            return NotVirtual("some chunks have gone through other filters than others")
        mask = int(chunks.mask[0]) if len(chunks.mask) else 0
        codecs = [each for bit, each in enumerate(found) if each is not None and not mask >> bit & 1]
        shape, length = chunks.shape, chunks.length
        if not codecs and shape and 0 < variable.shape[0] < shape[0]:
            # A file of one day has room for 512: without it, files can be put together along this dimension.
            shape = (variable.shape[0], *shape[1:])
            length = np.full_like(length, math.prod(shape) * variable.dtype.itemsize)
        references = one_location(
            self.file.url,
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
        """The dataset of a variable of the schema."""
        if name not in self._datasets:
            group = self._file[self.group]
            key = NOT_A_COORDINATE + name
            self._datasets[name] = group[key if key in group else name]
        return self._datasets[name]

    # the schema

    def _parts(self) -> Parts:
        group = self._file.get(self.group)
        if not isinstance(group, h5py.Group):
            raise no_group(self.file.url, self.group, f"none; there are {_groups(self._file)}")
        members = list(self._members(group))
        scopes = Scopes(group, [(key, dataset) for key, dataset, is_own in members if is_own])
        group_attrs, unreadable = attributes(group)
        skipped = {f":{name}": why for name, why in unreadable.items()}
        nowhere = [key for key in group if group.get(key) is None]
        skipped |= dict.fromkeys(nowhere, "a link that leads nowhere")
        variables, dims = [], {}
        unlimited: set[str] = set()
        for key, dataset, _ in members:
            name = key.removeprefix(NOT_A_COORDINATE)
            if is_scale(dataset) and text_attribute(dataset, "NAME").startswith(_NOT_A_VARIABLE):
                dims[name] = dataset.shape[0]
                unlimited.update([name] if dataset.maxshape[0] is None else [])
                continue
            dtype = dtype_of(dataset)
            if isinstance(dtype, str):
                skipped[name] = dtype
                continue
            self._check_end(name, dataset)
            self._datasets[name] = dataset
            found = scopes.dims(name, dataset)
            for dim, size, largest in zip(found, dataset.shape, dataset.maxshape, strict=True):
                dims[dim] = max(size, dims.get(dim, 0))
                unlimited.update([dim] if largest is None else [])
            attrs, unreadable = attributes(dataset)
            skipped |= {f"{name}:{each}": why for each, why in unreadable.items()}
            variables.append(_variable(name, dataset, dtype, found, attrs))
        dims |= {dim: max(size, scopes.sizes.get(dim, 0)) for dim, size in dims.items()}
        sized = [self._filled_up(each, dims, unlimited) for each in variables]
        used = {dim for each in variables for dim in each.dims}
        return Parts(
            sized,
            group_attrs,
            {dim: size for dim, size in dims.items() if dim in used or dim in unlimited or size},
            frozenset(unlimited),
            tuple(_groups(group)),
            skipped,
        )

    def _members(self, group: h5py.Group) -> Iterator[tuple[str, h5py.Dataset, bool]]:
        """The datasets of a group, and whether they are its own: not reached by a link with another name."""
        for key in group:
            link = group.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise damaged(
                    self.file.url,
                    "all of its data in this file",
                    f"{key!r}, a link to {link.path!r} in {link.filename!r}: ingest that file",
                )
            member = group.get(key)  # None for a link that leads nowhere
            if isinstance(member, h5py.Dataset):
                yield key, member, isinstance(link, h5py.HardLink)

    def _check_end(self, name: str, dataset: h5py.Dataset) -> None:
        """HDF5 finds most files that were cut off when it opens them, but not what refers past their end."""
        plist = dataset.id.get_create_plist()
        layout = plist.get_layout()
        if plist.get_external_count() or layout == h5py.h5d.VIRTUAL:
            raise damaged(
                self.file.url, "all of its data in this file", f"{name!r}, whose data are in others"
            )
        if layout == h5py.h5d.CONTIGUOUS and (size := dataset.id.get_storage_size()):
            end = dataset.id.get_offset() + size
            if end > self.file.size:
                raise damaged(
                    self.file.url,
                    f"at least {end} bytes ({name!r} ends there)",
                    f"{self.file.size}: it is truncated",
                )

    def _filled_up(self, variable: VariableSchema, dims: Mapping[str, int], unlimited: set[str]) -> Any:
        shape = tuple(
            dims[dim] if dim in unlimited else size
            for dim, size in zip(variable.dims, variable.shape, strict=True)
        )
        wrong = [dim for dim, size in zip(variable.dims, shape, strict=True) if dims[dim] != size]
        if wrong:
            raise damaged(
                self.file.url,
                f"{dims[wrong[0]]} values of {variable.name!r} along {wrong[0]!r}, as others have",
                str(dict(zip(variable.dims, shape, strict=True))[wrong[0]]),
            )
        return VariableSchema(
            variable.name,
            variable.dims,
            shape,
            variable.dtype,
            variable.attrs,
            variable.fill_value,
            variable.chunks,
            variable.codec,
        )

    # chunks

    def _map(self, name: str) -> ChunkMap:
        found = self._maps.get(name)
        if found is None:
            found = self._maps[name] = chunk_map(self._dataset(name))
            ends = found.offset + found.length
            if found.compact is None and len(ends) and int(ends.max()) > self.file.size:
                raise damaged(
                    self.file.url,
                    f"at least {int(ends.max())} bytes ({name!r} ends there)",
                    f"{self.file.size}: it is truncated",
                )
        return found

    def _prefetch(self, name: str, region: tuple[slice, ...]) -> None:
        """From an object store many chunks are read at once; the library reads one after the other."""
        dataset = self._dataset(name)
        if not isinstance(self._stream, Blocks) or dataset.chunks is None:
            return
        with self._reading(f"the chunks of {name!r}"):
            chunks = self._map(name)
        first = [each.start // size for each, size in zip(region, chunks.shape, strict=True)]
        last = [-(-each.stop // size) for each, size in zip(region, chunks.shape, strict=True)]
        wanted = np.all((chunks.index >= first) & (chunks.index < last), axis=1)
        start, length = chunks.offset[wanted], chunks.length[wanted]
        if length.sum() <= _PREFETCH:
            self._stream.prefetch(zip(start.tolist(), (start + length).tolist(), strict=True))

    @contextmanager
    def _reading(self, expected: str) -> Iterator[None]:
        try:
            yield
        except IcechunkError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, UnicodeError) as error:
            raise damaged(self.file.url, expected, error) from error


def _variable(
    name: str, dataset: h5py.Dataset, dtype: np.dtype[Any], dims: tuple[str, ...], attrs: dict[str, Any]
) -> VariableSchema:
    filters = filters_of(dataset)
    names = h5py.check_enum_dtype(dataset.dtype)
    if names and dtype.kind != "b":
        attrs.setdefault("flag_values", list(names.values()))
        attrs.setdefault("flag_meanings", " ".join(each.replace(" ", "_") for each in names))
    return VariableSchema(
        name,
        dims,
        dataset.shape,
        dtype,
        attrs,
        fill_value(dataset, dtype),
        dataset.chunks,
        ", ".join(each.words for each in filters) or None,
    )


def _groups(group: h5py.Group) -> list[str]:
    found: list[str] = []
    group.visititems(lambda _, each: found.append(each.name) if isinstance(each, h5py.Group) else None)
    return found
