"""GeoTIFF of many makers: in the store is what rasterio reads in the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest.netcdf_files import container, ingest, repository, stored_dataset
from tests.pipeline.ingest.real_archives import TIFF, files, parameters

from frazil.errors import InvalidInputError

rasterio = pytest.importorskip("rasterio")
pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
]
SAMPLES = parameters(
    files("r-cran-stars", "r-cran-terra", "hvsampledata", "earthkit-data", magic=TIFF, largest=2_000_000)
)


def same_as_rasterio(dataset: xr.Dataset, path: Path) -> None:
    """Values, places, coordinate reference system, tags."""
    with rasterio.open(path) as image:
        data = dataset["band_data"]
        values = image.read()
        assert data.dims == ("band", "y", "x")
        if image.nodata is None and set(image.scales) == {1}:
            assert data.dtype == values.dtype
            np.testing.assert_array_equal(data.values, values)
        else:  # decoded: what has no value is not a number
            masked = image.read(masked=True).astype(data.dtype) * image.scales[0] + image.offsets[0]
            np.testing.assert_array_equal(data.values, masked.filled(np.nan))
        mapping = dataset["spatial_ref"].attrs
        transform = rasterio.Affine.from_gdal(*map(float, mapping["GeoTransform"].split()))
        assert transform == image.transform
        crs = mapping.get("crs_wkt")
        assert (crs and rasterio.crs.CRS.from_wkt(crs)) == image.crs
        columns, rows = np.meshgrid(np.arange(image.width), np.arange(image.height))
        x, y = rasterio.transform.xy(image.transform, rows.ravel(), columns.ravel())
        names = ("x", "y") if "x" in dataset.coords else ("xc", "yc")
        for name, expected in zip(names, (x, y), strict=True):
            labels = np.broadcast_to(
                dataset[name] if dataset[name].ndim == 2 else _on_pixels(dataset, name), rows.shape
            )
            np.testing.assert_allclose(labels.ravel(), expected, rtol=1e-12, atol=1e-9)
        assert tags(data.attrs, image.count) == [
            {**image.tags(), **image.tags(band)} | _named(image, band) for band in image.indexes
        ]


def _on_pixels(dataset: xr.Dataset, name: str) -> np.ndarray:
    values: np.ndarray = dataset[name].values
    return values if name == "x" else values[:, np.newaxis]


def _named(image: Any, band: int) -> dict[str, str]:
    description = image.descriptions[band - 1]
    return {"long_name": description} if description else {}


def tags(attrs: Mapping[Any, Any], bands: int) -> list[dict[str, Any]]:
    """The attributes of each band."""
    return [
        {
            name: each[band] if isinstance(each, list) else each
            for name, each in attrs.items()
            # test_geozarr.py has the attributes of places.
            if name not in ("grid_mapping", "zarr_conventions") and not name.startswith(("proj:", "spatial:"))
        }
        for band in range(bands)
    ]


@pytest.mark.sample(11, 11)
@pytest.mark.parametrize("path", SAMPLES)
def test_an_image_alone(path: Path, tmp_path: Path) -> None:
    result = ingest(path, repository(tmp_path / "repo"))
    same_as_rasterio(stored_dataset(result.version), path)


@pytest.mark.parametrize("path", SAMPLES)
def test_references_to_an_image(path: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"virtual": True, "containers": [container(path.parent)]}
    repo = repository(tmp_path / "repo")
    with rasterio.open(path) as image:
        compression = image.compression
    if compression is not None and compression.name == "lzw":
        with pytest.raises(InvalidInputError, match="LZW: no codec in Zarr"):
            ingest(path, repo, **options)
        return
    result = ingest(path, repo, **options)
    assert set(result.version.session().all_virtual_chunk_locations()) == {path.as_uri()}
    same_as_rasterio(stored_dataset(result.version), path)
