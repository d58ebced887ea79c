"""A job says that xarray cannot open as a tree what it writes, and says so only then."""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np
import pytest
import xarray as xr
from tests.pipeline import operations
from tests.pipeline.operations import CALLS, Call, operate
from tests.pipeline.transform.shared import repository_of

import frazil
import frazil.pipeline as ops
from frazil.errors import MisalignedGroupWarning

INLINE: Final = ops.Inline()
OPERATIONS: Final[dict[str, Call]] = CALLS | {
    "resample": (ops.resample, ["2D"], {}),
    "resample to the same times": (ops.resample, ["1D"], {}),
    "resample to as many other times": (ops.resample, ["1D"], {"label": "right", "closed": "right"}),
    "groupby a coordinate": (ops.groupby, ["lat"], {}),
    "regrid to as many": (ops.regrid, [{"lat": [0, 1, 2, 3], "lon": [0, 90]}], {}),
}


def repository_with(group: str) -> frazil.Repository:
    data = xr.Dataset(
        {"t": (("time", "lat", "lon"), np.arange(48.0).reshape(6, 4, 2))},
        {
            "time": np.arange("2001-01-01", "2001-01-07", dtype="M8[D]").astype("M8[ns]"),
            "lat": ("lat", [-60.0, -20.0, 20.0, 60.0], {"standard_name": "latitude"}),
            "lon": ("lon", [0.0, 180.0], {"standard_name": "longitude"}),
        },
    )
    return repository_of(data, group=group)


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
        operate(OPERATIONS[name], repo, [f"{group.rstrip('/')}/t"], to=ops.Target(repo, group="results"))
    texts = [str(each.message) for each in caught if each.category is MisalignedGroupWarning]
    assert opens(repo) == (not texts)
    if group == "/data":
        assert not texts
    if name == "coarsen" and group == "/":
        assert "`/results`" in texts[0]
        assert "parent group `/`" in texts[0]
        assert "lat = 2 and lat = 4" in texts[0]
        assert "such as `/data`" in texts[0]
        assert caught[-1].filename == operations.__file__  # where the operation is called


def test_a_parent_group_is_stored_last() -> None:
    repo = repository_with("/data/deep")
    with repo.transaction("main", message="another length") as store:
        small = xr.Dataset({"u": (("lat",), np.zeros(3))})
        small.to_zarr(store, group="other", consolidated=False, zarr_format=3)
    assert opens(repo)
    with pytest.warns(MisalignedGroupWarning, match="`/data/deep` must be those of its parent group `/data`"):
        ops.map_blocks(np.negative, repo, ["other/u"], names=["data/u"], to=ops.Target(repo), engine=INLINE)
    assert not opens(repo)


def test_no_warning_about_an_earlier_misalignment() -> None:
    repo = repository_with("/")
    with pytest.warns(MisalignedGroupWarning):
        ops.resample(repo, "t", "2D", engine=INLINE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.mean(repo, "t", ["time", "lat"], to=ops.Target(repo, group="other"), engine=INLINE)
