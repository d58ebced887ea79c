"""The attributes of GeoZarr: places of pixels as rasterio has them, through ingest, pyramids and exports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio  # type: ignore[import-untyped]  # it ships no types
import xarray as xr
import zarr
from rasterio.crs import CRS  # type: ignore[import-untyped]  # the same
from rasterio.errors import NotGeoreferencedWarning  # type: ignore[import-untyped]  # the same
from rasterio.transform import Affine  # type: ignore[import-untyped]  # the same

import frazil
from frazil.geozarr import attributes_of_raster, attributes_of_windows, without_places
from frazil.pipeline import export_netcdf, export_zarr, ingest, pyramid

NORTH_UP = Affine(10, 0, 500_000, 0, -20, 5_000_000)
TURNED = NORTH_UP @ Affine.rotation(30)


def raster(path: Path, transform: Affine = NORTH_UP, kind: str = "Area", **more: Any) -> Path:
    """An image of 40 rows and 60 columns."""
    options = {"crs": "EPSG:32633", "transform": transform, "dtype": "float32"} | more
    with rasterio.open(path, "w", "GTiff", 60, 40, 1, **options) as image:
        image.write(np.arange(2400, dtype="f4").reshape(1, 40, 60))
        image.update_tags(AREA_OR_POINT=kind)
    return path


def ingested(path: Path, **options: Any) -> tuple[frazil.Repository, Any]:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    ingest(str(path), repo, engine="inline", **options)
    return repo, zarr.open_group(repo.readonly_session("main").store, mode="r")


def centre(attributes: Mapping[str, Any], row: int, column: int) -> tuple[float, float]:
    """The centre of a cell, as the convention defines it."""
    a, b, c, d, e, f = attributes["spatial:transform"]
    half = {"pixel": 0.5, "node": 0}[attributes["spatial:registration"]]
    return a * (column + half) + b * (row + half) + c, d * (column + half) + e * (row + half) + f


@pytest.mark.parametrize("transform", [NORTH_UP, TURNED, Affine(1 / 3, 0, -180, 0, 1 / 7, -60)])
@pytest.mark.parametrize("kind", ["Area", "Point"])
def test_places_are_those_of_rasterio(tmp_path: Path, transform: Affine, kind: str) -> None:
    path = raster(tmp_path / "a.tif", transform, kind)
    _, group = ingested(path)
    attributes = group["band_data"].attrs.asdict()
    assert attributes["spatial:registration"] == {"Area": "pixel", "Point": "node"}[kind]
    assert [attributes["spatial:dimensions"], attributes["proj:code"]] == [["y", "x"], "EPSG:32633"]
    cell = abs(transform.determinant) ** 0.5
    with rasterio.open(path) as image:
        for row, column in ((0, 0), (39, 59), (39, 0), (7, 50)):
            difference = np.subtract(centre(attributes, row, column), image.xy(row, column))
            assert np.abs(difference).max() < cell / 100


def test_conventions_are_named_by_their_schemas(tmp_path: Path) -> None:
    _, group = ingested(raster(tmp_path / "a.tif"))
    conventions = group["band_data"].attrs["zarr_conventions"]
    assert [each["name"] for each in conventions] == ["proj", "spatial"]
    for each in conventions:
        name = each["name"]
        assert each["schema_url"] == (
            f"https://raw.githubusercontent.com/zarr-conventions/{name}/refs/tags/v0.1/schema.json"
        )
        assert each["spec_url"] == f"https://github.com/zarr-conventions/{name}/blob/v0.1/README.md"


def test_system_without_a_code_and_none(tmp_path: Path) -> None:
    local = CRS.from_proj4("+proj=laea +lat_0=51 +lon_0=7 +ellps=GRS80 +units=m")
    _, group = ingested(raster(tmp_path / "a.tif", crs=local))
    attributes = group["band_data"].attrs.asdict()
    assert "proj:code" not in attributes
    assert CRS.from_wkt(attributes["proj:wkt2"]) == local
    assert attributes["proj:wkt2"].startswith("PROJCRS")
    _, group = ingested(raster(tmp_path / "b.tif", crs=None))
    assert [each["name"] for each in group["band_data"].attrs["zarr_conventions"]] == ["spatial"]
    with pytest.warns(NotGeoreferencedWarning):
        path = raster(tmp_path / "c.tif", Affine.identity(), crs=None)
    _, group = ingested(path)
    assert not [name for name in group["band_data"].attrs if ":" in name or name == "zarr_conventions"]


def test_renamed_dimensions(tmp_path: Path) -> None:
    _, group = ingested(raster(tmp_path / "a.tif"), rename={"x": "lon", "y": "lat"})
    assert group["band_data"].attrs["spatial:dimensions"] == ["lat", "lon"]


@pytest.mark.parametrize("kind", ["Area", "Point"])
def test_levels_of_a_pyramid(tmp_path: Path, kind: str) -> None:
    repo, _ = ingested(raster(tmp_path / "a.tif", kind=kind))
    target = frazil.pipeline.Target(repo, group="levels")
    pyramid(repo, ["band_data"], to=target, factors={"y": 2, "x": 2}, levels=2, engine="inline")
    group: Any = zarr.open_group(repo.readonly_session("main").store, mode="r", path="levels")
    (convention,) = group.attrs["zarr_conventions"]
    assert convention["schema_url"].endswith("/zarr-conventions/multiscales/refs/tags/v0.1/schema.json")
    for level in group.attrs["multiscales"]["layout"]:
        part = group[level["asset"]]
        attributes = part["band_data"].attrs.asdict()
        assert [each["name"] for each in attributes["zarr_conventions"]] == ["proj", "spatial"]
        for row, column in ((0, 0), (4, 9)):
            expected = part["x"][column], part["y"][row]
            assert np.allclose(centre(attributes, row, column), expected, rtol=0, atol=1e-6)


def test_exports(tmp_path: Path) -> None:
    repo, group = ingested(raster(tmp_path / "a.tif"))
    export_zarr(repo, frazil.local_filesystem_storage(str(tmp_path / "a.zarr")), engine="inline")
    exported: Any = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert exported["band_data"].attrs.asdict() == group["band_data"].attrs.asdict()
    export_netcdf(repo, tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as dataset:
        assert dataset.band_data.attrs["proj:code"] == "EPSG:32633"
        assert dataset.band_data.attrs["spatial:transform"].tolist() == list(NORTH_UP)[:6]


def test_attributes_of_other_programs() -> None:
    other = {"name": "other", "uuid": "x"}
    attributes = attributes_of_raster(NORTH_UP[:6], is_node=False, code="EPSG:4326")
    attributes["zarr_conventions"].append(other)
    assert [each["name"] for each in without_places(attributes)["zarr_conventions"]] == ["proj", "other"]
    assert attributes_of_windows(attributes, ("y", "x"), (1, 1)) == attributes
    for transform in (None, [1, 2], ["a"] * 6, {"a": 1}):
        broken = attributes_of_windows({**attributes, "spatial:transform": transform}, ("y", "x"), (2, 2))
        assert "spatial:transform" not in broken
    assert attributes_of_windows({"units": "K"}, (None, "x"), (2, 2)) == {"units": "K"}
    scaled = attributes_of_windows({**attributes, "spatial:dimensions": ["b", "a"]}, ("a", "b"), (3, 5))
    assert scaled["spatial:transform"] == [30, 0, 500_000, 0, -100, 5_000_000]
