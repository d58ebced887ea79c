"""NetCDF files of versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.errors import AlreadyExistsError, InvalidInputError, NodeNotFoundError
from frazil.pipeline import export_netcdf


@pytest.fixture
def data() -> xr.Dataset:
    times = np.arange("2001-01-01", "2001-01-11", dtype="M8[D]").astype("M8[ns]")
    values = np.random.default_rng(1).random((10, 4)).astype("f4")
    values[3] = np.nan
    return xr.Dataset(
        {"t": (("time", "x"), values, {"units": "K"}), "n": ("x", np.arange(4))}, {"time": times}
    )


@pytest.fixture
def repo(data: xr.Dataset) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="data") as store:
        data.to_zarr(store, group="weather", consolidated=False, zarr_format=3)
    return repo


def test_a_file_has_the_values_of_the_group(
    repo: frazil.Repository, data: xr.Dataset, tmp_path: Path
) -> None:
    file = export_netcdf(repo, tmp_path / "all.nc", group="weather")
    with xr.open_dataset(file) as stored:
        xr.testing.assert_identical(stored.load(), data)
    one = export_netcdf(repo, str(tmp_path / "one.nc"), group="/weather", variables=["n"])
    with xr.open_dataset(one) as stored:
        assert set(stored.data_vars) == {"n"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all.nc", "one.nc"]


def test_an_existing_file_is_replaced_only_on_request(repo: frazil.Repository, tmp_path: Path) -> None:
    file = tmp_path / "all.nc"
    file.write_bytes(b"mine")
    with pytest.raises(AlreadyExistsError, match="Pass overwrite=True"):
        export_netcdf(repo, file, group="weather")
    with pytest.raises(InvalidInputError, match="variables of the group `weather`, got 'x2'"):
        export_netcdf(repo, file, group="weather", variables=["x2"], overwrite=True)
    with pytest.raises(NodeNotFoundError):
        export_netcdf(repo, file, group="elsewhere", overwrite=True)
    assert file.read_bytes() == b"mine"
    export_netcdf(repo, file, group="weather", overwrite=True)
    assert list(tmp_path.iterdir()) == [file]
    with xr.open_dataset(file) as stored:
        assert set(stored.data_vars) == {"t", "n"}


@pytest.mark.parametrize(
    "attrs",
    [
        {"_Unsigned": "true"},
        {"_Unsigned": "true", "scale_factor": 0.5},
        {"_Unsigned": "true", "_FillValue": np.int8(-1)},
        {"_FillValue": np.int8(-1), "missing_value": np.int8(5)},
        {"title": {"en": "a"}, "kind": None, "is_good": True, "nested": [[1, 2], [3]], "mixed": [1, "a"]},
    ],
)
@pytest.mark.filterwarnings("ignore:(variable .* has multiple fill values|saving variable v)")
def test_values_stay_whatever_the_attributes_are(attrs: dict[str, Any], tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    values = np.array([-1, 5, -128, 127], "i1")
    with repo.transaction("main", message="data") as store:
        xr.Dataset({"v": ("x", values, attrs)}, attrs={"frazil_view": {"a": [1]}}).to_zarr(
            store, consolidated=False, zarr_format=3
        )
    with (
        xr.open_dataset(export_netcdf(repo, tmp_path / "a.nc")) as stored,
        xr.open_zarr(repo.readonly_session("main").store, consolidated=False) as expected,
    ):
        np.testing.assert_array_equal(stored.v, expected.v)
        for name in attrs.keys() & expected.v.attrs.keys():
            assert json.loads(stored.v.attrs[name]) == attrs[name]
        assert json.loads(stored.attrs["frazil_view"]) == {"a": [1]}


def test_what_a_netcdf_file_cannot_have(repo: frazil.Repository, tmp_path: Path) -> None:
    with repo.transaction("main", message="an array without names of dimensions") as store:
        zarr.create_array(store, name="plain/a", shape=(2,), dtype="i4")
    with pytest.raises(InvalidInputError, match="`/plain/a` must have names of its dimensions"):
        export_netcdf(repo, tmp_path / "a.nc", group="plain")
    with pytest.raises(InvalidInputError, match=r"`/weather/t` is an array.*group='/weather'"):
        export_netcdf(repo, tmp_path / "a.nc", group="weather/t")
    with repo.transaction("main", message="complex numbers") as store:
        zarr.create_array(store, name="complex/a", shape=(2,), dtype="c8", dimension_names=["x"])
    with pytest.raises(InvalidInputError, match="that xarray can write to NetCDF"):
        export_netcdf(repo, tmp_path / "a.nc", group="complex")
    assert not list(tmp_path.iterdir())
