"""The means of a part of a picture equal those of xarray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.ui.serving import hosted

import frazil
from frazil.cli.main import main

pytestmark = pytest.mark.browser
xr = pytest.importorskip("xarray")

SHAPE = (6, 9, 12)
LATITUDES = np.linspace(80, -80, 9)


def datasets() -> dict[str, Any]:
    """Missing values, packed values with missing ones, and a plane that is not on Earth."""
    random = np.random.default_rng(7)
    holes = random.random(SHAPE) < 0.2
    holes[3] = True  # a step without any value
    axes = {"time": np.arange(6.0), "lat": LATITUDES, "lon": np.arange(0, 360, 30.0)}
    values = np.where(holes, np.nan, random.normal(280, 20, SHAPE)).astype("f4")
    earth = xr.Dataset({"t": (tuple(axes), values), "packed": (tuple(axes), values)}, axes)
    earth.lat.attrs["units"], earth.lon.attrs["units"] = "degrees_north", "degrees_east"
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    earth.packed.encoding.update(packing)
    plane = xr.Dataset({"v": (("step", "y", "x"), random.random(SHAPE))})
    return {"earth": earth, "plane": plane}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("means")
    repo = frazil.Repository.create(str(folder / "ice"))
    with repo.transaction("main", message="data") as store:
        for group, dataset in datasets().items():
            chunks = {name: {"chunks": (2, 5, 7)} for name in dataset.data_vars}
            dataset.to_zarr(store, group=group, encoding=chunks, zarr_format=3, consolidated=False)
    assert main(["ui", str(folder / "ice"), "--static", str(folder / "page")]) == 0
    with hosted(folder) as root:
        yield f"{root}page/index.html"


def test_means_of_random_parts(page: Any, address: str) -> None:
    random = np.random.default_rng(3)
    for turn in range(20):
        group, name = (("earth", "t"), ("earth", "packed"), ("plane", "v"))[turn % 3]
        array = datasets()[group][name]
        low = [int(random.integers(0, size)) for size in SHAPE[1:]]
        high = [int(random.integers(at + 1, size + 1)) for at, size in zip(low, SHAPE[1:], strict=True)]
        part = "&".join(f"r{d + 1}={a}-{b}" for d, (a, b) in enumerate(zip(low, high, strict=True)))
        page.goto(f"{address}?{turn}#/v/main/{group}/{name}?view=data&proj=grid&mean=1&{part}")
        box = array.isel({dim: slice(a, b) for dim, a, b in zip(array.dims[1:], low, high, strict=True)})
        heading = page.locator(".bar span", has_text="mean of ")
        if group == "earth":
            weights = np.cos(np.deg2rad(box.lat))
            expected = box.astype("f8").weighted(weights).mean(("lat", "lon"))
            ends = f"lat {box.lat.values[0]:g} to {box.lat.values[-1]:g}"
            assert ends in heading.inner_text().strip()
            assert heading.inner_text().strip().endswith("weighted by the cosine of latitude")
        else:
            expected = box.mean(("y", "x"))
            assert heading.inner_text().strip() == (
                f"mean of y {low[0]} to {high[0] - 1}, x {low[1]} to {high[1] - 1}"
            )
        page.get_by_text("Values of 1 line").click()
        cells = page.get_by_role("region", name="Points").get_by_role("cell")
        cells.nth(6).wait_for()
        texts = cells.all_inner_texts()[1:]  # the first cell is the corner
        found = [np.nan if text == "no value" else float(text) for text in texts]
        tolerance = 0.006 if name == "packed" else 0
        np.testing.assert_allclose(found, expected.values, rtol=1e-5, atol=tolerance)


def test_a_mean_of_meanings_does_not_exist(page: Any, address: str, tmp_path: Path) -> None:
    """The button is there for numbers, and not for flags."""
    repo = frazil.Repository.create(str(tmp_path / "ice"))
    with repo.transaction("main", message="flags") as store:
        flags = zarr.create_array(store, name="f", data=np.eye(4, dtype="i1"), dimension_names=["y", "x"])
        flags.attrs.update({"flag_values": [0, 1], "flag_meanings": "no yes"})
    assert main(["ui", str(tmp_path / "ice"), "--static", str(tmp_path / "page")]) == 0
    with hosted(tmp_path) as root:
        page.goto(f"{root}page/index.html#/v/main/f?view=data")
        page.get_by_text("16 values. ").wait_for()
        assert page.get_by_role("button", name="Mean of this part").count() == 0
    page.goto(f"{address}#/v/main/plane/v?view=data")
    page.get_by_role("button", name="Mean of this part").click()
    page.wait_for_url("**mean=1*")
    page.get_by_text("Values of 1 line").wait_for()
    page.get_by_role("button", name="Mean of this part", pressed=True).click()
    page.get_by_text("Values of 1 line").wait_for(state="detached")
