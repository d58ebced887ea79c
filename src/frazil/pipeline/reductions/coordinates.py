"""Coordinates of results: copied unchanged, or computed.

An existing coordinate with the same values stays, so that results of several jobs can be in one group. A
coordinate with other values is replaced, unless an array that the job does not write has its dimensions: that
array would get other labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    Field,
    arrays_of,
    coordinates_of,
    dimensions,
    has_node,
    open_array,
)
from frazil.repository.session.session import Session


@dataclass(frozen=True, slots=True)
class CoordinateWriter:
    """The coordinates of the results ``writes`` of one job: from ``source`` to ``session``.

    Each coordinate is compared and copied once, and each group is listed at most once, for any number of
    results.
    """

    source: ArrayLookup
    session: Session
    writes: frozenset[str]
    copied: set[tuple[str, str]] = field(default_factory=set)
    groups: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    @staticmethod
    def of(source: ArrayLookup, session: Session, writes: Collection[str]) -> CoordinateWriter:
        """Return a writer for a job whose results are ``writes``."""
        return CoordinateWriter(source, session, frozenset(path.strip("/") for path in writes))

    def put_coordinate(
        self,
        path: str,
        values: NDArray[Any],
        attributes: Mapping[str, Any],
        *,
        dims: tuple[str, ...] | None = None,
    ) -> None:
        """Write a computed coordinate. ``dims`` None is one dimension with the name of the coordinate."""
        name = path.rpartition("/")[2]
        dims = dims or (name,)
        is_text = values.dtype.kind in "UOT"
        if self._is_unchanged(path, dims, values.astype(str) if is_text else values, attributes, {name}):
            return
        array = zarr.create_array(
            self.session.store,
            name=path.strip("/"),
            shape=values.shape,
            chunks=tuple(max(1, n) for n in values.shape),
            dtype=cast("Any", str) if is_text else values.dtype,
            attributes=dict(attributes),
            dimension_names=dims,
            overwrite=has_node(self.session, path),
        )
        array[...] = values.astype(object) if is_text else values

    def copy_coordinates(self, of: Field, dims: Sequence[str], path: str, *, without: str = "") -> None:
        """Copy the coordinates of a field that have only the dimensions ``dims`` to the group of ``path``."""
        parent = path.strip("/").rpartition("/")[0]
        coordinates = coordinates_of(of, self.source, dims)
        for name, array in coordinates.items():
            to = f"{parent}/{name}".strip("/")
            if name == without or (array.path, to) in self.copied:
                continue
            self.copied.add((array.path, to))
            values, attributes = np.asarray(array[...]), dict(array.attrs)
            if not self._is_unchanged(to, dimensions(array), values, attributes, coordinates.keys()):
                zarr.from_array(self.session.store, data=array, name=to, overwrite=has_node(self.session, to))

    def _is_unchanged(
        self,
        path: str,
        dims: tuple[str, ...],
        values: NDArray[Any],
        attributes: Mapping[str, Any],
        others: Collection[str],
    ) -> bool:
        """Return whether the target has the coordinate. Raise ``InvalidInputError`` if it must not change."""
        try:
            array = open_array(self.session, path)
        except NodeNotFoundError:
            return False
        same_metadata = dimensions(array) == dims and dict(array.attrs) == dict(attributes)
        if array.shape == values.shape and same_metadata:
            stored = np.asarray(array[...])
            stored = stored.astype(values.dtype) if values.dtype.kind == "U" else stored
            floats = values.dtype.kind == "f" and stored.dtype.kind == "f"
            if stored.dtype == values.dtype and np.array_equal(stored, values, equal_nan=floats):
                return True
        parent, _, name = path.strip("/").rpartition("/")
        for other, other_dims in self._dimensions(parent).items():
            is_replaced = f"{parent}/{other}".strip("/") in self.writes or other in others or other == name
            if not is_replaced and set(dims) <= set(other_dims):
                raise InvalidInputError(
                    f"to must be a group whose `{name}` is equal to that of the results, got a group where "
                    f"`{other}` is labelled with another `{name}`. Pass another group",
                    ErrorKind.NOT_ALLOWED,
                )
        return False

    def _dimensions(self, group: str) -> dict[str, tuple[str, ...]]:
        """Return the dimensions of the arrays of a group, by name, before the first array is replaced."""
        if group not in self.groups:
            arrays = arrays_of(self.session, group)
            self.groups[group] = {name: dimensions(array) for name, array in arrays.items()}
        return self.groups[group]
