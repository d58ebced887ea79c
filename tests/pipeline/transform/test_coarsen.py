"""Coarser grids and pyramids equal those of xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.transform.shared import coarsen, opened, read, repository_of

import frazil
from frazil.pipeline import Target

STATISTICS = ("mean", "sum", "min", "max", "median", "std", "var", "count")


@pytest.mark.deep
@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    st.sampled_from(["f4", "f8", "i2", "i8", "u1", "bool"]),
    st.sampled_from(STATISTICS),
    st.sampled_from(["trim", "pad"]),
    st.integers(1, 3),
)
def test_equal_to_xarray(axes: list[Any], dtype: str, how: Any, boundary: Any, most: int) -> None:
    shape, chunks, windows = (tuple(each[n] for each in axes) for n in range(3))
    values = np.random.default_rng(len(axes)).integers(0, 50, shape)
    data = np.where(values > 45, np.nan, values).astype(dtype) if dtype[0] == "f" else values.astype(dtype)
    names = [f"d{n}" for n in range(len(shape))]
    repo = repository_of(data, chunks=chunks, dimension_names=names)
    factors = dict(zip(names, windows, strict=True))
    to = Target(repo, group="out")
    least = 8 * int(np.prod(chunks)) * (2 + int(np.prod(windows)))
    result = coarsen(repo, ["x"], factors, how, to=to, boundary=boundary, max_mem=most * least)
    output = read(result, "out/x")
    padded = dtype == "bool" and boundary == "pad" and any(n % w for n, w in zip(shape, windows, strict=True))
    array = xr.DataArray(data.astype("f8") if padded else data, dims=names)
    expected = getattr(array.coarsen(factors, boundary=boundary), how)()
    np.testing.assert_allclose(output[...], expected.values, rtol=1e-6, atol=1e-6)
    # Before 2026, xarray made floats of integers for boundary="pad", and of those of up to 16 bits float32
    is_padded_before_2026 = boundary == "pad" and data.dtype.kind in "iu" and expected.dtype.kind == "f"
    assert output.dtype == expected.dtype or is_padded_before_2026


@pytest.mark.parametrize(
    ("how", "boundary", "values", "expected"),
    [  # the cells that fill the last window count for nothing
        ("any", "pad", np.array([0, 1, 0, 0, 0]), [True, False, False]),
        ("any", "pad", np.array([0.0, np.nan, 0, 0, 0]), [True, False, False]),
        ("all", "pad", np.array([True, True, False, True, True]), [True, False, True]),
        ("all", "trim", np.array([3, 4, 0, 1, 0], "u1"), [True, False]),
        ("last", "pad", np.array([1, 2, 3, 4, 5]), [2, 4, 5]),
        ("last", "trim", np.array([1, 2, np.nan, 4, 5]), [2, 4]),
        ("last", "pad", np.array(list("abcde"), "U1"), ["b", "d", "e"]),
    ],
)
def test_truths_and_elements_of_windows(how: str, boundary: Any, values: Any, expected: list[Any]) -> None:
    repo = repository_of(values, chunks=(2,), dimension_names=["d"])
    to = Target(repo, group="out")
    result = coarsen(repo, ["x"], {"d": 2}, how, to=to, boundary=boundary)
    output = read(result, "out/x")
    assert output[...].tolist() == expected
    assert how != "last" or output.dtype == values.dtype


@pytest.mark.sample(41, 41)
@pytest.mark.deep
@pytest.mark.parametrize("boundary", ["trim", "pad"])
@pytest.mark.parametrize("how", STATISTICS)
@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]"])
@pytest.mark.parametrize("window", [1, 2])
def test_statistics_of_dates_and_durations(window: int, dtype: str, how: Any, boundary: Any) -> None:
    values = np.array([10, 20, -1, 40, 50]).astype(dtype)
    values[2] = np.array("NaT", dtype)
    repo = repository_of(values, chunks=(2,), dimension_names=["d"])
    to = Target(repo, group="out")
    result = coarsen(repo, ["x"], {"d": window}, how, to=to, boundary=boundary)
    output = read(result, "out/x")[...]
    try:
        expected = getattr(xr.DataArray(values, dims="d").coarsen(d=window, boundary=boundary), how)().values
    except TypeError:  # there is no such statistic: the first of each window
        expected = values[::window][: len(output)]
    np.testing.assert_array_equal(output, expected)
    assert output.dtype == expected.dtype


@pytest.fixture
def climate() -> frazil.Repository:
    """Packed values with gaps, all kinds of coordinates."""
    lat = np.arange(8.0) * 10 - 35
    packed = np.arange(3 * 8 * 6).reshape(3, 8, 6) % 100
    data = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), np.where(packed > 90, np.nan, packed * 0.5), {"units": "K"}),
            "lat_bnds": (("lat", "nv"), np.stack([lat - 5, lat + 5], axis=1)),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
            "height": (("lat", "lon"), np.where(np.arange(48) % 11, np.arange(48.0), np.nan).reshape(8, 6)),
        },
        {
            "lat": ("lat", lat, {"bounds": "lat_bnds", "units": "degrees_north"}),
            "lon": ("lon", np.arange(6) * 60),
            "time": ("time", np.array(["2001-01-01", "2001-01-02", "2001-01-03"], "M8[ns]")),
            "area": (("lat", "lon"), np.ones((8, 6), "f4")),
            "label": ("lon", np.array(list("abcdef"))),
        },
    )
    data["t"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9, "chunks": (1, 3, 6)}
    data["height"].encoding = {"_FillValue": 1e20}
    return repository_of(data, group="era")


def test_a_dataset_stays_one(climate: frazil.Repository) -> None:
    to = Target(climate, group="coarse")
    result = coarsen(climate, ["era"], {"lat": 2, "lon": 3}, to=to)
    before, after = opened(result.version, "era"), opened(result.version, "coarse/era")
    fields = ["t", "height"]
    expected = before[[*fields, "area"]].drop_vars("label").coarsen(lat=2, lon=3).mean()
    for name in (*fields, "lat", "lon", "area"):
        np.testing.assert_allclose(after[name].values, expected[name].values, rtol=1e-6)
    assert after["t"].attrs == {"units": "K", "cell_methods": "lat: lon: mean"}
    assert np.isnan(after["t"].values).sum() == np.isnan(expected["t"].values).sum()
    assert after["lat_bnds"].values.tolist() == [[-40, -20], [-20, 0], [0, 20], [20, 40]]
    assert after["label"].values.tolist() == ["a", "d"]
    assert after["time"].equals(before["time"])
    assert after["crs"].attrs == {"grid_mapping_name": "latitude_longitude"}
    assert "label" in after.coords


def test_time_is_averaged_as_numbers(climate: frazil.Repository) -> None:
    result = coarsen(climate, ["era/t"], {"time": 3}, "max", to=Target(climate, group="c"))
    after = opened(result.version, "c/era")
    assert after["time"].values.tolist() == [np.datetime64("2001-01-02", "ns").astype(int)]
    np.testing.assert_array_equal(after["t"].values[0], opened(result.version, "era")["t"].max("time"))
    assert "lon" in after.coords  # coordinates come along
