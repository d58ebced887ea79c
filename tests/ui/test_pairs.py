"""Two versions next to each other: one scale of colours, and pictures that move, zoom and step together."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ui.serving import hosted_page, pixels
from tests.ui.test_accessibility import problems_of
from tests.ui.test_stations import colour_of

pytestmark = pytest.mark.browser
xr = pytest.importorskip("xarray")

THIS, OTHER = "{} of t in this version", "{} of t in main~1"


def versions() -> list[Any]:
    """Two versions of three steps on Earth."""
    axes = {"time": np.arange(3.0), "lat": np.linspace(60, -60, 5), "lon": np.arange(0, 360, 30.0)}
    values = np.arange(180.0).reshape(3, 5, 12)
    found = []
    for more in (0.0, 40.5):
        dataset = xr.Dataset({"t": (tuple(axes), values + more)}, axes)
        dataset.lat.attrs["units"], dataset.lon.attrs["units"] = "degrees_north", "degrees_east"
        found.append(dataset)
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    older, newer = versions()
    folder = tmp_path_factory.mktemp("pairs")
    with hosted_page(folder, {"earth": older}, {"earth": newer[["t"]].drop_vars(newer.coords)}) as page:
        yield page


def values_at(page: Any, step: int) -> tuple[float, float]:
    """The values of this version and of the other one that the page shows, which are those of xarray."""
    pattern = re.compile(r"^lon (\S+), lat (\S+): (\S+); main~1: (\S+)$")
    readout = page.locator(".readout").filter(has_text=pattern)
    readout.wait_for()
    found = pattern.match(readout.inner_text())
    assert found
    lon, lat, now, before = map(float, found.groups())
    older, newer = (float(each.t[step].sel(lon=lon, lat=lat)) for each in versions())
    assert (now, before) == (newer, older)
    return lon, lat


@pytest.mark.parametrize("kind", ["Map", "Image"])
def test_colours_and_values_of_both(page: Any, address: str, kind: str) -> None:
    """A step of the slider changes both pictures, whose colours have the limits of both versions together."""
    proj = "plate" if kind == "Map" else "grid"
    page.goto(f"{address}?{kind}#/v/main/earth/t?view=data&proj={proj}&map=viridis&with=main~1&m=10,10,90")
    page.get_by_role("combobox", name="Layout").select_option("next to each other")
    page.wait_for_url("**form=pair*")
    this, other = (page.get_by_role("application", name=each.format(kind)) for each in (THIS, OTHER))
    other.wait_for()
    assert page.get_by_role("slider", name="Divider").count() == 0
    boxes = [each.bounding_box() for each in (this, other)]
    assert boxes[0]["width"] == boxes[1]["width"]
    assert boxes[0]["y"] == boxes[1]["y"]
    for step in (0, 2):
        page.get_by_role("slider", name="index along time").fill(str(step))
        page.wait_for_url(f"**i={step},0,0*" if step else "**")
        both = np.concatenate([each.t[step].values.ravel() for each in versions()])
        low, high = (np.percentile(both, part, method="nearest") for part in (2, 98))
        for box in boxes:
            page.mouse.move(box["x"] + 151, box["y"] + 101)
            lon, lat = values_at(page, step)
            marks = [each.locator(".frame.chosen").bounding_box() for each in (this, other)]
            middles = [(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2) for mark in marks]
            (across, down), (beyond, below) = middles
            assert (beyond - across, below - down) == pytest.approx((boxes[1]["x"] - boxes[0]["x"], 0))
            for name, dataset in zip((THIS, OTHER), versions()[::-1], strict=True):
                expected = colour_of(float(dataset.t[step].sel(lon=lon, lat=lat)), low, high)
                found = pixels(page, name.format(kind), (151, 101), 3).reshape(-1, 3)
                assert (np.abs(found - expected) <= 2).all(-1).any(), (name, step, expected, found[0])
    page.reload()
    other.wait_for()
    page.get_by_role("button", name="Copy as…").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    size = struct.unpack(">II", Path(download.value.path()).read_bytes()[16:24])
    one = this.locator("canvas").evaluate("canvas => [canvas.width, canvas.height]")
    assert size == (2 * one[0], one[1])  # the picture has both


def test_maps_move_together(page: Any, address: str) -> None:
    """Keys, a drag and a wheel on one map move the other one; the address has one view."""
    page.goto(f"{address}#/v/main/earth/t?view=data&with=main~1&form=pair&m=10,10,90&proj=plate")
    this, other = (page.get_by_role("application", name=each.format("Map")) for each in (THIS, OTHER))
    other.wait_for()

    def canvases() -> list[str]:
        """The lines of coasts, which both maps have, as a mask for the part without colours and texts."""
        masks = []
        for each in (this, other):
            data = each.locator("canvas").evaluate(
                """(canvas) => {
                  const { data } = canvas.getContext("2d").getImageData(40, 40, 200, 200);
                  return [...new Uint32Array(data.buffer)].map((pixel) => +(pixel === 0xff2a2016));
                }"""
            )
            masks.append("".join(map(str, data)))
        return masks

    former = canvases()
    assert former[0] == former[1]
    assert "1" in former[0]
    for act in ("keys", "drag", "wheel"):
        url = page.url
        moved = other if act == "drag" else this
        if act == "keys":
            moved.focus()
            page.keyboard.press("ArrowRight")
            page.keyboard.press("+")
        else:
            box = moved.bounding_box()
            page.mouse.move(box["x"] + 120, box["y"] + 120)
            if act == "wheel":
                page.mouse.wheel(0, 300)
            else:
                page.mouse.down()
                page.mouse.move(box["x"] + 60, box["y"] + 90, steps=3)
                page.mouse.up()
        page.wait_for_url(lambda now, url=url: now != url)
        values_at(page, 0)
        masks = canvases()
        assert masks[0] == masks[1] != former[0]
        former = masks


def test_both_play(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/earth/t?view=data&with=main~1&form=pair&proj=grid")
    box = page.get_by_role("application", name=OTHER.format("Image")).bounding_box()
    page.mouse.move(box["x"] + 151, box["y"] + 101)
    values_at(page, 0)
    page.get_by_role("button", name="Play along time").click()
    page.get_by_text("values of 3 frames").wait_for()
    for step in (1, 2, 0):
        page.wait_for_url(f"**i={step},0,0*" if step else lambda url: "i=" not in url)
        assert page.get_by_role("application").count() == 2
    page.wait_for_url("**i=1,0,0*")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Play along time").wait_for()
    place = re.search(r"i=(\d),0,0", page.url)
    page.mouse.move(box["x"] + 151, box["y"] + 101)
    values_at(page, int(place[1]) if place else 0)


def test_a_grid_zooms_in_both_pictures(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/earth/t?view=data&with=main~1&form=pair&proj=grid")
    this, other = (page.get_by_role("application", name=each.format("Image")) for each in (THIS, OTHER))
    other.wait_for()
    other.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert values_at(page, 0) == (90, 60)
    frames = [each.locator(".frame.chosen").bounding_box() for each in (this, other)]
    boxes = [each.bounding_box() for each in (this, other)]
    places = [
        (frame["x"] - box["x"], frame["y"] - box["y"]) for frame, box in zip(frames, boxes, strict=True)
    ]
    assert places[0] == places[1]  # the place of the pointer is in both
    box = other.bounding_box()
    page.mouse.move(box["x"] + 120, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 90, steps=4)
    page.mouse.up()
    page.wait_for_url("**r2=*")
    page.get_by_text("60 values: ").wait_for(state="detached")  # of the whole
    page.mouse.move(box["x"] + 150, box["y"] + 60)
    values_at(page, 0)


def test_rules_of_axe_and_a_narrow_screen(page: Any, address: str) -> None:
    """On a narrow screen, one picture is below the other one."""
    view = "#/v/main/earth/t?view=data&with=main~1&form=pair"
    views: dict[str, tuple[str, list[tuple[str, str]]]] = {
        "maps": (view, [("application", OTHER.format("Map"))]),
        "grids": (f"{view}&proj=grid", [("application", OTHER.format("Image"))]),
    }
    assert problems_of(page, address, views) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}?narrow{view}")
    boxes = [
        page.get_by_role("application", name=each.format("Map")).bounding_box() for each in (THIS, OTHER)
    ]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
