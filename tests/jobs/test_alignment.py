"""A job says that xarray cannot open as a tree what it writes, and says so only then."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.errors import MisalignedGroupWarning
from frazil.spark import (
    Inline,
    Job,
    Outcome,
    Target,
    Tasks,
    coarsen,
    crop,
    groupby,
    map_blocks,
    mean,
    pyramid,
    quantile,
    rechunk,
    regrid,
    resample,
    run_job,
    select,
    zonal_stats,
)

INLINE: Final = Inline()
type Operation = Callable[[frazil.Repository, str], object]


def to(repo: frazil.Repository) -> Target:
    return Target(repo, group="results")


OPERATIONS: Final[dict[str, Operation]] = {
    "mean": lambda repo, path: mean(repo, path, "time", engine=INLINE),
    "quantile": lambda repo, path: quantile(repo, path, [0.1, 0.9], "time", engine=INLINE),
    "resample": lambda repo, path: resample(repo, path, "2D", engine=INLINE),
    "resample to the same times": lambda repo, path: resample(repo, path, "1D", engine=INLINE),
    "resample to as many other times": lambda repo, path: resample(
        repo, path, "1D", label="right", closed="right", engine=INLINE
    ),
    "groupby": lambda repo, path: groupby(repo, path, "time.month", engine=INLINE),
    "groupby a coordinate": lambda repo, path: groupby(repo, path, "lat", engine=INLINE),
    "zonal_stats": lambda repo, path: zonal_stats(repo, path, [-90, 0, 90], engine=INLINE),
    "coarsen": lambda repo, path: coarsen(repo, [path], {"lat": 2}, to=to(repo), engine=INLINE),
    "regrid": lambda repo, path: regrid(
        repo, [path], {"lat": [0, 1], "lon": [0, 90]}, to=to(repo), engine=INLINE
    ),
    "regrid to as many": lambda repo, path: regrid(
        repo, [path], {"lat": [0, 1, 2, 3], "lon": [0, 90]}, to=to(repo), engine=INLINE
    ),
    "select": lambda repo, path: select(repo, [path], isel={"lat": [0]}, to=to(repo), engine=INLINE),
    "crop": lambda repo, path: crop(repo, [path], latitude=(0, 90), to=to(repo), engine=INLINE),
    "pyramid": lambda repo, path: pyramid(
        repo, [path], factors={"lat": 2}, levels=2, to=to(repo), engine=INLINE
    ),
    "rechunk": lambda repo, path: rechunk(repo, [path], {"time": -1}, to=to(repo), engine=INLINE),
    "map_blocks": lambda repo, path: map_blocks(np.negative, repo, [path], to=to(repo), engine=INLINE),
}


def repository_with(group: str) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    data = xr.Dataset(
        {"t": (("time", "lat", "lon"), np.arange(48.0).reshape(6, 4, 2))},
        {
            "time": np.arange("2001-01-01", "2001-01-07", dtype="M8[D]").astype("M8[ns]"),
            "lat": ("lat", [-60.0, -20.0, 20.0, 60.0], {"standard_name": "latitude"}),
            "lon": ("lon", [0.0, 180.0], {"standard_name": "longitude"}),
        },
    )
    with repo.transaction("main", message="made") as store:
        data.to_zarr(store, group=group, consolidated=False, zarr_format=3)
    return repo


def opens(repo: frazil.Repository) -> bool:
    store = repo.readonly_session("main").store
    try:
        xr.open_datatree(store, engine="zarr", consolidated=False).close()  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


@pytest.mark.sample(13, 13)
@pytest.mark.deep
@pytest.mark.parametrize("group", ["/", "/data"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_warning_means_that_the_tree_does_not_open(name: str, group: str) -> None:
    repo = repository_with(group)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        OPERATIONS[name](repo, f"{group.rstrip('/')}/t")
    texts = [str(each.message) for each in caught if each.category is MisalignedGroupWarning]
    assert opens(repo) == (not texts)
    if group == "/data":
        assert not texts
    if name == "coarsen" and group == "/":
        assert "`/results`" in texts[0]
        assert "parent group `/`" in texts[0]
        assert "lat = 2 and lat = 4" in texts[0]
        assert "such as `/data`" in texts[0]
        assert caught[-1].filename == __file__


def test_a_parent_group_is_stored_last() -> None:
    repo = repository_with("/data/deep")
    with repo.transaction("main", message="another length") as store:
        small = xr.Dataset({"u": (("lat",), np.zeros(3))})
        small.to_zarr(store, group="other", consolidated=False, zarr_format=3)
    assert opens(repo)
    with pytest.warns(MisalignedGroupWarning, match="`/data/deep` must be those of its parent group `/data`"):
        map_blocks(np.negative, repo, ["other/u"], names=["data/u"], to=Target(repo), engine=INLINE)
    assert not opens(repo)


def test_no_warning_about_an_earlier_misalignment() -> None:
    repo = repository_with("/")
    with pytest.warns(MisalignedGroupWarning):
        resample(repo, "t", "2D", engine=INLINE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean(repo, "t", ["time", "lat"], to=Target(repo, group="other"), engine=INLINE)


def test_a_warning_is_no_read_of_a_job_that_tracks_them() -> None:
    repo = repository_with("/")

    def prepare(session: frazil.Session) -> Tasks:
        part = xr.Dataset({"u": (("lon",), np.zeros(2))}, {"lon": ("lon", [0.0, 90.0])})
        part.to_zarr(session.store, group="part", consolidated=False, zarr_format=3)
        with repo.transaction("main", message="others change a coordinate meanwhile") as store:
            zarr.open_array(store, path="lon", mode="r+")[:] = [1.0, 181.0]
        return Tasks([])

    job = Job("part", Target(repo), prepare, no_work, writes=("/part/u",), track_reads=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_job(job, INLINE)


def no_work(fork: frazil.Session, shared: object, item: object) -> Outcome:
    return Outcome()
