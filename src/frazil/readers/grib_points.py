"""The order of the points of GRIB messages: the place of each value, as eccodes gives it.

Four keys of a message, its scanning mode, say in which order it has its points. cfgrib ignores three of them:
it arranges the values of all messages in rows. The iterator of eccodes gives each value with its latitude and
longitude. So the order of each grid is compared with that iterator, whatever the mode of the message is. The
iterator ignores that rows of regular, rotated and Gaussian grids alternate their direction. Fields of such
files are smooth only if every second row is reversed.

The values of a field do not identify its points, because many points have the same value. So the iterator
gets a copy of the message whose values are the numbers of the points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import eccodes  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from cfgrib.dataset import get_values_in_order  # type: ignore[import-untyped]  # the same
from numpy.typing import NDArray

#: The keys of the scanning mode.
SCANNING: Final = ("iScansNegatively", "jScansPositively", "jPointsAreConsecutive", "alternativeRowScanning")
#: The packing of the copy with numbers of points: 32 bits for each.
_NUMBERS: Final = {"packingType": "grid_simple", "bitmapPresent": 0, "bitsPerValue": 32}
#: The resolution in which latitudes and longitudes are compared, in parts of a degree.
_DEGREE: Final = 1_000_000


def scanning(message: Any) -> str:
    """Return the scanning mode of a message as text."""
    return ", ".join(f"{key}={message.get(key, 0)}" for key in SCANNING)


def point_order(
    message: Any, coordinates: Mapping[str, Any], shape: tuple[int, ...]
) -> NDArray[np.int64] | str | None:
    """Return where the values of the points of a grid are in the array of cfgrib.

    ``coordinates`` and ``shape`` are those that cfgrib gives to the message. The result has the place in the
    flat array for each point; None if values and points have the same order; a text if the order is unknown.
    """
    names = ("latitude", "longitude")
    places = [coordinates[name] for name in names if name in coordinates]
    if len(places) < len(names):
        return None  # no place is stated
    count = math.prod(shape)
    try:
        points = _numbered_points(message, count)
    except eccodes.CodesInternalError as error:
        return f"eccodes does not give the places of its points: {error}"
    numbers = np.rint(points[:, 2]).astype(np.int64)
    in_order = np.arange(count)
    alternates = message.get("alternativeRowScanning", 0)
    if alternates and np.array_equal(numbers, in_order):
        # The iterator ignores this key for some grids.
        across = message.get("Ny" if message.get("jPointsAreConsecutive", 0) else "Nx", 0)
        if not across or count % across:
            return "alternativeRowScanning=1: the grid has rows of several lengths"
        rows = numbers.reshape(-1, across)
        rows[1::2] = rows[1::2, ::-1]
    if all(each.dimensions == (name,) for each, name in zip(places, names, strict=True)):
        row, column = (_positions(each.data, points[:, i]) for i, each in enumerate(places))
        cells = row * shape[1] + column
    else:
        same = all(np.array_equal(np.ravel(each.data), points[:, i]) for i, each in enumerate(places))
        cells = in_order if same else np.zeros(count, np.int64)
    if not np.array_equal(np.bincount(cells, minlength=count), np.ones(count)):
        return f"eccodes and cfgrib give different places to its points ({scanning(message)})"
    arranged = get_values_in_order({"values": in_order, "alternativeRowScanning": alternates}, shape)
    order: NDArray[np.int64] = np.argsort(np.ravel(arranged))[numbers[np.argsort(cells)]]
    return None if np.array_equal(order, in_order) else order


def _numbered_points(message: Any, count: int) -> NDArray[np.float64]:
    """Return (latitude, longitude, number) of all points in the order of eccodes' iterator."""
    handle = eccodes.codes_clone(getattr(message, "context", message).codes_id, headers_only=True)
    try:
        for key, value in _NUMBERS.items():
            eccodes.codes_set(handle, key, value)
        eccodes.codes_set_values(handle, np.arange(float(count)))
        values: NDArray[np.float64] = eccodes.codes_get_array(handle, "latLonValues", float)
    finally:
        eccodes.codes_release(handle)
    return values.reshape(-1, 3)


def _positions(coordinate: Any, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the position of each value in a coordinate; zeros if a value is not in it."""
    own, these = (np.rint(np.asarray(each) * _DEGREE).astype(np.int64) for each in (coordinate, values))
    for circle in (1 << 62, 360 * _DEGREE):  # eccodes may give 358 degrees for -2 degrees
        order = np.argsort(own % circle)
        at = np.searchsorted(own % circle, these % circle, sorter=order)
        positions = order[np.minimum(at, len(order) - 1)]
        if np.array_equal(own[positions] % circle, these % circle):
            return positions
    return np.zeros(len(values), np.int64)
