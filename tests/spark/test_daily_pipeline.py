"""The daily pipeline: on a local Spark, and on a cluster that loses a worker, each run twice."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tests.support.judge import same_by_reference
from tests.support.program_runner import ONE_PROCESS

import frazil

PROGRAM = Path(__file__).parents[2] / "examples" / "daily_pipeline.py"

pytestmark = [pytest.mark.interop, pytest.mark.deep]


def run(directory: Path, days: int, *options: str) -> str:
    done = ONE_PROCESS.run(PROGRAM, str(directory), "--days", str(days), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def files(directory: Path) -> dict[str, int]:
    """Everything in the repository, and when it was written."""
    paths = (directory / "repository").rglob("*")
    return {str(path): path.stat().st_mtime_ns for path in paths if path.is_file()}


def is_up_to_date(directory: Path, left_out: Collection[str] = ()) -> None:
    """What readers find is what the archive holds, and its monthly means."""
    names = [path for path in sorted((directory / "archive").glob("*.nc")) if path.name not in left_out]
    storage = frazil.local_filesystem_storage(str(directory / "repository"))
    store = frazil.Repository.open(storage).readonly_session("main").store
    with xr.open_mfdataset(names, engine="h5netcdf", combine="nested", concat_dim="time") as expected:
        dataset = xr.open_zarr(store, group="weather", consolidated=False)
        for name in ("t2m", "tp"):
            np.testing.assert_array_equal(dataset[name], expected[name])
            assert dataset[name].attrs == expected[name].attrs
        np.testing.assert_array_equal(dataset.time, expected.time)
        means = xr.open_zarr(store, group="climatology/daily/weather", consolidated=False)
        with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]  # xarray
            monthly = expected.astype("f8").groupby("time.month").mean()
        for name in ("t2m", "tp"):
            np.testing.assert_allclose(means[name], monthly[name], rtol=1e-6, atol=1e-6)
    same_by_reference(directory / "repository")


def damaged(printed: str) -> set[str]:
    return set(re.findall(r"left out: \S*?([^/\s]+): damaged", printed))


@pytest.mark.weekly
@pytest.mark.spark
def test_on_this_machine(tmp_path: Path) -> None:
    first = run(tmp_path, 20)
    [bad] = damaged(first)
    is_up_to_date(tmp_path, {bad})
    before = files(tmp_path)
    assert "nothing to do" in run(tmp_path, 20)
    assert files(tmp_path) == before

    # The damaged file was sent again, and goes where it belongs; another is damaged.
    second = run(tmp_path, 22, "--keep", "1")
    [another] = damaged(second)
    assert another != bad
    is_up_to_date(tmp_path, {another})
    assert "versions removed" in second
    storage = frazil.local_filesystem_storage(str(tmp_path / "repository"))
    repo = frazil.Repository.open(storage)
    assert repo.list_branches() == {"main"}
    published = [info for info in repo.ancestry(branch="main") if "frazil_audit" in info.metadata]
    assert len(published) == 1


@pytest.mark.weekly
@pytest.mark.cluster
@pytest.mark.xdist_group("daily pipeline on a cluster")
def test_on_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    first = run(tmp_path, 120, "--cluster", "--kill-worker")
    assert "(the worker on 127.0.0.2 was killed)" in first
    is_up_to_date(tmp_path, damaged(first))
    before = files(tmp_path)
    assert "nothing to do" in run(tmp_path, 120)  # which starts no Spark
    assert files(tmp_path) == before
