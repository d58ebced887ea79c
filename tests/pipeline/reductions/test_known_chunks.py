"""Reductions and rules take the statistics of whole chunks: the same answers, and fewer values are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import frazil
from frazil.pipeline import (
    Finite,
    JobResult,
    Limits,
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
from frazil.pipeline.validation import operation
from frazil.pipeline.validation.operation import summarize_block

HOW = ("count", "sum", "mean", "std", "var", "min", "max", "any", "all")
LIMITS = (Limits(), Limits(task=600, block=200, chunk=200), Limits(task=20, block=100, small=0, columns=1000))


def stored(array: dict[str, Any], values: Any, rewritten: Any, *, statistics: bool) -> frazil.Repository:
    """Store an array, and then some elements again without statistics."""
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
    with repo.transaction("main", message="data") as store:
        x = zarr.create_array(store, name="data/x", dimension_names=("time", "lat", "lon"), **array)
        days = np.arange(x.shape[0])
        units = {"units": "days since 2001-01-01"}
        zarr.create_array(
            store, name="data/time", data=days, chunks=(400,), dimension_names=("time",), attributes=units
        )
        for place, part in values:
            x[place] = part
    if statistics:
        repo.upkeep.build_statistics()
    with repo.transaction("main", message="again") as store:
        x = zarr.open_array(store, path="data/x")
        x.attrs["history"] = "again"
        for place in rewritten:
            x[place] = x[place]
    return repo


@st.composite
def archives(draw: Any) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Arrays of all kinds of numbers: packed, with gaps, with shards, with chunks that nobody wrote."""
    shape = draw(st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6)))
    dtype = np.dtype(draw(st.sampled_from(["f4", ">f8", "i1", "i2", "u4", "i8", "?"])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.integers(draw(st.sampled_from([0, 1, -50])), 50, shape).astype(dtype)
    attributes: dict[str, Any] = {}
    if dtype.kind == "f":
        values += rng.random(shape).astype(dtype)
        values[rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = np.nan
    if dtype.kind != "b":
        attributes = draw(
            st.sampled_from(
                [
                    {},
                    {"_FillValue": 7},
                    {"scale_factor": -0.5, "add_offset": 280.0, "missing_value": 3},
                    {"valid_min": 2, "valid_max": 40},
                    {"_Unsigned": "true", "_FillValue": 1},
                ]
            )
        )
    halves = tuple(-(-n // 2) for n in shape)
    chunks = draw(st.sampled_from([(1, *shape[1:]), (1, 2, 3), (5, 1, 1), (5, *shape[1:]), halves]))
    shards = tuple(2 * n for n in chunks) if draw(st.booleans()) else None
    fill = draw(st.sampled_from([0, 7, np.nan])) if dtype.kind == "f" else draw(st.sampled_from([0, 1]))
    array = {"shape": shape, "dtype": dtype, "chunks": chunks, "shards": shards, "fill_value": fill}
    first = draw(st.integers(0, shape[0] // 2))
    again = draw(st.lists(st.integers(0, shape[0] - 1), max_size=3))
    return {**array, "attributes": attributes}, [(slice(first, None), values[first:])], again


def compute(repo: frazil.Repository, name: str, **options: Any) -> JobResult:
    options = {"engine": "inline", "to": Target(repo, group="out"), **options}
    how, path = options.pop("how"), "data/x"
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


def zones(repo: frazil.Repository) -> xr.DataArray:
    _, y, x = zarr.open_array(repo.readonly_session("main").store, path="data/x", mode="r").shape
    labels = np.where(np.arange(x) < 3, 1.0, np.where(np.arange(x) < 5, 2.0, np.nan))
    return xr.DataArray(np.broadcast_to(labels, (y, x)), dims=("lat", "lon"), name="zone")


def results(repo: frazil.Repository) -> dict[str, Any]:
    group = zarr.open_group(repo.readonly_session("main").store, path="out/data", mode="r")
    return {name: array[...] for name, array in group.arrays()}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["all", "steps", "maps", "bins", "months", "zones"])
@settings(max_examples=6, phases=[Phase.generate])
@given(
    archive=archives(),
    how=st.sampled_from([HOW, HOW[:-1], ("mean", "first")]),
    skipna=st.booleans(),
    flags=st.tuples(st.booleans(), st.booleans()),
    limits=st.sampled_from(LIMITS),
)
def test_statistics_change_no_result(
    name: str, archive: Any, how: Any, skipna: bool, flags: tuple[bool, bool], limits: Limits
) -> None:
    options = {"skipna": skipna, "decode": flags[0], "valid_range": flags[1], "limits": limits, "how": how}
    with_them, without = (stored(*archive, statistics=each) for each in (True, False))
    jobs = [compute(repo, name, **options) for repo in (with_them, without)]
    ours, expected = results(with_them), results(without)
    assert ours.keys() == expected.keys()
    for key, values in expected.items():
        assert ours[key].dtype == values.dtype
        single = values.dtype.itemsize == 4 and values.dtype.kind == "f"
        rtol = 0 if values.dtype.kind != "f" else 2e-6 if single else 1e-12
        np.testing.assert_allclose(ours[key], values, rtol=rtol, atol=100 * rtol, err_msg=key)
    assert jobs[0].metrics.bytes_read <= jobs[1].metrics.bytes_read


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
    array = {"shape": values.shape, "dtype": values.dtype, "chunks": chunks}
    repo = stored(array, [(..., values)], [(2,)], statistics=True)
    assert compute(repo, name, how="mean").metrics.bytes_read == size


def outcome(report: Report) -> list[tuple[Any, ...]]:
    return [(row.rule, row.ok, row.expected, row.found, row.where) for row in report.rows]


@pytest.mark.sample(4)
@settings(max_examples=20, phases=[Phase.generate])
@given(archive=archives(), limits=st.sampled_from(LIMITS), bound=st.integers(-60, 300))
def test_statistics_change_no_report(archive: Any, limits: Limits, bound: int) -> None:
    path = "/data/x"
    rules = [Range(path, min=bound), Range(path, max=bound), NanShare(path), NanShare(path, 0.5, 0.1)]
    rules += [Finite(path), Finite(path, nan=True), StatisticsAgainst(path, relative=1e-9)]
    with_them, without = (stored(*archive, statistics=each) for each in (True, False))
    reports = [validate(repo, rules, engine="inline", limits=limits) for repo in (with_them, without)]
    assert outcome(reports[0]) == outcome(reports[1])


def test_rules_read_what_can_break_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(280, 10, (20, 6, 8)).astype("f4")
    values[7, 2, 3], values[11, 0, 5] = 900, np.nan
    array = {"shape": values.shape, "dtype": values.dtype, "chunks": (1, 6, 8)}
    repo = stored(array, [(..., values)], [], statistics=True)
    days: list[int] = []

    def summarize(part: Any, start: Any, limits: Any) -> Any:
        days.extend(range(start[0], start[0] + part.shape[0]) if part.size else ())
        return summarize_block(part, start, limits)

    monkeypatch.setattr(operation, "summarize_block", summarize)
    path = "/data/x"
    allowed = [NanShare(path, 0.1), Finite(path, nan=True), StatisticsAgainst(path)]
    assert validate(repo, allowed, engine="inline").ok
    assert days == []
    report = validate(repo, [Range(path, 200, 400), NanShare(path)], engine="inline")
    assert [row.where.partition(" time")[0] for row in report.rows] == [
        "index (7, 2, 3),",
        "index (11, 0, 5),",
    ]
    assert days == [7, 11]
    days.clear()
    with repo.transaction("main", message="day 3") as store:  # its handle writes no statistics
        zarr.open_array(store, path="data/x")[3] = 281
    check = RuleCheck(repo, [Range(path, max=1000)])
    assert check(repo.readonly_session("main")).ok
    assert days == [3]
