"""A job says that xarray cannot open as a tree what it writes, and says so only then."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import pytest
import xarray as xr

import frazil
import frazil.pipeline
from frazil.errors import MisalignedGroupWarning
from frazil.pipeline import Inline, Target, map_blocks, mean, resample

INLINE: Final = Inline()
#: Names of operations, and their arguments after the path of the array. Some write to the group `/results`.
OPERATIONS: Final[dict[str, tuple[str, list[Any], dict[str, Any]]]] = {
    "mean": ("mean", ["time"], {}),
    "quantile": ("quantile", [[0.1, 0.9], "time"], {}),
    "resample": ("resample", ["2D"], {}),
    "resample to the same times": ("resample", ["1D"], {}),
    "resample to as many other times": ("resample", ["1D"], {"label": "right", "closed": "right"}),
    "groupby": ("groupby", ["time.month"], {}),
    "groupby a coordinate": ("groupby", ["lat"], {}),
    "zonal_stats": ("zonal_stats", [[-90, 0, 90]], {}),
    "coarsen": ("coarsen", [{"lat": 2}], {}),
    "regrid": ("regrid", [{"lat": [0, 1], "lon": [0, 90]}], {}),
    "regrid to as many": ("regrid", [{"lat": [0, 1, 2, 3], "lon": [0, 90]}], {}),
    "select": ("select", [], {"isel": {"lat": [0]}}),
    "crop": ("crop", [], {"latitude": (0, 90)}),
    "pyramid": ("pyramid", [], {"factors": {"lat": 2}, "levels": 2}),
    "rechunk": ("rechunk", [{"time": -1}], {}),
    "map_blocks": ("map_blocks", [], {}),
}
REDUCTIONS: Final = ("mean", "quantile", "resample", "groupby", "zonal_stats")


def operate(name: str, repo: frazil.Repository, path: str) -> None:
    function, arguments, keywords = OPERATIONS[name]
    if function not in REDUCTIONS:
        keywords = {**keywords, "to": Target(repo, group="results")}
    first = [np.negative] if function == "map_blocks" else []
    getattr(frazil.pipeline, function)(*first, repo, [path], *arguments, engine=INLINE, **keywords)


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
        operate(name, repo, f"{group.rstrip('/')}/t")
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
