"""Colours of three bands: the pixels and values that the page shows follow from the values of xarray."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.support.patience import patience
from tests.ui.serving import hosted_page
from tests.ui.test_accessibility import problems_of

pytestmark = pytest.mark.browser
xr = pytest.importorskip("xarray")

SIZE = 8


def photo() -> Any:
    """Bytes with the bands last, as of a photograph, with a missing cell."""
    down, across = np.mgrid[:SIZE, :SIZE]
    values = np.stack([down * 30, across * 30, np.full_like(down, 90)], -1).astype("u1")
    values[:2, :2] = 255
    return xr.Dataset({"rgb": (("y", "x", "band"), values, {"_FillValue": np.uint8(255)})})


def scene() -> Any:
    """Reflectances on Earth: four bands with names in another order, and a value that is far from others."""
    random = np.random.default_rng(5)
    values = random.uniform(0.1, 0.4, (4, 20, 30)).astype("f4")
    values[:, 0, 0] = 9
    axes = {
        "band": np.array(["nir", "blue", "green", "red"], dtype=object),
        "lat": np.linspace(9.5, -9.5, 20),
        "lon": np.linspace(0.5, 29.5, 30),
    }
    dataset = xr.Dataset({"r": (tuple(axes), values)}, axes)
    dataset.lat.attrs["units"], dataset.lon.attrs["units"] = "degrees_north", "degrees_east"
    return dataset


def datasets() -> dict[str, Any]:
    plain = xr.Dataset({"v": (("step", "y", "x"), np.zeros((5, 4, 4)))})
    return {"photo": photo(), "scene": scene(), "plain": plain}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hosted_page(tmp_path_factory.mktemp("bands"), datasets()) as page:
        yield page


#: The colour of a canvas at a share of a box, in pixels of the page.
COLOUR = """(canvas, [x, y]) => {
  const ratio = devicePixelRatio;
  return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
}"""


def wait_for_colour(page: Any, name: str, place: tuple[float, float], expected: Any) -> None:
    canvas = page.get_by_role("application", name=name).locator("canvas")
    end = time.monotonic() + patience(20)
    while not np.allclose(found := canvas.evaluate(COLOUR, list(place)), expected, rtol=0, atol=2):
        assert time.monotonic() < end, (found, expected)


def cell_of(page: Any, name: str, across: int, down: int) -> tuple[float, float]:
    """The middle of a cell of a picture on a grid, by the frame around the place of the pointer."""
    image = page.get_by_role("application", name=name)
    image.focus()
    for key, times in (("ArrowRight", across), ("ArrowDown", down)):
        for _ in range(times):
            page.keyboard.press(key)
    frame, box = page.locator(".frame.chosen").bounding_box(), image.bounding_box()
    return frame["x"] + frame["width"] / 2 - box["x"], frame["y"] + frame["height"] / 2 - box["y"]


def test_bytes_of_a_photograph(page: Any, address: str) -> None:
    """The plane leaves out the bands, limits are 0 and 255, and a missing cell is transparent."""
    page.goto(f"{address}#/v/main/photo/rgb?view=data&proj=grid")
    image = page.get_by_role("application", name="Image of rgb")
    image.wait_for()
    button = page.get_by_role("button", name="Colours of three bands")
    button.press("Enter")
    page.wait_for_url("**rgb=0,1,2*")
    assert button.get_attribute("aria-pressed") == "true"
    assert page.get_by_role("slider", name="index along band").count() == 0
    values = photo().rgb.values
    place = cell_of(page, "Image of rgb", 5, 3)
    page.locator(".readout").get_by_text("x 5, y 3: red 90, green 150, blue 90").wait_for()
    wait_for_colour(page, "Image of rgb", place, values[3, 5])
    page.goto(f"{address}?missing#/v/main/photo/rgb?view=data&proj=grid&rgb=0,1,2")
    image.wait_for()
    place = cell_of(page, "Image of rgb", 1, 1)
    page.locator(".readout").get_by_text("x 1, y 1: red no value, green no value, blue no value").wait_for()
    wait_for_colour(page, "Image of rgb", place, (227, 231, 235))
    page.get_by_role("combobox", name="Red").select_option("2")
    page.wait_for_url("**rgb=2,1,2*")
    place = cell_of(page, "Image of rgb", 4, 6)
    wait_for_colour(page, "Image of rgb", place, values[place_of(page)][[2, 1, 2]])


def place_of(page: Any) -> tuple[int, int]:
    """The row and the column that the line below a picture names."""
    words = page.locator(".readout").inner_text().replace(",", "").replace(":", "").split()
    return int(words[3]), int(words[1])


@pytest.mark.parametrize("view", ["map", "grid"])
def test_names_and_limits(page: Any, address: str, view: str) -> None:
    """Bands are found by their names, and limits are percentiles of what the picture shows."""
    page.goto(f"{address}?{view}#/v/main/scene/r?view=data&proj={'grid' if view == 'grid' else ''}")
    name = "Image of r" if view == "grid" else "Map of r"
    page.get_by_role("application", name=name).wait_for()
    page.get_by_role("button", name="Colours of three bands").click()
    page.wait_for_url("**rgb=3,2,1*")
    chosen = scene().r.sel(band=["red", "green", "blue"])
    low, high = (np.percentile(chosen, part, axis=(1, 2), method="nearest") for part in (2, 98))
    pixels = np.clip(255 * (chosen.transpose("lat", "lon", "band") - low) / (high - low), 0, 255)
    world = page.get_by_role("application", name=name)
    if view == "grid":
        spot = cell_of(page, name, 1, 0)
    else:
        assert (
            world.locator(".zoom").evaluate("element => parseFloat(element.style.right)") == 10
        )  # no colour bar
        box = world.bounding_box()
        spot = (box["width"] / 2 + 7, box["height"] / 2 + 5)
        page.mouse.move(box["x"] + spot[0], box["y"] + spot[1])
    page.locator(".readout").get_by_text(": red ").wait_for()
    place, _, values = page.locator(".readout").inner_text().partition(": ")
    lon, lat = (float(part.split()[1]) for part in place.split(" (")[0].split(", "))
    expected = chosen.sel(lat=lat, lon=lon).values
    np.testing.assert_allclose([float(part.split()[1]) for part in values.split(", ")], expected, rtol=1e-5)
    wait_for_colour(page, name, spot, pixels.sel(lat=lat, lon=lon).values)
    page.reload()
    page.get_by_role("combobox", name="Green").wait_for()
    assert page.get_by_role("combobox", name="Green").input_value() == "2"
    page.get_by_role("button", name="Colours of three bands").click()
    page.get_by_text("600 values: ").wait_for()


def test_no_bands(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/plain/v?view=data&rgb=0,1,2")
    page.get_by_text("16 values: 0 to 0").wait_for()
    assert page.get_by_role("button", name="Colours of three bands").count() == 0
    page.goto(f"{address}#/v/main/scene/r?view=data&rgb=1,2,7")
    page.get_by_text("600 values: ").wait_for()


def test_rules_of_axe_and_a_narrow_screen(page: Any, address: str) -> None:
    views: dict[str, tuple[str, list[tuple[str, str]]]] = {
        "bands": ("#/v/main/scene/r?view=data&rgb=3,2,1", [("application", "Map of r"), ("combobox", "Red")])
    }
    assert problems_of(page, address, views) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}?narrow#/v/main/scene/r?view=data&rgb=3,2,1")
    page.get_by_role("application", name="Map of r").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
