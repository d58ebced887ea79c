"""Stored values mean the same to reductions, rules and transformations, and what they mean to xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.errors import InvalidInputError
from frazil.jobs.cf import fill_value
from frazil.spark import Finite, Inline, NanShare, Target, coarsen, reduce, validate

STORED: list[tuple[str, dict[str, Any]]] = [
    ("i2", {"_FillValue": -1, "scale_factor": 0.5, "add_offset": 10.0}),
    ("i1", {"_Unsigned": "true"}),
    ("i1", {"_Unsigned": "true", "_FillValue": -1, "scale_factor": 0.5}),
    ("u1", {"_FillValue": 255}),
    ("f4", {"missing_value": 0.1}),
    ("f4", {"_FillValue": "AAAAAAAA8L8="}),  # -1
    ("i4", {"missing_value": -1, "_FillValue": -1}),
    ("i1", {"dtype": "bool"}),  # as xarray writes booleans to NetCDF
]


@pytest.mark.parametrize(("dtype", "attributes"), STORED)
def test_all_see_what_xarray_sees(dtype: str, attributes: dict[str, Any]) -> None:
    stored = np.array([[-1, 0, 1, 2], [100, -1, 3, 4]]).astype(dtype)
    if dtype == "f4":
        stored[0, 1] = 0.1
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="stored") as store:
        array = zarr.create_array(store, name="x", data=stored, chunks=(1, 2), dimension_names=["a", "b"])
        array.attrs.update(attributes)
    packing = dict(attributes)
    if isinstance(packing.get("_FillValue"), str):
        packing["_FillValue"] = fill_value(packing["_FillValue"], stored.dtype)
    if dtype == "f4" and "missing_value" in packing:  # as a float64 it would not be found
        packing["missing_value"] = np.float32(packing["missing_value"])
    expected_variable = xr.conventions.decode_cf_variable("x", xr.Variable(("a", "b"), stored, packing))
    inline = Inline()
    reduce(repo, "x", "b", ["mean", "count"], to=Target(repo, group="r"), engine=inline)
    coarsen(repo, ["x"], {"b": 2}, to=Target(repo, group="c"), engine=inline)
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    expected = xr.DataArray(expected_variable).astype("f8")
    np.testing.assert_allclose(root["r/x_mean"][:], expected.mean("b"), rtol=1e-6)
    np.testing.assert_array_equal(root["r/x_count"][:], expected.count("b"))
    np.testing.assert_allclose(root["c/x"][:], expected.coarsen(b=2).mean(), rtol=1e-6)
    assert not root["c/x"].attrs.keys() & attributes.keys()
    share = float(expected.isnull().mean())
    report = validate(repo, [NanShare("x", max=share, min=share), Finite("x", nan=True)], engine=inline)
    assert report.ok, report


def test_a_fill_value_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="got 'none'"):
        fill_value("none", np.dtype("i2"))
