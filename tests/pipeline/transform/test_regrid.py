"""Other grids: as xarray-regrid does it for the whole array at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import xarray_regrid  # noqa: F401  # the accessor `regrid`
from tests.pipeline.transform.shared import opened, read, regrid, repository_of

import frazil
from frazil.pipeline import Target, Version

SERIAL = {"nearest": "nearest", "bilinear": "linear", "conservative": "conservative"}
GLOBE = {"lat": np.arange(-80.0, 81, 20), "lon": np.arange(-175.0, 180, 30)}


@pytest.fixture
def earth() -> frazil.Repository:
    """A globe of packed values with gaps, from north to south and from Greenwich to the east."""
    values = np.random.default_rng(9).integers(0, 400, (6, 18, 36)) * 0.5
    values[2, 4:9, 3:20] = np.nan
    dataset = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), values, {"units": "K"}),
            "mask": (("lat", "lon"), values[0] > 100),
            "p": (("time",), np.arange(6.0)),
            "lat_bnds": (("lat", "nv"), np.zeros((18, 2))),
        },
        {
            "lat": ("lat", 85.0 - np.arange(18) * 10, {"bounds": "lat_bnds", "units": "degrees_north"}),
            "lon": ("lon", 5 + np.arange(36) * 10.0, {"standard_name": "longitude"}),
            "time": ("time", np.arange(6)),
        },
    )
    dataset["t"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9, "chunks": (2, 5, 7)}
    return repository_of(dataset)


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", SERIAL)
@pytest.mark.parametrize("region", [{}, {"lat": np.array([12.5, 7.5]), "lon": np.array([3.0, 9.0, 22.0])}])
def test_equal_to_xarray_regrid(earth: frazil.Repository, method: Any, region: dict[str, Any]) -> None:
    grid = {**GLOBE, **region}
    before = opened(Version.of(earth), "/")
    to = Target(earth, group="new")
    result = regrid(earth, ["t"], grid, method, to=to, chunks={"time": 3}, max_mem=200_000)
    after = opened(result.version, "new")
    target = xr.Dataset(coords=grid)
    options = {"latitude_coord": "lat"} if method == "conservative" else {}
    expected = getattr(before["t"].regrid, SERIAL[method])(target, time_dim=None, **options)
    np.testing.assert_allclose(after["t"].values, expected.transpose("time", "lat", "lon").values, rtol=1e-6)
    assert np.isnan(after["t"].values).any() == np.isnan(expected.values).any()
    assert after["t"].attrs == {"units": "K"}
    assert after["lat"].values.tolist() == list(grid["lat"])
    assert after["lat"].attrs == {"units": "degrees_north"}
    assert after["time"].equals(before["time"])
    assert "lat_bnds" not in after
    assert read(result, "new/t").chunks[0] == 3
    assert regrid(earth, ["t"], grid, method, to=to, chunks={"time": 3}, max_mem=200_000).done_before


@pytest.mark.deep
def test_missing_values_are_left_out_on_request(earth: frazil.Repository) -> None:
    grid = xr.Dataset(coords={"lat": np.arange(-80.0, 81, 5), "lon": np.arange(5.0, 300, 5)})
    plain, skipped = (
        regrid(earth, ["t"], grid, to=Target(earth, group=f"g{skip}"), skipna=skip) for skip in (False, True)
    )
    without, some = (read(each, f"g{n}/t")[:] for each, n in ((plain, False), (skipped, True)))
    assert np.isnan(some).sum() < np.isnan(without).sum()
    both = ~np.isnan(without)
    np.testing.assert_allclose(some[both], without[both], rtol=1e-6)


def test_a_whole_group(earth: frazil.Repository) -> None:
    result = regrid(earth, ["/"], GLOBE, "nearest", to=Target(earth, group="all"))
    after = opened(result.version, "all")
    assert set(after.variables) == {"t", "mask", "p", "lat", "lon", "time"}
    assert after["p"].values.tolist() == list(range(6))
    assert set(np.unique(after["mask"].values)) <= {0, 1}
