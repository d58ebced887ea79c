"""Levels of a pyramid are coarsened arrays, and their metadata follow the conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.transform.shared import opened, pyramid, read, repository_of
from tests.support.judge import same_by_reference

import frazil
from frazil.pipeline import Target

HALF = {"y": 2, "x": 2}


@pytest.fixture
def picture(tmp_path: Path) -> frazil.Repository:
    data = np.random.default_rng(5).random((3, 37, 64))
    data[:, 3:9, 5:20] = np.nan
    dataset = xr.Dataset(
        {"p": (("t", "y", "x"), data, {"y_unit": "um"})},
        {"y": ("y", np.arange(37.0)), "x": ("x", np.arange(64)), "t": ("t", [1, 2, 3])},
    )
    dataset["p"].encoding["chunks"] = (1, 8, 16)
    return repository_of(dataset, frazil.local_filesystem_storage(str(tmp_path / "repo")))


@pytest.mark.deep
def test_each_level_is_coarser(picture: frazil.Repository, tmp_path: Path) -> None:
    to = Target(picture, group="levels")
    result = pyramid(picture, ["p"], factors=HALF, to=to)
    expected = opened(result.version, "/")
    root: Any = zarr.open_group(result.version.session().store, path="levels", mode="r")
    layout = root.attrs.asdict()["multiscales"]["layout"]
    assert [level["asset"] for level in layout] == ["0", "1", "2", "3"]
    for level in layout:
        output = opened(result.version, f"levels/{level['asset']}")
        np.testing.assert_allclose(output["p"].values, expected["p"].values, rtol=1e-12)
        for name in ("y", "x", "t"):
            np.testing.assert_array_equal(output[name].values, expected[name].values)
        scale, translation = level["transform"]["scale"], level["transform"]["translation"]
        assert output["x"].values[:2].tolist() == [translation[2], translation[2] + scale[2]]
        expected = expected.coarsen(HALF, boundary="trim").mean()
    assert layout[3]["derived_from"] == "2"
    assert root["3/p"].chunks == (1, 8, 16)
    session = result.version.session()
    assert session.chunk_table("/levels/0/p").equals(session.chunk_table("/p"))
    assert pyramid(picture, ["p"], factors=HALF, to=to).done_before
    same_by_reference(tmp_path / "repo", picture)


def test_of_microscopy(picture: frazil.Repository) -> None:
    to = Target(picture, group="image")
    result = pyramid(picture, ["p"], factors=HALF, levels=3, convention="ome", how="max", to=to)
    root: Any = zarr.open_group(result.version.session().store, path="image", mode="r")
    (scales,) = root.attrs["ome"]["multiscales"]
    assert root.attrs["ome"]["version"] == "0.5"
    assert scales["axes"][1] == {"name": "y", "type": "space", "unit": "micrometer"}
    assert [each["path"] for each in scales["datasets"]] == sorted(root) == ["0", "1", "2"]
    assert scales["datasets"][2]["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0, 4.0, 4.0]},
        {"type": "translation", "translation": [0.0, 1.5, 1.5]},
    ]
    array = xr.DataArray(read(result, "p")[:], dims=("t", "y", "x"))
    expected = array.coarsen(HALF, boundary="trim").max().coarsen(HALF, boundary="trim").max()
    np.testing.assert_array_equal(root["2"][:], expected.values)
