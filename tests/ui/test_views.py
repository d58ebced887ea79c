"""The views of the page in a browser, over plain files."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.patience import patience
from tests.ui.serving import hosted

import frazil
from frazil.cli.main import main

pytestmark = pytest.mark.browser


#: The levels of a pyramid. Neighbours differ, and the two levels of a place.
FINEST = np.arange(1024.0)[:, None] + np.arange(2048) / 10
LEVELS = (FINEST, FINEST.reshape(512, 2, 1024, 2).mean((1, 3)) + 0.25)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a small repository with coordinates and two versions of a temperature."""
    folder = tmp_path_factory.mktemp("views")
    config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
    repo = frazil.Repository.create(str(folder / "ice"), config=config)
    with repo.transaction("main", message="first <b>days</b>", metadata={"author": "Ada"}) as store:
        root = zarr.open_group(store, mode="a")
        root.attrs["title"] = "<img src=x onerror=alert(1)>"
        coordinates = {
            "time": (np.arange(4) * 24, {"units": "hours since 2020-01-01"}),
            "lat": (np.linspace(-60, 60, 5), {"units": "degrees_north"}),
            "lon": (np.arange(0, 360, 45.0), {"units": "degrees_east"}),
        }
        for name, (values, attributes) in coordinates.items():
            root.create_array(name, data=values, dimension_names=[name]).attrs.update(attributes)
        data = np.arange(160, dtype="f4").reshape(4, 5, 8)
        root.create_array("t", data=data, chunks=(1, 5, 8), dimension_names=list(coordinates))
        root.create_array("whole", data=data, chunks=(4, 5, 8), dimension_names=list(coordinates))
        root.create_array("large", shape=(5_000_000,), chunks=(5_000_000,), dtype="u1")
        root.create_array(
            "again", data=np.random.default_rng(0).random(1000), chunks=(500,), dimension_names=["n"]
        )
        times = root.create_group("times")
        days = times.create_array("noleap", data=np.arange(3.0), dimension_names=["noleap"])
        days.attrs.update({"units": "days since 1500-02-27", "calendar": "noleap"})
        ocean = root.create_group("ocean")
        for name, units in (("nav_lat", "degrees_north"), ("nav_lon", "degrees_east")):
            places = np.mgrid[-40:41:20, 0:40:10][0 if name == "nav_lat" else 1].astype("f8")
            ocean.create_array(name, data=places, dimension_names=["y", "x"]).attrs["units"] = units
        ocean.create_array("sst", data=np.arange(20.0).reshape(5, 4), dimension_names=["y", "x"])
        scene = root.create_group("scene")
        layout = [{"asset": str(level)} for level in range(len(LEVELS))]
        scene.attrs["multiscales"] = {"layout": layout}
        for level, values in enumerate(LEVELS):
            group = scene.create_group(str(level))
            group.create_array("v", data=values, chunks=(256, 512), dimension_names=["lat", "lon"])
            for name, ends, length in zip(("lat", "lon"), ((60, -60), (0, 120)), values.shape, strict=True):
                edges = np.linspace(*ends, length + 1)
                units = "degrees_north" if name == "lat" else "degrees_east"
                middles = (edges[1:] + edges[:-1]) / 2
                group.create_array(name, data=middles, dimension_names=[name]).attrs["units"] = units
        for name, code in (("polar", "EPSG:3413"), ("unknown", "EPSG:2056")):
            group = root.create_group(name, attributes={"proj:code": code})
            for axis, metres in (("x", np.linspace(-2e6, 2e6, 4)), ("y", np.linspace(2e6, -2e6, 5))):
                group.create_array(axis, data=metres, dimension_names=[axis]).attrs["units"] = "m"
            group.create_array("ice", data=np.arange(20.0).reshape(5, 4), dimension_names=["y", "x"])
    with repo.transaction("main", message="correct one day", metadata={"author": "Grace"}) as store:
        for name in ("t", "whole"):
            zarr.open_array(store, path=name)[2] = 80.5
        again = zarr.open_array(store, path="again")
        zarr.open_array(store, path="times/noleap")[1] = 1.5
        again[:500] = again[:500]  # the same values in a new chunk
        again[500:] = 1
    assert main(["ui", str(folder / "ice"), "--static", str(folder / "page")]) == 0
    with hosted(Path(folder)) as root_url:
        yield f"{root_url}page/index.html"


def test_first_page(page: Any, address: str) -> None:
    """The first variable on its map at its newest step, and the last commits. Its data are one click away."""
    page.goto(address)
    world = page.get_by_role("application", name="Map of t")
    world.wait_for()
    assert page.get_by_role("textbox", name="time").input_value() == "2020-01-04"
    page.get_by_role("link", name="correct one day").wait_for()
    page.get_by_text("format 2, online").wait_for()
    world.focus()
    page.keyboard.press("ArrowRight")
    readout = page.locator(".readout")
    readout.get_by_text("lon ").wait_for()
    place, _, value = readout.inner_text().partition(": ")
    lon, lat = (int(part.split()[1]) for part in place.split(", "))
    assert float(value) == 120 + (lat + 60) / 30 * 8 + lon / 45
    page.get_by_role("slider", name="index along time").fill("0")
    page.wait_for_url("**i=0,0,0*")
    page.get_by_role("link", name="t", exact=True).click()
    page.get_by_text("40 values: 0 to 39").wait_for()
    page.get_by_role("link", name="History", exact=True).click()
    page.get_by_role("option", name="correct one day").wait_for()


def test_map_moves_and_zooms(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data")
    world = page.get_by_role("application", name="Map of t")
    world.wait_for()
    box = world.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -500)
    page.wait_for_url("**m=*")
    spans = [page.url.rpartition(",")[2]]
    page.get_by_role("button", name="Zoom out").click()
    page.wait_for_url(lambda url: url.rpartition(",")[2] != spans[0])
    spans.append(page.url.rpartition(",")[2])
    assert float(spans[0]) < float(spans[1])
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 80, box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()
    page.wait_for_url(lambda url: url.rpartition(",")[2] == spans[1] and "m=0," not in url)
    page.reload()  # the address has what the map shows
    world.wait_for()
    assert page.url.rpartition(",")[2] == spans[1]
    world.focus()
    page.keyboard.press("0")
    page.wait_for_url(lambda url: "m=" not in url)


def test_value_after_the_map_has_moved(page: Any, address: str) -> None:
    """Arrow keys and zooms show the value in the middle of the map after them, also of another level."""
    page.goto(f"{address}#/v/main/t?view=data&m=10,10,60")
    world = page.get_by_role("application", name="Map of t")
    world.wait_for()
    world.focus()
    readout = page.locator(".readout")
    for key in ("ArrowRight",) * 8 + ("ArrowDown",) * 3 + ("-", "ArrowLeft"):
        former = page.url
        page.keyboard.press(key)
        page.wait_for_url(lambda url, former=former: url != former)
        east, north = middle_in(page.url)
        lon = round(east % 360 / 45) % 8
        lat = round((north + 60) / 30)
        readout.get_by_text(f"lon {45 * lon}, lat {30 * lat - 60}: {8 * lat + lon}").wait_for()
    page.goto(f"{address}#/v/main/scene/0/v?view=data&m=50.01,10.02,20")
    world = page.get_by_role("application", name="Map of v")
    world.wait_for()
    world.focus()
    for key in ("+", "ArrowRight", "ArrowUp"):
        former = page.url
        page.keyboard.press(key)
        page.wait_for_url(lambda url, former=former: url != former)
        east, north = middle_in(page.url)
        column, row = int(east / 120 * 2048), int((60 - north) / 120 * 1024)
        page.get_by_text("Level ").wait_for(state="detached")
        readout.get_by_text(f": {FINEST[row, column]:g}").wait_for()
    page.mouse.move(box_of(world)[0] + 30, box_of(world)[1] + 30)
    readout.get_by_text(": ").wait_for()


def middle_in(url: str) -> tuple[float, float]:
    """The centre of a map, which the address has."""
    found = re.search(r"[?&]m=([-.\d]+),([-.\d]+),", url)
    assert found
    return float(found[1]), float(found[2])


def box_of(element: Any) -> tuple[float, float]:
    box = element.bounding_box()
    return box["x"], box["y"]


def test_choice_of_the_map_is_remembered(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data")
    page.get_by_role("combobox", name="Map").select_option("grid")
    page.get_by_role("application", name="Image of t").wait_for()
    assert "proj=grid" in page.url
    page.goto(f"{address}#/v/main/whole?view=data")
    page.get_by_role("application", name="Image of whole").wait_for()
    page.get_by_role("combobox", name="Map").select_option("automatic")
    page.get_by_role("application", name="Map of whole").wait_for()


def test_levels_of_a_pyramid(page: Any, address: str) -> None:
    """The whole comes from the coarser level, a part from the finer one. Each value is that of its level."""
    page.goto(f"{address}#/v/main/scene/0/v?view=data")
    page.get_by_text("Level 1, 512 × 1,024: zoom in for a finer one.").wait_for()
    world = page.get_by_role("application", name="Map of v")
    world.focus()

    def check(level: int) -> None:
        values = LEVELS[level]
        page.locator(".readout").get_by_text("lon ").wait_for()
        place, _, value = page.locator(".readout").inner_text().partition(": ")
        lon, lat = (float(part.split()[1]) for part in place.split(", "))
        row, column = (60 - lat) / 120 * values.shape[0], lon / 120 * values.shape[1]
        assert float(value) == pytest.approx(values[int(row), int(column)], abs=0.01)

    page.keyboard.press("ArrowRight")
    check(1)
    for _ in range(5):
        page.keyboard.press("+")
    page.get_by_text("Level 1").wait_for(state="detached")
    page.wait_for_url("**r1=*")
    page.keyboard.press("ArrowLeft")
    check(0)
    page.keyboard.press("0")
    page.get_by_text("Level 1, 512 × 1,024").wait_for()


def test_history_by_keyboard(page: Any, address: str) -> None:
    page.goto(f"{address}#/history")
    page.get_by_role("option", name="correct one day").wait_for()
    commits = page.get_by_role("listbox")
    box = commits.bounding_box()
    assert box
    assert box["height"] > page.viewport_size["height"] / 2  # the list fills the page
    commits.focus()
    page.keyboard.press("ArrowDown")
    page.get_by_role("heading", name="first <b>days</b>").wait_for()
    page.keyboard.press("Home")
    page.get_by_role("searchbox").fill("author:grace")
    page.get_by_text("1 of 3 commits").wait_for()


def test_values_at_a_typed_date(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data&proj=grid")
    page.get_by_role("textbox", name="time").fill("2020-01-02")
    page.keyboard.press("Enter")
    page.get_by_text("40 values: 40 to 79").wait_for()
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("lon 45, lat -60: 41").wait_for()
    page.get_by_role("button", name="79", exact=True).click()
    page.get_by_text("lon 315, lat 60").first.wait_for()  # the place of the largest value has a mark


@pytest.mark.parametrize("projection", ["natural", "equal", "plate", "globe"])
def test_maps(page: Any, address: str, projection: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data&proj={projection}")
    page.get_by_role("application", name="Map of t").wait_for()


def test_line_and_table(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data&x=0&y=none")
    page.get_by_role("img", name="Line of t along time").locator("canvas").wait_for()
    page.get_by_role("combobox", name="Show").select_option("table")
    page.get_by_role("rowheader", name="2020-01-03").wait_for()


def test_difference_of_times_is_a_duration(page: Any, address: str) -> None:
    page.goto(f"{address}#/diff/main~1/main/times/noleap?view=data")
    page.get_by_text(
        "1 of 3 values differ; mean of the values that differ +0.5 days; largest 0.5 days"
    ).wait_for()


def test_a_typed_place_is_never_another_one(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data")
    date = page.get_by_role("textbox", name="time")
    date.fill("#4")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("The indices of time go from 0 to 3. Shown: 2020-01-01.").wait_for()
    assert (date.input_value(), date.get_attribute("aria-invalid")) == ("#4", "true")
    date.fill("2020-01")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for(state="detached")
    assert date.input_value() == "2020-01-01"
    point = page.get_by_role("textbox", name="Add a point")
    point.fill("-45, 30")
    page.keyboard.press("Enter")
    page.get_by_text(": lon 315, lat 30").first.wait_for()
    point.fill("10, 95")
    page.keyboard.press("Enter")
    page.get_by_text("lat goes from -60 to 60, and the nearest label is 60.").wait_for()
    page.goto(f"{address}#/v/main/ocean/sst?view=data")
    point.fill("200, 0")
    page.keyboard.press("Enter")
    page.get_by_text("No cell of this part of the grid is at longitude 200, latitude 0.").wait_for()


def test_north_is_up_where_latitudes_are_known(page: Any, address: str) -> None:
    for array, first in (("t", "60"), ("ocean/sst", "4")):
        page.goto(f"{address}#/v/main/{array}?view=data&show=table")
        page.get_by_role("rowheader").first.get_by_text(first, exact=True).wait_for()


def colour_at(page: Any, x: float, y: float) -> Any:
    image = pytest.importorskip("PIL.Image", reason="needs the group `test`")
    return image.open(io.BytesIO(page.screenshot())).convert("RGB").getpixel((round(x), round(y)))


def test_dot_of_the_selected_commit(page: Any, address: str) -> None:
    """The dot of the selected commit is larger, also on the first screen, and lies above its row."""
    page.goto(f"{address}#/history")
    lane, side = (11, 92, 158), 3  # pixels from the middle of a dot that only the larger one covers
    rows = [page.get_by_role("option", name=name) for name in ("correct one day", "first <b>days</b>")]
    rows[0].wait_for()
    left = page.locator("canvas.gutter").bounding_box()["x"] + 12
    for selected in range(2):
        end = time.monotonic() + patience(20)
        while True:
            boxes = [row.bounding_box() for row in rows]
            middles = [box["y"] + box["height"] / 2 for box in boxes]
            dots = [colour_at(page, left, y) for y in middles]
            edges = [colour_at(page, left + side, y) == lane for y in middles]
            if dots == [lane, lane] and edges == [selected == 0, selected == 1]:
                break
            assert time.monotonic() < end, (dots, edges)
        rows[1].click()


#: The colours of four cells of 40 pixels in the middle of a map.
CELLS = """canvas => [-60, -20, 20, 60].map(right => {
  const [x, y] = [canvas.width / 2 + right, canvas.height / 2];
  return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3);
})"""


def wait_for_cells(map_: Any, condition: Callable[[list[list[int]]], bool]) -> None:
    """Wait for the colours of `CELLS`: a map is drawn again when its size or its data come."""
    end = time.monotonic() + patience(20)
    while not condition(cells := map_.locator("canvas").evaluate(CELLS)):
        assert time.monotonic() < end, cells


def test_chunks_by_commit(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=chunks&colour=commit")
    commits = page.get_by_role("list", name="Commits that wrote these chunks")
    commits.get_by_text("3 chunks").wait_for()
    chunks = page.get_by_role("application")
    newest, oldest = [0, 114, 178], [230, 159, 0]
    wait_for_cells(chunks, lambda cells: cells == [oldest, oldest, newest, oldest])
    page.goto(f"{address}#/v/main/t?view=chunks&colour=age&cell=2,0,0")
    page.locator(".map-foot").get_by_text("correct one day").wait_for()
    wait_for_cells(chunks, lambda cells: cells[0] == [68, 1, 84])
    page.go_back()
    commits.get_by_role("link").first.click()
    page.get_by_role("heading", name="correct one day").wait_for()


def test_points_as_lines(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data&i=1,0,0&proj=grid")
    image = page.get_by_role("application")
    image.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Add a point").fill("90, 60")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove point 2").wait_for()
    page.reload()  # the address has both
    page.get_by_text("Values of 2 points").click()
    for day, (first, second) in enumerate([(1, 34), (41, 74), (80.5, 80.5), (121, 154)]):
        row = page.get_by_role("row", name=f"2020-01-0{day + 1}")
        assert row.get_by_role("cell").all_inner_texts() == [str(first), str(second)]
    page.get_by_role("button", name="Remove point 1").click()
    page.get_by_text("Values of 1 point").wait_for()
    assert "p=1.4.2" in page.url


def test_play_and_stop(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data")
    page.get_by_role("button", name="Play along time").click()
    page.get_by_text("values of 4 frames").wait_for()
    page.wait_for_url("**i=2,0,0*")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Play along time").wait_for()
    page.get_by_role("button", name="Versions").click()
    page.get_by_text("2 of 2 that changed this array").wait_for()
    page.get_by_role("slider", name="index along time").fill("2")
    page.get_by_text("mean 80.5").wait_for()
    page.get_by_role("slider", name="version of the array").press("Home")
    page.get_by_text("40 values: 80 to 119").wait_for()


@pytest.mark.parametrize(("projection", "kind"), [("grid", "Image"), ("plate", "Map")])
def test_divider_between_two_versions(page: Any, address: str, projection: str, kind: str) -> None:
    """Both sides have the colours of one scale. Keys and a mouse move the divider."""
    page.goto(f"{address}#/v/main/t?view=data&i=2,0,0&proj={projection}")
    field = page.get_by_role("combobox", name="Compare with")
    field.fill("nothing")
    field.press("Enter")
    page.get_by_role("alert").get_by_text("There is no branch, tag or commit nothing.").wait_for()
    field.fill("main~1")
    field.press("Enter")
    divider = page.get_by_role("slider", name="Divider: this version on the left, main~1 on the right")
    divider.wait_for()
    page.get_by_text("Left of the divider: this version; right: main~1.").wait_for()
    picture = page.get_by_role("application", name=f"{kind} of t")

    def colours(across: float) -> list[int]:
        """The pixels of a line down the picture."""
        pixels: list[int] = picture.locator("canvas").evaluate(
            """(canvas, across) => {
              const context = canvas.getContext("2d");
              const { data } = context.getImageData(canvas.width * across, 0, 1, canvas.height);
              return [...new Uint32Array(data.buffer)];
            }""",
            across,
        )
        return pixels

    divider.press("Home")
    page.wait_for_url("**cut=0*")
    assert divider.get_attribute("aria-valuenow") == "0"
    older = colours(0.5)
    divider.press("End")
    page.wait_for_url("**cut=100*")
    newer = colours(0.5)
    assert older != newer
    for _ in range(2):
        divider.press("Shift+ArrowLeft")
    page.wait_for_url("**cut=80*")
    assert colours(0.5) == newer
    box = divider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 2000, box["y"] + 5, steps=3)
    page.mouse.up()
    page.wait_for_url("**cut=0*")
    assert colours(0.5) == older
    assert "r2=" not in page.url  # a drag of the divider does not zoom
    picture.focus()
    page.keyboard.press("ArrowRight")
    page.locator(".readout").get_by_text("80.5; main~1: ").wait_for()
    field.fill("")
    field.press("Enter")
    divider.wait_for(state="detached")


def test_projected_rasters(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/polar/ice?view=data")
    page.get_by_role("application", name="Map of ice").wait_for()
    page.get_by_role("combobox", name="Map").select_option("grid")
    page.get_by_role("application", name="Image of ice").focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.get_by_text("x -2000000, y 0 (71.689°N 135.000°W): 8").wait_for()
    page.goto(f"{address}#/v/main/unknown/ice?view=data")
    page.get_by_text("does not know the coordinate reference system EPSG:2056").wait_for()


def test_chunk_and_its_writers(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=chunks&cell=2,0,0")
    page.get_by_role("button", name="What happened here?").click()
    page.get_by_role("row", name="correct one day").get_by_text("80.5").wait_for()


def test_what_happened_to_a_cell(page: Any, address: str) -> None:
    """Each value with its commit. The difference from the version before is one click away."""
    page.goto(f"{address}#/v/main/t?view=data&proj=grid&i=2,0,0&p=2.1.3")
    page.get_by_role("button", name="What happened here?").click()
    past = page.get_by_label("What happened here")
    past.get_by_role("heading", name="What happened at time 2, lat 1, lon 3").wait_for()
    past.get_by_text("The array begins here.").wait_for()
    rows = [row.get_by_role("cell").all_inner_texts() for row in past.get_by_role("row").all()[1:]]
    assert [row[2:6] for row in rows] == [
        ["written", "80.5", "Grace", "correct one day"],
        ["new array", "91", "Ada", "first <b>days</b>"],
    ]
    past.get_by_role("img", name="Line of value along version").locator("canvas").wait_for()
    past.get_by_role("link", name="Differences").first.click()
    page.get_by_text("40 of 40 values differ").wait_for()
    page.goto(f"{address}#/v/main/t?view=data&proj=grid&i=2,0,0&r1=1-2&r2=3-5")
    page.get_by_role("button", name="What happened in this part?").click()
    past.get_by_role("heading", name="What happened at time 2:3, lat 1:2, lon 3:5: means").wait_for()
    past.get_by_role("row", name="first <b>days</b>").get_by_text("91.5").wait_for()


@pytest.mark.parametrize("array", ["t", "whole", "again"])
def test_difference_begins_at_the_change(page: Any, address: str, array: str) -> None:
    page.goto(f"{address}#/v/main/{array}")
    page.get_by_role("link", name="Differences from its parent").click()
    is_again = array == "again"  # with a chunk whose values are the same
    page.get_by_text("chunk 1; 2 of 2 that changed" if is_again else "40 of 40 values differ").wait_for()
    page.get_by_role("tab", name="Chunks").click()
    page.get_by_text(f"0 new, {1 + is_again} changed, 0 gone").wait_for()


def test_version_that_does_not_exist(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/nothing/")
    page.get_by_role("alert").get_by_text("no branch, tag or commit nothing").wait_for()


def test_enter_opens_the_version(page: Any, address: str) -> None:
    page.goto(f"{address}?embed#/history")
    page.get_by_role("listbox").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.get_by_role("treeitem", name="data changed by this commit").first.wait_for()
    assert page.get_by_role("banner").count() == 0


def test_chunk_with_too_many_values(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/large?view=chunks&cell=0")
    page.get_by_text("too many values to show: 5,000,000").wait_for()


def test_frame_that_may_store_nothing(page: Any, address: str) -> None:
    """As in a frame on another site, whose visitors refuse its cookies."""
    refuse = "get() { throw new DOMException('refused', 'SecurityError') }"
    for name in ("localStorage", "sessionStorage"):
        page.add_init_script(f"Object.defineProperty(window, '{name}', {{ {refuse} }})")
    page.goto(f"{address}#/history")
    page.get_by_role("option", name="correct one day").wait_for()
    page.get_by_role("button", name="Colours of the page: system").click()
    page.get_by_role("button", name="Colours of the page: light").wait_for()


#: Requests for chunks never end.
NO_CHUNKS = """
const { fetch } = window;
const never = new Promise(() => {});
window.fetch = (url, ...rest) => String(url).includes("/chunks/") ? never : fetch(url, ...rest);
"""


def test_request_without_an_answer(page: Any, address: str) -> None:
    """Whoever leaves a view that still waits gets all of the next one."""
    page.add_init_script(NO_CHUNKS)
    page.goto(f"{address}#/v/main/again?view=data")
    page.get_by_text("Loading values").wait_for()
    page.get_by_role("treeitem", name="unknown").click()
    page.get_by_role("treeitem", name="data changed by this commit").first.wait_for()


def test_drag_that_the_browser_ends(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data&proj=grid")
    image = page.get_by_role("application")
    box = image.locator("canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for is_ended in (True, False):
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 40, y + 40)
        image.locator(".drag").wait_for()
        if is_ended:
            image.dispatch_event("pointercancel")
        page.mouse.up()
        image.locator(".drag").wait_for(state="detached")
        assert ("r1=" in page.url) is not is_ended
