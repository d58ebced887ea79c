"""What files of different variables share: one array for all of them, or no commit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest.netcdf_files import container, ingest, repository, stored_dataset

import frazil
from frazil.errors import InvalidInputError

UNITS = {"units": "hours since 2020-01-01"}


def steps(labels: Sequence[float], name: str = "a", height: float | None = None, **more: Any) -> xr.Dataset:
    """A file with a coordinate along the dimension, and perhaps a scalar."""
    scalar = {} if height is None else {"height": height}
    values = np.array(labels, "f8")
    coords = {"time": ("time", np.array(labels), UNITS), "later": ("time", values + 6), **scalar}
    return xr.Dataset({name: ("time", 10 * values + len(name))}, {**coords, **more})


def levels(name: str, count: int, **coords: Any) -> xr.Dataset:
    return xr.Dataset({name: ("lev", np.arange(float(count)))}, coords)


def write(folder: Path, *files: xr.Dataset) -> list[str]:
    paths = []
    for data in files:
        path = folder / f"{len(list(folder.glob('*.nc')))}.nc"
        data.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"] if "time" in data.dims else [])
        paths.append(str(path))
    return paths


@pytest.mark.deep
@pytest.mark.parametrize(
    ("files", "name"),
    [
        pytest.param([steps([0, 1], height=2.0), steps([0, 1], "b", 10.0)], "height", id="one each"),
        pytest.param(
            [*(steps([0], "a", 2.0), steps([1], "a", 3.0)), *(steps([0], "b", 2.0), steps([1], "b", 4.0))],
            "height",
            id="along",
        ),
        pytest.param([levels("a", 2, height=2.0), levels("b", 2, height=10.0)], "height", id="no dimension"),
        pytest.param(
            [levels("a", 2, time=((), 0, UNITS)), levels("b", 2, time=((), 5, UNITS))],
            "time",
            id="scalar times",
        ),
        pytest.param([levels("a", 2, height=2), levels("b", 2, height=2.5)], "height", id="other dtypes"),
    ],
)
def test_other_variables_with_other_scalars(
    tmp_path: Path, repo: frazil.Repository, files: list[xr.Dataset], name: str
) -> None:
    paths = write(tmp_path, *files)
    with pytest.raises(InvalidInputError, match=rf"(?s){name} has other values.*another group"):
        ingest(paths, repo)
    dataset = stored_dataset(ingest(paths, repo, allow={"values"}).version)
    assert {"a", "b"} <= set(dataset.data_vars)
    expected = {"height": 2.0, "time": np.datetime64("2020-01-01")}
    assert dataset[name].values.flat[0] == expected[name]


def test_one_scalar_in_other_units_is_the_same(tmp_path: Path, repo: frazil.Repository) -> None:
    other = {"units": "days since 2020-01-02"}
    paths = write(tmp_path, levels("a", 2, time=((), 48, UNITS)), levels("b", 2, time=((), 1, other)))
    dataset = stored_dataset(ingest(paths, repo).version)
    assert dataset.time.values == np.datetime64("2020-01-03")


@pytest.mark.sample(4, 4)
@pytest.mark.deep
@pytest.mark.parametrize("mode", ["insert", "upsert", "backfill"])
@pytest.mark.parametrize("first", [(2.0, 2.0), (2.0, 3.0)], ids=["a scalar", "along"])
def test_new_variables_leave_the_scalars_of_others_as_they_are(
    tmp_path: Path, repo: frazil.Repository, mode: Any, first: tuple[float, float]
) -> None:
    ingest(write(tmp_path, *(steps([i], "a", h) for i, h in enumerate(first))), repo)
    alike = write(tmp_path, *(steps([i], "b", h) for i, h in enumerate(first)))
    expected = stored_dataset(ingest(alike, repo, mode=mode).version).height
    assert np.broadcast_to(expected.values, 2).tolist() == list(first)
    other = write(tmp_path, *(steps([i], "c", 10.0) for i in range(2)))
    with pytest.raises(InvalidInputError, match=r"values of `/height`.*another group.*allow"):
        ingest(other, repo, mode=mode)
    dataset = stored_dataset(ingest(other, repo, mode=mode, allow={"values"}).version)
    assert np.broadcast_to(dataset.height.values, 2).tolist() == list(first)
    assert dataset.c.values.tolist() == [1.0, 11.0]


@pytest.mark.deep
def test_steps_that_the_first_files_do_not_have(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = write(tmp_path, steps([0, 1]), steps([0, 1, 2], "b"), steps([3], "b"), steps([5], "c"))
    dataset = stored_dataset(ingest(paths[:3], repo, allow={"hole"}).version)
    assert dataset.later.values.tolist() == [6.0, 7.0, 8.0, 9.0]
    dataset = stored_dataset(ingest(paths[3], repo, mode="append", allow={"hole"}).version)
    assert dataset.later.values.tolist() == [6.0, 7.0, 8.0, 9.0, 11.0]
    assert dataset.time.dt.hour.values.tolist() == [0, 1, 2, 3, 5]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["append", "insert", "upsert", "backfill"])
def test_a_dimension_has_one_length(tmp_path: Path, repo: frazil.Repository, mode: Any) -> None:
    paths = write(tmp_path, levels("a", 2), levels("b", 3), levels("c", 2))
    with pytest.raises(InvalidInputError, match="lev has 3 steps and not 2"):
        ingest(paths[:2], repo)
    ingest(paths[0], repo)
    with pytest.raises(InvalidInputError, match=r"lev in `/b` must have 2 steps.*got 3.*another group"):
        ingest(paths[1], repo, mode=mode)
    dataset = stored_dataset(ingest(paths[2], repo, mode=mode).version)
    assert set(dataset.data_vars) == {"a", "c"}


def test_a_scalar_is_no_dimension(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = write(tmp_path, levels("a", 2, time=((), 0, UNITS)), xr.Dataset({"b": ("time", [1.0, 2.0])}))
    ingest(paths[0], repo)
    with pytest.raises(InvalidInputError, match=r"time"):
        ingest(paths[1], repo, mode="append")


def test_a_copy_follows_references_in_other_chunks(tmp_path: Path, repo: frazil.Repository) -> None:
    paths = []
    for number, labels in enumerate(([0, 1], [2])):
        path = tmp_path / f"{number}.nc"
        steps(labels).to_netcdf(path, engine="h5netcdf", encoding={"a": {"zlib": True}})
        paths.append(str(path))
    more: dict[str, Any] = {"virtual": True, "containers": [container(tmp_path)]}
    ingest(paths[0], repo, **more)
    with pytest.raises(InvalidInputError, match=r"chunks of `/a` must be \(2,\).*copy, without virtual=True"):
        ingest(paths[1], repo, mode="append", **more)
    dataset = stored_dataset(ingest(paths[1], repo, mode="append").version)
    assert dataset.a.values.tolist() == [1.0, 11.0, 21.0]


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["upsert", "backfill", "insert"])
def test_steps_of_another_level_do_not_replace_those_of_one(
    repo: frazil.Repository, tmp_path: Path, mode: Any
) -> None:
    low, high = write(tmp_path, steps([0, 1], height=2.0), steps([0, 1], height=10.0))
    ingest(low, repo, mode="append")
    with pytest.raises(InvalidInputError, match=r"another height .*concat_dim='height'"):
        ingest(high, repo, mode=mode)
    with pytest.raises(InvalidInputError, match=r"append.*concat_dim="):
        ingest(high, repo, mode="append")
    result = ingest(high, repo, mode=mode, allow={"values"})
    assert stored_dataset(result.version).height.values.tolist() == [10.0, 10.0]
    both = repository(tmp_path / "both")
    for path in (low, high):
        result = ingest(path, both, mode="append", concat_dim="height")
    assert stored_dataset(result.version).sizes == {"height": 2, "time": 2}


def test_steps_of_a_later_forecast_replace_those_of_an_earlier_one(
    repo: frazil.Repository, tmp_path: Path
) -> None:
    lead = {"attrs": {"units": "hours", "standard_name": "forecast_period"}}
    files = [steps([0, 1], lead=xr.Variable((), hours, **lead)) for hours in (24, 12)]
    for path in write(tmp_path, *files):
        result = ingest(path, repo, mode="upsert")
    assert not result.done_before
