"""Groupings: the group of each cell. The driver computes them from coordinates.

A *grouping* has a code for each position along some dimensions: the number of its group, or -1 for none.
Calendars (``noleap``, ``360_day``) are those of the time coordinate. xarray and cftime compute months,
seasons and the bins of a resampling.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.groupers import Grouper, TimeResampler

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.reductions.fields import coordinate
from frazil.repository.session.session import Session

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
                "by must be labels with a name, got labels without a name. Set `labels.name = ...`",
                ErrorKind.INVALID_ARGUMENT,
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
            f"type {labels.dtype}",
            ErrorKind.INVALID_ARGUMENT,
        ) from error


def grouping(session: Session, group: str, by: By, *, only: NDArray[np.bool_] | None = None) -> Grouping:
    """Return the groups of equal labels, sorted.

    Cells with a NaN label, or where ``only`` is False, are in no group.
    """
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
    session: Session,
    group: str,
    dim: str,
    freq: str,
    *,
    closed: Any = None,
    label: Any = None,
    origin: Any = None,
) -> Grouping:
    """Return the bins of a frequency as in xarray's ``resample``, empty bins included."""
    keywords = {} if origin is None else {"origin": origin}
    grouper = TimeResampler(freq, closed=closed, label=label, **keywords)
    bins = _grouping_by_grouper(session, group, {dim: grouper})
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
        raise InvalidInputError(f"by must have one grouper, got {len(by)}", ErrorKind.INVALID_ARGUMENT)
    [(name, grouper)] = by.items()
    labels = coordinate(session, group, name)
    try:
        factorized = grouper.factorize(labels)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInputError(
            f"{type(grouper).__name__} cannot group the coordinate `{name}`, which has the type "
            f"{labels.dtype} and {labels.size} values: {error}",
            ErrorKind.INVALID_ARGUMENT,
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
    """Return a hash of arrays, for the record of a job.

    >>> digest_of(np.arange(3), "x") == digest_of(np.arange(3), "x")
    True
    """
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


def recorded_labels(by: By) -> Any:
    """Return the argument ``by`` for the parameters of a job, as JSON."""
    if isinstance(by, str):
        return by
    if isinstance(by, xr.DataArray):
        return {"labels": str(by.name), "dims": list(by.dims), "digest": digest_of(by.values)}
    return {name: repr(grouper) for name, grouper in by.items()}
