"""Arrays of numbers as reductions see them: named dimensions, a grid, values decoded by the CF conventions.

Packed data (``scale_factor``, ``add_offset``), ``_FillValue`` and ``missing_value`` are decoded by xarray, so
that a result is what xarray computes from the same array. xarray ignores ``valid_range``, ``valid_min`` and
``valid_max``; they are applied only on request, and values outside of the range become NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil import cf
from frazil.arrays.zarr_arrays import array_at, in_bulk
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session

_VALID: Final = frozenset({"valid_range", "valid_min", "valid_max"})
#: Attributes that do not describe decoded values, and attributes that name other arrays.
ENCODING: Final = cf.PACKED | _VALID | {"coordinates", "ancillary_variables"}


@dataclass(frozen=True)
class Field:
    """One array: its metadata, and how its values are decoded.

    ``grid`` is the shape of a chunk, or of a shard; ``raw`` is the type of the stored values.
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    grid: tuple[int, ...]
    raw: np.dtype[Any]
    attributes: Mapping[str, Any]
    decode: bool = True
    valid_range: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> str:
        """The path of its group, without a slash at either end."""
        return self.path.strip("/").rpartition("/")[0]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of the decoded values."""
        return self.decoded(np.zeros((0,) * len(self.shape), self.raw)).dtype

    def decoded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the decoded values of stored values, by the CF conventions."""
        if self.decode:
            values = cf.decoded(values, self.attributes)
        if self.valid_range and (limits := self._limits):
            values = values if values.dtype.kind == "f" else values.astype(np.float64)
            values = np.where(
                (values >= limits[0]) & (values <= limits[1]), values, values.dtype.type(np.nan)
            )
        return values

    @cached_property
    def _limits(self) -> tuple[float, float] | None:
        """The valid range, in decoded values. The attributes of the file have it in packed values."""
        attributes = self.attributes
        if _VALID.isdisjoint(attributes):
            return None
        limits = (attributes.get("valid_min", -np.inf), attributes.get("valid_max", np.inf))
        low, high = attributes.get("valid_range", limits)
        scale, offset = attributes.get("scale_factor", 1), attributes.get("add_offset", 0)
        ends = (float(low) * scale + offset, float(high) * scale + offset)
        return min(ends), max(ends)


def open_array(session: Session, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Return an array of a session.

    Raises ``NodeNotFoundError`` for a missing array, and ``InvalidInputError`` for a group.
    """
    try:
        return array_at(session, path, mode)
    except FileNotFoundError as error:
        raise NodeNotFoundError(f"`/{path.strip('/')}` must be an array, got no node") from error
    except zarr.errors.NodeTypeValidationError as error:
        raise InvalidInputError(
            f"`/{path.strip('/')}` must be an array, got a group", ErrorKind.NOT_AN_ARRAY
        ) from error


def has_node(session: Session, path: str) -> bool:
    """Return whether a path has a node, which a new array at this path overwrites.

    zarr lists all nodes of the session to overwrite one. So a job with many results asks first.
    """
    return session.workspace.node("/" + path.strip("/")) is not None


def open_field(
    session: Session, path: str, *, decode: bool = True, valid_range: bool = False, kinds: str = "biuf"
) -> Field:
    """Return an array of numbers. Raise ``InvalidInputError`` for other types and for irregular chunks."""
    array = open_array(session, path)
    if array.dtype.kind not in kinds:
        raise InvalidInputError(
            f"`/{path.strip('/')}` must be an array of numbers, got the type {array.dtype}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    grid = regular_grid(array)
    return Field(
        "/" + path.strip("/"),
        dimensions(array),
        array.shape,
        grid,
        np.dtype(array.dtype),
        dict(array.attrs),
        decode,
        valid_range,
    )


def dimensions(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions; ``dim_0`` and so on for dimensions without a name."""
    names = getattr(array.metadata, "dimension_names", None) or [None] * array.ndim
    return tuple(name or f"dim_{axis}" for axis, name in enumerate(names))


def arrays_of(session: Session, group: str) -> dict[str, zarr.Array[Any]]:
    """Return the arrays of a group, by name."""
    arrays = zarr.open_group(session.store, path=group.strip("/"), mode="r").arrays()
    return {name: in_bulk(array) for name, array in arrays}


@dataclass(frozen=True, slots=True)
class ArrayLookup:
    """The arrays of a version by path, each of which is opened once, on the first request.

    A job that looks up the coordinates of many arrays shares one lookup. Listing a group instead opens all of
    its arrays.
    """

    session: Session
    opened: dict[str, zarr.Array[Any] | None] = field(default_factory=dict)

    def get(self, group: str, name: str) -> zarr.Array[Any] | None:
        """Return the array of a name in a group, or None if the group does not have it."""
        path = "/" + f"{group.strip('/')}/{name}".strip("/")
        if path not in self.opened:
            node = None if not name or "/" in name else self.session.workspace.node(path)
            is_array = node is not None and node.array is not None
            self.opened[path] = open_array(self.session, path) if is_array else None
        return self.opened[path]


def coordinates_of(field: Field, arrays: ArrayLookup, dims: Sequence[str]) -> dict[str, zarr.Array[Any]]:
    """Return the coordinates of an array on the dimensions ``dims``, their bounds, and the grid mapping.

    A coordinate that has other dimensions too is not included. Only the names in the dimensions and
    attributes of the array are looked up.
    """
    names = {*field.dims, *str(field.attributes.get("coordinates", "")).split()}
    names |= set(str(field.attributes.get("grid_mapping", "")).replace(":", " ").split())
    coordinates = _arrays(arrays, field.parent, names)
    inside = {name: each for name, each in coordinates.items() if set(dimensions(each)) <= set(dims)}
    bounds = _arrays(
        arrays, field.parent, {str(each.attrs.get("bounds", "")) for each in coordinates.values()}
    )
    # Bounds have one dimension more, for the corners.
    inside |= {
        name: each for name, each in bounds.items() if each.ndim and set(dimensions(each)[:-1]) <= set(dims)
    }
    inside.pop(field.name, None)
    return {name: inside[name] for name in sorted(inside)}


def _arrays(arrays: ArrayLookup, group: str, names: Collection[str]) -> dict[str, zarr.Array[Any]]:
    """Return the existing arrays of these names."""
    opened = {name: arrays.get(group, name) for name in names}
    return {name: array for name, array in opened.items() if array is not None}


def require_same_labels(session: Session, field: Field, given: xr.DataArray, argument: str) -> None:
    """Raise ``InvalidInputError`` if an ``argument`` has other coordinates than the array.

    Its values are matched with cells by position: values in another order would belong to other cells.
    """
    for name in map(str, given.dims):
        if name not in given.coords or name not in field.dims:
            continue
        try:
            existing = coordinate(session, field.parent, name)
        except NodeNotFoundError:
            continue
        expected, actual = np.asarray(existing.values), np.asarray(given.coords[name].values)
        if expected.shape != actual.shape or expected.ndim != 1:
            continue  # its shape is refused elsewhere
        are_numbers = expected.dtype.kind in "iuf" and actual.dtype.kind in "iuf"
        if not (np.allclose(expected, actual, equal_nan=True) if are_numbers else (expected == actual).all()):
            raise InvalidInputError(
                f"{argument} must have the coordinate `{name}` of `{field.path}`, {_first_values(expected)}, "
                f"got {_first_values(actual)}. Use `{argument}.reindex_like(...)`, or drop the coordinate",
                ErrorKind.INVALID_ARGUMENT,
            )


def _first_values(values: NDArray[Any]) -> str:
    return ", ".join(map(str, values[:3])) + ", ..." * (len(values) > 3)


def coordinate(session: Session, group: str, name: str, *, decode_times: bool = True) -> xr.DataArray:
    """Return a coordinate with its values, decoded: times as datetime64 or, in other calendars, cftime."""
    array = open_array(session, f"{group}/{name}")
    attributes = {key: value for key, value in array.attrs.items() if key != "coordinates"}
    fill_value: Any = attributes.get("_FillValue")
    if isinstance(fill_value, str) and array.dtype.kind in "fiu":
        attributes["_FillValue"] = cf.fill_value(fill_value, np.dtype(array.dtype))
    dims = dimensions(array)
    values = np.asarray(array[...])
    dataset = xr.Dataset(coords={name: (dims, values, attributes)})
    return xr.decode_cf(dataset, decode_times=decode_times, decode_timedelta=False)[name]
