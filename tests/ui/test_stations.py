"""Stations and trajectories on a map: the values and series that the page shows are those of xarray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.ui.serving import hosted_page, middle_of, pixels, wait_for_colour
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


def tracks() -> Any:
    """Samples of three trajectories as a rectangle. The second trajectory has fewer of them than others."""
    step = np.linspace(0, 1, 8)
    lon = np.stack([10 + 40 * step, 100 + 40 * step, -60 + 40 * step])
    lat = np.stack([10 + 10 * step, 0 * step, -30 + 20 * step])
    values = np.arange(24.0).reshape(3, 8)
    for each in (lon, lat, values):
        each[1, 5:] = np.nan
    axes = ("trajectory", "obs")
    return xr.Dataset(
        {"salt": (axes, values, {"units": "1e-3"})},
        {
            "lon": (axes, lon, {"units": "degrees_east"}),
            "lat": (axes, lat, {"units": "degrees_north"}),
            "buoy": (
                "trajectory",
                np.array(["A1", "B2", "C3, south"], dtype=object),
                {"cf_role": "trajectory_id"},
            ),
        },
        {"featureType": "trajectory"},
    )


def ocean() -> Any:
    """A curvilinear grid: the places of its cells have two dimensions, too."""
    down, across = np.mgrid[-20:21:10, 0:31:10].astype("f8")
    axes = ("y", "x")
    places = {
        "lon": (axes, across + down / 10, {"units": "degrees_east"}),
        "lat": (axes, down, {"units": "degrees_north"}),
    }
    return xr.Dataset({"sst": (axes, np.arange(20.0).reshape(5, 4))}, places)


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
        "tracks": tracks(),
        "ocean": ocean(),
        "turned": stations().assign_attrs(featureType="timeSeries").transpose("station", "time"),
    }


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hosted_page(tmp_path_factory.mktemp("stations"), datasets()) as page:
        yield page


def pointer_of(page: Any, name: str) -> tuple[float, float]:
    """The middle of a map on the page."""
    x, y = middle_of(page, f"Map of {name}")
    box = page.get_by_role("application", name=f"Map of {name}").bounding_box()
    return box["x"] + x, box["y"] + y


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_each_station(page: Any, address: str, at: int) -> None:
    """The station in the middle of the map has its name, place and value, and a click shows its series."""
    truth = stations().t.isel(station=at)
    place = f"m={LONGITUDES[at]},{LATITUDES[at]},3"
    page.goto(f"{address}?{at}#/v/main/stations/t?view=data&i=1,0&{place}")
    x, y = pointer_of(page, "temperature")
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


def test_a_station_has_one_series(page: Any, address: str) -> None:
    """The same station at another time is not another point, on the map and in an address."""
    page.goto(f"{address}#/v/main/stations/t?view=data&m=12.96,47.05,3")
    for step in ("1", "2"):
        page.get_by_role("slider", name="index along time").fill(step)
        page.get_by_text("5 values: " if step == "2" else "4 values: ").wait_for()
        page.mouse.click(*pointer_of(page, "temperature"))
        page.get_by_role("button", name="Remove point 1").wait_for()
    assert page.get_by_role("button", name="Remove point").count() == 1
    page.goto(f"{address}?link#/v/main/stations/t?view=data&p=1.1,2.1,1.2")
    page.get_by_role("button", name="Remove point 2").wait_for()
    page.get_by_text("Values of 2 points").click()
    heads = page.get_by_role("region", name="Points").get_by_role("columnheader").all_inner_texts()
    assert [head.split(" (")[0] for head in heads] == [f"station {NAMES[1]}", f"station {NAMES[2]}"]


def test_trajectories_of_two_dimensions(page: Any, address: str) -> None:
    """Each sample has its trajectory, place and value, and a click shows the series of its trajectory."""
    truth = tracks()
    for row, sample in ((0, 3), (1, 4), (2, 7)):
        lon, lat = (float(truth[name][row, sample]) for name in ("lon", "lat"))
        page.goto(f"{address}?{row}#/v/main/tracks/salt?view=data&m={lon},{lat},4")
        page.mouse.move(*pointer_of(page, "salt"))
        name = str(truth.buoy.values[row])
        where = f"{abs(lat):.3f}°{'NS'[lat < 0]} {abs(lon):.3f}°{'EW'[lon < 0]}"
        value = f"{float(truth.salt[row, sample]):g} 1e-3"
        text = f"obs {sample}, trajectory {name} ({where}): {value}"
        page.locator(".readout").get_by_text(text).wait_for()
        page.mouse.click(*pointer_of(page, "salt"))
        page.get_by_text("Values of 1 point").click()
        cells = page.get_by_role("region", name="Points").get_by_role("cell")
        cells.nth(8).wait_for()
        found = [float(cell.replace("no value", "nan")) for cell in cells.all_inner_texts()[1:]]
        np.testing.assert_array_equal(found, truth.salt[row].values)
    point = page.get_by_role("textbox", name="Add a point")
    for text in ("2, c3, s", "1, b2"):  # the first one has the series of the point that is there
        point.fill(text)
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove point 2").wait_for()
    assert page.url.endswith("p=2.7,1.1")
    page.get_by_text("21 values: 0 1e-3 to 23 1e-3").wait_for()
    page.get_by_role("combobox", name="Down").select_option("-1")
    page.get_by_role("slider", name="index along trajectory").fill("1")
    page.get_by_role("application", name="Map of salt").wait_for()
    page.get_by_text("5 values: 8 1e-3 to 12 1e-3").wait_for()


def test_what_is_a_grid_and_what_are_stations(page: Any, address: str) -> None:
    """Two dimensions are trajectories only by CF, and stations of two dimensions remain stations."""
    page.goto(f"{address}#/v/main/ocean/sst?view=data&map=viridis&lo=0&hi=19&m=10,0,8")
    page.get_by_role("application", name="Map of sst").focus()
    page.keyboard.press("Enter")
    page.locator(".readout").get_by_text("x 1, y 2 (0.000°N 10.000°E): 9").wait_for()
    x, y = middle_of(page, "Map of sst")
    wait_for_colour(page, "Map of sst", (x + 33, y + 21), colour_of(9, 0, 19))  # a cell, and no dot
    page.goto(f"{address}#/v/main/turned/t?view=data&i=0,2")
    page.get_by_role("application", name="Map of temperature").wait_for()
    page.get_by_text("5 values: 282.5 K to 283.5 K").wait_for()


#: The first colours of viridis in `explorer/src/array/colour.ts`.
VIRIDIS = "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"


def colour_of(value: float, low: float, high: float) -> Any:
    stops = np.array([list(bytes.fromhex(stop)) for stop in VIRIDIS.split()], "f8")
    place = np.floor(255 * np.clip((value - low) / (high - low), 0, 1)) / 255 * (len(stops) - 1)
    return [np.interp(place, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]


def test_colours_of_dots(page: Any, address: str) -> None:
    """A dot has the colour of its value. A dot without a value has that of the map inside of its ring."""
    values = stations().t.values[1]
    for at, value in enumerate(values):
        m = f"{LONGITUDES[at]},{LATITUDES[at]},3"
        page.goto(f"{address}?dot{at}#/v/main/stations/t?view=data&i=1,0&map=viridis&lo=280&hi=284&m={m}")
        name = "Map of temperature"
        place = middle_of(page, name)
        expected = (227, 231, 235) if np.isnan(value) else colour_of(value, 280, 284)
        wait_for_colour(page, name, place, expected)
        assert (pixels(page, name, place, 6) < 60).all(-1).any()  # the ring
        wait_for_colour(page, name, (place[0] + 20, place[1] + 12), (227, 231, 235))


#: `--accent` of the light page.
LINE = (11, 92, 158)


@pytest.mark.parametrize(
    ("group", "place", "is_line"),
    [
        ("ragged", (2, 3), True),
        ("ragged", (4, 5), False),  # of two trajectories
        ("tracks", ((0, 2), (0, 3)), True),
        ("tracks", ((0, 7), (1, 0)), False),
        ("indexed", (2, 3), False),
    ],
)
def test_colours_of_lines(page: Any, address: str, group: str, place: Any, is_line: bool) -> None:
    """Between two samples of a trajectory is its line; between two trajectories is none."""
    truth = datasets()[group]
    lon, lat = (np.mean([float(truth[name][at]) for at in place]) for name in ("lon", "lat"))
    page.goto(
        f"{address}?{group}{place}#/v/main/{group}/salt?view=data&proj=plate&m={lon},{lat},2".replace(" ", "")
    )
    name = "Map of salt"
    middle = middle_of(page, name)
    wait_for_colour(page, name, (middle[0] + 40, middle[1] + 4), (227, 231, 235))
    square = pixels(page, name, middle, 24)
    assert (np.abs(square - LINE) < 12).all(-1).any() == is_line


def test_what_has_no_lines_or_no_map(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/indexed/salt?view=data")
    page.get_by_role("application", name="Map of salt").wait_for()
    page.get_by_text("No lines: the repository has no row sizes of the trajectories.").wait_for()
    page.goto(f"{address}#/v/main/apart/t?view=data")
    page.get_by_role("img", name="Line of t along obs").wait_for()
    page.get_by_text("A value of this ragged array has no place of its own: no map.").wait_for()


def test_one_none_and_thousands(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/one/t?view=data")
    x, y = pointer_of(page, "temperature")
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
        "rectangle": ("#/v/main/tracks/salt?view=data&p=0.3", [("application", "Map of salt")]),
        "table": ("#/v/main/stations/t?view=data&show=table", [("rowheader", "Suva")]),
    }
    assert problems_of(page, address, views) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}?narrow#/v/main/stations/t?view=data")
    page.get_by_role("application", name="Map of temperature").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
