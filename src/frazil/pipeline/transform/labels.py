"""Positions along a dimension by its labels, as in xarray, and what xarray leaves to its users.

- Longitudes have the period 360: on an axis of longitudes (CF), -60 is the label 300.
- A number has the type of the labels before it is compared, so 0.1 is a label of float32.
- The nearest label is at most half a cell away: half of the distance between the label and its neighbour in
  the direction of the value. So a place or a time outside of the axis has no label.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import numpy as np
import xarray as xr

from frazil import cf
from frazil.cf_times import TimeUnits, value_text
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.transform.arrays import ArrayInfo, Values, coordinate_of, open_array
from frazil.remedies import argument
from frazil.repository.session.session import Session

#: Along one axis: a position, a range of them, or any positions.
type Positions = int | range | tuple[int, ...]

_CIRCLE: Final = 360.0
#: Degrees, or a part of a distance, that rounding may add.
_ROUNDING: Final = 1e-9


def positions_by_number(index: Any, array: ArrayInfo, dim: str) -> Positions:
    """Return the positions along a dimension that a number, numbers, a mask or a slice select."""
    length = array.shape[array.axis(dim) or 0]
    if isinstance(index, slice):
        try:
            return range(length)[index]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The slice along {dim!r} must have whole numbers, got {index!r}"
            ) from error
    numbers = np.asarray(index)
    if numbers.dtype == np.bool_ and numbers.shape == (length,):
        numbers = np.flatnonzero(numbers)
    if numbers.size == 0:
        return range(0)
    are_integers = numbers.dtype.kind in "iu" and numbers.ndim <= 1
    if not are_integers or not ((-length <= numbers) & (numbers < length)).all():
        raise InvalidInputError(
            f"Positions along {dim!r} must be within the {length} elements of `{array.path}`, got {index!r}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return simplified(numbers % length)


def positions_by_label(
    session: Session, array: ArrayInfo, dim: str, label: Any, method: str | None, tolerance: Any = None
) -> Positions:
    """Return the positions along a dimension whose labels a value, values or a slice select.

    Along a dimension without a coordinate, labels are positions. ``tolerance`` is the limit of the method
    ``"nearest"``; None is half a cell.
    """
    coordinate = coordinate_of(session, array, dim)
    if coordinate is None or coordinate.shape != (array.shape[array.axis(dim) or 0],):
        return positions_by_number(label, array, dim)
    raw = np.asarray(open_array(session, coordinate.path)[...])
    coding = cf.coding_of(coordinate.attributes, raw.dtype)
    labels = coding.decode_with_nan(raw)
    is_circle = labels.dtype.kind in "iuf" and (
        cf.geographic_kind(coordinate.name, coordinate.attributes) == "longitude"
    )
    wanted = label
    if isinstance(label, slice):
        method, limits = None, (label.start, label.stop)
        if is_circle and label.step is None and all(isinstance(each, int | float) for each in limits):
            is_falling = len(labels) > 1 and labels[0] > labels[-1] and limits[0] > limits[1]
            where = np.asarray(longitudes_between(labels, limits[::-1] if is_falling else limits)[0])
            return simplified(where if len(where) < len(labels) else np.arange(len(labels)))
    elif method == "nearest":
        return _nearest(coordinate.path, labels, label, coding, tolerance, is_circle=is_circle)
    elif method is not None and coding.times is not None and labels.dtype.kind == "O":
        # xarray compares dates of cftime with no texts
        texts = np.asarray(label)
        label = coding.times.parse(texts, dim)[()] if texts.dtype.kind in "UT" else label
    elif labels.dtype.kind == "f" and np.asarray(label).dtype.kind in "iuf":
        label = np.asarray(label, labels.dtype)[()]
    if is_circle and not isinstance(label, slice):
        label = _turned(labels, label)
    numbers = xr.DataArray(np.arange(len(raw)), dims=dim, coords={dim: labels})
    try:
        selected = numbers.sel({dim: label}, method=method)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{dim} must be labels of `{coordinate.path}`, got {wanted!r}: "
            f"{_around(labels, label, coding, is_circle=is_circle)}",
            ErrorKind.INVALID_CHUNK_INDEX,
        ) from error
    return simplified(selected.values)


def _nearest(
    path: str, labels: Values, label: Any, coding: cf.Coding, tolerance: Any, *, is_circle: bool
) -> Positions:
    """Return the positions of the labels that are nearest to values."""
    values, units = np.asarray(label), coding.times
    if labels.dtype.kind in "MO" and values.dtype.kind not in "MO":
        values = (units or TimeUnits("days since 1970-01-01", "standard")).parse(values.astype(str), path)
    if labels.dtype.kind == "m" and values.dtype.kind in "UT":
        values = TimeUnits("days", None).parse(values, path)
    kind = labels.dtype.kind
    if kind == "f" and values.dtype.kind in "iuf":
        values = values.astype(labels.dtype)
    try:
        keys, wanted = (np.atleast_1d(_keys(each, kind, coding, path)) for each in (labels, values))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the nearest label of `{path}` needs labels that are numbers or times, got {label!r} for labels "
            f"of {labels.dtype}",
            ErrorKind.INVALID_CHUNK_INDEX,
        ) from error
    if is_circle:
        keys = keys % _CIRCLE
    valid = np.flatnonzero(~np.isnan(keys))
    keys, at_first = np.unique(keys[valid], return_index=True)
    order = valid[at_first]
    if not len(keys):
        raise InvalidInputError(f"`{path}` must have labels, got none", ErrorKind.INVALID_CHUNK_INDEX)
    if is_circle:
        # The axis begins behind the widest gap of the circle, which may be anywhere
        gaps = np.diff(keys, prepend=keys[-1] - _CIRCLE)
        begin = int((gaps > gaps.max() - _ROUNDING).argmax())
        keys, order = np.append(keys[begin:], keys[:begin] + _CIRCLE), np.roll(order, -begin)
        wanted = keys[0] + (wanted - keys[0]) % _CIRCLE
    after = np.clip(np.searchsorted(keys, wanted), 0, len(keys))
    # with its neighbours at both ends, across the end of a circle
    ends = (keys[-1] - _CIRCLE, keys[0] + _CIRCLE) if is_circle else (-np.inf, np.inf)
    around = np.concatenate([[ends[0]], keys, [ends[1]]])
    below, above = wanted - around[after], around[after + 1] - wanted
    at = np.where(below < above, after - 1, after) % len(keys)
    distance = np.minimum(below, above)
    steps = np.diff(keys)
    sides = np.concatenate([steps[:1], steps, steps[-1:]]) if len(steps) else np.zeros(2)
    is_turned = (after == len(keys)) & (at == 0)  # across the end of a circle, near the first label
    half = np.minimum(sides[np.where(is_turned, 0, after)], below + above) / 2
    limit = half if tolerance is None else _span(tolerance, kind, coding, path)
    is_far = ~(distance <= limit * (1 + _ROUNDING) + (_rounding(labels) if is_circle else 0.0))
    if is_far.any():
        first = int(np.flatnonzero(is_far)[0])
        raise InvalidInputError(
            f"`{path}` must have a label near {value_text(values.reshape(-1)[first])}, within "
            f"{'half a cell' if tolerance is None else tolerance}, got the nearest label "
            f"{coding.text(labels[order[at[first]]])}: its labels are from {coding.text(labels[order[0]])} "
            f"to {coding.text(labels[order[-1]])}",
            ErrorKind.INVALID_CHUNK_INDEX,
        ).with_remedy(
            "{} allows a larger distance", argument(tolerance=...), shell="DIM~LABEL~DISTANCE allows it"
        )
    return simplified(order[at].reshape(values.shape))


def _keys(values: Values, kind: str, coding: cf.Coding, path: str) -> Values:
    """Return labels as float64, NaN if missing: times of numpy in seconds, others in their unit."""
    if kind in "mM":
        times = values.astype(f"{kind}8[us]")
        return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e6)
    if kind == "O" and coding.times is not None:
        missing = np.array([each is None for each in values.reshape(-1)], bool).reshape(values.shape)
        numbers = coding.times.encode(values, missing if missing.any() else None, path)
        return np.where(missing, np.nan, numbers.astype(np.float64))
    return values.astype(np.float64)


def _span(tolerance: Any, kind: str, coding: cf.Coding, path: str) -> float:
    """Return the limit of a distance in the unit of `_keys`."""
    span = np.asarray(tolerance)
    if kind not in "mMO":
        return float(span)
    if span.dtype.kind != "m":
        span = TimeUnits("days", None).parse(span.astype(str), path)
    unit = coding.step[1] if kind == "O" else np.timedelta64(1, "s")
    return float(span.astype("m8[us]") / unit)


def _turned(labels: Values, label: Any) -> Any:
    """Return longitudes as the labels count them, where a label has the same place."""
    wanted = np.asarray(label)
    if wanted.dtype.kind not in "iuf" or not len(labels):
        return label
    offset = (wanted.astype(np.float64)[..., None] - labels + _CIRCLE / 2) % _CIRCLE - _CIRCLE / 2
    distance = np.where(np.isnan(offset), np.inf, np.abs(offset))
    at = distance.argmin(axis=-1)
    is_label = np.take_along_axis(distance, at[..., None], axis=-1)[..., 0] <= _rounding(labels)
    return np.where(is_label, labels[at], wanted)[()]


def _rounding(longitudes: Values) -> float:
    """Return the degrees by which two numbers of one longitude may differ."""
    is_float = longitudes.dtype.kind == "f"
    return max(_ROUNDING, float(np.spacing(longitudes.dtype.type(_CIRCLE))) if is_float else 0.0)


def _around(labels: Values, label: Any, coding: cf.Coding, *, is_circle: bool) -> str:
    """Return words that name the labels around a label that a coordinate does not have."""
    if not len(labels):
        return "it has no labels"
    is_text = labels.dtype.kind not in "biuf"
    # the order of ISO texts is the order of their times
    keys = sorted(map(coding.text, labels)) if is_text else np.sort(labels).tolist()
    first = np.asarray(label)[()] if np.ndim(label) == 0 and not isinstance(label, slice) else None
    is_comparable = isinstance(first, str) if is_text else isinstance(first, int | float | np.number)
    if not is_comparable:
        return f"its labels are from {coding.text(labels[0])} to {coding.text(labels[-1])}"
    if is_circle:
        first = keys[0] + (first - keys[0]) % _CIRCLE  # type: ignore[operator]  # numbers
    at = bisect_left(keys, first)
    ends = keys[max(at - 1, 0) : at + 1] if not is_circle or at < len(keys) else [keys[-1], keys[0]]
    around = [coding.text(np.asarray(each)[()]) for each in ends]
    return f"the nearest {'label is' if len(around) == 1 else 'labels are'} {' and '.join(around)}"


def longitudes_between(values: Values, limits: tuple[float, float]) -> tuple[Positions, Values]:
    """Return the positions of the longitudes from one limit eastwards to another, in degrees, both included.

    Returns their longitudes too, counted as the limits are.
    """
    low, high = limits
    if high < low:
        high += _CIRCLE
    turned = low + (values - low) % _CIRCLE
    # rounding must not move the western border to the end
    is_border = np.isclose(turned, low + _CIRCLE, rtol=0, atol=_ROUNDING) & (high < low + _CIRCLE)
    turned = np.where(is_border, low, turned)
    order = np.argsort(turned, kind="stable")
    if len(values) > 1 and values[0] > values[-1]:
        order = order[::-1]
    order = order[turned[order] <= high + _ROUNDING]
    if np.array_equal(turned[order], values[order]):
        return simplified(order), values[order]
    return tuple(order.tolist()), turned[order]


def simplified(numbers: Values) -> Positions:
    """Return one number as int, consecutive numbers as a range, others as a tuple."""
    if numbers.ndim == 0:
        return int(numbers)
    if (np.diff(numbers) == 1).all():
        first = int(numbers[0]) if len(numbers) else 0
        return range(first, first + len(numbers))
    return tuple(numbers.tolist())
