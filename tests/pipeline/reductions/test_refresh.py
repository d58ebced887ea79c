"""A refresh of reductions gives the bits of the operation from nothing, and reads little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.answers.kernels import STATISTICS
from frazil.pipeline import Inline, Limits, Target, climatology, derived, quantile, reduce, refresh, resample
from frazil.pipeline.reductions import plan

T = "data/t"
HOW = tuple(STATISTICS)


def days(first: int, last: int) -> xr.Dataset:
    time = np.datetime64("2020-01-01", "ns") + np.arange(first, last) * np.timedelta64(1, "D")
    values = np.random.default_rng(first).normal(280, 9, (last - first, 3, 4)).astype("f4")
    values[values < 268] = np.nan
    coords = {"time": time, "lat": [-50.0, 10.0, 60.0], "lon": np.arange(4.0)}
    return xr.Dataset({"t": (("time", "lat", "lon"), values)}, coords)


def write(repo: frazil.Repository, dataset: xr.Dataset, **how: Any) -> None:
    with repo.transaction("main", message="days") as store:
        dataset.to_zarr(store, group="data", zarr_format=3, consolidated=False, **how)


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    encoding = {"t": {"chunks": (2, 2, 4)}, "time": {"chunks": (1000,), "units": "days since 2020-01-01"}}
    write(repo, days(0, 120), encoding=encoding)
    return repo


def contents(repo: frazil.Repository, branch: str, group: str) -> dict[str, Any]:
    root = zarr.open_group(repo.readonly_session(branch).store, path=group, mode="r")
    return {
        path: (np.asarray(each[...]).tobytes(), each.shape, str(each.dtype), dict(each.attrs))
        for path, each in root.members(None)
        if isinstance(each, zarr.Array)
    }


def test_an_appended_step_costs_a_path_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SLAB", 1_000)
    monkeypatch.setattr(plan, "STORED_FROM", 1_000)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    encoding = {"t": {"chunks": (8, 3, 4)}, "time": {"chunks": (10_000,), "units": "days since 2020-01-01"}}
    write(repo, days(0, 6_000), encoding=encoding)
    calls: dict[str, Callable[..., Any]] = {
        "mean": lambda **to: reduce(repo, T, "time", **to),
        "months": lambda **to: climatology(repo, T, **to),
        "bins": lambda **to: resample(repo, T, "MS", limits=Limits(chunk=16_000), **to),
    }
    full = {name: call(to=Target(repo, group=name), engine=Inline()).metrics for name, call in calls.items()}
    write(repo, days(6_000, 6_001), append_dim="time")
    for name in calls:
        report = refresh(repo, [name], engine=Inline())
        assert report.report.arrays[0].chunks == 1
        metrics = report.apply().metrics
        assert metrics is not None
        assert metrics.bytes_read < 0.04 * full[name].bytes_read


def hidden_arrays(repo: frazil.Repository) -> list[str]:
    nodes = repo.readonly_session("main").workspace.node_table()
    paths = zip(nodes.paths_list(), nodes.is_array.tolist(), strict=True)
    return [path for path, is_array in paths if is_array and path.startswith("/.frazil/")]


def test_states_go_with_their_result(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SLAB", 96)
    monkeypatch.setattr(plan, "STORED_FROM", 96)
    reduce(repo, T, "time", HOW, to=Target(repo, group="time"), engine=Inline())
    quantile(repo, T, [0.1, 0.5], "time", to=Target(repo, group="quantile"), engine=Inline())
    paths = hidden_arrays(repo)
    assert any(path.startswith("/.frazil/states/time/data") for path in paths)
    assert [row.path.split("/")[1] for row in derived(repo).arrays] == ["quantile", *["time"] * len(HOW)]
    rest = {name: each for name, each in contents(repo, "main", "time").items() if "mean" not in name}
    with repo.transaction("main", message="delete one result") as store:
        del zarr.open_group(store, path="time/data")["t_mean"]
        del zarr.open_group(store)["quantile"]
    refresh(repo, engine=Inline()).apply()
    assert not [path for path in hidden_arrays(repo) if "quantile" in path]
    assert contents(repo, "main", "time") == rest
    with repo.transaction("main", message="delete all") as store:
        del zarr.open_group(store)["time"]
    refresh(repo, engine=Inline()).apply()
    assert hidden_arrays(repo) == []


@pytest.mark.parametrize("dims", [None, ["lat", "lon"], ["time", "lat"]])
def test_limits_change_no_bit(dims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task reads at once, and the chunks of results, do not change the order of additions."""
    monkeypatch.setattr(plan, "SLAB", 200)
    monkeypatch.setattr(plan, "STORED_FROM", 2_000)
    values = np.random.default_rng(1).normal(280, 9, (30, 5, 11))
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="values") as store:
        dims_of = ("time", "lat", "lon")
        zarr.create_array(store, name=T, data=values, chunks=(6, 4, 2), dimension_names=dims_of)
    found = set()
    for block in (60, 600, 1_500, 1 << 20):
        group = f"block {block}"
        to, limits = Target(repo, group=group), Limits(block=block, chunk=10 * block)
        reduce(repo, T, dims, ["mean", "std"], to=to, limits=limits, engine=Inline())
        found.add(tuple(each[0] for each in contents(repo, "main", group).values()))
    assert len(found) == 1
