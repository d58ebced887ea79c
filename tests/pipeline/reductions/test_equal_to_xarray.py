"""Reductions give what xarray gives, however the arrays are chunked and wherever partial results meet."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xarray.groupers import BinGrouper

import frazil
from frazil.pipeline import Inline, Target
from frazil.pipeline.reductions import Limits, groupby, reduce, resample, zonal_stats

#: Small enough that every way is taken: few bytes in a block, a task, a result, and states that are stored.
WAYS = {
    "values": Limits(task=600, block=200, chunk=200),
    "whole": Limits(task=600, block=200, chunk=200, state=2000),
    "stored": Limits(task=20, block=100, chunk=100),
}
#: Each example is a repository; the profile that looks for new ones has more.
few = settings(max_examples=3, phases=[Phase.generate])
NAN_AWARE = ("mean", "sum", "min", "max", "std", "var", "count")


def repository(**arrays: xr.DataArray | xr.Dataset) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    for name, value in arrays.items():
        dataset = value if isinstance(value, xr.Dataset) else value.rename(name).to_dataset()
        dataset.to_zarr(session.store, group="data", mode="a", consolidated=False, zarr_format=3)
    session.commit("data")
    return repo


def read(repo: frazil.Repository, group: str) -> xr.Dataset:
    store = repo.readonly_session("main").store
    dataset: xr.Dataset = xr.open_zarr(store, group=group, consolidated=False, zarr_format=3, chunks=None)
    return dataset.load()


def run(
    call: Callable[..., Any], repo: frazil.Repository, *given: Any, group: str = "out", **options: Any
) -> xr.Dataset:
    """Run an operation on paths of the group `data`, and return the results."""
    call(repo, *given, engine=Inline(), to=Target(repo, group=group), **options)
    return read(repo, f"{group}/data")


def equal(ours: xr.DataArray, theirs: xr.DataArray, exact: bool = False) -> None:
    assert set(ours.dims) == set(theirs.dims)
    theirs = theirs.transpose(*ours.dims)
    assert ours.dtype == theirs.dtype
    if exact:
        np.testing.assert_array_equal(ours.values, theirs.values)
    else:
        rtol = 2e-5 if ours.dtype.itemsize == 4 else 1e-9
        np.testing.assert_allclose(ours.values, theirs.values, rtol=rtol, atol=rtol)
    for dim in ours.dims:
        if dim in theirs.coords:
            np.testing.assert_array_equal(ours[dim].values, theirs[dim].values)


@st.composite
def arrays(draw: Any) -> xr.DataArray:
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 7), st.integers(1, 6)))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    dtype = np.dtype(draw(st.sampled_from(["f4", "f8", "i2", "u1", "i8", "?"])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.integers(-50, 50, shape)
    values = values.astype(dtype)
    if dtype.kind == "f":
        values += rng.random(shape).astype(dtype)
        values[rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = np.nan
    step = draw(st.sampled_from([1, 9, 40]))
    calendar = draw(st.sampled_from(["standard", "noleap", "360_day"]))
    time = xr.date_range("2001-01-28", periods=shape[0], freq=f"{step}D", calendar=calendar, use_cftime=None)
    array = xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={"time": time, "lat": np.linspace(-80, 80, shape[1]), "lon": np.arange(shape[2]) * 1.5},
        attrs={"units": "K"},
    )
    array.encoding["chunks"] = chunks
    array["time"].encoding["units"] = "days since 2000-01-01"
    return array


def quietly(call: Any) -> xr.DataArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of nothing; what flox says to numpy
        result: xr.DataArray = call()
    return result


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
@few
@given(data=arrays(), dims=st.sampled_from([("time",), ("lat", "lon"), ("time", "lat", "lon"), ("lat",)]))
def test_reduce(way: str, data: xr.DataArray, dims: tuple[str, ...]) -> None:
    repo = repository(x=data)
    how = (*NAN_AWARE, "any", "all", "median")
    output = run(reduce, repo, "data/x", dims, how, limits=WAYS[way])
    paths = repo.readonly_session("main").workspace.node_table().paths_list()
    assert not [path for path in paths if "partials" in path]
    wide = data.astype("f8") if data.dtype.kind == "f" else data
    for name in how:
        if name == "any" or name == "all":
            expected = getattr(data.astype(bool), name)(dims)
        elif data.dtype.kind == "b" and name in ("var", "std", "mean", "median"):
            expected = quietly(lambda name=name: getattr(data.astype("i8"), name)(dims))
        else:
            expected = quietly(lambda name=name: getattr(wide, name)(dims))
            expected = expected.astype(data.dtype) if data.dtype.kind == "f" and name != "count" else expected
        equal(output[f"x_{name}"], expected, exact=name in ("min", "max", "count", "any", "all"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", WAYS)
@few
@given(data=arrays(), by=st.sampled_from(["time.month", "time.season", "time.dayofyear", "lat", "region"]))
def test_groupby(way: str, data: xr.DataArray, by: str) -> None:
    regions = np.add.outer(np.arange(data.lat.size) // 2, data.lon.values > 3)
    data = data.assign_coords(region=(("lat", "lon"), regions))
    repo = repository(x=data)
    labels = data["region"] if by == "region" else by
    how = ("mean", "sum", "min", "std", "count", "median")
    output = run(groupby, repo, "data/x", labels, how, limits=WAYS[way])
    source = data.astype({"b": "i8", "f": "f8"}.get(data.dtype.kind, data.dtype))
    groups = source.groupby("region" if by == "region" else by)
    for name in how:
        expected = quietly(lambda name=name: getattr(groups, name)())
        if data.dtype.kind == "f" and name != "count":
            expected = expected.astype(data.dtype)
        if name == "min" and data.dtype.kind == "b":
            expected = expected.astype(bool)
        if name == "sum" and data.dtype.kind == "u":
            expected = expected.astype("u8")
        equal(output[f"x_{name}"], expected)


@pytest.mark.deep
@pytest.mark.parametrize("way", WAYS)
@few
@given(data=arrays(), freq=st.sampled_from(["1D", "5D", "MS", "YS", "QS-DEC"]))
def test_resample(way: str, data: xr.DataArray, freq: str) -> None:
    data = data.astype("f8")
    repo = repository(x=data)
    how = ("mean", "max", "count", "first", "last")
    output = run(resample, repo, "data/x", freq, how, limits=WAYS[way])
    groups = data.resample(time=freq)
    for name in how:
        expected = quietly(lambda name=name: getattr(groups, name)())
        if name == "count":
            expected = data.notnull().resample(time=freq).sum()  # 0 where all values of a period are NaN
        equal(output[f"x_{name}"], expected)


#: xarray casts the NaN of an empty period to integers and bools here, or counts nothing of NaN as NaN.
OWN = {
    ("b", "min"),
    ("b", "max"),
    ("f", "count"),
    ("f", "any"),
    ("f", "all"),
    *((kind, "first") for kind in "iub"),
}


@pytest.mark.sample(11, 11)
@pytest.mark.deep
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1", "i8", "?"])
@pytest.mark.parametrize("last", ["2000-04-01", "2000-02-01"], ids=["empty periods", "no empty period"])
def test_periods_without_a_time(way: str, dtype: str, last: str) -> None:
    values = np.array([[1, 0], [0, 2], [3, 3]]).astype(dtype)
    if dtype[0] == "f":
        values[2, 0] = np.nan  # a period with a time, and NaN
    days = np.array(["2000-01-01", "2000-01-02", last], "M8[ns]")
    data = xr.DataArray(values, dims=("time", "x"), coords={"time": days, "x": [0, 1]})
    repo = repository(v=data)
    how = ("sum", "mean", "min", "max", "std", "var", "count", "any", "all", "first", "median")
    output = run(resample, repo, "data/v", "MS", how, limits=WAYS[way])
    cells = data.isel(time=slice(0, 2)), data.isel(time=slice(2, 3))
    for name in how:
        ours = output[f"v_{name}"]
        if (data.dtype.kind, name) not in OWN and data.dtype.kind != "u":
            with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]  # flox has integers of its own where there is nothing
                equal(ours, quietly(lambda name=name: getattr(data.resample(time="MS"), name)()))
        if name != "first":
            expected = [quietly(lambda name=name, each=each: getattr(each, name)("time")) for each in cells]
            np.testing.assert_allclose(ours[[0, -1]].values.astype("f8"), np.array(expected, "f8"))
        assert np.isnan(ours[1:-1].values).all()
        assert ours.dtype.kind == "f" or last == "2000-02-01"


def test_bins_and_zones_without_a_cell() -> None:
    data = xr.DataArray(np.array([1, 2, 3]), dims="lat", coords={"lat": [-10.0, 1.0, 5.0]})
    repo = repository(v=data)
    bins = {"lat": BinGrouper([-20, 2, 4, 6])}
    how = ("sum", "count", "min", "mean", "any", "std")
    bands = run(groupby, repo, "data/v", bins, how, group="bins")
    zones = run(zonal_stats, repo, "data/v", [-20, 2, 4, 6], how, group="zones")
    for name in how:
        theirs = getattr(data.groupby(bins), name)()
        for results in (bands, zones):
            ours = results[f"v_{name}"]
            np.testing.assert_array_equal(ours.values, theirs.values)
            assert ours.dtype == theirs.dtype
