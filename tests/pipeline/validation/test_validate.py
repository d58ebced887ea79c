"""Rules find what breaks them, and where; data is read once for all rules of an array."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import frazil
import frazil.pipeline as ops
from frazil.pipeline.reductions import Limits
from frazil.pipeline.validation.rules import KINDS

SMALL = Limits(task=200, block=80)


def dataset() -> xr.Dataset:
    rng = np.random.default_rng(3)
    values = rng.normal(285, 10, (12, 4, 5))
    values[3, 2, 1], values[7, 0, 0] = np.nan, np.inf
    values[5, 1, 4] = 900
    packed = xr.DataArray(rng.random((12, 4)) * 100, dims=("time", "lat"))
    packed.encoding = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -1}
    fields = xr.Dataset(
        {"t": (("time", "lat", "lon"), values, {"units": "K"}), "p": packed},
        coords={
            "time": xr.date_range("2001-01-01", periods=12),
            "lat": [10.0, 20.0, 20.0, 40.0],
            "lon": np.arange(5.0),
        },
    )
    fields["t"].encoding["chunks"] = (2, 4, 3)
    return fields


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    with repo.transaction("main", message="data") as store:
        dataset().to_zarr(store, group="obs", consolidated=False, zarr_format=3)
    return repo


GOOD = (
    ops.Exists("/obs/t"),
    ops.Exists("/obs", kind="group"),
    ops.Shape("/obs/t", (None, 4, 5)),
    ops.DType("/obs/t", "float64"),
    ops.Dims("/obs/t", ("time", "lat", "lon")),
    ops.Units("/obs/t", "K"),
    ops.Attributes("/obs/t", {"units": None}),
    ops.Filled("/obs/t"),
    ops.Monotonic("/obs/lat", strictly=False),
    ops.Monotonic("/obs/time"),
    ops.Regular("/obs/lon", 1.0),
    ops.Regular("/obs/time"),
    ops.NoDuplicates("/obs/lon"),
    ops.Range("/obs/p", 0, 100),
    ops.Condition("/obs/p", "between 0 and 100 or is null"),
    ops.NanShare("/obs/t", 1 / 240),
    ops.Finite("/obs/p"),
    ops.StatisticsAgainst("/obs/p"),
)
BAD = [
    (ops.Exists("/obs/u"), "nothing", ""),
    (ops.Exists("/obs/t", kind="group"), "array", ""),
    (ops.Shape("/obs/t", (12, 4)), "(12, 4, 5)", ""),
    (ops.DType("/obs/t", "float32"), "float64", ""),
    (ops.Dims("/obs/t", ("time", "y", "x")), "('time', 'lat', 'lon')", ""),
    (ops.Units("/obs/t", "degC"), "K", ""),
    (ops.Attributes("/obs/t", {"units": "C"}), "{'units': 'K'}", ""),
    (ops.Filled("/obs/t", 1.5), "12 of 12", ""),
    (ops.Monotonic("/obs/lat"), "20.0 then 20.0", "index (2,)"),
    (ops.Monotonic("/obs/lon", increasing=False), "0.0 then 1.0", "index (1,)"),
    (ops.Regular("/obs/lat"), "20.0 then 20.0", "index (2,)"),
    (ops.NoDuplicates("/obs/lat"), "20.0 at 1 and 2", "index (2,)"),
    (ops.Range("/obs/t", max=800), "2 outside", "index (5, 1, 4), time=2001-01-06T00:00:00"),
    (ops.Condition("/obs/t", "<= 800 or is null"), "2 others", "index (5, 1, 4), time=2001-01-06T00:00:00"),
    (ops.Condition("/obs/t", "<= 800"), "3 others", "index (3, 2, 1)"),
    (
        ops.Condition("/obs/t", ">= '2001-01-01'"),
        "the literals of a condition on `/obs/t` must be numbers",
        "",
    ),
    (ops.NanShare("/obs/t"), "0.417%", "index (3, 2, 1)"),
    (ops.Finite("/obs/t"), "2 others", "index (3, 2, 1)"),
    (ops.Finite("/obs/t", nan=True), "1 others", "index (7, 0, 0)"),
    (ops.Monotonic("/obs/t"), "`/obs/t` must have one dimension, got 3", ""),
    (ops.Range("/obs/nothing"), "none", ""),
]


def test_what_is_right_passes(repo: frazil.Repository) -> None:
    report = ops.validate(repo, GOOD, engine=ops.Inline(), limits=SMALL)
    assert report.ok, str(report)
    assert [row.rule for row in report.rows] == [type(rule).__name__ for rule in GOOD]
    assert {type(rule) for rule in GOOD} == set(KINDS.values())
    report.raise_if_failed()


def test_a_broken_rule_is_reported_with_its_place(repo: frazil.Repository) -> None:
    rules = [rule for rule, _, _ in BAD]
    report = ops.validate(repo, rules, engine=ops.Inline(), limits=SMALL)
    for row, (rule, actual, where) in zip(report.rows, BAD, strict=True):
        assert not row.ok, rule
        assert row.found.startswith(actual), rule
        assert row.where.startswith(where), rule
    assert report.rows[-1].found == "none"  # and not once more which array was expected
    with pytest.raises(frazil.ValidationFailedError, match=r"21 of 21 rules failed") as raised:
        report.raise_if_failed()
    assert raised.value.kind == "validation-failed"
    assert pickle.loads(pickle.dumps(raised.value)).report == report
    assert json.loads(json.dumps(report.as_json()))["rows"][0]["found"] == "nothing"


def test_statistics_are_compared_with_a_version(repo: frazil.Repository) -> None:
    before = ops.Version.of(repo)
    with repo.transaction("main", message="warmer") as store:
        warmer = dataset()[["p"]]
        warmer["p"] = warmer["p"] * 0.5 + 50
        warmer.to_zarr(store, group="obs", mode="a", consolidated=False, zarr_format=3)
    repo.create_tag("old", before.snapshot_id)
    rules = [
        ops.StatisticsAgainst("/obs/p", sigma=2),
        ops.StatisticsAgainst("/obs/p", sigma=0.1),
        ops.StatisticsAgainst("/obs/p", "main", sigma=0),
        ops.StatisticsAgainst("/obs/p", "old", sigma=None, relative=0.01),
        ops.StatisticsAgainst("/obs/p", sigma=None, relative=0.6),
    ]
    report = ops.validate(repo, rules, engine=ops.Inline(), limits=SMALL)
    assert [row.ok for row in report.rows] == [True, False, True, False, True], str(report)
    same = ops.validate(repo, rules[1:2], engine=ops.Inline(), against=ops.Version.of(repo))
    assert same.ok


def test_rules_can_be_stored_as_json(tmp_path: Path) -> None:
    listed = [rule.as_dict() for rule in GOOD]
    assert ops.rules_from(listed) == GOOD
    (tmp_path / "rules.json").write_text(json.dumps(listed))
    assert ops.rules_from(tmp_path / "rules.json") == GOOD
    for wrong in ("- {rule: Rang, path: t}", "- {rule: Range, path: t, top: 3}", "- {rule: Range}", "[", "a"):
        with pytest.raises(frazil.InvalidInputError):
            ops.rules_from(wrong)


@settings(max_examples=8)
@given(st.data())
def test_a_pass_in_pieces_is_a_pass(data: Any) -> None:
    shape = data.draw(st.tuples(st.integers(0, 9), st.integers(1, 5)))
    chunks = tuple(data.draw(st.integers(1, max(1, n))) for n in shape)
    values = np.random.default_rng(data.draw(st.integers(0, 9))).normal(size=shape)
    values[values > 1.2] = np.nan
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="x") as store:
        array = xr.DataArray(values, dims=("a", "b"), name="x")
        array.to_dataset().to_zarr(
            store, encoding={"x": {"chunks": chunks}}, consolidated=False, zarr_format=3
        )
    rules = [ops.Range("x", -0.5, None), ops.NanShare("x", 0.1), ops.StatisticsAgainst("x", "main", sigma=0)]
    low, share, same = ops.validate(repo, rules, engine=ops.Inline(), limits=SMALL).rows
    assert same.ok
    bad = np.argwhere(values < -0.5)
    assert low.ok == (not len(bad))
    if len(bad):
        assert low.found.startswith(f"{len(bad)} outside")
        assert low.where == f"index {tuple(bad[0].tolist())}"
    assert share.ok == (np.isnan(values).mean() <= 0.1 if values.size else True)


HARD: list[tuple[Any, bool, str]] = [
    (ops.Monotonic("ns"), True, "3 values"),  # one nanosecond apart: the same as floats
    (ops.Regular("ns", step=1), True, "3 values"),
    (ops.Regular("down"), True, "3 values"),
    (ops.Monotonic("down", increasing=False), True, "3 values"),
    (ops.Monotonic("text"), True, "3 values"),
    (ops.Regular("text"), False, "the type"),
    (ops.Monotonic("complex"), False, "the type complex128"),
    (ops.NoDuplicates("gaps"), False, "nan at 0 and 2"),
    (ops.Range("half", -1e9, 1e9), True, "1.0 to 3.0"),
    (ops.Range("down", -1, 2), False, "1 outside, 1 to 3; first 3"),
    (ops.Range("large", 0, 2**53), False, f"1 outside, {2**53} to {2**53 + 1}; first {2**53 + 1}"),
    (ops.Range("gaps of integers", 0, 2**53), False, f"first {2**53 + 1}"),
    (ops.Condition("gaps of integers", f"in ({2**53}, {2**53 + 1}) or is null"), True, ""),
    (ops.Range("", 0, 1), False, "got a group"),
]


@pytest.mark.parametrize(("rule", "ok", "actual"), HARD)
def test_hard_cases(rule: Any, ok: bool, actual: str) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    arrays = {
        "ns": np.array([0, 1, 2]) + 1_700_000_000_000_000_000,
        "down": np.array([3, 2, 1], "u8"),
        "text": np.array(["a", "b", "c"]),
        "complex": np.array([1j, 2j]),
        "gaps": np.array([np.nan, 1, np.nan]),
        "half": np.array([1, 2, 3], "f2"),
        "large": np.array([2**53, 2**53 + 1]),
        "gaps of integers": np.array([2**53, -1, 2**53 + 1]),
    }
    with repo.transaction("main", message="coordinates") as store:
        for name, data in arrays.items():
            fill: dict[str, Any] = {"_FillValue": -1} if name == "gaps of integers" else {}
            zarr.create_array(store, name=name, data=data, chunks=(2,), attributes=fill)
    row = ops.validate(repo, [rule], engine=ops.Inline()).rows[0]
    assert (row.ok, actual in row.found) == (ok, True), row


#: Values of another type than a field has.
TEXT: Any = "0"
NUMBER: Any = 3


@pytest.mark.parametrize(
    "rule",
    [
        "x",
        ops.Range("t", TEXT),
        ops.Shape("t", NUMBER),
        ops.DType("t", "foo"),
        ops.Exists("t", "table"),
        ops.Range(NUMBER),
        ops.Range("t", 2, 1),
        ops.Condition("t", "> x"),
        ops.Condition("t", NUMBER),
    ],
)
def test_rules_that_make_no_sense_are_refused(rule: Any) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(frazil.InvalidInputError, match="must"):
        ops.validate(repo, [rule], engine=ops.Inline())
    with pytest.raises(frazil.InvalidInputError, match="must"):  # before any work
        ops.write_audit_publish(repo, lambda target: 1 / 0, [rule], engine=ops.Inline())
    with pytest.raises(frazil.InvalidInputError, match="limits of a rule must be numbers"):
        ops.rules_from("- {rule: Range, path: /t, min: '180'}")


@pytest.mark.skipif(zarr.__version__.startswith("3.1."), reason="zarr 3.2 has chunks of unequal lengths")
def test_an_unreadable_array_does_not_hide_the_others() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    chunks: Any = [[1, 2]]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        with repo.transaction("main", message="chunks of two shapes") as store:
            zarr.create_array(store, name="r", shape=(3,), chunks=chunks, dtype="f8")
            zarr.create_array(store, name="t", data=np.ones(3), chunks=(2,))
        report = ops.validate(
            repo, [ops.Range("r", 0, 1), ops.Filled("r"), ops.Range("t", 0, 1)], engine=ops.Inline()
        )
    assert [row.ok for row in report.rows] == [False, False, True]
    assert all("rectilinear" in row.found for row in report.failed)
