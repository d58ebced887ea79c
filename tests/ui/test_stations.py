"""Stations and trajectories on a map: the values and series that the page shows are those of xarray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.ui.serving import hosted_page
from tests.ui.test_accessibility import problems_of

pytestmark = pytest.mark.browser
xr = pytest.importorskip("xarray")

NAMES = ["Zugspitze", "Sonnblick, north", "Adak", "Suva", "Alert"]
#: One longitude goes from 0 to 360, one place is near the pole, and two lie on both sides of 180 degrees.
LONGITUDES, LATITUDES = [10.98, 12.96, 183.4, 178.4, -62.3], [47.42, 47.05, 51.9, -18.1, 82.6]


def stations(count: int | None = None) -> Any:
    """Temperatures of stations. The last station has a missing value at the second step."""
    values = np.arange(20, dtype="f8").reshape(4, 5) / 4 + 280
    values[1, 4] = np.nan
    times = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]").astype("M8[ns]")
    dataset = xr.Dataset(
        {"t": (("time", "station"), values, {"units": "K", "long_name": "temperature"})},
        {
            "time": times,
            "lon": ("station", LONGITUDES, {"units": "degrees_east"}),
            "lat": ("station", LATITUDES, {"units": "degrees_north"}),
            "name": ("station", np.array(NAMES, dtype=object), {"cf_role": "timeseries_id"}),
        },
    )
    return dataset if count is None else dataset.isel(station=slice(count))


def drift() -> Any:
    """Samples along a path, each with a place."""
    lon, lat = np.linspace(150, 200, 12), np.linspace(-10, 20, 12)
    values = np.where(np.arange(12) == 5, np.nan, np.arange(12.0))
    return xr.Dataset(
        {"salt": ("obs", values, {"units": "1e-3"})},
        {"lon": ("obs", lon, {"units": "degrees_east"}), "lat": ("obs", lat, {"units": "degrees_north"})},
        {"featureType": "trajectory"},
    )


def datasets() -> dict[str, Any]:
    ragged = drift().assign(
        size=("drifter", [5, 7], {"sample_dimension": "obs"}),
        drifter_id=("drifter", np.array(["A1", "B2"], dtype=object), {"cf_role": "trajectory_id"}),
    )
    indexed = drift().assign(owner=("obs", [0, 1] * 6, {"instance_dimension": "drifter"}))
    apart = xr.Dataset(
        {"t": ("obs", np.arange(6.0)), "size": ("station", [2, 4], {"sample_dimension": "obs"})},
        {
            "lon": ("station", [1.0, 2.0], {"units": "degrees_east"}),
            "lat": ("station", [1.0, 2.0], {"units": "degrees_north"}),
        },
        {"featureType": "timeSeries"},
    )
    count = 5000
    many = xr.Dataset(
        {"v": ("site", np.arange(float(count)))},
        {
            "lon": ("site", np.linspace(-170, 170, count), {"standard_name": "longitude"}),
            "lat": ("site", 60 * np.sin(np.arange(count)), {"standard_name": "latitude"}),
        },
    )
    return {
        "stations": stations(),
        "one": stations(1),
        "none": stations(0),
        "drift": drift(),
        "ragged": ragged,
        "indexed": indexed,
        "apart": apart,
        "many": many,
    }


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hosted_page(tmp_path_factory.mktemp("stations"), datasets()) as page:
        yield page


def middle_of(page: Any, name: str) -> tuple[float, float]:
    """The middle of a map, which ends at its bar of colours."""
    world = page.get_by_role("application", name=f"Map of {name}")
    world.wait_for()
    box = world.bounding_box()
    right = world.locator(".zoom").evaluate("element => parseFloat(element.style.right) - 10")
    return box["x"] + (box["width"] - right) / 2, box["y"] + (box["height"] - 4) / 2


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_each_station(page: Any, address: str, at: int) -> None:
    """The station in the middle of the map has its name, place and value, and a click shows its series."""
    truth = stations().t.isel(station=at)
    place = f"m={LONGITUDES[at]},{LATITUDES[at]},3"
    page.goto(f"{address}?{at}#/v/main/stations/t?view=data&i=1,0&{place}")
    x, y = middle_of(page, "temperature")
    page.mouse.move(x + 3, y + 3)
    east = (LONGITUDES[at] + 180) % 360 - 180
    where = f"{LATITUDES[at]:.3f}°N" if LATITUDES[at] > 0 else f"{-LATITUDES[at]:.3f}°S"
    where += f" {east:.3f}°E" if east > 0 else f" {-east:.3f}°W"
    kelvins = float(truth[1])
    value = "no value" if np.isnan(kelvins) else f"{kelvins:g} K"
    page.locator(".readout").get_by_text(f"station {NAMES[at]} ({where}): {value}").wait_for()
    page.mouse.click(x + 3, y + 3)
    page.get_by_text("Values of 1 point").click()
    cells = page.get_by_role("region", name="Points").get_by_role("cell")
    cells.nth(4).wait_for()
    texts = cells.all_inner_texts()[1:]  # the first cell is the corner
    found = [np.nan if text == "no value" else float(text) for text in texts]
    np.testing.assert_array_equal(found, truth.values)
    assert f"p=1.{at}" in page.url


def test_time_keyboard_and_table(page: Any, address: str) -> None:
    """The slider changes the values of all stations. Keys reach the nearest one, and a name adds one."""
    page.goto(f"{address}#/v/main/stations/t?view=data&m=10.98,47.42,3")
    world = page.get_by_role("application", name="Map of temperature")
    world.focus()
    page.get_by_role("slider", name="index along time").fill("3")
    page.wait_for_url("**i=3,0*")
    page.get_by_text("5 values: 283.75 K to 284.75 K, mean 284.25 K.").wait_for()
    world.focus()
    for key, name in (("Enter", "Zugspitze"), ("ArrowRight", "Zugspitze"), ("Enter", "Zugspitze")):
        page.keyboard.press(key)
        page.locator(".readout").get_by_text(f"station {name} ").wait_for()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator(".readout").get_by_text("station Sonnblick, north (47.050°N 12.960°E): 284 K").wait_for()
    point = page.get_by_role("textbox", name="Add a point")
    point.fill("suva")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove point 2").wait_for()
    assert "p=3.0,3.3" in page.url
    point.fill("Paris")
    page.keyboard.press("Enter")
    page.get_by_text('No label of station begins with "Paris".').wait_for()
    page.get_by_role("combobox", name="Show").select_option("table")
    for name, value in zip(NAMES, stations().t.values[3], strict=True):
        page.get_by_role("row", name=f"{name} {value:g}").wait_for()
    page.get_by_role("combobox", name="Show").select_option("map")
    page.get_by_role("combobox", name="Map").select_option("grid")
    page.get_by_role("img", name="Line of temperature (K) along station").wait_for()


def test_what_has_no_lines_or_no_map(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/indexed/salt?view=data")
    page.get_by_role("application", name="Map of salt").wait_for()
    page.get_by_text("No lines: the repository has no row sizes of the trajectories.").wait_for()
    page.goto(f"{address}#/v/main/apart/t?view=data")
    page.get_by_role("img", name="Line of t along obs").wait_for()
    page.get_by_text("A value of this ragged array has no place of its own: no map.").wait_for()


def test_one_none_and_thousands(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/one/t?view=data")
    x, y = middle_of(page, "temperature")
    page.mouse.move(x, y)
    page.locator(".readout").get_by_text("station Zugspitze (47.420°N 10.980°E): 280 K").wait_for()
    page.mouse.move(x + 60, y + 60)  # nothing is here: the last one stays
    page.goto(f"{address}#/v/main/none/t?view=data")
    page.get_by_text("No values in this part.").wait_for()
    many = datasets()["many"]
    page.goto(f"{address}#/v/main/many/v?view=data&m={many.lon.values[2600]},{many.lat.values[2600]},2")
    page.get_by_role("application", name="Map of v").focus()
    page.keyboard.press("Enter")
    page.locator(".readout").filter(has_text=re.compile(r"^site 2600 \(.*\): 2600$")).wait_for()
    assert page.locator("*").count() < 1000  # dots are no elements


def test_rules_of_axe_and_a_narrow_screen(page: Any, address: str) -> None:
    views: dict[str, tuple[str, list[tuple[str, str]]]] = {
        "stations": (
            "#/v/main/stations/t?view=data&p=1.1",
            [("application", "Map of temperature"), ("img", "Line of temperature")],
        ),
        "trajectory": ("#/v/main/ragged/salt?view=data", [("application", "Map of salt")]),
        "table": ("#/v/main/stations/t?view=data&show=table", [("rowheader", "Suva")]),
    }
    assert problems_of(page, address, views) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}?narrow#/v/main/stations/t?view=data")
    page.get_by_role("application", name="Map of temperature").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
