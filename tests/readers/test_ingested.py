"""Real files through ``ingest``: what xarray sees in the repository is what it sees in the file, and the
published icechunk sees it too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest.netcdf_files import ingest
from tests.readers import test_geotiff as test_geotiff_layouts
from tests.readers import test_hdf5, test_netcdf3
from tests.readers import test_zarr as test_zarr_groups
from tests.readers.comparing import as_text, plain, read_all, sample_files

import frazil
from frazil.readers.registry import open_source

pytestmark = [
    pytest.mark.deep,
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:numpy.ndarray size changed"),
    pytest.mark.filterwarnings("ignore:variable 'packed' has multiple fill values"),
]


def identical(dataset: xr.Dataset, expected: xr.Dataset) -> None:
    """Names, coordinates, dimensions, attributes, dtypes and values."""
    assert set(dataset.coords) == set(expected.coords)
    assert set(dataset.data_vars) == set(expected.data_vars)
    assert dict(dataset.sizes) == dict(expected.sizes)
    assert as_text(dataset.attrs) == as_text(expected.attrs)
    for name, variable in expected.variables.items():
        other = dataset.variables[name]
        assert other.dims == variable.dims
        assert as_text(other.attrs) == as_text(variable.attrs), name
        scale = variable.encoding.get("scale_factor", variable.encoding.get("add_offset"))
        if {other.dtype.kind, variable.dtype.kind} <= set("OTU"):
            assert other.values.astype(object).tolist() == variable.values.astype(object).tolist()
        elif isinstance(scale, np.float32):
            # JSON has no float32, of which xarray makes packed data: the same, with more digits
            np.testing.assert_allclose(other.values, variable.values, 1e-6, err_msg=str(name))
        else:
            assert other.dtype.newbyteorder("=") == variable.dtype.newbyteorder("="), name
            np.testing.assert_array_equal(other.values, variable.values, name)
        for key in ("units", "calendar", "_FillValue", "scale_factor", "add_offset"):
            assert (key in other.encoding) == (key in variable.encoding), (name, key)
            np.testing.assert_equal(plain(other.encoding.get(key)), plain(variable.encoding.get(key)))


def theirs(path: Path, container: Path | None) -> Any:
    """A store of the published icechunk."""
    config = icechunk.RepositoryConfig.default()
    access: dict[str, Any] | None = None
    if container is not None:
        prefix = f"file://{container}/"
        config.set_virtual_chunk_container(
            icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(container)))
        )
        access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    storage = icechunk.local_filesystem_storage(str(path))
    repo = icechunk.Repository.open(storage, config=config, authorize_virtual_chunk_access=access)
    return repo.readonly_session("main").store


#: Files with one feature each.
FEATURES: dict[str, Callable[[Path], Path]] = {
    **{each.__name__: functools.partial(test_hdf5.write_file, feature=each) for each in test_hdf5.FEATURES},
    **{each: functools.partial(test_netcdf3.write_file, format=each) for each in test_netcdf3.FORMATS},
}

#: Files like others: they are read in the tests of their format.
ALIKE = ("E1_north_america.nc", "nemo_1m_20150201-20150301_grid-T.nc", "nemo_1m_20150301-20150401_grid-T.nc")


@pytest.mark.sample(4, 4)
@pytest.mark.parametrize("virtual", [False, True], ids=["copied", "virtual"])
@pytest.mark.parametrize("path", [each for each in sample_files(".nc", ".grib2") if each.id not in ALIKE])
def test_samples(path: Path, virtual: bool, tmp_path: Path) -> None:
    grib = path.suffix == ".grib2"
    if virtual and grib:
        pytest.skip("GRIB has no references")
    engine: dict[str, Any] = {"engine": "cfgrib", "backend_kwargs": {"indexpath": ""}} if grib else {}
    with xr.open_dataset(path, **engine) as original:
        original.attrs.pop("history", None) if grib else None
        same_everywhere(path, original, tmp_path, virtual=virtual)


@pytest.mark.sample(8, 8)
@pytest.mark.parametrize("virtual", [False, True], ids=["copied", "virtual"])
@pytest.mark.parametrize("feature", FEATURES)
def test_features(feature: str, virtual: bool, tmp_path: Path) -> None:
    folder = tmp_path / "in here"
    folder.mkdir()
    path = FEATURES[feature](folder / "a b.nc")
    with xr.open_dataset(path) as original:
        if feature == "enumeration":  # their names are kept by the attributes that CF has for them
            original.cloud.attrs |= {"flag_values": [0, 1, 255], "flag_meanings": "clear broken missing"}
        same_everywhere(path, original, tmp_path / "repo", virtual=virtual)


@pytest.mark.parametrize("virtual", [False, True], ids=["copied", "virtual"])
@pytest.mark.parametrize("version", [2, 3])
def test_zarr(version: int, virtual: bool, tmp_path: Path) -> None:
    folder = tmp_path / "in here"
    data = test_zarr_groups.dataset()
    data.packed.encoding["chunks"] = (2, 3, 3)
    data.to_zarr(folder / "a.zarr", zarr_format=version, consolidated=False)
    with xr.open_zarr(folder / "a.zarr", consolidated=False) as original:
        same_everywhere(folder / "a.zarr", original, tmp_path / "repo", virtual=virtual)


@pytest.mark.parametrize("virtual", [False, True], ids=["copied", "virtual"])
def test_geotiff(virtual: bool, tmp_path: Path) -> None:
    folder = tmp_path / "in here"
    folder.mkdir()
    layout: dict[str, Any] = {
        "tiled": True,
        "blockxsize": 32,
        "blockysize": 16,
        "compress": "deflate",
        "nodata": 3,
    }
    values = test_geotiff_layouts.write_file(folder / "a.tif", 3, **layout)
    with open_source(str(folder / "a.tif")) as reader:
        schema = reader.schema()
        original = xr.decode_cf(
            xr.Dataset(
                {
                    name: (each.dims, read_all(reader, name), each.attrs)
                    for name, each in schema.variables.items()
                }
            )
        )
    assert np.isnan(original.band_data.values[values == 3]).all()
    same_everywhere(folder / "a.tif", original, tmp_path / "repo", virtual=virtual)


def same_everywhere(path: Path, original: xr.Dataset, place: Path, *, virtual: bool) -> None:
    """Ingest a file, and see the same in the repository, also with the published icechunk."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(place))
    prefix = f"file://{path.parent}/"
    files = frazil.local_filesystem_store(str(path.parent))
    containers = [frazil.VirtualChunkContainer(prefix, files)] if virtual else []
    result = ingest(str(path), repo, virtual=virtual, containers=containers, allow={"hole"})
    # Copies are chunks like all others: that both read them alike is shown elsewhere.
    ours = [result.version.session().store] if virtual else []
    for store in (*ours, theirs(place, path.parent if virtual else None)):
        dataset = xr.open_zarr(store, consolidated=False)
        if "valid_time" in dataset.dims:  # one time becomes a dimension, in which more files may follow
            assert dataset.t.dims == ("valid_time", "y", "x")
            dataset = dataset.isel(valid_time=0)
        identical(dataset, original)
    locations = set(result.version.session().all_virtual_chunk_locations())
    data = [
        each for each in original.data_vars.values() if each.size and "grid_mapping_name" not in each.attrs
    ]
    inside = {location for location in locations if location.startswith(path.as_uri())}
    assert inside == locations
    assert bool(locations) == (virtual and bool(data))
