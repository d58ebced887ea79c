"""Where and when a dataset is, by the CF conventions and those of GeoZarr, and which boxes overlap.

A box is (west, south, east, north) in degrees, with longitudes from -180 to 180. Its west is larger than its
east if it crosses the antimeridian, as in GeoJSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.cf import geographic_kind
from frazil.cf_times import Mask
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.lazy_names import ModuleOnDemand

if TYPE_CHECKING:
    from rasterio import warp  # type: ignore[import-untyped]  # it ships no types
else:
    warp = ModuleOnDemand("rasterio.warp")

type Box = tuple[float, float, float, float]

#: The columns of a box, and of an interval of time.
BOX: Final = ("west", "south", "east", "north")
TIME: Final = ("time", "time_end")

#: The code at the end of a coordinate system in WKT.
_CODE: Final = re.compile(r'(?:AUTHORITY|ID)\["(\w+)",\s*"?(\w+)"?\]\s*\]\s*$')
_CRS: Final = ("proj:code", "crs_wkt", "spatial_ref", "proj:wkt2")
_AXES: Final = {"projection_x_coordinate": "x", "projection_y_coordinate": "y"}
#: Calendars whose dates are all dates of numpy too.
_CALENDARS: Final = frozenset({"standard", "gregorian", "proleptic_gregorian", "noleap", "365_day"})
#: Parts of a circle, which show where longitudes in no order have their largest gap.
_PARTS: Final = 3600


def crs_of(dataset: xr.Dataset) -> str:
    """Return the coordinate system: its code, such as ``EPSG:32633``, else its WKT, else an empty text."""
    for attributes in (dataset.attrs, *(each.attrs for each in dataset.variables.values())):
        text = next((str(attributes[name]) for name in _CRS if attributes.get(name)), "")
        if text:
            code = _CODE.search(text)
            return f"{code[1]}:{code[2]}" if code else text
    return ""


def box_of(dataset: xr.Dataset, crs: str) -> Box | None:
    """Return the box of a dataset; None without coordinates. A regular grid is in it with whole cells."""
    found: dict[str, str] = {}
    for name, variable in dataset.variables.items():
        standard = _AXES.get(variable.attrs.get("standard_name", ""))
        kind = geographic_kind(str(name), variable.attrs) or standard or str(name).lower()
        if variable.size and variable.dtype.kind in "iuf":
            found.setdefault(kind, str(name))
    if {"latitude", "longitude"} <= found.keys():
        south, north = _edges(dataset, found["latitude"])
        west, east = _edges(dataset, found["longitude"], is_circle=True)
    elif {"x", "y"} <= found.keys() and crs:
        (west, east), (south, north) = (_edges(dataset, found[axis]) for axis in "xy")
        with needs("the box of a dataset with a projection"):
            west, south, east, north = warp.transform_bounds(crs, "EPSG:4326", west, south, east, north)
    else:
        return None
    return normal_box((west, max(south, -90.0), east, min(north, 90.0)))


def _edges(dataset: xr.Dataset, name: str, *, is_circle: bool = False) -> tuple[float, float]:
    """Return the extremes of a coordinate: of its bounds, or of the cells of a dimension."""
    variable = dataset.variables[name]
    bounds = dataset.variables.get(variable.attrs.get("bounds", variable.encoding.get("bounds", "")))
    values = np.asarray((variable if bounds is None else bounds).values, np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        raise misfit(f"the coordinate `{name}` must have a finite value, got none. Pass bbox")
    steps = np.diff(values) if variable.dims == (name,) and bounds is None else values[:0]
    if len(steps) and ((steps > 0).all() or (steps < 0).all()):
        ends = values[0] - steps[0] / 2, values[-1] + steps[-1] / 2
        return float(min(ends)), float(max(ends))
    if is_circle and np.ptp(values) > 180:  # longitudes in no order: the circle without their largest gap
        parts = np.unique((values % 360 * (_PARTS / 360)).astype(np.int64))
        gaps = np.diff(parts, append=parts[0] + _PARTS)
        values = (
            values - (after := parts[(int(gaps.argmax()) + 1) % len(parts)] * 360 / _PARTS)
        ) % 360 + after
    return float(values.min()), float(values.max())


def normal_box(box: Sequence[float]) -> Box:
    """Return a box with longitudes from -180 to 180, of one with any longitudes, such as 0 to 360."""
    sides = [float(each) for each in box]
    if len(sides) == 6:  # of GeoJSON, with heights
        del sides[2::3]
    if len(sides) != 4 or not np.isfinite(sides).all() or not -90 <= sides[1] <= sides[3] <= 90:
        raise InvalidInputError(
            "bbox must be (west, south, east, north) in degrees, with -90 <= south <= north <= 90, got "
            f"{tuple(box)}"
        )
    west, south, east, north = sides
    width = east - west if east >= west else (east - west) % 360
    if width >= 360:
        return -180.0, south, 180.0, north
    start = (west + 180) % 360 - 180
    end = start + width
    return start, south, end - 360 if end > 180 else end, north


def overlaps(columns: Sequence[NDArray[Any]], box: Box) -> Mask:
    """Return which boxes of columns (west, south, east, north) have a point in common with a box."""
    west, south, east, north = columns
    widths = np.where(east >= west, east - west, east - west + 360), (box[2] - box[0]) % 360 or 360.0
    if box[2] == box[0]:
        widths = widths[0], 0.0
    with np.errstate(invalid="ignore"):  # NaN, where a member has no box
        is_near = ((box[0] - west) % 360 <= widths[0]) | ((west - box[0]) % 360 <= widths[1])
        return np.asarray(is_near & (south <= box[3]) & (north >= box[1]))


def time_of(dataset: xr.Dataset) -> tuple[Any, Any] | None:
    """Return the first and the last time of a dataset; None without times."""
    for name, variable in dataset.variables.items():
        is_time = (
            name == "time"
            or variable.attrs.get("standard_name") == "time"
            or variable.attrs.get("axis") == "T"
        )
        if not is_time or not variable.size or variable.dtype.kind not in "MO":
            continue
        bounds = dataset.variables.get(variable.attrs.get("bounds", variable.encoding.get("bounds", "")))
        values = (variable if bounds is None or bounds.dtype.kind not in "MO" else bounds).values.reshape(-1)
        if values.dtype.kind == "O":
            calendar = getattr(values[0], "calendar", None)
            if calendar not in _CALENDARS:
                raise misfit(
                    f"the times `{name}` must have a calendar whose dates are all in the standard calendar, "
                    f"got {calendar!r}. Pass time=(first, last)"
                )
            values = np.array([each.isoformat() for each in (min(values), max(values))], "M8[us]")
        values = values[~np.isnat(values)].astype("M8[us]")
        return (values.min(), values.max()) if len(values) else None
    return None
