"""Colours of three bands: the pixels and values that the page shows follow from the values of xarray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.ui.serving import hosted_page, middle_of, wait_for_colour
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


def packed() -> Any:
    """The scene as packed reflectances with units: the numbers that the page shows are those of xarray."""
    dataset = scene()
    dataset["r"] = dataset.r.clip(max=0.5)
    dataset.r.attrs["units"] = "sr-1"
    dataset.r.encoding = {"dtype": "i2", "scale_factor": 1e-4, "add_offset": 0.1, "_FillValue": -1}
    return dataset


def levels() -> dict[str, Any]:
    """Bytes in two levels of a pyramid. The coarser one has other values, so that a test tells them apart."""
    band, down, across = np.mgrid[:3, :600, :2400]
    finest = ((band * 80 + down // 5 + across // 20) % 256).astype("u1")
    coarse = 255 - finest[:, ::2, ::2]
    groups = {"pyramid": xr.Dataset(attrs={"multiscales": {"layout": [{"asset": "0"}, {"asset": "1"}]}})}
    for level, values in enumerate((finest, coarse)):
        axes = {
            name: (low + (high - low) * (np.arange(length) + 0.5) / length)
            for name, low, high, length in zip(
                ("lat", "lon"), (15, 0), (-15, 120), values.shape[1:], strict=True
            )
        }
        dataset = xr.Dataset({"v": (("band", "lat", "lon"), values)}, axes)
        dataset.lat.attrs["units"], dataset.lon.attrs["units"] = "degrees_north", "degrees_east"
        groups[f"pyramid/{level}"] = dataset
    return groups


def datasets() -> dict[str, Any]:
    plain = xr.Dataset({"v": (("step", "y", "x"), np.zeros((5, 4, 4)))})
    return {
        "photo": photo(),
        "scene": scene(),
        "plain": plain,
        "packed": packed(),
        "slide": slide(0),
        **levels(),
    }


def slide(version: int) -> Any:
    """A picture of 8 by 8 bytes without a missing one. Its second version has other values everywhere."""
    band, down, across = np.mgrid[:3, :SIZE, :SIZE]
    values = (band * 60 + down * 11 + across * 3 + version * 40).astype("u1")
    return xr.Dataset({"v": (("band", "y", "x"), values)})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hosted_page(tmp_path_factory.mktemp("bands"), datasets(), {"slide": slide(1)}) as page:
        yield page


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


@pytest.mark.parametrize("view", ["map", "grid"])
@pytest.mark.parametrize("pointer", ["mouse", "keys"])
def test_values_and_units_at_the_pointer(page: Any, address: str, view: str, pointer: str) -> None:
    """Mouse and keys show three decoded values, each with its unit."""
    proj = "grid" if view == "grid" else ""
    page.goto(f"{address}?{pointer}#/v/main/packed/r?view=data&rgb=3,2,1&proj={proj}&m=14.2,3.1,40")
    name = "Image of r" if view == "grid" else "Map of r"
    image = page.get_by_role("application", name=name)
    image.wait_for()
    if pointer == "keys":
        image.focus()
        page.keyboard.press("ArrowRight")
    else:
        box = image.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 3)
    readout = page.locator(".readout")
    readout.get_by_text(": red ").wait_for()
    place, _, texts = readout.inner_text().partition(": ")
    lon, lat = (float(part.split()[1]) for part in place.split(" (")[0].split(", "))
    expected = packed().r.sel(band=["red", "green", "blue"]).sel(lat=lat, lon=lon, method="nearest")
    found = re.fullmatch(r"red (\S+) sr-1, green (\S+) sr-1, blue (\S+) sr-1", texts)
    assert found
    np.testing.assert_allclose([float(each) for each in found.groups()], expected.values, atol=0.5001e-4)


def test_bands_of_levels(page: Any, address: str) -> None:
    """Each level of a pyramid has its own bands, at the pointer and as colours."""
    truth = levels()
    world = page.get_by_role("application", name="Map of v")
    for level, span in ((1, 70), (0, 2)):
        page.goto(f"{address}?{level}#/v/main/pyramid/0/v?view=data&rgb=0,1,2&m=77.02,3.02,{span}")
        if level == 0:  # a part is read once the map has moved
            world.focus()
            page.keyboard.press("+")
            page.wait_for_url("**r1=*")
        else:
            page.get_by_text("Level 1, 3 × 300 × 1,200").wait_for()
        world.focus()
        page.keyboard.press("Enter")
        values = truth[f"pyramid/{level}"].v
        readout = page.locator(".readout").filter(has_text=re.compile(r"^lon \S+, lat \S+: red "))
        east, north = (float(part) for part in re.findall(r"[-.\d]+", readout.inner_text())[:2])
        expected = values.sel(lon=east, lat=north, method="nearest").values
        text = f"red {expected[0]}, green {expected[1]}, blue {expected[2]}"
        readout.get_by_text(f": {text}").wait_for()
        wait_for_colour(page, "Map of v", middle_of(page, "Map of v"), expected)


def test_bands_of_two_versions(page: Any, address: str) -> None:
    """On both sides of the divider are the colours of a version, and the pointer shows those of both."""
    older, newer = slide(0).v.values, slide(1).v.values
    page.goto(f"{address}#/v/main/slide/v?view=data&rgb=0,1,2&with=main~1&cut=50")
    page.get_by_role("slider", name="Divider").wait_for()
    for column, version in ((2, newer), (6, older)):
        place = cell_of(page, "Image of v", column - 2 if version is older else column, 3)
        row, column = place_of(page)
        now, before = newer[:, row, column], older[:, row, column]
        text = ": red {}, green {}, blue {}; main~1: red {}, green {}, blue {}".format(*now, *before)
        page.locator(".readout").get_by_text(text).wait_for()
        wait_for_colour(page, "Image of v", place, version[:, row, column])


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
