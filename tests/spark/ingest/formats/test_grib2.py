"""GRIB, by cfgrib: what its own engine of xarray gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tests.spark.ingest.formats.comparing import (
    read_all,
    same,
    same_as_xarray,
    same_regions,
    sample_files,
    why_not,
)

from frazil.errors import FormatError
from frazil.spark.ingest.opening import open_source

cfgrib = pytest.importorskip("cfgrib")
eccodes = pytest.importorskip("eccodes")


def message(edition: int, **keys: object) -> bytes:
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_pl_grib{edition}")
    grid = {"Ni": 6, "Nj": 4, "longitudeOfLastGridPointInDegrees": 5, "latitudeOfFirstGridPointInDegrees": 3}
    for key, value in {
        **grid,
        "latitudeOfLastGridPointInDegrees": 0,
        "jDirectionIncrementInDegrees": 1,
    }.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set(handle, "iDirectionIncrementInDegrees", 1)
    values = keys.pop("values", np.arange(24.0))
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, values)
    found: bytes = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return found


def cube(edition: int) -> bytes:
    """Two days, two steps, three levels."""
    return b"".join(
        message(
            edition,
            shortName="t",
            dataDate=day,
            step=step,
            level=level,
            values=np.arange(24.0) + day % 7 + level,
        )
        for day in (20200228, 20200229)
        for step in (0, 6)
        for level in (1000, 850, 500)
    )


def original(path: Path, **options: object) -> xr.Dataset:
    found = xr.open_dataset(
        path, engine="cfgrib", decode_cf=False, backend_kwargs={"indexpath": "", **options}
    )
    found.attrs.pop("history")
    return found


@pytest.mark.parametrize("path", sample_files(".grib2"))
def test_samples(path: Path) -> None:
    with open_source(str(path)) as reader:
        same_as_xarray(reader, original(path))
        assert why_not(reader, "t") == "no codec of Zarr decodes messages of GRIB"
        same_regions(reader, "t")
    assert not list(path.parent.glob("*.idx"))


@pytest.mark.parametrize("edition", [1, 2])
def test_cubes(edition: int, tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    path.write_bytes(cube(edition))
    with open_source(str(path)) as reader:
        variable = reader.schema().variables["t"]
        assert variable.dims == ("time", "step", "isobaricInhPa", "latitude", "longitude")
        assert variable.shape == (2, 2, 3, 4, 6)
        same_as_xarray(reader, original(path))
        same_regions(reader, "t")
        assert [name for name, each in reader.schema().variables.items() if not each.coordinate] == ["t"]


def test_missing_values_are_not_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    values = np.where(np.arange(24) % 5, np.arange(24.0), 9999)
    path.write_bytes(message(2, shortName="t", bitmapPresent=1, missingValue=9999, values=values))
    with open_source(str(path)) as reader:
        found = read_all(reader, "t").ravel()
    same(np.isnan(found), np.arange(24) % 5 == 0)


def test_one_step_may_keep_its_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    path.write_bytes(message(2, shortName="t"))
    with open_source(str(path)) as reader:
        assert reader.schema().variables["t"].dims == ("latitude", "longitude")
    with open_source(str(path), squeeze=False) as reader:
        assert reader.schema().variables["t"].dims[:2] == ("time", "step")


def test_what_is_not_one_hypercube(tmp_path: Path) -> None:
    path = tmp_path / "a.grib"
    surface = message(2, shortName="2t", typeOfFirstFixedSurface=103, level=2)
    path.write_bytes(cube(2) + surface)
    keys = {"typeOfLevel": "isobaricInhPa"}
    with pytest.raises(FormatError, match="choose with filter_by_keys") as raised:
        open_source(str(path)).schema()
    assert path.as_uri() in str(raised.value)
    with open_source(str(path), filter_by_keys=keys) as reader:
        same_as_xarray(reader, original(path, filter_by_keys=keys))


def test_damaged_files(tmp_path: Path) -> None:
    whole = cube(2)
    path = tmp_path / "a.grib"
    for data, found in [
        (whole[:-1], "truncated"),
        (whole[: len(whole) // 2 + 5], "truncated"),
        (whole[:10], "truncated"),
        (whole[:-4] + b"xxxx", "7777"),
    ]:
        path.write_bytes(data)
        with pytest.raises(FormatError, match=found) as raised:
            open_source(str(path))
        assert path.as_uri() in str(raised.value)
    path.write_bytes(b"no grib")
    with pytest.raises(FormatError, match="a GRIB file"):
        open_source(str(path), "grib")
