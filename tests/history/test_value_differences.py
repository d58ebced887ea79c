"""Differences in values, against numpy; and the chunks that are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.snapshots import ValueDifference

NAN = float("nan")


def two_versions(
    before: Any, after: Any, *, chunks: tuple[int, ...] = (2, 2), **options: Any
) -> frazil.Repository:
    """A repository with the array ``a`` before (tag ``v1``) and after (branch ``main``)."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="before") as store:
        zarr.create_array(store, name="a", data=np.asarray(before), chunks=chunks, **options)
    repo.create_tag("v1", "main")
    new = np.asarray(after)
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.resize(new.shape)
    for block in np.ndindex(array.cdata_shape):
        where = tuple(slice(at * size, (at + 1) * size) for at, size in zip(block, chunks, strict=True))
        if not np.array_equal(array[where], new[where], equal_nan=new.dtype.kind == "f"):
            array[where] = new[where]
    session.commit("after", allow_empty=True)
    return repo


def difference(repo: frazil.Repository, path: str = "a") -> ValueDifference:
    return repo.history.diff_values(path, from_tag="v1", to_branch="main")


def test_the_statistics_are_those_of_numpy() -> None:
    before = np.arange(20, dtype="f8").reshape(4, 5)
    after = before.copy()
    after[0, 0], after[1, 1], after[3, 4] = 5, -1, 100
    report = difference(two_versions(before, after))
    steps = (after - before)[after != before]
    assert (report.cells, report.changed) == (20, 3)
    assert report.mean == pytest.approx(steps.mean())
    assert report.max == np.abs(steps).max()
    assert report.rmse == pytest.approx(np.sqrt((steps**2).mean()))
    assert report.grid().tolist() == [[2, 0, 0], [0, 0, 1]]
    assert report.index.tolist() == [[0, 0], [1, 2]]
    assert report.max_by_chunk.tolist() == [7.0, 81.0]
    assert report.chunks_read == 2
    assert "rmse" in repr(report)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("u1", 255.0), ("i8", 255.0), ("?", 1.0), ("<U3", NAN), ("c8", NAN)]
)
def test_data_types(dtype: str, expected: float) -> None:
    before = np.zeros((2, 2)).astype(dtype)
    after = before.copy()
    after[0, 0] = 255
    report = difference(two_versions(after, before))
    assert report.changed == 1
    assert np.array_equal([report.max], [expected], equal_nan=True)
    assert np.array_equal([report.mean], [-expected], equal_nan=True)


def test_a_scalar() -> None:
    report = difference(two_versions(1, 4, chunks=()))
    assert (report.cells, report.changed, report.mean, report.grid().tolist()) == (1, 1, 3.0, 1)


def test_equal_versions_are_not_read() -> None:
    repo = two_versions(np.ones((4, 4)), np.ones((4, 4)))
    report = repo.history.diff_values("a", from_branch="main", to_branch="main")
    assert (report.changed, report.chunks_read, report.cells) == (0, 0, 16)
    assert np.isnan(report.mean)


def test_another_shape_compares_the_common_cells() -> None:
    before, after = np.ones((4, 4)), np.ones((6, 2))
    after[0, 0] = after[5, 1] = 9
    report = difference(two_versions(before, after))
    assert (report.cells, report.changed, report.grid().shape) == (8, 1, (3, 1))
    assert (report.new_cells, report.removed_cells) == (4, 8)


def test_a_moved_array_and_another_grid() -> None:
    repo = two_versions(np.ones((4, 4)), np.ones((4, 4)))
    session = repo.rearrange_session("main")
    session.move("/a", "/moved")
    session.commit("move")
    assert difference(repo, "moved").chunks_read == 0
    with repo.transaction("main", message="rechunked") as store:
        data = np.ones((4, 4), "f4")
        data[3, 3] = 2
        zarr.create_array(store, name="a", data=data, chunks=(3, 4))
    report = difference(repo)
    assert (report.changed, report.chunks_read, report.grid().tolist()) == (1, 2, [[0], [1]])


def test_wrong_arguments() -> None:
    repo = two_versions(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(frazil.NodeNotFoundError):
        difference(repo, "b")
    with repo.transaction("main", message="other") as store:
        zarr.create_array(store, name="a", data=np.ones(2), overwrite=True)
    with pytest.raises(frazil.InvalidInputError, match="number of dimensions") as error:
        difference(repo)
    assert error.value.kind == "unsupported-array"
    with pytest.raises(ValueError, match="exactly one"):
        repo.history.diff_values("a", from_branch="main")


# ---- values that are decoded


PACKING: dict[str, Any] = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768, "units": "K"}


def with_attributes(
    before: Any, attributes: dict[str, Any], after: Any, new_attributes: dict[str, Any]
) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    for name, data, attrs in (("v1", before, attributes), ("v2", after, new_attributes)):
        with repo.transaction("main", message=name) as store:
            zarr.create_array(
                store,
                name="a",
                data=np.asarray(data),
                chunks=(max(2, len(data) // 2),),
                attributes=attrs,
                overwrite=True,
            )
        repo.create_tag(name, "main")
    return repo


def test_differences_are_those_of_decoded_values() -> None:
    before, after = np.array([0, 100, -32768, -32768, 5], "i2"), np.array([0, 350, -32768, 7, 5], "i2")
    repo = with_attributes(before, PACKING, after, PACKING)
    report = difference(repo)
    assert (report.changed, report.units) == (2, "K")
    assert (report.mean, report.max, report.rmse) == pytest.approx((2.5, 2.5, 2.5))
    raw = repo.history.diff_values("a", from_tag="v1", to_branch="main", decode=False)
    assert (raw.changed, raw.max, raw.units) == (2, 32775.0, None)


def test_a_change_of_attributes_alone_is_a_change_of_values() -> None:
    repo = with_attributes(
        np.array([0, 100, -32768], "i2"), PACKING, np.array([0, 100, -32768], "i2"), PACKING
    )
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.attrs["scale_factor"] = 0.02
    session.commit("rescaled")
    report = difference(repo)
    assert (report.changed, report.mean) == pytest.approx((1, 1.0))
    assert repo.history.diff_values("a", from_tag="v1", to_branch="main", decode=False).changed == 0
    with repo.transaction("main", message="no value is missing") as store:
        array = zarr.open_array(store, path="a")
        array.attrs.put({**PACKING, "_FillValue": -1})
    report = difference(repo)
    assert (report.changed, np.isnan(report.mean)) == (1, True)


def test_another_packing_of_the_same_values_is_no_change() -> None:
    before = np.array([*range(-999, 1000), -32768], "i2")
    values = 273.15 + before * 0.01
    cases: list[tuple[str, dict[str, Any]]] = [
        ("i4", {"scale_factor": 0.001, "add_offset": 273.15, "missing_value": -1, "units": "K"}),
        ("f8", {"_FillValue": -1.0, "units": "K"}),
        ("f8", {"units": "K"}),
    ]
    for dtype, attributes in cases:
        scale, offset = attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)
        after = (values - offset) / scale
        after = (np.rint(after) if dtype == "i4" else after).astype(dtype)
        after[-1] = -1 if len(attributes) > 1 else NAN
        report = difference(with_attributes(before, PACKING, after, attributes))
        assert (report.changed, report.cells, report.chunks_read) == (0, 2000, 2)


@pytest.mark.parametrize(
    ("dtype", "attributes", "expected", "units"),
    [
        ("i4", {"units": "hours since 2000-01-01"}, 2.0, "hours"),
        ("f8", {"units": "days since 2000-01-01", "calendar": "noleap"}, 2.0, "days"),
        ("i8", {"units": "seconds", "dtype": "timedelta64[s]"}, 2.0, "seconds"),
        ("M8[D]", {}, 172_800.0, "s"),
    ],
)
def test_times_differ_in_their_units(
    dtype: str, attributes: dict[str, Any], expected: float, units: str
) -> None:
    if "calendar" in attributes:
        pytest.importorskip("cftime")
    before, after = np.array([1, 2, 3]).astype(dtype), np.array([1, 4, 3]).astype(dtype)
    report = difference(with_attributes(before, attributes, after, attributes))
    assert (report.changed, report.mean, report.max, report.units) == (1, expected, expected, units)


def test_times_of_another_reference_are_equal() -> None:
    pytest.importorskip("cftime")
    before, after = np.array([31, 32], "i4"), np.array([0, 1], "i4")
    units = [{"units": f"days since 2000-{month}-01"} for month in ("01", "02")]
    assert difference(with_attributes(before, units[0], after, units[1])).changed == 0
    other = {**units[0], "calendar": "noleap"}
    assert difference(with_attributes(before, units[0], before, other)).changed == 2
