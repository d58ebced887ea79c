"""Labels that do not fit, groups of nothing, names that are taken: refused, never wrong numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.reductions.test_equal_to_xarray import quietly, read, repository, run

import frazil
from frazil.errors import InvalidInputError
from frazil.pipeline import (
    Inline,
    Limits,
    Target,
    climatology,
    groupby,
    quantile,
    reduce,
    resample,
    zonal_stats,
)

INLINE = Inline()


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    time = xr.date_range("2000-01-01", periods=200)[np.r_[1, 0, 2:200]]  # not in order
    field = xr.DataArray(
        np.arange(800.0).reshape(200, 4),
        dims=("time", "lat"),
        coords={"time": time, "lat": [60.0, 20, -20, -60], "none": ("lat", [np.nan] * 4)},
    )
    later = field.sortby("time").rename("later")
    return repository(x=field, y=later.drop_vars("time").rename(time="t").assign_coords(t=later.time.values))


def labels(name: str | None, order: Any = slice(None)) -> xr.DataArray:
    return xr.DataArray([0, 0, 1, 1], dims="lat", coords={"lat": [60.0, 20, -20, -60]}, name=name)[order]


UP = slice(None, None, -1)
REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (groupby, (labels("z", UP),), {}, "by must have the coordinate `lat` of `/data/x`, 60.0, 20.0"),
    (zonal_stats, (labels("z", UP),), {}, "zones must have the coordinate `lat`"),
    (reduce, ("lat",), {"weights": labels("w", UP)}, "weights must have the coordinate `lat`"),
    (groupby, (labels("time"),), {}, "must differ from .*, got `time`"),
    (groupby, (labels("x"),), {}, "must differ from .*, got `x`"),
    (groupby, ("none",), {}, "at least one cell"),
    (climatology, (), {"years": (1900, 1901)}, "at least one cell"),
    (resample, ("3D",), {}, "must be monotonic"),
    (zonal_stats, (np.ones((3, 4)),), {}, "an array with 2 dimensions"),
    (reduce, (0,), {}, "must be text, got 0"),
    (reduce, ("x",), {}, "dims must be among time, lat"),
    (reduce, ("lat", "avg"), {}, "how must be one of count, sum"),
    (reduce, ("lat", "max"), {"weights": "coslat"}, "with weights, got"),
    (reduce, ("lat", "median"), {"weights": "coslat"}, "with weights, got"),
    (reduce, ("lat",), {"weights": {"lat": np.ones(3)}}, "weights must have the lengths of dimensions"),
    (reduce, ("lat",), {"weights": {"lat": np.full(4, np.nan)}}, "got NaN"),
    (quantile, (2.0,), {}, "from 0 to 1"),
    (reduce, ("lat", []), {}, "how must have at least one"),
    (reduce, ("lat", ["mean", "mean"]), {}, "Each result must have its own path"),
    (reduce, ("lat",), {"weights": 3}, "'coslat', a DataArray"),
    (reduce, ("lat",), {"weights": {"lat": list("abcd")}}, "the type <U1"),
    (quantile, ([],), {}, r"from 0 to 1, got \[\]"),
    (quantile, ([[0.5]],), {}, "from 0 to 1"),
    (quantile, (0.5,), {"exact_below": 1, "k": 1}, "from 8 to 65535"),
]


@pytest.mark.parametrize(("call", "given", "more", "message"), REFUSED)
def test_what_cannot_be_is_refused(
    repo: frazil.Repository, call: Callable[..., Any], given: Any, more: dict[str, Any], message: str
) -> None:
    tip = repo.lookup_branch("main")
    with pytest.raises(InvalidInputError, match=message):
        call(repo, "data/x", *given, engine=INLINE, **more)
    assert repo.lookup_branch("main") == tip


def test_another_repository_in_memory_is_another_place(repo: frazil.Repository) -> None:
    other = frazil.Repository.create(frazil.in_memory_storage())
    reduce(repo, "data/x", "time", to=Target(other), engine=INLINE)
    assert read(other, "data")["x"].shape == (4,)
    with pytest.raises(InvalidInputError, match="arrays that the job reads"):
        reduce(repo, "data/x", "time", to=Target(repo), engine=INLINE)


@pytest.mark.parametrize("freq", ["QE-DEC", "W-MON", "YE-JUN", "BME", "QS-FEB", "12h"])
def test_bounds_are_those_of_the_bins_or_none(repo: frazil.Repository, freq: str) -> None:
    output = run(resample, repo, "data/y", freq, time="t", group=freq)
    source = read(repo, "data")["y"]
    expected = quietly(lambda: source.resample(t=freq).mean())
    np.testing.assert_allclose(output["y"].values, expected.values)
    assert ("t_bnds" in output) == (freq in ("QS-FEB", "12h"))


def test_the_state_of_a_large_chunk_is_cut(repo: frazil.Repository) -> None:
    """A task owns a part of a chunk, where the state of all of it would be too much."""
    small = Limits(task=2000, block=500, state=60, chunk=100)
    output = run(reduce, repo, "data/x", "time", ["mean", "std", "first"], limits=small, group="cut")
    source = read(repo, "data")["x"]
    for name in ("mean", "std"):
        np.testing.assert_allclose(output[f"x_{name}"], getattr(source, name)("time"))
    assert output["x_mean"].encoding["chunks"] == (1,)
    sketch = Limits(state=16_000)
    run(quantile, repo, "data/x", 0.5, "time", exact_below=8, limits=sketch, group="sketch")
    assert read(repo, "sketch/data")["x"].encoding["chunks"] == (2,)


def test_infinite_neighbours_leave_quantiles_that_have_no_part_of_them() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    values = np.array([[20.0, -np.inf, 1.0], [np.inf, 5.0, -np.inf], [np.inf, 8.0, 2.0]])
    with repo.transaction("main", message="infinite") as store:
        zarr.create_array(store, name="g/x", data=values, chunks=(2, 3), dimension_names=("a", "b"))
    quantile(repo, "g/x", [0.0, 0.25, 0.5], "a", engine=INLINE)
    output = read(repo, "quantile/g")["x"].values
    inf = np.inf
    np.testing.assert_array_equal(output, [[20.0, -inf, -inf], [inf, -inf, -inf], [inf, 5.0, 1.0]])


@pytest.mark.parametrize("weights", [None, {"b": [1.0, 2.0, 1.0]}])
def test_a_count_has_no_nan_where_others_do_not_skip_it(weights: Any) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    values = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    with repo.transaction("main", message="gaps") as store:
        zarr.create_array(store, name="g/x", data=values, chunks=(1, 2), dimension_names=("a", "b"))
    reduce(repo, "g/x", "b", ["count", "sum"], skipna=False, weights=weights, engine=INLINE)
    output = read(repo, "reduce/g")
    assert output["x_count"].values.tolist() == [2, 0]
    assert np.isnan(output["x_sum"].values).all()
