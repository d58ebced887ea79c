"""Every cell has the value of its row, the earlier value, or is missing: a model of numpy says so.

The arrays are those that xarray and others write: the fill value of zarr differs from ``_FillValue``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.tables.test_reading import memory, planned
from tests.support.examples import examples

import frazil
from frazil.arrow.grid import Selection
from frazil.arrow.target_arrays import WriteOptions
from frazil.errors import IcechunkError
from frazil.spark import Target, write_table
from frazil.spark.streams.sink import write_batch
from frazil.spark.tables.scan import table
from frazil.spark.tables.write_table import SparkRowWriter

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

#: Name -> dtype, fill value of zarr, attributes, type of the column, values of rows. None is missing.
ARRAYS: dict[str, tuple[Any, Any, dict[str, Any], pa.DataType, list[Any]]] = {
    "packed": (
        "i2", 0, {"scale_factor": 0.5, "add_offset": 250.0, "_FillValue": -9},
        pa.float64(), [251.5, 240.0, None],
    ),
    "count": ("i4", 0, {"_FillValue": -1}, pa.int32(), [5, 0, None]),
    "at": (
        "i8", 0, {"units": "hours since 2024-01-01", "_FillValue": -1},
        pa.timestamp("us", "UTC"), [EPOCH, EPOCH + timedelta(hours=5), None],
    ),
    "unsigned": ("i1", 0, {"_Unsigned": "true", "_FillValue": 255}, pa.int16(), [200, 0, None]),
    "level": ("f4", 0.0, {}, pa.float32(), [0.5, -1.0, None]),
    "note": (str, "", {"_FillValue": "?"}, pa.string(), ["a", "", None]),
    "same": ("i4", -1, {"_FillValue": -1}, pa.int32(), [5, 0, None]),
    # without an element for a missing value
    "plain": ("i4", -7, {}, pa.int32(), [5, 0, 1]),
    "word": (str, "", {}, pa.string(), ["a", "b", ""]),
}  # fmt: skip
#: What a cell without a value has, if the array has no element for a missing value.
FILLED = {"plain": -7, "word": ""}

type Cell = tuple[int, str]
type State = dict[str, dict[Cell, Any]]


def create(
    repo: frazil.Repository, days: list[int], places: list[str], chunks: tuple[int, int], turned: bool
) -> None:
    with repo.transaction("main", message="arrays") as store:
        group = zarr.open_group(store)
        group.create_array("day", data=np.array(days), chunks=(2,), dimension_names=["day"])
        group.create_array("place", data=np.array(places, "U1"), chunks=(2,), dimension_names=["place"])
        for number, (name, (dtype, fill, attributes, _, _)) in enumerate(ARRAYS.items()):
            dims, shape = ["day", "place"], (len(days), len(places))
            if turned and number % 2:
                dims, shape, chunks = dims[::-1], shape[::-1], chunks[::-1]
            array = group.create_array(
                name, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill,
                dimension_names=dims, attributes=attributes,
            )  # fmt: skip
            if number % 3:  # the others have no chunk
                array[:1, :1] = "z" if dtype is str else 7


def stored(repo: frazil.Repository) -> tuple[State, list[int], list[str]]:
    rows = table(*planned(repo.readonly_session("main"), Selection(variables=tuple(ARRAYS)))).to_pydict()
    cells = list(zip(rows["day"], rows["place"], strict=True))
    state = {
        name: {
            cell: None if value is None or value != value else value
            for cell, value in zip(cells, rows[name], strict=True)
        }
        for name in ARRAYS
    }
    return state, list(dict.fromkeys(rows["day"])), list(dict.fromkeys(rows["place"]))


def write(repo: frazil.Repository, rows: pa.Table, mode: str, writer: str, partitions: int | None) -> None:
    if writer == "table":
        write_table(rows, Target(repo), mode=mode, partitions=partitions)
    elif writer == "stream":
        session = repo.writable_session("main")
        write_batch(session, group="/", table=rows, options=WriteOptions(mode))
        session.commit("batch")
    else:
        source = SparkRowWriter(repo, {"write": mode}, rows.schema, False)
        parts = [rows.slice(0, len(rows) // 2), rows.slice(len(rows) // 2)]
        source.commit([source.write(iter(part.to_batches())) for part in parts])


def expected(
    before: State, columns: Mapping[str, list[Any]], mode: str, labels: tuple[list[Any], list[Any]]
) -> State:
    """The model: labels are those after the write."""
    cells = list(zip(columns["day"], columns["place"], strict=True))
    after: State = {}
    for name in ARRAYS:
        nothing = FILLED.get(name)
        values = {cell: before[name].get(cell, nothing) for cell in itertools.product(*labels)}
        if name in columns:
            if mode == "overwrite-region":
                spans = []
                for axis, along in enumerate(labels):
                    at = [along.index(cell[axis]) for cell in cells]
                    spans.append(along[min(at) : max(at) + 1])
                values |= dict.fromkeys(itertools.product(*spans), nothing)
            values |= dict(zip(cells, columns[name], strict=True))
        after[name] = values
    return after


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, list[Any]], str, str]:
    mode = draw(st.sampled_from(["upsert", "backfill", "append", "insert", "overwrite-region"]))
    days = {"append": range(8, 14), "insert": [2, 4], "overwrite-region": [2, 4, 6]}.get(mode, range(14))
    places = ["b", "a"] if mode in ("append", "insert", "overwrite-region") else ["b", "a", "c", "d"]
    cells = draw(
        st.lists(
            st.tuples(st.sampled_from(list(days)), st.sampled_from(places)),
            min_size=1,
            max_size=9,
            unique=True,
        )
    )
    names = draw(st.lists(st.sampled_from(list(ARRAYS)), min_size=1, unique=True))
    columns: dict[str, list[Any]] = {"day": [day for day, _ in cells], "place": [place for _, place in cells]}
    for name in names:
        columns[name] = [draw(st.sampled_from(ARRAYS[name][4])) for _ in cells]
    return columns, mode, draw(st.sampled_from(["table", "stream", "source"]))


@settings(max_examples=examples(100), deadline=None)
@given(
    shape=st.sampled_from([([2, 4], ["b", "a"]), ([6, 4, 2], ["b", "a"]), ([2, 4, 6], ["b"])]),
    chunks=st.sampled_from([(1, 1), (2, 3), (5, 4), (3, 1)]),
    turned=st.booleans(),
    writes=st.lists(batches(), min_size=1, max_size=3),
    partitions=st.sampled_from([None, 1, 4]),
)
@pytest.mark.deep
def test_every_cell_is_the_row_the_earlier_value_or_missing(
    shape: tuple[list[int], list[str]],
    chunks: tuple[int, int],
    turned: bool,
    writes: list[tuple[dict[str, list[Any]], str, str]],
    partitions: int | None,
) -> None:
    repo = memory()
    create(repo, *shape, chunks, turned)
    for columns, mode, writer in writes:
        before, *_ = stored(repo)
        if writer == "stream" and mode == "overwrite-region":
            writer = "table"
        rows = pa.table({
            name: pa.array(values, ARRAYS[name][3] if name in ARRAYS else None)
            for name, values in columns.items()
        })  # fmt: skip
        try:
            write(repo, rows, mode, writer, partitions)
        except IcechunkError:
            assert mode not in ("upsert", "backfill")
            assert stored(repo)[0] == before
            continue
        after, days, places = stored(repo)
        assert after == expected(before, columns, mode, (days, places))


def test_the_message_of_overwrite_names_the_box() -> None:
    repo = memory()
    create(repo, [2, 4, 6], ["b", "a", "c"], (2, 2), False)
    rows = pa.table({"day": [2, 6], "place": ["b", "a"], "count": pa.array([1, 2], pa.int32())})
    writer = SparkRowWriter(repo, {}, rows.schema, True)  # mode("overwrite") of Spark
    writer.commit([writer.write(iter(rows.to_batches()))])
    assert "day = 2 to 6, place = 'b' to 'a'" in next(iter(repo.ancestry(branch="main"))).message


def test_a_huge_growth_stores_one_chunk() -> None:
    repo = memory()
    with repo.transaction("main", message="arrays") as store:
        group = zarr.open_group(store)
        group.create_array("x", data=np.array([0]), chunks=(1 << 20,), dimension_names=["x"])
        group.create_array(
            "v", shape=(1,), chunks=(1,), dtype="i2", fill_value=0,
            dimension_names=["x"], attributes={"_FillValue": -9},
        )  # fmt: skip
    many = np.arange(1, 300_001)
    with repo.transaction("main", message="a mask") as store:
        group = zarr.open_group(store)
        group.create_array("mask", data=np.zeros(1, "i1"), chunks=(1 << 20,), dimension_names=["x"])
    write_table(pa.table({"x": many, "mask": pa.array(many % 2, pa.int8())}), Target(repo), dims=["x"])
    session = repo.readonly_session("main")
    assert frazil.read(session, "/v")[-3:].tolist() == [-9, -9, -9]
    references = session.chunk_table("/v")
    assert (len(references), len(references.prune().inline) + len(references.prune().chunk_ids)) == (
        300_000,
        1,
    )
