"""Boxes, times and coordinate systems of datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import InvalidInputError
from frazil.members.extent import box_of, crs_of, normal_box, overlaps, time_of

NORTH, EAST = {"units": "degrees_north"}, {"units": "degrees_east"}


def grid(lat: Any, lon: Any) -> xr.Dataset:
    return xr.Dataset(coords={"y": ("y", lat, NORTH), "x": ("x", lon, EAST)})


@pytest.mark.parametrize(
    ("dataset", "box"),
    [
        (grid([10.0, 20.0], [350.0, 360.0, 370.0]), (-15, 5, 15, 25)),
        (grid([20.0, 10.0], [170.0, 180.0, 190.0]), (165, 5, -165, 25)),
        (grid([-90.0, 0.0, 90.0], np.arange(0.0, 360.0, 10)), (-180, -90, 180, 90)),
        (grid([80.0, 85.0, 90.0], np.arange(-180.0, 180.0, 5)), (-180, 77.5, 180, 90)),
        (grid([5.0], [7.0]), (7, 5, 7, 5)),
        (
            xr.Dataset(coords={"lat": ("obs", [1.0, np.nan, 3]), "lon": ("obs", [179.0, np.nan, -179])}),
            (179, 1, -179, 3),
        ),
        (xr.Dataset(coords={"lat": 4.0, "lon": 200.0}), (-160, 4, -160, 4)),
        (
            xr.Dataset(
                {"lon_bnds": (("lon", "b"), [[0.0, 30.0]]), "lat_bnds": (("lat", "b"), [[-5.0, 5.0]])},
                {
                    "lon": ("lon", [15.0], {"bounds": "lon_bnds"}),
                    "lat": ("lat", [0.0], {"bounds": "lat_bnds"}),
                },
            ),
            (0, -5, 30, 5),
        ),
    ],
)
def test_boxes_of_coordinates(dataset: xr.Dataset, box: tuple[float, ...]) -> None:
    found = box_of(dataset, "")
    assert found is not None
    assert found == pytest.approx(box)


def test_a_swath_over_the_antimeridian() -> None:
    lon, lat = np.meshgrid(np.linspace(170, 195, 50), np.linspace(-10, 10, 20))
    lon = np.where(lon > 180, lon - 360, lon)
    swath = xr.Dataset(coords={"latitude": (("y", "x"), lat), "longitude": (("y", "x"), lon)})
    assert box_of(swath, "") == pytest.approx((170, -10, -165, 10))


def test_no_coordinates_no_box() -> None:
    assert box_of(xr.Dataset({"t": ("x", [1.0])}), "") is None
    with pytest.raises(InvalidInputError, match="finite"):
        box_of(xr.Dataset(coords={"lat": ("o", [np.nan]), "lon": ("o", [1.0])}), "")


def test_projected_boxes() -> None:
    pytest.importorskip("rasterio")
    axes = {
        "x": ("x", np.arange(500_000.0, 600_000.0, 10_000)),
        "y": ("y", np.arange(5_500_000.0, 5_400_000.0, -10_000)),
    }
    found = box_of(xr.Dataset(coords=axes), "EPSG:32633")
    assert found is not None
    assert found == pytest.approx((14.9, 48.8, 16.4, 49.7), abs=0.1)
    polar = {"x": ("x", np.arange(-4e6, 4e6, 1e5)), "y": ("y", np.arange(-4e6, 4e6, 1e5))}
    found = box_of(xr.Dataset(coords=polar), "EPSG:3413")
    assert found is not None
    assert (found[0], found[2], found[3]) == (-180, 180, 90)


def test_coordinate_systems() -> None:
    old = 'PROJCS["x",GEOGCS["y",AUTHORITY["EPSG","4326"]],AUTHORITY["EPSG","32633"]]'
    new = 'PROJCRS["x",BASEGEOGCRS["y",ID["EPSG",4326]],ID["EPSG",32634]]'
    for attributes, crs in (
        ({"crs_wkt": old}, "EPSG:32633"),
        ({"spatial_ref": new}, "EPSG:32634"),
        ({"crs_wkt": 'LOCAL_CS["x"]'}, 'LOCAL_CS["x"]'),
    ):
        assert crs_of(xr.Dataset({"spatial_ref": ((), 0, attributes)})) == crs
    assert crs_of(xr.Dataset(attrs={"proj:code": "EPSG:3035"})) == "EPSG:3035"
    assert crs_of(xr.Dataset()) == ""


def test_times() -> None:
    days = np.array(["2024-01-02", "NaT", "2024-01-01"], "M8[ns]")
    assert time_of(xr.Dataset(coords={"time": ("time", days)})) == (days[2], days[0])
    assert time_of(xr.Dataset(coords={"time": ("time", days[1:2])})) is None
    assert time_of(xr.Dataset()) is None
    named = xr.Dataset({"when": ("obs", days, {"standard_name": "time"})})
    assert time_of(named) == (days[2], days[0])


def test_calendars() -> None:
    def of(calendar: str) -> xr.Dataset:
        times = xr.date_range("2001-02-27", periods=3, calendar=calendar, use_cftime=True)
        return xr.Dataset(coords={"time": times})

    assert time_of(of("noleap")) == (np.datetime64("2001-02-27"), np.datetime64("2001-03-01"))
    for calendar in ("360_day", "julian", "all_leap"):
        with pytest.raises(InvalidInputError, match="calendar"):
            time_of(of(calendar))


_LON = st.integers(-720, 720)


@given(_LON, st.integers(0, 360), _LON, st.integers(0, 360))
def test_overlaps_are_those_of_the_degrees(west: int, width: int, other: int, other_width: int) -> None:
    mine, yours = (normal_box((a, 0, a + b, 1)) for a, b in ((west, width), (other, other_width)))
    assert -180 <= mine[0] <= 180
    assert -180 <= mine[2] <= 180
    degrees = {each % 360 for each in range(west, west + width + 1)}
    expected = bool(degrees & {each % 360 for each in range(other, other + other_width + 1)})
    columns = [np.array([side]) for side in mine]
    assert bool(overlaps(columns, yours)[0]) == expected
