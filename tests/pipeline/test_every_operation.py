"""What holds for every operation from arrays to arrays: the second day, and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.operations import CALLS, Call, anomaly, operate

import frazil
import frazil.pipeline as ops

T = "data/t"
MORE_CALLS: dict[str, Call] = {
    **{f"resample {freq}": (ops.resample, [freq], {}) for freq in ("MS", "YS", "W", "3D")},
    "coarsen time": (ops.coarsen, [{"time": 4}], {"boundary": "trim"}),
    "pyramid": (ops.pyramid, [], {"factors": {"lat": 2, "lon": 2}, "levels": 3}),
}
OPERATIONS: dict[str, Callable[..., ops.JobResult]] = {
    **{name: partial(operate, call) for name, call in (CALLS | MORE_CALLS).items() if name != "materialize"},
    "anomaly": anomaly,
}


def days(first: int, last: int, has_bounds: bool) -> xr.Dataset:
    """Four times a day, from the 28th of December on: the border of a month and of a year is near."""
    step = np.timedelta64(6, "h")
    time = np.datetime64("2025-12-28", "ns") + np.arange(first * 4, last * 4) * step
    lat, lon = np.linspace(-70, 70, 8), np.arange(0, 360, 45.0)
    values = np.random.default_rng(first).normal(280, 5, (len(time), 8, 8))
    dataset = xr.Dataset({"t": (("time", "lat", "lon"), values)}, {"time": time, "lat": lat, "lon": lon})
    dataset["lat"].attrs.update(units="degrees_north", standard_name="latitude")
    dataset["lon"].attrs.update(units="degrees_east", standard_name="longitude")
    dataset["time"].encoding = {"units": "hours since 2026-01-01", "dtype": "i8"}
    if has_bounds:
        dataset["time_bnds"] = (("time", "b"), np.stack([time, time + step], 1))
        dataset["lat_bnds"] = (("lat", "b"), np.stack([lat - 10, lat + 10], 1))
        dataset["time"].attrs["bounds"], dataset["lat"].attrs["bounds"] = "time_bnds", "lat_bnds"
    return dataset


def append(repo: frazil.Repository, dataset: xr.Dataset) -> None:
    with repo.transaction("main", message="append") as store:
        dataset.to_zarr(store, group="data", append_dim="time", consolidated=False, zarr_format=3)


def later_days(repo: frazil.Repository, has_bounds: bool) -> Iterator[None]:
    """Append a day, correct a value, begin the next month, and write the days again with one inserted."""
    append(repo, days(3, 4, has_bounds))
    yield
    with repo.transaction("main", message="correct") as store:
        zarr.open_array(store, path=T, mode="r+")[0] = 1.0
    yield
    append(repo, days(5, 6, has_bounds))
    yield
    with repo.transaction("main", message="insert") as store:
        encoding = {"t": {"chunks": (4, 8, 8)}}
        whole = days(0, 7, has_bounds)
        whole.to_zarr(store, group="data", mode="w", consolidated=False, zarr_format=3, encoding=encoding)
    yield


@pytest.fixture(params=[False, True], ids=["plain", "bounds"])
def has_bounds(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def repo(has_bounds: bool) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="three days") as store:
        encoding = {"t": {"chunks": (4, 8, 8)}}
        days(0, 3, has_bounds).to_zarr(
            store, group="data", consolidated=False, zarr_format=3, encoding=encoding
        )
    return repo


def contents(repo: frazil.Repository, group: str) -> dict[str, Any]:
    """Return the values and attributes of the arrays below a group."""
    members = zarr.open_group(repo.readonly_session("main").store, path=group, mode="r").members(None)
    arrays: dict[str, Any] = {path: each for path, each in members if isinstance(each, zarr.Array)}
    return {
        path: (np.asarray(each[...]), each.metadata.dimension_names, dict(each.attrs))
        for path, each in arrays.items()
    }


@pytest.mark.deep
@pytest.mark.sample(0, 44)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_later_day_is_like_a_first_one(repo: frazil.Repository, has_bounds: bool, name: str) -> None:
    """The results of every day go to one group, and are those of a first call into an empty group."""
    run = OPERATIONS[name]
    run(repo, [T], to=ops.Target(repo, group="same"), engine=ops.Inline())
    for number, _ in enumerate(later_days(repo, has_bounds)):
        run(repo, [T], to=ops.Target(repo, group="same"), engine=ops.Inline())
        run(repo, [T], to=ops.Target(repo, group=f"new{number}"), engine=ops.Inline())
        same, new = contents(repo, "same"), contents(repo, f"new{number}")
        np.testing.assert_equal(same, new)


@pytest.mark.deep
@pytest.mark.parametrize("has_bounds", [True], indirect=True)
@pytest.mark.parametrize("freq", ["D", "MS", "YS"])
def test_the_default_target_of_resample_grows(repo: frazil.Repository, freq: str) -> None:
    ops.resample(repo, T, freq, engine=ops.Inline())
    for _ in later_days(repo, True):
        ops.resample(repo, T, freq, engine=ops.Inline())
    store = repo.readonly_session("main").store
    output = xr.open_zarr(store, group="resample/data", consolidated=False)
    expected = xr.open_zarr(store, group="data", consolidated=False)["t"].resample(time=freq).mean()
    np.testing.assert_allclose(output["t"], expected)
    assert output["time_bnds"].shape == (expected.sizes["time"], 2)


def test_bounds_go_with_their_coordinate(repo: frazil.Repository) -> None:
    """Weeks are labelled with their last day, and have no bounds: those of the days describe nothing."""
    ops.resample(repo, T, "D", engine=ops.Inline())
    ops.resample(repo, T, "W", engine=ops.Inline())
    assert contents(repo, "resample/data").keys() == {"t", "time", "lat", "lon"} | (
        {"lat_bnds"} if "lat_bnds" in contents(repo, "data") else set()
    )


#: Bytes of values that an operation also reads, or less: a level, a climatology, a part.
MORE_READ = {"anomaly": 512, "pyramid": 1536, "select": 32 - 6144, "crop": 4656 - 6144}


@pytest.mark.parametrize("has_bounds", [False], indirect=True)
@pytest.mark.parametrize("name", OPERATIONS)
def test_metrics_count_what_is_read_and_written(repo: frazil.Repository, name: str) -> None:
    metrics = OPERATIONS[name](repo, [T], to=ops.Target(repo, group="results"), engine=ops.Inline()).metrics
    assert metrics is not None
    store = repo.readonly_session("main").store
    assert metrics.bytes_read == zarr.open_array(store, path=T, mode="r").nbytes + MORE_READ.get(name, 0)
    assert metrics.bytes_read <= metrics.stored_bytes_read  # random numbers are not compressed much
    members = zarr.open_group(store, path="results", mode="r").members(None)
    shared = {"select": "data/t", "pyramid": "0/data/t"}.get(name)  # they refer to the chunks of the source
    written = [
        each for path, each in members if path.rpartition("/")[2].partition("_")[0] == "t" and path != shared
    ]
    size = sum(each.nbytes for each in written if isinstance(each, zarr.Array))
    tables = zarr.open_group(store, path=".frazil/derived", mode="r").members(None)
    more = 250 + sum(each.nbytes for _, each in tables if isinstance(each, zarr.Array))  # with coordinates
    assert size <= metrics.bytes_written <= size + more
    assert metrics.bytes_written > 0


@dataclass(frozen=True)
class Slots:
    """An engine that could run some tasks at the same time."""

    slots: int
    resumable = False
    run = ops.Inline.run


#: Operations whose tasks are not divided by the bytes of their arrays.
UNDIVIDED = {"select", "crop", "quantile", "regrid"}


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in UNDIVIDED])
def test_tasks_fill_the_engine(name: str) -> None:
    """46 MB are several tasks for two slots, and their number does not change a bit of the results."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    time = np.datetime64("2025-12-01", "ns") + np.arange(720) * np.timedelta64(1, "h")
    lat, lon = np.linspace(-70, 70, 100), np.arange(160) * 2.25
    values = np.random.default_rng(0).normal(280, 5, (720, 100, 160)).astype("f4")
    dataset = xr.Dataset({"t": (("time", "lat", "lon"), values)}, {"time": time, "lat": lat, "lon": lon})
    dataset["lat"].attrs["units"], dataset["lon"].attrs["units"] = "degrees_north", "degrees_east"
    encoding = {"t": {"chunks": (24, 50, 80)}}
    with repo.transaction("main", message="a month") as store:
        dataset.to_zarr(store, group="data", consolidated=False, zarr_format=3, encoding=encoding)
    results, tasks = {}, []
    for slots in (1, 2, 64):
        to = ops.Target(repo, group=f"for{slots}")
        metrics = OPERATIONS[name](repo, [T], to=to, engine=Slots(slots)).metrics
        assert metrics is not None
        tasks.append(metrics.tasks)
        results[slots] = contents(repo, to.group)
    assert 2 <= tasks[1] <= 64, tasks
    np.testing.assert_equal(results[1], results[2])
    np.testing.assert_equal(results[1], results[64])
