"""Arrays of numbers as reductions see them: dimensions, values, coordinates, and groups of cells.

A *grouping* has a code for each position along some dimensions: the number of its group, or -1.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray
from xarray.groupers import Grouper, TimeResampler

from frazil import cf
from frazil.answers.plan import RegionPlan
from frazil.arguments import misfit
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at

_VALID: Final = frozenset({"valid_range", "valid_min", "valid_max"})
#: Attributes that do not describe decoded values, and the arrays that a result does not have.
_ENCODING: Final = cf.PACKED | _VALID | {"ancillary_variables"}


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

    def decoded_attributes(self) -> dict[str, Any]:
        """Return the attributes of the decoded values."""
        if not self.decode:
            return dict(self.attributes)
        pairs = self.attributes.items()
        return {key: each for key, each in pairs if key not in _ENCODING and (key, each) != cf.BOOLEAN}

    def decoded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the decoded values of stored values, by the CF conventions."""
        if self.decode:
            values = cf.decoded(values, self.attributes)
        if self.valid_range and (limits := self.valid_limits):
            values = values if values.dtype.kind == "f" else values.astype(np.float64)
            values = np.where(
                (values >= limits[0]) & (values <= limits[1]), values, values.dtype.type(np.nan)
            )
        return values

    @cached_property
    def valid_limits(self) -> tuple[float, float] | None:
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
    """Return an array of a session."""
    try:
        return array_at(session, path, mode)
    except FileNotFoundError as error:
        raise NodeNotFoundError(f"`/{path.strip('/')}` must be an array, got no node") from error
    except zarr.errors.NodeTypeValidationError as error:
        raise InvalidInputError(
            f"`/{path.strip('/')}` must be an array, got a group", ErrorKind.NOT_AN_ARRAY
        ) from error


def open_field(session: Session, path: str, *, decode: bool = True, valid_range: bool = False) -> Field:
    """Return an array of numbers. Raise ``InvalidInputError`` for other types and for irregular chunks."""
    array = open_array(session, path)
    if array.dtype.kind not in "biuf":
        raise misfit(f"`/{path.strip('/')}` must be an array of numbers, got the type {array.dtype}")
    return Field(
        "/" + path.strip("/"),
        dimensions(array),
        array.shape,
        regular_grid(array),
        np.dtype(array.dtype),
        dict(array.attrs),
        decode,
        valid_range,
    )


def region_plan(
    session: Session, field: Field, region: Sequence[tuple[int, int]], *, skipna: bool = True
) -> RegionPlan | None:
    """Return which chunks of a region have statistics of their values, or None if none can have them."""
    coding = cf.coding_of(field.attributes if field.decode else {}, field.raw, times=False)
    limits = field.valid_limits if field.valid_range else None
    return RegionPlan.of(session, field.path, region, coding, field.dtype, limits=limits, skipna=skipna)


def dimensions(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions; ``dim_0`` and so on for dimensions without a name."""
    names = getattr(array.metadata, "dimension_names", None) or [None] * array.ndim
    return tuple(name or f"dim_{axis}" for axis, name in enumerate(names))


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
    """Return the coordinates of an array on the dimensions ``dims``, their bounds, and the grid mapping."""
    names = {*field.dims, *str(field.attributes.get("coordinates", "")).split()}
    names |= set(str(field.attributes.get("grid_mapping", "")).replace(":", " ").split())
    coordinates: dict[str, zarr.Array[Any]] = {}
    bounds: dict[str, zarr.Array[Any]] = {}
    for into, members in ((coordinates, names), (bounds, None)):
        for name in members or {str(each.attrs.get("bounds", "")) for each in coordinates.values()}:
            array = arrays.get(field.parent, name)
            if array is not None:
                into[name] = array
    inside = {name: each for name, each in coordinates.items() if set(dimensions(each)) <= set(dims)}
    # Bounds have one dimension more, for the corners.
    inside |= {
        name: each for name, each in bounds.items() if each.ndim and set(dimensions(each)[:-1]) <= set(dims)
    }
    inside.pop(field.name, None)
    return {name: inside[name] for name in sorted(inside)}


def require_same_labels(session: Session, field: Field, data: xr.DataArray, argument: str) -> None:
    """Raise ``InvalidInputError`` if an ``argument`` has other coordinates than the array."""
    # Values are matched with cells by position: values in another order would belong to other cells.
    for name in map(str, data.dims):
        if name not in data.coords or name not in field.dims:
            continue
        try:
            existing = coordinate(session, field.parent, name)
        except NodeNotFoundError:
            continue
        expected, actual = np.asarray(existing.values), np.asarray(data.coords[name].values)
        if expected.shape != actual.shape or expected.ndim != 1:
            continue  # its shape is refused elsewhere
        are_numbers = expected.dtype.kind in "iuf" and actual.dtype.kind in "iuf"
        if not (np.allclose(expected, actual, equal_nan=True) if are_numbers else (expected == actual).all()):
            texts = [", ".join(map(str, each[:3])) + ", ..." * (len(each) > 3) for each in (expected, actual)]
            raise InvalidInputError(
                f"{argument} must have the coordinate `{name}` of `{field.path}`, {texts[0]}, "
                f"got {texts[1]}. Use `{argument}.reindex_like(...)`, or drop the coordinate"
            )


def coordinate(session: Session, group: str, name: str) -> xr.DataArray:
    """Return a coordinate with its values, decoded: times as datetime64 or, in other calendars, cftime."""
    array = open_array(session, f"{group}/{name}")
    attributes = {key: value for key, value in array.attrs.items() if key != "coordinates"}
    fill_value: Any = attributes.get("_FillValue")
    if isinstance(fill_value, str) and array.dtype.kind in "fiu":
        attributes["_FillValue"] = cf.fill_value(fill_value, np.dtype(array.dtype))
    dims = dimensions(array)
    values = np.asarray(array[...])
    dataset = xr.Dataset(coords={name: (dims, values, attributes)})
    return xr.decode_cf(dataset, decode_timedelta=False)[name]


#: The argument ``by``: "time.month", the name of a coordinate, labels, or a grouper of xarray.
type By = str | xr.DataArray | Mapping[str, Grouper]


@dataclass(frozen=True, slots=True)
class Grouping:
    """``codes`` over ``dims``, int64; the group dimension ``name`` with its coordinate, encoded."""

    dims: tuple[str, ...]
    codes: NDArray[np.int64]
    name: str
    labels: NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bounds: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def empty(self) -> NDArray[np.bool_]:
        """Return for each group whether it has no cell: a period without data, a bin without values."""
        cells: NDArray[np.int64] = np.bincount(self.codes[self.codes >= 0], minlength=len(self))
        return np.asarray(cells == 0)


def labels_of(session: Session, group: str, by: By) -> xr.DataArray:
    """Return the labels of an argument ``by``, as an array with dimensions and a name."""
    if isinstance(by, xr.DataArray):
        if by.name is None:
            raise InvalidInputError(
                "by must be labels with a name, got labels without a name. Set `labels.name = ...`"
            )
        return by
    name, _, component = str(by).partition(".")
    labels = coordinate(session, group, name)
    if not component:
        return labels
    try:
        part: xr.DataArray = getattr(labels.dt, component).rename(component)
        return part
    except (AttributeError, TypeError) as error:
        raise InvalidInputError(
            f"by must be a part of a time coordinate, such as 'time.month', got {by!r}, and `{name}` has the "
            f"type {labels.dtype}"
        ) from error


def grouping(session: Session, group: str, by: By, *, only: NDArray[np.bool_] | None = None) -> Grouping:
    """Return the groups of equal labels, sorted."""
    if isinstance(by, Mapping):
        return _grouping_by_grouper(session, group, by)
    labels = labels_of(session, group, by)
    values = np.asarray(labels.values)
    valid = np.ones(values.shape, np.bool_) if values.dtype.kind not in "fmM" else ~np.isnan(values)
    if only is not None:
        valid &= only
    codes = np.full(values.shape, -1, np.int64)
    distinct, codes[valid] = np.unique(values[valid], return_inverse=True)
    encoded, attributes = _encoded(distinct, labels)
    return Grouping(tuple(map(str, labels.dims)), codes, str(labels.name), encoded, attributes)


def resampling(
    session: Session, group: str, dim: str, freq: str, *, closed: Any = None, label: Any = None
) -> Grouping:
    """Return the bins of a frequency as in xarray's ``resample``, empty bins included."""
    bins = _grouping_by_grouper(session, group, {dim: TimeResampler(freq, closed=closed, label=label)})
    if _LABELLED_BY_LAST_DAY.fullmatch(freq.lstrip("0123456789")):
        return bins
    if closed == label == "right":
        return replace(bins, bounds=_bounds(dim, bins, freq, (-1, 0)))
    if {closed, label} <= {None, "left"}:
        return replace(bins, bounds=_bounds(dim, bins, freq, (0, 1)))
    return bins


#: Frequencies whose bins are labelled with their last day: midnight of that day is not a border.
_LABELLED_BY_LAST_DAY: Final = re.compile(r"(?:.*E|W)(?:-[A-Z]{3})?")


def _bounds(dim: str, bins: Grouping, freq: str, ends: tuple[int, int]) -> NDArray[Any] | None:
    """Return start and end of the bins of a resampling, encoded as their labels; None if impossible."""
    labels = xr.DataArray(bins.labels, dims=(dim,), name=dim, attrs=dict(bins.attributes))
    index = xr.decode_cf(xr.Dataset(coords={dim: labels}))[dim].to_index()
    edges = [index.shift(by, freq) if by else index for by in ends]
    units = {name: bins.attributes[name] for name in ("units", "calendar") if name in bins.attributes}
    encoded = [_as_numbers(xr.Variable((dim,), np.asarray(edge), {}, units)) for edge in edges]
    if any(each.attrs.get("units") != bins.attributes.get("units") for each in encoded):
        return None
    return np.stack([np.asarray(each.values) for each in encoded], axis=1)


def _grouping_by_grouper(session: Session, group: str, by: Mapping[str, Grouper]) -> Grouping:
    if len(by) != 1:
        raise InvalidInputError(f"by must have one grouper, got {len(by)}")
    [(name, grouper)] = by.items()
    labels = coordinate(session, group, name)
    try:
        factorized = grouper.factorize(labels)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInputError(
            f"{type(grouper).__name__} cannot group the coordinate `{name}`, which has the type "
            f"{labels.dtype} and {labels.size} values: {error}"
        ) from error
    index = factorized.full_index
    coord = factorized.unique_coord
    attributes = dict(labels.attrs)
    values: NDArray[Any]
    if index.dtype.kind == "M" or type(index).__name__ == "CFTimeIndex":
        values, attributes = _encoded(np.asarray(index), labels)
        new_name = name
    else:
        values, new_name = (
            np.asarray(index),
            str(getattr(coord, "name", None) or factorized.codes.name or name),
        )
        attributes = {}
        if values.dtype == object:
            values = np.array(list(map(str, values)))  # intervals
    codes = np.asarray(factorized.codes.values, np.int64)
    return Grouping(tuple(map(str, labels.dims)), codes, new_name, values, attributes)


def _encoded(values: NDArray[Any], like: xr.DataArray) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return times as numbers, in the units and calendar of the coordinate that they come from."""
    attributes = {name: value for name, value in like.attrs.items() if name not in ("bounds", "climatology")}
    is_time = values.dtype.kind == "M" or (
        values.dtype == object and len(values) and hasattr(values[0], "calendar")
    )
    if not is_time:
        return values, attributes
    encoding = {name: like.encoding[name] for name in ("units", "calendar") if name in like.encoding}
    variable = xr.Variable(("t",), values, attributes, encoding)
    encoded = _as_numbers(variable)
    return np.asarray(encoded.values), {
        key: value for key, value in encoded.attrs.items() if key != "_FillValue"
    }


def _as_numbers(times: xr.Variable) -> xr.Variable:
    """Return times in their units; parts of a unit, such as half a day, are floats."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Times can't be serialized faithfully", UserWarning)
        return xr.conventions.encode_cf_variable(times)


def digest_of(*arrays: NDArray[Any] | Sequence[Any] | str) -> str:
    """Return a hash of arrays, for the record of a job."""
    hashed = hashlib.sha256()
    for each in arrays:
        values = np.asarray(each)
        if values.dtype == object:
            values = np.array(list(map(str, values.ravel())))
        hashed.update(f"{values.dtype}{values.shape}".encode() + np.ascontiguousarray(values).tobytes())
    return hashed.hexdigest()[:16]


def label_names(by: By) -> tuple[str, ...]:
    """Return the coordinates of the source that have the labels; none where the argument has them."""
    if isinstance(by, xr.DataArray):
        return ()
    return tuple(map(str, by)) if isinstance(by, Mapping) else (str(by).partition(".")[0],)


def recorded_argument(value: Any) -> Any:
    """Return labels, or another argument, for the parameters of a job, as JSON."""
    if isinstance(value, xr.DataArray):
        return {"labels": str(value.name), "dims": list(value.dims), "digest": digest_of(value.values)}
    if isinstance(value, Mapping):
        return {name: repr(grouper) for name, grouper in value.items()}
    return list(value) if isinstance(value, tuple) else value
