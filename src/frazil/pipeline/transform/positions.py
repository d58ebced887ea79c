"""Positions along an axis: by number, by label, between two latitudes or longitudes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from frazil import cf
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.transform.array_info import ArrayInfo, Values, array_info, open_array
from frazil.pipeline.transform.cf_metadata import coordinate_of
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session

#: Along one axis: a position, a range of them, or any positions.
type Positions = int | range | tuple[int, ...]


def positions_by_number(given: Any, array: ArrayInfo, dim: str) -> Positions:
    """Return the positions along a dimension that a number, numbers, a mask or a slice select.

    Numbers below 0 count from the end; slices are those of Python. Raises ``InvalidInputError``
    (``invalid-chunk-index``) for positions that the array does not have.
    """
    length = array.shape[array.axis(dim) or 0]
    if isinstance(given, slice):
        try:
            return range(length)[given]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The slice along {dim!r} must have whole numbers, got {given!r}",
                ErrorKind.INVALID_ARGUMENT,
            ) from error
    numbers = np.asarray(given)
    if numbers.dtype == np.bool_ and numbers.shape == (length,):
        numbers = np.flatnonzero(numbers)
    if numbers.size == 0:
        return range(0)
    are_integers = numbers.dtype.kind in "iu" and numbers.ndim <= 1
    if not are_integers or not ((-length <= numbers) & (numbers < length)).all():
        raise InvalidInputError(
            f"Positions along {dim!r} must be within the {length} elements of `{array.path}`, got {given!r}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    return _simplified(numbers % length)


def positions_by_label(
    session: Session, array: ArrayInfo, dim: str, given: Any, method: str | None
) -> Positions:
    """Return the positions along a dimension whose labels a value, values or a slice select, as in xarray.

    Raises ``InvalidInputError``: ``invalid-array-metadata`` without a coordinate variable,
    ``invalid-chunk-index`` for a label that it does not have.
    """
    axis = array.axis(dim) or 0
    coordinate = coordinate_of(session, array, dim)
    if coordinate is None or coordinate.shape != (array.shape[axis],):
        raise InvalidInputError(
            f"`{array.path}` must have a coordinate variable for {dim!r} beside it to select by label, got "
            "none. Select by position with isel",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    raw = np.asarray(open_array(session, coordinate.path)[...])
    coding = cf.coding_of(coordinate.attributes, raw.dtype)
    labels = coding.decode_with_nan(raw)
    numbers = xr.DataArray(np.arange(len(raw)), dims=dim, coords={dim: labels})
    try:
        selected = numbers.sel({dim: given}, method=None if isinstance(given, slice) else method)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{dim} must be labels of `{coordinate.path}`, got {given!r}: {_nearest(labels, given, coding)}",
            ErrorKind.INVALID_CHUNK_INDEX,
        ) from error
    return _simplified(selected.values)


def cell(session: Session, path: str, labels: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the index of the cell of an array that labels name.

    Args:
        session: A session that reads the version.
        path: The path of the array.
        labels: A label for each dimension name, such as ``{"time": "2026-11-01", "lat": 10}``, as in ``sel``
            of xarray.

    Returns:
        The index along each dimension, for example for `Repository.history.history_of`.

    Raises:
        InvalidInputError: ``invalid-chunk-index`` if the labels do not name one cell.
            ``invalid-array-metadata`` if a dimension has no coordinate.
        NodeNotFoundError: ``node-not-found`` if there is no such array.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import cell
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array and its coordinate") as store:
        ...     array = zarr.create_array(store, name="t", shape=(3,), dtype="i4", dimension_names=["x"])
        ...     x = zarr.create_array(store, name="x", shape=(3,), dtype="i4", dimension_names=["x"])
        ...     x[:] = [10, 20, 30]
        >>> cell(repo.readonly_session("main"), "t", {"x": 20})
        (1,)
    """
    array = array_info(session, absolute(path))
    dims = [dim for dim in array.dims if dim is not None]
    if set(labels) != set(array.dims):
        raise InvalidInputError(
            f"labels must have a label for each dimension of `{array.path}`, {tuple(array.dims)}, got "
            f"{tuple(labels)}",
            ErrorKind.INVALID_CHUNK_INDEX,
        )
    index = []
    for dim in dims:
        at = positions_by_label(session, array, dim, labels[dim], None)
        if not isinstance(at, int) and len(at) != 1:
            raise InvalidInputError(
                f"labels must name one cell, got {labels[dim]!r} for {dim!r}, which selects another number "
                "of cells",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        index.append(at if isinstance(at, int) else at[0])
    return tuple(index)


def _nearest(labels: Values, given: Any, coding: cf.Coding) -> str:
    """Return words that name the labels around a label that a coordinate does not have."""
    if not len(labels):
        return "it has no labels"
    is_text = labels.dtype.kind not in "biuf"
    # the order of ISO texts is the order of their times
    keys = sorted(map(coding.text, labels)) if is_text else np.sort(labels).tolist()
    first = given if np.ndim(given) == 0 and not isinstance(given, slice) else None
    is_comparable = isinstance(first, str) if is_text else isinstance(first, int | float)
    if not is_comparable:
        return f"its labels are from {coding.text(labels[0])} to {coding.text(labels[-1])}"
    at = bisect_left(keys, first)
    around = [coding.text(np.asarray(each)[()]) for each in keys[max(at - 1, 0) : at + 1]]
    return f"the nearest {'label is' if len(around) == 1 else 'labels are'} {' and '.join(around)}"


def latitudes_between(values: Values, limits: tuple[float, float]) -> Positions:
    """Return the positions of the latitudes between two limits, in degrees, both included.

    >>> latitudes_between(np.array([30.0, 20.0, 10.0]), (5, 20))
    range(1, 3)
    """
    low, high = min(limits), max(limits)
    return _simplified(np.flatnonzero((values >= low) & (values <= high)))


def longitudes_between(values: Values, limits: tuple[float, float]) -> tuple[Positions, Values]:
    """Return the positions of the longitudes from one limit eastwards to another, in degrees, both included.

    Returns their longitudes too, counted as the limits are.

    >>> longitudes_between(np.array([0.0, 90.0, 180.0, 270.0]), (-90, 90))
    ((3, 0, 1), array([-90.,   0.,  90.]))
    """
    low, high = limits
    if high < low:
        high += 360
    turned = low + (values - low) % 360
    # rounding must not move the western border to the end
    turned = np.where(np.isclose(turned, low + 360, rtol=0, atol=1e-9) & (high < low + 360), low, turned)
    order = np.argsort(turned, kind="stable")
    if len(values) > 1 and values[0] > values[-1]:
        order = order[::-1]
    order = order[turned[order] <= high + 1e-9]
    if np.array_equal(turned[order], values[order]):
        return _simplified(order), values[order]
    return tuple(order.tolist()), turned[order]


def _simplified(numbers: Values) -> Positions:
    """Return one number as int, consecutive numbers as a range, others as a tuple."""
    if numbers.ndim == 0:
        return int(numbers)
    if len(numbers) == 0:
        return range(0)
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == len(numbers) - 1 and (np.diff(numbers) == 1).all():
        return range(first, last + 1)
    return tuple(numbers.tolist())
