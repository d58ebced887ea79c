"""What surrounds the numbers: coordinates, attributes, packed data, weights, climatologies, refusals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.reductions.test_equal_to_xarray import WAYS, equal, quietly, read, repository, run

import frazil
from frazil.errors import InvalidInputError, NodeNotFoundError
from frazil.pipeline import (
    Inline,
    Limits,
    Target,
    Version,
    anomaly,
    climatology,
    groupby,
    mean,
    quantile,
    reduce,
    resample,
    zonal_stats,
)
from frazil.pipeline.reductions.plan import rank_error
from frazil.pipeline.reductions.zones import rasterized
from frazil.repository.catalog.history_records import JOB


def temperatures(calendar: str = "standard", days: int = 800) -> xr.DataArray:
    rng = np.random.default_rng(1)
    time = xr.date_range(
        "2000-01-01", periods=days, freq="D", calendar=calendar, use_cftime=calendar != "standard"
    )
    field = xr.DataArray(
        rng.normal(280, 9, (days, 6, 4)),
        dims=("time", "lat", "lon"),
        coords={
            "time": time,
            "lat": ("lat", np.linspace(-75, 75, 6), {"standard_name": "latitude", "units": "degrees_north"}),
            "lon": np.arange(4) * 90.0,
            "area": (("lat", "lon"), rng.random((6, 4))),
        },
        attrs={"units": "K", "cell_methods": "area: point"},
        name="t",
    )
    field.values[rng.random(field.shape) < 0.1] = np.nan
    field.encoding["chunks"] = (90, 4, 3)
    field["time"].encoding["units"] = "days since 1999-12-30"
    return field


@pytest.fixture(scope="module")
def t() -> xr.DataArray:
    return temperatures()


@pytest.fixture
def repo(t: xr.DataArray) -> frazil.Repository:
    return repository(t=t)


def test_coordinates_and_attributes_go_with_the_result(repo: frazil.Repository, t: xr.DataArray) -> None:
    result = mean(repo, "data/t", "time", engine=Inline())
    output = read(repo, "mean/data")
    assert output["t"].attrs == {"units": "K", "cell_methods": "area: point time: mean"}
    assert set(output.coords) == {"lat", "lon", "area"}
    assert output["lat"].attrs == t["lat"].attrs
    np.testing.assert_array_equal(output["area"], t["area"])
    metadata = job_metadata_of(repo)
    assert metadata["parameters"] == {"paths": ["data/t"], "dims": ["time"], "how": ["mean"]}
    inputs = ["/data/area", "/data/lat", "/data/lon", "/data/t", "/data/time"]
    assert metadata["inputs"][0]["paths"] == inputs
    assert mean(repo, "data/t", "time", engine=Inline()).done_before
    assert not mean(repo, "data/t", "time", min_count=3, engine=Inline()).done_before
    assert result.metrics.bytes_read == t.nbytes


def test_the_attributes_of_packed_data_do_not_describe_results() -> None:
    packed = xr.DataArray(np.random.default_rng(5).random((30, 8)) * 50, dims=("a", "b"))
    packed.encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -32768}
    repo = repository(x=packed)
    run(reduce, repo, "data/x", "a", "max")
    run(reduce, repo, "data/x", "a", "max", decode=False, group="raw")
    store = repo.readonly_session("main").store
    decoded, raw = (zarr.open_array(store, path=f"{group}/data/x", mode="r") for group in ("out", "raw"))
    assert (str(decoded.dtype), str(raw.dtype)) == ("float64", "int16")
    assert not {"scale_factor", "_FillValue"} & decoded.attrs.keys()


def test_valid_range_on_request() -> None:
    array = xr.DataArray([1.0, 5.0, 99.0, np.nan], dims=("a",), attrs={"valid_range": [0, 10]})
    repo = repository(x=array)
    for asked, expected in [(False, 35.0), (True, 3.0)]:
        output = run(mean, repo, "data/x", valid_range=asked, group=f"v{asked}")
        assert float(output["x"]) == expected


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("way", "weights"), [("values", "coslat"), ("whole", "mapping"), ("stored", "array")]
)
def test_weights(repo: frazil.Repository, t: xr.DataArray, way: str, weights: str) -> None:
    cosine = xr.DataArray(np.cos(np.deg2rad(t["lat"])))
    given: Any = {"coslat": "coslat", "array": t["area"], "mapping": {"lat": cosine.values}}[weights]
    how = ("mean", "sum", "std", "var")
    ways = WAYS[way] if way == "values" else Limits(task=20_000, block=6_000, chunk=2_000)
    output = run(reduce, repo, "data/t", ["lat", "lon"], how, weights=given, limits=ways)
    weighted = t.weighted(given if weights == "array" else cosine)
    for name in how:
        equal(output[f"t_{name}"], getattr(weighted, name)(["lat", "lon"]))


@pytest.mark.deep
def test_min_count_and_skipna(repo: frazil.Repository, t: xr.DataArray) -> None:
    output = run(reduce, repo, "data/t", "lon", ("sum", "mean"), min_count=4, group="m")
    equal(output["t_sum"], t.sum("lon", min_count=4))
    assert (output["t_mean"].isnull() == (t.count("lon") < 4)).all()
    how = ("sum", "mean", "std", "min", "median")
    output = run(reduce, repo, "data/t", "lon", how, skipna=False, group="s")
    for name in how:
        equal(output[f"t_{name}"], getattr(t, name)("lon", skipna=False))
    output = run(quantile, repo, "data/t", 0.5, "lon", skipna=False, exact_below=8, group="q")
    assert (output["t"].isnull() == t.isnull().any("lon")).all()


def test_quantiles_exact_and_by_sketch(repo: frazil.Repository, t: xr.DataArray) -> None:
    q = [0.0, 0.1, 0.5, 0.99, 1.0]
    exact = run(quantile, repo, "data/t", q, "time", group="exact")["t"]
    assert exact.dims == ("quantile", "lat", "lon")
    equal(exact, t.quantile(q, "time"))
    limits = Limits(task=20_000)
    sketched = run(quantile, repo, "data/t", q, exact_below=100, k=100, limits=limits, group="k")["t"]
    error = rank_error(100)
    assert sketched.attrs["quantile_rank_error"] == round(error, 6)
    ordered = np.sort(t.values[~np.isnan(t.values)])
    assert sketched.values[[0, -1]].tolist() == ordered[[0, -1]].tolist()  # extremes are exact
    ranks = np.searchsorted(ordered, sketched.values) / len(ordered)
    assert (np.abs(ranks - q) <= 2 * error).all()  # 99 % of answers are within one


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("calendar", "period"), [("standard", "dayofyear"), ("noleap", "month"), ("360_day", "season")]
)
def test_climatology_and_anomaly(calendar: str, period: str) -> None:
    t = temperatures(calendar)
    repo = repository(t=t)
    usual = climatology(repo, "data/t", period, years=(2001, 2001), engine=Inline())
    some = t.sel(time=t["time"].dt.year == 2001)
    expected = quietly(lambda: some.groupby(f"time.{period}").mean())
    equal(read(repo, "climatology/data")["t"], expected)
    result = anomaly(repo, "data/t", usual, engine=Inline(), limits=Limits(task=40_000, block=9_000))
    own, others = (each["paths"] for each in job_metadata_of(repo)["inputs"])
    assert {"/data/t", "/data/area"} < set(own)
    assert others[0] == "/climatology/data/t"
    output = read(repo, "anomaly/data")["t"]
    equal(output, quietly(lambda: t.groupby(f"time.{period}") - expected))
    assert result.metrics.tasks > 1
    assert output.attrs["units"] == "K"
    assert output.encoding["chunks"] == (90, 4, 3)
    run(climatology, repo, "data/t", period, "std", years=(2001, 2001), group="spread")
    scaled = run(anomaly, repo, "data/t", repo, spread="/spread", group="standard", message="standard")["t"]
    deviation = quietly(lambda: some.groupby(f"time.{period}").std())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        standard = (t.groupby(f"time.{period}") - expected).groupby(f"time.{period}") / deviation
    equal(scaled, standard)


def job_metadata_of(repo: frazil.Repository) -> Any:
    return next(iter(repo.ancestry(branch="main"))).metadata[JOB]


def test_zones_of_bands(repo: frazil.Repository, t: xr.DataArray) -> None:
    output = run(zonal_stats, repo, "data/t", [-90, -30, 30, 90], "mean", dims="lon")["t"]
    assert output.dims == ("time", "zone")
    assert output["zone"].values.tolist() == [-60, 0, 60]
    np.testing.assert_allclose(output.values[:, 1], t.sel(lat=[-15, 15]).mean(["lat", "lon"]).values)


def test_labels_in_another_order_of_dimensions(repo: frazil.Repository, t: xr.DataArray) -> None:
    labels = xr.DataArray(np.arange(24).reshape(4, 6) % 5, dims=("lon", "lat"), name="basin")
    groupby(repo, "data/t", labels, engine=Inline())
    output = read(repo, "groupby/data")["t"]
    for zone in range(5):
        inside = t.where(labels.transpose("lat", "lon").values == zone).mean(["lat", "lon"])
        np.testing.assert_allclose(output.sel(basin=zone), inside)


def test_zones_of_polygons(repo: frazil.Repository, t: xr.DataArray) -> None:
    north = {"type": "Polygon", "coordinates": [[(-45, 0), (315, 0), (315, 90), (-45, 90), (-45, 0)]]}
    zones = rasterized([north], t["lat"], t["lon"], labels=[7])
    zonal_stats(repo, "data/t", zones, "mean", engine=Inline())
    output = read(repo, "zonal_stats/data")["t"]
    assert output["zone"].values.tolist() == [7]
    np.testing.assert_allclose(output.values.ravel(), t.sel(lat=slice(0, 90)).mean(["lat", "lon"]).values)
    with pytest.raises(InvalidInputError, match="equal steps"):
        rasterized([north], t["lat"] ** 2, t["lon"])


@pytest.mark.deep
def test_a_long_series_has_whole_chunks_of_groups(repo: frazil.Repository, t: xr.DataArray) -> None:
    """A resampled time is cut, and each task reads only what its days need."""
    limits = Limits(task=60_000, block=20_000, chunk=3_000)
    result = resample(repo, "data/t", "7D", "mean", limits=limits, engine=Inline())
    output = read(repo, "resample/data")["t"]
    equal(output, t.resample(time="7D").mean())
    assert output.encoding["chunks"][0] < output.shape[0]
    assert result.metrics.tasks >= 3
    assert result.metrics.bytes_read < 2 * t.nbytes


@pytest.mark.sample(4)
@pytest.mark.parametrize("calendar", ["standard", "noleap"])
@pytest.mark.parametrize(("freq", "side"), [("MS", None), ("10D", None), ("10D", "right")])
def test_bounds_of_a_resampling(freq: str, side: str | None, calendar: str) -> None:
    t = temperatures(calendar, 100)
    repo = repository(t=t)
    resample(repo, "data/t", freq, closed=side, label=side, engine=Inline())
    output = read(repo, "resample/data")
    low, high = output["time_bnds"].transpose("bnds", "time")
    assert (low[1:].values == high[:-1].values).all()
    assert ((high if side else low).values == output["time"].values).all()
    days, first, last = t["time"].values, low.values[1], high.values[1]
    some = (days > first) & (days <= last) if side else (days >= first) & (days < last)
    np.testing.assert_allclose(output["t"].values[1], t[some].mean("time").values)


@pytest.mark.deep
def test_results_of_several_jobs_in_one_group(repo: frazil.Repository, t: xr.DataArray) -> None:
    to = Target(repo, group="all")
    mean(repo, "data/t", "time", to=to, engine=Inline())
    node = repo.readonly_session("main").get_node_id("/all/data/lat")
    reduce(repo, "data/t", "time", ["std"], to=to, engine=Inline())
    assert repo.readonly_session("main").get_node_id("/all/data/lat") == node
    with repo.transaction("main", message="other latitudes") as store:
        zarr.open_array(store, path="data/lat", mode="r+")[0] = -80
    with pytest.raises(InvalidInputError, match=r"t(_std)?` is labelled with another `lat`"):
        reduce(repo, "data/t", "time", ["max"], to=to, engine=Inline())
    reduce(repo, "data/t", "time", ["max"], to=Target(repo, group="own"), engine=Inline())


def test_what_is_empty(repo: frazil.Repository) -> None:
    arrays = {"none": np.zeros((0, 3), "f4"), "one": np.array(7.0), "i": np.zeros((0, 2), "i4")}
    with repo.transaction("main", message="small") as store:
        for name, data in arrays.items():
            layout: dict[str, Any] = {
                "chunks": (1, 1)[: data.ndim],
                "dimension_names": ("a", "b")[: data.ndim],
            }
            zarr.create_array(store, name=f"data/{name}", data=data, **layout)
    output = run(reduce, repo, "data/none", "a", ["mean", "sum", "count", "max", "median"], group="o")
    assert output["none_sum"].values.tolist() == output["none_count"].values.tolist() == [0, 0, 0]
    assert np.isnan([output[f"none_{how}"] for how in ("mean", "max", "median")]).all()
    assert float(run(reduce, repo, "data/one", None, ["mean", "count"], group="p")["one_mean"]) == 7
    assert np.isnan(run(reduce, repo, "data/i", "a", ["max"], group="q")["i_max"]).all()
    assert run(reduce, repo, "data/none", "b", ["sum"], group="r")["none_sum"].shape == (0,)


def test_what_cannot_be_is_refused(repo: Any) -> None:
    tip = repo.lookup_branch("main")
    with pytest.raises(NodeNotFoundError):
        reduce(repo, "data/u", engine=Inline())
    with pytest.raises(InvalidInputError, match="a part of a time"):
        groupby(repo, "data/t", "lat.month", engine=Inline())
    with pytest.raises(InvalidInputError, match="to must be a target"):
        mean(Version(repo, tip), "data/t", engine=Inline())
    assert repo.lookup_branch("main") == tip
    with pytest.raises(TypeError, match="to must be Target or None, got Repository"):
        mean(repo, "data/t", to=repo, engine=Inline())
