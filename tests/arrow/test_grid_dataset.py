"""Rows of a group for DuckDB, Polars, DataFusion and pyarrow, beside the same table in memory."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import frazil
from frazil import arrow
from frazil.errors import InvalidInputError, NodeNotFoundError, UnreadableArrayWarning
from frazil.storage.checks import TRAFFIC

SHAPE = (700, 12, 3)
DAY = datetime(2020, 1, 1)
STATIONS = ["north", "south", "a,b"]
X = np.random.default_rng(1).permutation(SHAPE[1]).astype("f4") / 4  # in no order
HEIGHT = np.array([5.0, np.nan, *range(10)])
PACKED = np.random.default_rng(2).integers(-1, 300, SHAPE, dtype="i2")
FLOATS = np.where(PACKED % 7 == 0, np.nan, PACKED / 3)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A repository with packed integers, floats with NaN, times, texts, and chunks of 50 x 3 x 3 cells."""
    folder = str(tmp_path_factory.mktemp("rows") / "ice")
    with frazil.Repository.create(folder).transaction("main", message="a grid") as store:
        group = zarr.open_group(store).create_group("air")
        zarr.create_group(store, path="empty")

        def add(name: str, data: Any, dims: list[str], **attributes: Any) -> None:
            chunks = (50, 3, 3) if len(dims) == 3 else np.shape(data)
            group.create_array(
                name, data=np.array(data), chunks=chunks, dimension_names=dims, attributes=attributes
            )

        dims = ["time", "x", "station"]
        add("time", np.arange(SHAPE[0]), dims[:1], units="days since 2020-01-01")
        add("x", X, dims[1:2])
        add("station", np.array(STATIONS, "U5"), dims[2:])
        add("height", HEIGHT, dims[1:2])
        add("packed", PACKED, dims, _FillValue=-1, scale_factor=0.5, add_offset=10.0, coordinates="height")
        add("floats", FLOATS, dims)
        add("number", np.arange(PACKED.size).reshape(SHAPE), dims)
        add("by_x", np.arange(SHAPE[1], dtype="u2"), dims[1:2])
    return folder + ":air"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """The same rows, made with numpy."""
    time, x, station = (each.reshape(-1) for each in np.indices(SHAPE))
    flat = PACKED.reshape(-1)
    return pa.table(
        {
            "time": pa.array(np.datetime64(DAY, "us") + time * np.timedelta64(1, "D")),
            "x": X[x],
            "station": np.array(STATIONS, object)[station],
            "height": HEIGHT[x],
            "by_x": x.astype("i4"),
            "floats": FLOATS.reshape(-1),
            "number": np.arange(flat.size),
            "packed": pa.array(flat * 0.5 + 10, mask=flat == -1),
        }
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> arrow.GridDataset:
    """A grid with chunks of 160 kB."""
    folder = tmp_path_factory.mktemp("large") / "ice"
    with frazil.Repository.create(folder).transaction("main", message="a grid") as store:
        group = zarr.open_group(store)
        for name, values in (
            ("time", np.arange(400)),
            ("lat", np.linspace(-90, 90, 64)),
            ("lon", np.arange(64)),
        ):
            attributes: dict[str, Any] = {"units": "days since 2020-01-01"} if name == "time" else {}
            group.create_array(name, data=values, dimension_names=[name], attributes=attributes)
        values = np.random.default_rng(3).random((400, 64, 64))
        group.create_array("t", data=values, chunks=(20, 32, 32), dimension_names=["time", "lat", "lon"])
    return arrow.dataset(folder)


def bytes_of(action: Callable[[], Any]) -> int:
    """Return the bytes that an action reads from the storage."""
    TRAFFIC.take_counts()
    action()
    return TRAFFIC.take_counts().bytes_read


def test_all_rows_are_those_of_the_arrays(address: str, rows: pa.Table) -> None:
    table = arrow.dataset(address).to_table()
    assert table.schema.types == [rows.schema.field(name).type for name in table.column_names]
    assert table.to_pandas().equals(rows.select(table.column_names).to_pandas())
    assert sorted(table.column_names) == sorted(rows.column_names)


LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "time": st.integers(-2, 702).map(lambda day: DAY + timedelta(days=day, hours=day % 5)),
    "x": st.sampled_from([-1, 0.0, 0.25, 1.1, 2, 2.75, 9.0, float("nan")]),
    "station": st.sampled_from(["", "north", "o", "south", "z"]),
    "height": st.sampled_from([-1.5, 0, 3.0, 5, 9.5, float("nan")]),
    "packed": st.sampled_from([9, 10.0, 85.5, 160]),
    "floats": st.sampled_from([0.0, 33, 99.5]),
    "number": st.sampled_from([0, 1234.5, 20_000, 25_199]),
}
COMPARISONS = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")


@st.composite
def comparisons(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(sorted(LITERALS)))
    column = pc.field(name)
    match draw(st.integers(0, 6)):
        case 0:
            return (
                column.is_valid() if draw(st.booleans()) else column.is_null(nan_is_null=draw(st.booleans()))
            )
        case 1:
            values = draw(st.lists(LITERALS[name].filter(lambda each: each == each), min_size=1, max_size=3))
            return column.isin(pa.array(values).cast(TYPES[name]) if name != "number" else [1, 70, 25_000])
        case 2 if name not in ("time", "station"):
            return column * 2 > draw(LITERALS[name])
        case _:
            return getattr(column, draw(st.sampled_from(COMPARISONS)))(draw(LITERALS[name]))


TYPES = {
    "time": pa.timestamp("us"),
    "x": pa.float32(),
    "station": pa.string(),
    **dict.fromkeys(("height", "packed", "floats"), pa.float64()),
}


FILTERS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda each: ~each),
    ),
    max_leaves=6,
)


@given(filters=st.lists(FILTERS, min_size=1, max_size=2))
def test_filters_choose_the_rows_that_pyarrow_chooses(
    address: str, rows: pa.Table, filters: list[pc.Expression]
) -> None:
    scanned, expected = arrow.dataset(address), rows
    for each in filters[1:]:
        scanned, expected = scanned.filter(each), expected.filter(each)
    numbers = expected.filter(filters[0])["number"]
    assert scanned.to_table(columns=["number"], filter=filters[0])["number"].equals(numbers)
    assert scanned.count_rows(filter=filters[0]) == len(numbers)
    parts = [each.to_table(filter=filters[0])["number"] for each in scanned.get_fragments(filters[0])]
    assert sorted(number for part in parts for number in part.to_pylist()) == numbers.to_pylist()


QUERIES = (
    "select count(*) from air",
    "select count(packed), avg(floats) from air where floats < 90",
    "select number from air where x between 0.5 and 1.25 and station = 'north' order by number",
    (
        "select station, avg(packed) from air where time >= '2020-03-01' and time < '2020-04-01' "
        "group by 1 order by 1"
    ),
    "select date_part('month', time), count(*) from air where height > 3 or x = 2 group by 1 order by 1",
    (
        "select number from air where packed is null and station in ('a,b', 'south') "
        "order by number desc limit 7"
    ),
    "select max(number) from air where x in (0.25, 2.5) and not station = 'south' and number + 1 < 9000",
)


@pytest.mark.parametrize("query", QUERIES)
def test_engines_answer_as_for_a_table_in_memory(address: str, rows: pa.Table, query: str) -> None:
    def with_duckdb(air: Any) -> list[Any]:
        connection = duckdb.connect()
        connection.register("air", air)
        return connection.sql(query).fetchall()

    def with_datafusion(air: Any) -> list[Any]:
        context = datafusion.SessionContext()
        context.register_dataset("air", air)
        return [tuple(each.values()) for each in context.sql(query).to_pylist()]

    def with_polars(air: Any) -> list[Any]:
        frame = pl.scan_pyarrow_dataset(air)
        text = query.replace("date_part('month', time)", "extract(month from time)")
        answer = pl.SQLContext(air=frame).execute(text).collect()
        return answer.rows()

    air = arrow.dataset(address)
    in_memory = ds.dataset(rows)
    for ask in (with_duckdb, with_datafusion, with_polars):
        assert ask(air) == [pytest.approx(row) for row in ask(in_memory)], ask.__name__


def test_filters_leave_out_chunks(large: arrow.GridDataset) -> None:
    def share(expression: pc.Expression | None, columns: tuple[str, ...] = ("t",)) -> float:
        return bytes_of(lambda: large.to_table(columns=list(columns), filter=expression)) / whole

    whole = 1
    whole = round(share(None))
    days = (pc.field("time") >= datetime(2020, 1, 25)) & (pc.field("time") < datetime(2020, 2, 5))
    corner = (pc.field("lat") < 0) & (pc.field("lon") >= 40)
    ends = pc.field("time").isin([datetime(2020, 1, 2), datetime(2021, 2, 1)])
    assert share(days) == pytest.approx(1 / 20, rel=0.1)
    assert share(days & corner) == pytest.approx(1 / 80, rel=0.1)
    assert share(ends) == pytest.approx(2 / 20, rel=0.1)
    assert share(days | corner) == pytest.approx(1, rel=0.1)
    assert share(pc.field("time") < datetime(1999, 1, 1)) == share(days, ("lat", "lon")) == 0


def test_engines_hand_over_filters_and_columns(large: arrow.GridDataset) -> None:
    connection, context = duckdb.connect(), datafusion.SessionContext()
    connection.register("air", large)
    context.register_dataset("air", large)
    frame = pl.scan_pyarrow_dataset(large)
    query = "select avg(t) from air where time >= timestamp '2020-01-25' and time < timestamp '2020-02-05'"
    whole = bytes_of(lambda: large.to_table(columns=["t"]))

    def share(ask: Callable[[str], Any], text: str) -> float:
        return bytes_of(lambda: ask(text)) / whole

    def ask_polars(text: str) -> Any:
        return pl.SQLContext(air=frame).execute(text.replace("timestamp ", "")).collect()

    for ask in (
        lambda text: connection.sql(text).fetchall(),
        lambda text: context.sql(text).collect(),
        ask_polars,
    ):
        assert share(ask, "select count(*) from air") < 0.001  # at most the first coordinate
        assert share(ask, query) == pytest.approx(1 / 20, rel=0.1)


def test_a_count_of_a_pickled_dataset_reads_only_metadata(address: str) -> None:
    session, _ = frazil.open_address(address.removesuffix(":air"))
    air = pickle.loads(pickle.dumps(arrow.dataset(session, "air")))
    assert bytes_of(lambda: air.to_table(columns=[])) == 0
    assert air.count_rows() == PACKED.size


def test_tables_of_arrays_versions_and_dimensions(tmp_path: Path) -> None:
    repo = frazil.Repository.create(str(tmp_path / "ice"))
    with repo.transaction("main", message="arrays") as store:
        group = zarr.open_group(store)
        group.create_array("scalar", data=np.array(7))
        group.create_array("none", shape=(0, 3), dtype="f4", dimension_names=["n", "m"])
        sizes = group.create_group("profiles")
        sizes.create_array(
            "count", data=np.array([2, 1]), dimension_names=["p"], attributes={"sample_dimension": "obs"}
        )
        sizes.create_array("name", data=np.array(["a", "b"], "U1"), dimension_names=["p"])
        sizes.create_array("t", data=np.array([1.5, 2, 3]), dimension_names=["obs"])
    repo.create_tag("v1", "main")
    at = f"{tmp_path}/ice@v1"
    assert arrow.dataset(f"{at}:scalar").to_table().to_pydict() == {"scalar": [7]}
    assert arrow.dataset(at, "none").to_table(filter=pc.field("n") > 1).num_rows == 0
    assert arrow.dataset(at, "none").count_rows() == 0
    profiles = arrow.dataset(f"{at}:profiles").to_table(columns=["name", "t"], filter=pc.field("t") < 3)
    assert profiles.to_pydict() == {"name": ["a", "a"], "t": [1.5, 2.0]}
    with pytest.raises(NodeNotFoundError, match="missing"):
        arrow.dataset(at, "missing")


def test_engines_that_leave_a_scan_leave_no_threads(large: arrow.GridDataset) -> None:
    assert len(duckdb.execute("select t from large where t > 0.1 limit 3").fetchall()) == 3
    assert large.head(5, columns=["t"]).num_rows == 5
    next(iter(large.scanner(["t"]).to_reader()))
    assert not [each for each in threading.enumerate() if each.name.startswith("frazil-scan")]


@pytest.mark.parametrize("name", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("value", ["0.5", [1.0, 2.0]])
def test_an_attribute_that_is_no_number_never_gives_stored_numbers(name: str, value: Any) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="arrays") as store:
        for each, attributes in (("t", {name: value}), ("u", {})):
            data = np.arange(4, dtype="i2")
            zarr.create_array(store, name=each, data=data, dimension_names=["x"], attributes=attributes)
    session = repo.readonly_session("main")
    packed = frazil.Array(session, "/t")
    for read in (
        lambda: arrow.dataset(session, variables=["t"]),
        lambda: frazil.reduce(packed),
        lambda: frazil.where(packed, "> 1"),
    ):
        with pytest.raises(InvalidInputError, match=f"got {name}"):
            read()
    with pytest.warns(UnreadableArrayWarning, match="`/t`"):
        assert arrow.dataset(session).schema.names == ["x", "u"]
    assert frazil.reduce(packed, decoded=False).sum == packed[:].sum() == 6
    assert arrow.dataset(session, cf=False).to_table()["t"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "times", [np.array([0, 10**13], "M8[s]"), np.array([5, 300_000], "M8[Y]"), np.array([10**17], "m8[h]")]
)
@pytest.mark.parametrize("name", ["t", "x"])
def test_times_that_microseconds_cannot_hold_are_an_error(times: Any, name: str) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="times") as store:
        zarr.create_array(store, name=name, data=times, dimension_names=["x"])
    data = arrow.dataset(repo.readonly_session("main"))
    with pytest.raises(InvalidInputError, match="292,000 years"):
        data.to_table()


def test_errors_name_columns_and_methods(address: str) -> None:
    air = arrow.dataset(address)
    with pytest.raises(pa.ArrowInvalid, match="nowhere"):
        air.to_table(filter=pc.field("nowhere") > 1)
    with pytest.raises(InvalidInputError, match="arrays"):
        arrow.dataset(address.removesuffix("air") + "empty")
    with pytest.raises(FileNotFoundError, match="to_table"):  # methods in C++ that see no Python
        air.sort_by("x")
