"""Reductions and rules take the statistics of whole chunks: the same answers, and fewer values are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.answers.plan import RegionPlan
from frazil.pipeline import (
    Condition,
    Finite,
    JobResult,
    Limits,
    Monotonic,
    NanShare,
    Range,
    Report,
    RuleCheck,
    StatisticsAgainst,
    Target,
    groupby,
    reduce,
    resample,
    validate,
    zonal_stats,
)
from frazil.pipeline.reductions import tasks
from frazil.pipeline.reductions.fields import region_plan
from frazil.pipeline.validation import operation
from frazil.storage.checks import TRAFFIC

#: Statistics that chunks give with the bits of their values: sums and means only for integers.
HOW = ("count", "sum", "min", "max", "any", "all")
SHAPE = (22, 4, 6)
#: The data type, the fill value and the attributes of arrays of all kinds of numbers.
KINDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "gaps": ("f4", np.nan, {}),
    "big_endian": (">f8", 3, {}),
    "small": ("i1", 0, {}),
    "packed": ("i2", 3, {"scale_factor": -0.5, "add_offset": 280.0, "missing_value": 3}),
    "unpacked": ("i2", 0, {"_FillValue": 7}),
    "limits": ("f4", 0, {"valid_min": 2, "valid_max": 40, "_FillValue": 7}),
    "packed_limits": ("i4", 5, {"scale_factor": 0.5, "valid_range": [2, 40], "_FillValue": 5}),
    "unsigned": ("i1", 1, {"_Unsigned": "true", "_FillValue": 1}),
    "large": ("i8", 2, {}),
    "positive": ("u4", 0, {}),
    "truths": ("?", 0, {}),
}


def values_of(name: str) -> Any:
    """Values with everything that can go wrong in the first half, and no gaps and zeros in the second."""
    dtype, rng = np.dtype(KINDS[name][0]), np.random.default_rng(len(name))
    low = 0 if dtype.kind in "ub" else -50
    values = np.concatenate([rng.integers(low, 60, (11, *SHAPE[1:])), rng.integers(8, 40, (11, *SHAPE[1:]))])
    values[2:5] = 0
    out = values.astype(dtype)
    if name == "large":
        out += 1 << 45
    if dtype.kind == "f":
        out[5:] += rng.random((17, *SHAPE[1:])).astype(dtype)
    if name == "gaps":
        out[6, :, 2:], out[8] = np.nan, np.nan
    for fill in (KINDS[name][2].get(key) for key in ("_FillValue", "missing_value")):
        if fill is not None:
            out[9] = fill
    return out


def stored(arrays: dict[str, tuple[dict[str, Any], Any]], day: int, *, statistics: bool) -> frazil.Repository:
    """Store arrays, except the first two days, with statistics, and then one day again without them."""
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
    with repo.transaction("main", message="data") as store:
        for name, (options, values) in arrays.items():
            dims, path = ("time", "lat", "lon"), f"data/{name}"
            options = {"shape": values.shape, "dtype": values.dtype, "dimension_names": dims, **options}
            zarr.create_array(store, name=path, **options)[2:] = values[2:]
        units: dict[str, Any] = {"units": "days since 2001-01-01"}
        days = np.arange(values.shape[0])
        zarr.create_array(store, name="data/time", data=days, dimension_names=("time",), attributes=units)
    if statistics:
        repo.upkeep.build_statistics()
    with repo.transaction("main", message="again") as store:
        for name, (_, values) in arrays.items():
            zarr.open_array(store, path=f"data/{name}")[day] = values[day]
    return repo


def archive(chunks: tuple[int, ...], *, has_shards: bool, statistics: bool) -> frazil.Repository:
    """Return a repository with an array of each kind."""
    arrays = {}
    for name, (_, fill, attributes) in KINDS.items():
        options = {"chunks": chunks, "fill_value": fill, "attributes": attributes}
        if has_shards:
            options["shards"] = tuple(2 * n for n in chunks)
        arrays[name] = (options, values_of(name))
    return stored(arrays, 13, statistics=statistics)


def compute(repo: frazil.Repository, name: str, **options: Any) -> JobResult:
    options = {"engine": "inline", "to": Target(repo, group="out"), **options}
    how, path = options.pop("how"), paths(repo)
    calls: dict[str, Any] = {
        "all": lambda: reduce(repo, path, how=how, **options),
        "steps": lambda: reduce(repo, path, ("lat", "lon"), how, **options),
        "maps": lambda: reduce(repo, path, "time", how, **options),
        "bins": lambda: resample(repo, path, "5D", how, **options),
        "months": lambda: groupby(repo, path, "time.month", how, dims=("lat", "lon"), **options),
        "zones": lambda: zonal_stats(repo, path, zones(repo), how, **options),
    }
    result: JobResult = calls[name]()
    return result


def paths(repo: frazil.Repository) -> list[str]:
    arrays = zarr.open_group(repo.readonly_session("main").store, path="data", mode="r").array_keys()
    return [f"data/{name}" for name in arrays if name != "time"]


def zones(repo: frazil.Repository) -> xr.DataArray:
    array = zarr.open_array(repo.readonly_session("main").store, path=paths(repo)[0], mode="r")
    y, x = array.shape[1:]
    labels = np.where(np.arange(x) < 3, 1.0, np.where(np.arange(x) < 5, 2.0, np.nan))
    return xr.DataArray(np.broadcast_to(labels, (y, x)), dims=("lat", "lon"), name="zone")


def results(repo: frazil.Repository) -> dict[str, Any]:
    group = zarr.open_group(repo.readonly_session("main").store, path="out/data", mode="r")
    return {name: array[...] for name, array in group.arrays()}


CHUNKS = {
    "all": (5, 2, 3),
    "steps": (1, 2, 3),
    "maps": (5, 1, 1),
    "bins": (5, 1, 1),
    "months": (1, 4, 6),
    "zones": (1, 4, 3),
}
SMALL = Limits(task=1500, block=800, chunk=1000)
STORED = Limits(task=1500, block=800, chunk=500)
CASES = [
    *[("all", {"how": HOW}), ("all", {"how": HOW, "skipna": False, "limits": SMALL})],
    *[("all", {"how": HOW[:-1], "decode": False}), ("all", {"how": HOW[:-1], "valid_range": True})],
    *[("steps", {"how": HOW[:4], "limits": SMALL}), ("maps", {"how": ("min", "mean"), "limits": STORED})],
    *[("bins", {"how": ("count", "mean")}), ("months", {"how": ("sum", "max"), "min_count": 3})],
    *[("zones", {"how": ("mean", "any"), "limits": SMALL}), ("steps", {"how": ("mean", "first")})],
    ("all", {"how": ("count", "std")}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("has_shards", [pytest.param(False), pytest.param(True, marks=pytest.mark.deep)])
def test_statistics_change_no_result(
    name: str, options: dict[str, Any], has_shards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_them, without = (
        archive(CHUNKS[name], has_shards=has_shards, statistics=each) for each in (True, False)
    )
    job = compute(with_them, name, **options)
    monkeypatch.setattr(tasks, "region_plan", lambda *_, **__: None)  # it knows chunks that nobody wrote
    all_reads = compute(without, name, **options).metrics.bytes_read
    ours, expected = results(with_them), results(without)
    assert ours.keys() == expected.keys()
    for key, values in expected.items():
        assert ours[key].dtype == values.dtype
        np.testing.assert_array_equal(ours[key], values, err_msg=key)
    reads = job.metrics.bytes_read
    assert reads == all_reads if {"first", "std"} & {*options["how"]} else reads < all_reads


DAY = 6 * 8 * 4
#: A reduction, the chunks, and the bytes of the values that it reads of 59 days: the third was written again.
READS = [
    ("all", (1, 6, 8), DAY),
    ("all", (5, 3, 8), 5 * DAY),
    ("steps", (1, 3, 4), DAY),
    ("steps", (2, 6, 8), 59 * DAY),  # a chunk has two steps of the result
    ("bins", (5, 1, 1), 5 * DAY),
    ("bins", (4, 1, 1), 40 * DAY),  # five chunks are in one bin each, and were not written again
    ("months", (1, 6, 8), DAY),
    ("months", (31, 6, 8), 31 * DAY),
    ("zones", (1, 6, 3), (59 + 1) * 6 * 3 * 4),  # the chunks of the second zone have cells of none, too
    ("maps", (1, 6, 8), 59 * DAY),
]


@pytest.mark.parametrize(("name", "chunks", "size"), READS)
def test_only_other_chunks_are_read(name: str, chunks: tuple[int, ...], size: int) -> None:
    values = np.random.default_rng(1).normal(280, 10, (59, 6, 8)).astype("f4")
    repo = stored({"x": ({"chunks": chunks}, values)}, 2, statistics=True)
    assert compute(repo, name, how="max").metrics.bytes_read == size


def outcome(report: Report) -> list[tuple[Any, ...]]:
    return [(row.rule, row.ok, row.expected, row.found, row.where) for row in report.rows]


@pytest.mark.parametrize(("bound", "limits"), [(-20, Limits()), (9, SMALL), (35, SMALL)])
def test_statistics_change_no_report(limits: Limits, bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_them, without = (
        archive((2, 2, 3), has_shards=bound == 9, statistics=each) for each in (True, False)
    )
    rules: list[Any] = []
    for path in paths(without):
        rules += [Range(path, min=bound), Range(path, max=bound), NanShare(path), NanShare(path, 0.5, 0.1)]
        rules += [Finite(path), Finite(path, nan=True), StatisticsAgainst(path, relative=1e-9)]
    report = validate(with_them, rules, engine="inline", limits=limits)
    monkeypatch.setattr(operation, "region_plan", lambda *_: None)
    expected = validate(without, rules, engine="inline", limits=limits)
    assert outcome(report) == outcome(expected)


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("strictly", [True, False])
def test_an_order_is_read_up_to_the_first_offence(
    increasing: bool, strictly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(10_000.0)[:: 1 if increasing else -1].copy()
    values[[3500, 8100]] = values[[2500, 400]]
    outcomes, reads = [], []
    for statistics in (False, True):
        config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=statistics))
        repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
        with repo.transaction("main", message="x") as store:
            for name, data in (("bad", values), ("good", np.sort(values)[:: 1 if increasing else -1])):
                zarr.create_array(store, name=f"data/{name}", data=data, chunks=(1000,), compressors=None)
        rules = [Monotonic(f"/data/{name}", increasing, strictly) for name in ("bad", "good")]
        outcomes.append(outcome(validate(repo, rules, engine="inline")))
        TRAFFIC.take_counts()
        validate(repo, rules[:1], engine="inline")
        reads.append(TRAFFIC.take_counts().bytes_read // 8000)
    assert outcomes[0] == outcomes[1]
    assert [row[1] for row in outcomes[0]] == [False, not strictly]
    assert reads == [10, 4]

    def lie(*arguments: Any) -> RegionPlan:
        plan = region_plan(*arguments)
        assert plan is not None
        plan.columns |= {"low": -plan.columns["low"], "high": -plan.columns["high"]}
        return plan

    monkeypatch.setattr(operation, "region_plan", lie)
    assert outcome(validate(repo, rules, engine="inline")) == outcomes[0]


def test_rules_read_what_can_break_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(280, 10, (20, 6, 8)).astype("f4")
    values[7, 2, 3], values[11, 0, 5] = 900, np.nan
    repo = stored({"x": ({"chunks": (1, 6, 8)}, values)}, 0, statistics=True)
    repo.upkeep.build_statistics()
    days: list[int] = []

    inner = operation.ArrayScan.summary

    def summary(scan: Any, part: Any, start: Any) -> Any:
        days.extend(range(start[0], start[0] + part.shape[0]))
        return inner(scan, part, start)

    monkeypatch.setattr(operation.ArrayScan, "summary", summary)
    path = "/data/x"
    allowed = [NanShare(path, 0.1), Finite(path, nan=True), StatisticsAgainst(path)]
    assert validate(repo, allowed, engine="inline").ok
    assert days == []
    above = Condition(path, "> 0 or in (-inf, 0)")
    report = validate(repo, [Range(path, 0, 400), NanShare(path), above], engine="inline")
    assert [row.where.partition(" time")[0] for row in report.rows] == [
        "index (7, 2, 3),",
        "index (11, 0, 5),",
        "index (11, 0, 5),",
    ]
    assert days == [7, 11]
    days.clear()
    with repo.transaction("main", message="day 3") as store:  # its handle writes no statistics
        zarr.open_array(store, path="data/x")[3] = 281
    check = RuleCheck(repo, [Range(path, max=1000)])
    assert check(repo.readonly_session("main")).ok
    assert days == [3]
