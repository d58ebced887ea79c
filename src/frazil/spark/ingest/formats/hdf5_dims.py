"""The names of an HDF5 dataset's dimensions, as NetCDF-4 keeps them: in dimension scales."""

from __future__ import annotations

from typing import Final

import h5py  # type: ignore[import-untyped]  # it ships no types

#: Before the name of a variable that has the name of a dimension which is not its own.
NOT_A_COORDINATE: Final = "_nc4_non_coord_"


def is_scale(dataset: h5py.Dataset) -> bool:
    return bool(h5py.h5ds.is_scale(dataset.id))


class Scopes:
    """The dimensions that datasets of one group have: scales of this group and of those above."""

    def __init__(self, group: h5py.Group) -> None:
        self._group = group
        self._ids: dict[int, str] | None = None
        self._phony: dict[int, list[str]] = {}
        #: Lengths of dimensions that are declared above this group.
        self.sizes: dict[str, int] = {}

    def dims(self, name: str, dataset: h5py.Dataset) -> tuple[str, ...]:
        """The names of a dataset's dimensions."""
        ids = dataset.attrs.get("_Netcdf4Coordinates")
        if is_scale(dataset):
            if ids is not None and len(ids) == dataset.ndim > 1:
                by_id = self._by_id()
                return tuple(by_id[int(each)] for each in ids)
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
        scale = self._group.file[reference]
        name = scale.name.rpartition("/")[2].removeprefix(NOT_A_COORDINATE)
        self.sizes[name] = scale.shape[0] if scale.shape else 0
        return str(name)

    def _by_id(self) -> dict[int, str]:
        if self._ids is None:
            self._ids = {}
            group = self._group
            while True:
                for key, each in group.items():
                    if isinstance(each, h5py.Dataset) and is_scale(each) and "_Netcdf4Dimid" in each.attrs:
                        self._ids.setdefault(int(each.attrs["_Netcdf4Dimid"]), key)
                if group.name == "/":
                    break
                group = group.parent
        return self._ids

    def _without_scale(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """One dimension for each length; two for a square."""
        names: list[str] = []
        for size in shape:
            known = self._phony.setdefault(size, [])
            free = [each for each in known if each not in names]
            if not free:
                free = [f"phony_dim_{sum(map(len, self._phony.values()))}"]
                known += free
            names.append(free[0])
        return tuple(names)
