"""Finds the names of the dimensions of an HDF5 dataset in its dimension scales, as NetCDF-4 stores them.

A dataset refers to its scales by their addresses in the file. The library searches the file for the name at
an address. So one pass over the members of a group makes a table of addresses and names instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import h5py  # type: ignore[import-untyped]  # it ships no types

#: The prefix of a variable that has the name of a dimension, but is not its coordinate.
NOT_A_COORDINATE: Final = "_nc4_non_coord_"


def is_scale(dataset: h5py.Dataset) -> bool:
    """Return whether a dataset is a dimension scale."""
    return bool(h5py.h5ds.is_scale(dataset.id))


class Scopes:
    """The dimensions of the datasets of one group: scales of this group and of its parent groups.

    ``members`` are the datasets of the group with their keys.
    """

    def __init__(self, group: h5py.Group, members: Iterable[tuple[str, h5py.Dataset]]) -> None:
        self._file = group.file
        self._above: h5py.Group | None = None if group.name == "/" else group.parent
        self._by_address: dict[int, tuple[str, int]] = {}
        self._by_id: dict[int, str] = {}
        self._phony: dict[int, list[str]] = {}
        self._phonies = 0
        #: The lengths of dimensions of parent groups.
        self.sizes: dict[str, int] = {}
        self._add(members)

    def dims(self, name: str, dataset: h5py.Dataset) -> tuple[str, ...]:
        """Return the names of the dimensions of a dataset."""
        ids = dataset.attrs.get("_Netcdf4Coordinates")
        if is_scale(dataset):
            if ids is not None and len(ids) == dataset.ndim > 1:
                return tuple(self._with_id(int(each)) for each in ids)
            return (name, *self._without_scale(dataset.shape[1:])) if dataset.ndim else ()
        if "DIMENSION_LIST" not in dataset.attrs:
            return self._without_scale(dataset.shape)
        attached = dataset.attrs["DIMENSION_LIST"]
        missing = iter(
            self._without_scale(
                tuple(size for size, scales in zip(dataset.shape, attached, strict=True) if not len(scales))
            )
        )
        return tuple(self._scale(scales[0]) if len(scales) else next(missing) for scales in attached)

    def _scale(self, reference: h5py.Reference) -> str:
        scale = h5py.h5r.dereference(reference, self._file.id)
        address = h5py.h5o.get_info(scale).addr
        while address not in self._by_address and self._above is not None:
            self._add_above()
        if address not in self._by_address:  # the scale is not in a parent group
            self._by_address[address] = _named(h5py.Dataset(scale).name.rpartition("/")[2], scale)
        name, size = self._by_address[address]
        self.sizes[name] = size
        return name

    def _with_id(self, number: int) -> str:
        while number not in self._by_id and self._above is not None:
            self._add_above()
        return self._by_id[number]

    def _add_above(self) -> None:
        group = self._above
        assert group is not None
        self._above = None if group.name == "/" else group.parent
        self._add(_linked_datasets(group))

    def _add(self, members: Iterable[tuple[str, h5py.Dataset]]) -> None:
        for key, dataset in members:
            if is_scale(dataset):
                self._by_address.setdefault(h5py.h5o.get_info(dataset.id).addr, _named(key, dataset.id))
                if "_Netcdf4Dimid" in dataset.attrs:
                    self._by_id.setdefault(int(dataset.attrs["_Netcdf4Dimid"]), key)

    def _without_scale(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Return dimensions without scales: one name for each length, two names for a square."""
        names: list[str] = []
        for size in shape:
            candidates = self._phony.setdefault(size, [])
            free = next((each for each in candidates if each not in names), None)
            if free is None:
                free = f"phony_dim_{self._phonies}"
                self._phonies += 1
                candidates.append(free)
            names.append(free)
        return tuple(names)


def _named(key: str, scale: h5py.h5d.DatasetID) -> tuple[str, int]:
    """Return the dimension of a scale, and its length."""
    return key.removeprefix(NOT_A_COORDINATE), scale.shape[0] if scale.shape else 0


def _linked_datasets(group: h5py.Group) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the datasets of a group, without those behind links, which may be in other files."""
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.HardLink):
            member = group[key]
            if isinstance(member, h5py.Dataset):
                yield key, member
