"""Labels: which group each cell belongs to. Computed on the driver, from coordinates.

A *grouping* has a code for each position along some dimensions: the number of its group, or -1 for none.
Calendars (``noleap``, ``360_day``) are those of the time coordinate; months, seasons and the bins of a
resampling are computed by xarray and cftime.
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

#: What can be said for ``by``: "time.month", the name of a coordinate, labels, or a grouper of xarray.
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
        """For each group whether it has no cell, as a period without data or a bin without values has."""
        cells: NDArray[np.int64] = np.bincount(self.codes[self.codes >= 0], minlength=len(self))
        return np.asarray(cells == 0)


def labels_of(session: Session, group: str, by: By) -> xr.DataArray:
    """Labels as an array with dimensions and a name."""
    if isinstance(by, xr.DataArray):
        if by.name is None:
            raise InvalidInputError(
                "by: expected labels with a name (`labels.name = ...`), found none", ErrorKind.NOT_ALLOWED
            )
        return by
    name, _, component = str(by).partition(".")
    found = coordinate(session, group, name)
    if not component:
        return found
    try:
        part: xr.DataArray = getattr(found.dt, component).rename(component)
        return part
    except (AttributeError, TypeError) as error:
        raise InvalidInputError(
            f"by: expected a part of a time coordinate such as 'time.month', found {by!r} where `{name}` has "
            f"the type {found.dtype}",
            ErrorKind.NOT_ALLOWED,
        ) from error


def grouping(session: Session, group: str, by: By, *, only: NDArray[np.bool_] | None = None) -> Grouping:
    """The groups of equal labels, sorted. Cells where a label is NaN, or ``only`` is False, have none."""
    if isinstance(by, Mapping):
        return _with_grouper(session, group, by)
    labels = labels_of(session, group, by)
    values = np.asarray(labels.values)
    there = np.ones(values.shape, np.bool_) if values.dtype.kind not in "fmM" else ~np.isnan(values)
    if only is not None:
        there &= only
    codes = np.full(values.shape, -1, np.int64)
    distinct, codes[there] = np.unique(values[there], return_inverse=True)
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
    """The bins of a frequency, as xarray's ``resample`` has them, empty ones included."""
    more = {} if origin is None else {"origin": origin}
    made = _with_grouper(session, group, {dim: TimeResampler(freq, closed=closed, label=label, **more)})
    if _AT_THE_END.fullmatch(freq.lstrip("0123456789")):
        return made
    if closed == label == "right":
        return replace(made, bounds=_bounds(dim, made, freq, (-1, 0)))
    if {closed, label} <= {None, "left"}:
        return replace(made, bounds=_bounds(dim, made, freq, (0, 1)))
    return made


#: Frequencies whose bins are named by the day that they end with: midnight of that day is no border.
_AT_THE_END: Final = re.compile(r"(?:.*E|W)(?:-[A-Z]{3})?")


def _bounds(dim: str, made: Grouping, freq: str, ends: tuple[int, int]) -> NDArray[Any] | None:
    """Where the bins of a resampling start and end, encoded like their labels; None where that cannot be."""
    labels = xr.DataArray(made.labels, dims=(dim,), name=dim, attrs=dict(made.attributes))
    index = xr.decode_cf(xr.Dataset(coords={dim: labels}))[dim].to_index()
    edges = [index.shift(by, freq) if by else index for by in ends]
    units = {name: made.attributes[name] for name in ("units", "calendar") if name in made.attributes}
    encoded = [_as_numbers(xr.Variable((dim,), np.asarray(edge), {}, units)) for edge in edges]
    if any(each.attrs.get("units") != made.attributes.get("units") for each in encoded):
        return None
    return np.stack([np.asarray(each.values) for each in encoded], axis=1)


def _with_grouper(session: Session, group: str, by: Mapping[str, Grouper]) -> Grouping:
    if len(by) != 1:
        raise InvalidInputError(f"by: expected one grouper, found {len(by)}", ErrorKind.NOT_ALLOWED)
    [(name, grouper)] = by.items()
    labels = coordinate(session, group, name)
    try:
        made = grouper.factorize(labels)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInputError(
            f"expected a coordinate `{name}` in order that {type(grouper).__name__} can group, found "
            f"the type {labels.dtype} with {labels.size} values: {error}",
            ErrorKind.NOT_ALLOWED,
        ) from error
    index = made.full_index
    coord = made.unique_coord
    attributes = dict(labels.attrs)
    values: NDArray[Any]
    if index.dtype.kind == "M" or type(index).__name__ == "CFTimeIndex":
        values, attributes = _encoded(np.asarray(index), labels)
        new_name = name
    else:
        values, new_name = np.asarray(index), str(getattr(coord, "name", None) or made.codes.name or name)
        attributes = {}
        if values.dtype == object:
            values = np.array(list(map(str, values)))  # intervals
    codes = np.asarray(made.codes.values, np.int64)
    return Grouping(tuple(map(str, labels.dims)), codes, new_name, values, attributes)


def _encoded(values: NDArray[Any], like: xr.DataArray) -> tuple[NDArray[Any], dict[str, Any]]:
    """Times as numbers, in the units and calendar of the coordinate that they come from."""
    attributes = {name: value for name, value in like.attrs.items() if name not in ("bounds", "climatology")}
    is_time = values.dtype.kind == "M" or (
        values.dtype == object and len(values) and hasattr(values[0], "calendar")
    )
    if not is_time:
        return values, attributes
    told = {name: like.encoding[name] for name in ("units", "calendar") if name in like.encoding}
    variable = xr.Variable(("t",), values, attributes, told)
    encoded = _as_numbers(variable)
    return np.asarray(encoded.values), {
        key: value for key, value in encoded.attrs.items() if key != "_FillValue"
    }


def _as_numbers(times: xr.Variable) -> xr.Variable:
    """Times in their units; parts of a unit, half a day, are floats."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Times can't be serialized faithfully", UserWarning)
        return xr.conventions.encode_cf_variable(times)


def digest_of(*arrays: NDArray[Any] | Sequence[Any] | str) -> str:
    """A hash of arrays, for the record of a job.

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
    """The coordinates of the source that give the labels; none where the labels are given."""
    if isinstance(by, xr.DataArray):
        return ()
    return tuple(map(str, by)) if isinstance(by, Mapping) else (str(by).partition(".")[0],)


def said(by: By) -> Any:
    """``by`` in words, for the record of a job."""
    if isinstance(by, str):
        return by
    if isinstance(by, xr.DataArray):
        return {"labels": str(by.name), "dims": list(by.dims), "digest": digest_of(by.values)}
    return {name: repr(grouper) for name, grouper in by.items()}
