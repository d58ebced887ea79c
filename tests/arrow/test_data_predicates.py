"""Predicates on data beside the same predicates without statistics of chunks, and how little they read."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
import zarr

import frazil
from frazil import arrow
from frazil.arrow.grid import Selection
from frazil.cli import main
from frazil.spark.data_source import plan_rows
from frazil.spark.tables.scan import table
from frazil.storage.checks import TRAFFIC

ON, OFF = (frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=each)) for each in (True, False))
#: Data types with attributes that change what elements mean, and the elements that are missing.
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("f4", {}),
    ("f8", {"_FillValue": "AAAAAAAA+H8="}),
    ("f4", {"missing_value": 3.0, "scale_factor": -2.0}),
    ("i2", {"_FillValue": -1, "scale_factor": 0.1, "add_offset": 10.0}),
    ("i2", {"_FillValue": -1, "scale_factor": -0.5}),
    ("i1", {"_Unsigned": "true", "_FillValue": -1}),
    ("u1", {"missing_value": 7}),
    ("u8", {}),
    ("i8", {"units": "hours since 2000-01-01", "_FillValue": 3}),
    ("f8", {"units": "days since 2000-01-01", "calendar": "noleap"}),
    ("M8[s]", {}),
    ("?", {}),
)


def random_grid(folder: Path, seed: int) -> list[str]:
    """Create a repository with statistics of most chunks, and one with the same chunks without any."""
    rng, dice = np.random.default_rng(seed), random.Random(seed)
    dims = ["z", "y", "x"][: dice.choice([1, 2, 3, 3])]
    shape = tuple(dice.randint(3, 14) for _ in dims)
    repo = frazil.Repository.create(folder / "on", config=ON)

    def values(dtype: str, region: tuple[int, ...]) -> np.ndarray[Any, Any]:
        place = np.indices(region).sum(axis=0) // 3  # neighbours are alike
        kind = np.dtype(dtype)
        numbers = place + rng.integers(-1, 2, region) * (kind.kind != "u")
        if kind.kind == "b":
            return np.asarray(place % 5 == 0)
        out = numbers.astype("i8").view("M8[s]") if kind.kind == "M" else numbers.astype(kind)
        if kind.kind in "fM":
            out[rng.random(region) < 0.05] = np.nan if kind.kind == "f" else np.datetime64("NaT")
        return out

    with repo.transaction("main", message="a grid") as store:
        for name, (dtype, attributes) in zip("ab", dice.sample(KINDS, 2), strict=True):
            order = dice.sample(
                range(len(dims)), dice.choice([len(dims), len(dims), dice.randint(1, len(dims))])
            )
            order = order if name == "b" else dice.sample(range(len(dims)), len(dims))
            own = tuple(shape[axis] for axis in order)
            chunks = tuple(dice.randint(1, 4) for _ in own)
            is_time = np.dtype(dtype).kind == "M"
            array = zarr.create_array(
                store,
                name=name,
                shape=own,
                chunks=chunks,
                shards=tuple(2 * each for each in chunks) if dice.random() < 0.3 else None,
                dtype=dtype,
                fill_value=None if is_time else dice.choice([0, 1]),
                attributes=attributes,
                dimension_names=[dims[axis] for axis in order],
            )
            part = tuple(dice.randint(n // 2, n) for n in own)  # some chunks are absent
            array[tuple(map(slice, part))] = values(dtype, part)
        if dice.random() < 0.5:
            zarr.create_array(store, name="z", data=rng.permutation(shape[0]), dimension_names=["z"])
    with repo.transaction("main", message="both arrays") as store:
        for name in "ab":
            array = zarr.open_array(store, path=name)
            corner = tuple(slice(0, max(1, n // 4)) for n in array.shape)
            array[corner] = values(str(array.dtype), tuple(each.stop for each in corner))
    if dice.random() < 0.5:
        with frazil.Repository.open(folder / "on", config=OFF).transaction("main", message="a part") as store:
            array = zarr.open_array(store, path="a")
            corner = tuple(slice(0, max(1, n // 3)) for n in array.shape)
            array[corner] = values(str(array.dtype), tuple(each.stop for each in corner))
    shutil.copytree(folder / "on", folder / "off")
    shutil.rmtree(folder / "off" / "statistics", ignore_errors=True)
    return [str(folder / each) for each in ("on", "off")]


def random_filter(dice: random.Random, rows: pa.Table, depth: int = 2) -> pc.Expression:
    if depth and dice.random() < 0.5:
        parts = [random_filter(dice, rows, depth - 1) for _ in range(2)]
        return dice.choice([parts[0] & parts[1], parts[0] | parts[1], ~parts[0]])
    name = dice.choice([each for each in rows.column_names if each not in "xy"])
    column, some = pc.field(name), rows[name]
    if dice.random() < 0.2:
        return dice.choice([column.is_null(), column.is_valid(), column.is_null(nan_is_null=True)])
    value = some[dice.randrange(len(some))]
    if dice.random() < 0.2:
        return column.isin([value] if value.is_valid else [some[0]])
    return getattr(column, dice.choice(["__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"]))(value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "u8"])
@pytest.mark.parametrize("chunk", [1, 2, 8])
def test_sets_choose_the_rows_that_they_choose_without_statistics(dtype: str, chunk: int) -> None:
    """pyarrow rounds the numbers of a set to the type of a column, but not those of a comparison."""
    values = np.array([0.1, 0.2, 33.3, 5, 7, 7.25, 9, 1]).astype(dtype)
    if dtype == "u8":
        values[:2] = 2**64 - 2, 2**63
    repo = frazil.Repository.create(frazil.in_memory_storage(), config=ON)
    with repo.transaction("main", message="a coordinate and data") as store:
        for name in ("x", "t"):
            zarr.create_array(store, name=name, data=values, chunks=(chunk,), dimension_names=["x"])
    data = arrow.dataset(repo.readonly_session("main"))
    rows = data.to_table()
    assert rows["t"].to_pylist() == values.tolist()
    sets: list[list[Any]] = [[0.1, 0.2, 33.3], [0.1], [5], [7, 7.25], [0.3]]
    for numbers in [[5, 2**64 - 2], [2**63]] if dtype == "u8" else sets:
        for name in ("x", "t"):
            column = pc.field(name).isin(pa.array(numbers, pa.uint64() if dtype == "u8" else None))
            for expression in (column, ~column):
                expected = rows.filter(expression)
                assert data.to_table(filter=expression).equals(expected)
    if dtype == "u8":
        assert data.schema.field("t").type == pa.uint64()
        large = duckdb.connect().register("data", data).sql(f"FROM data WHERE t >= {2**63} ORDER BY x")
        assert [t for *_, t in large.fetchall()] == [2**63, 2**64 - 2]


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(60))
def test_rows_do_not_depend_on_statistics(tmp_path: Path, seed: int) -> None:
    addresses, dice = random_grid(tmp_path, seed), random.Random(seed)
    cf = dice.random() < 0.8
    on, off = (arrow.dataset(each, cf=cf) for each in addresses)
    rows = off.to_table()
    for _ in range(5):
        columns, expression = dice.choice([["a"], ["a", "b"], ["x"], ["b"]]), random_filter(dice, rows)
        columns = [each for each in columns if each in rows.column_names]
        expected = off.to_table(columns, filter=expression)
        assert same(on.to_table(columns, filter=expression), expected), expression
        assert on.count_rows(filter=expression) == expected.num_rows
        parts = (each.to_table(columns=columns, filter=expression) for each in on.get_fragments(expression))
        assert sum(each.num_rows for each in parts) == expected.num_rows
    for _ in range(5):
        where = [random_condition(dice, rows) for _ in range(dice.choice([1, 1, 2]))]
        options: Any = {"missing": dice.choice(["fill", "null", "skip"])}
        selection = Selection(cf=cf, block_rows=dice.choice([1, 100]))
        one, other = (
            table(*plan_rows(frazil.open_address(each)[0], None, where, selection, **options))
            for each in addresses
        )
        order = [(name, "ascending") for name in one.column_names if name in "xyz"]
        assert same(one.sort_by(order), other.sort_by(order)), (where, options)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Return whether tables have the same rows. NaN equals NaN."""
    return bool(one.schema == other.schema and one.to_pandas().equals(other.to_pandas()))


def random_condition(dice: random.Random, rows: pa.Table) -> tuple[str, str, Any]:
    name = dice.choice([each for each in rows.column_names if each in "ab"])
    values = rows[name].combine_chunks()
    one, other = (values[dice.randrange(len(values))].as_py() for _ in range(2))
    op = dice.choice(["=", "!=", "<=>", "<", "<=", ">", ">=", "in", "not in", "is", "is not"])
    return name, op, (one, other) if "in" in op else None if op.startswith("is") else one


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Days with noise below 1, and two of the 200 chunks with values up to 50."""
    folder = tmp_path_factory.mktemp("heat") / "ice"
    rng = np.random.default_rng(4)
    with frazil.Repository.create(folder, config=ON).transaction("main", message="a grid") as store:
        for name, dtype in (("t", "f4"), ("p", "i2")):
            values = rng.random((50, 80, 80))
            for at in (10, 30):
                values[at : at + 2, 45:50, 5:9] += 40
            zarr.create_array(
                store,
                name=name,
                data=(values * 100).astype(dtype) if dtype == "i2" else values.astype(dtype),
                chunks=(1, 40, 40),
                dimension_names=["time", "lat", "lon"],
                attributes={"scale_factor": 0.01, "_FillValue": -1} if dtype == "i2" else {},
            )
    return str(folder)


def test_every_interface_reads_few_chunks(heat: str, capfd: pytest.CaptureFixture[str]) -> None:
    def bytes_of(action: Callable[[], Any]) -> tuple[Any, int]:
        TRAFFIC.take_counts()
        return action(), TRAFFIC.take_counts().bytes_read

    air = arrow.dataset(heat)
    _, whole = bytes_of(lambda: air.to_table(columns=["t"]))
    context = datafusion.SessionContext()
    context.register_dataset("air", air)
    connection = duckdb.connect()
    connection.register("air", air)
    query = "select count(*) from air where {0} > 30"

    def with_command(column: str) -> int:
        main(["sql", heat, f"select count(*) as n from t where {column} > 30", "--csv"])
        return int(capfd.readouterr().out.split()[1])

    def with_rows(column: str) -> int:
        session = frazil.open_address(heat)[0]
        return int(table(*plan_rows(session, [column], f"{column} > 30", Selection())).num_rows)

    interfaces: dict[str, Callable[[str], int]] = {
        "pyarrow": lambda name: air.count_rows(filter=pc.field(name) > 30),
        "polars": lambda name: pl.scan_pyarrow_dataset(air).filter(pl.col(name) > 30).collect().height,
        "datafusion": lambda name: context.sql(f"select count(*) n from air where {name} > 30").to_pylist()[
            0
        ]["n"],
        "duckdb": lambda name: connection.sql(query.format(name)).fetchall()[0][0],
        "command": with_command,
        "rows": with_rows,
    }
    for name, ask in interfaces.items():
        for column in ("t", "p"):
            count, read = bytes_of(partial(ask, column))
            assert count == 2 * 2 * 5 * 4, (name, column)
            if name != "duckdb":  # it hands over no lower bounds of floating-point numbers
                assert read <= 0.02 * whole + 40_000, (name, column)


def test_nan_is_a_value_unless_it_is_missing(tmp_path: Path) -> None:
    with frazil.Repository.create(tmp_path / "ice", config=ON).transaction("main", message="nan") as store:
        fills: dict[str, dict[str, Any]] = {"t": {}, "m": {"_FillValue": "AAAAAAAA+H8="}}
        for name, fill in fills.items():
            data = np.array([1, np.nan, 2, 3])
            zarr.create_array(
                store, name=name, data=data, chunks=(2,), dimension_names=["x"], attributes=fill
            )
    session = frazil.open_address(str(tmp_path / "ice"))[0]
    rows, t, m = arrow.dataset(session), pc.field("t"), pc.field("m")
    for expression in (~(t <= 5), pc.is_nan(t), t.is_null(nan_is_null=True), (t != 1) & (t < 9).is_valid()):
        assert 1 in rows.to_table(["x"], filter=expression)["x"].to_pylist(), expression
    assert rows.to_table(["x"], filter=m.is_null())["x"].to_pylist() == [1]
    assert rows.count_rows(filter=~(m <= 5)) == 0


def test_a_changed_chunk_that_a_filter_left_out_is_a_stale_read(heat: str, tmp_path: Path) -> None:
    shutil.copytree(heat, tmp_path / "ice")
    repo = frazil.Repository.open(tmp_path / "ice")
    session, other = repo.writable_session("main", track_reads=True), repo.writable_session("main")
    assert arrow.dataset(session).count_rows(filter=pc.field("t") > 30) == 80
    zarr.create_array(session.store, name="count", data=np.array(80))
    array = zarr.open_array(other.store, path="t")
    array[0, 0, 0] = 45  # in a chunk that the scan did not read
    other.commit("a hot cell")
    with pytest.raises(frazil.RebaseFailedError):
        session.commit("count", rebase_with=frazil.ConflictDetector())
