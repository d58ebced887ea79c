"""Arrays as rows: planning, conditions and batches, without Spark. What is right is what pandas says."""

from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.answers.test_conditions import truth
from tests.support.patience import patience

import frazil
from frazil.arrow.cells import BlockReader
from frazil.arrow.grid import Selection, Values, grid_of
from frazil.errors import InvalidInputError
from frazil.spark.data_source import plan_rows
from frazil.spark.tables.scan import ScanReader, Split, plan_scan, table

NAN = float("nan")


def planned(
    session: frazil.Session, selection: Selection, columns: Any = None, where: Any = (), **options: Any
) -> Any:
    return plan_rows(session, columns, where, selection, **options)


def write_dataset(
    repo: frazil.Repository, data: xr.Dataset, chunks: dict[str, int], **more: Any
) -> frazil.Session:
    session = repo.writable_session("main")
    encoding = {
        name: {"chunks": tuple(chunks.get(str(dim), size) for dim, size in each.sizes.items())}
        for name, each in data.variables.items()
        if each.ndim
    }
    data.to_zarr(session.store, consolidated=False, zarr_format=3, encoding=encoding, **more)
    return repo.readonly_session(snapshot_id=session.commit("data"))


def memory() -> frazil.Repository:
    return frazil.Repository.create(frazil.in_memory_storage())


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))


def rows(session: frazil.Session, selection: Selection = Selection(), **more: Any) -> pd.DataFrame:  # noqa: B008
    """What a scan gives, by way of what tasks get: pickles."""
    scan, parts = pickle.loads(pickle.dumps(planned(session, selection, **more)))
    return table(scan, parts).to_pandas()


def climate() -> xr.Dataset:
    shape = (6, 5, 7)
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    values[2, 3, :] = np.nan
    return xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), values),
            "height": (("lat", "lon"), np.arange(35.0).reshape(5, 7)),
            "count": (("time",), np.arange(6, dtype="i8")),
        },
        coords={
            "time": pd.date_range("2020-01-01", periods=6),
            "lat": np.array([10.0, -3.0, 50.0, 7.5, np.nan]),  # in no order
            "lon": np.arange(7.0)[::-1],
            "name": (("lat",), np.array(["a", "b", "", "d", "é"])),
            "area": (("lat", "lon"), np.cos(np.arange(35.0)).reshape(5, 7)),
        },
    )


def frame(data: xr.Dataset) -> pd.DataFrame:
    every = data.to_dataframe().reset_index()
    return every.assign(time=every["time"].astype("datetime64[us]").dt.tz_localize("UTC"))


def same(result: pd.DataFrame, expected: pd.DataFrame) -> None:
    keys = [name for name in ("time", "lat", "lon") if name in result]
    both = [
        each[list(result.columns)].sort_values(keys).reset_index(drop=True) for each in (result, expected)
    ]
    pd.testing.assert_frame_equal(*both, check_dtype=False)


@pytest.mark.sample(1, 6)
@pytest.mark.parametrize("chunks", [{}, {"time": 2, "lat": 3, "lon": 4}, {"time": 1, "lat": 1, "lon": 1}])
@pytest.mark.parametrize("split", [Split(), Split(1), Split(7), Split(rows=30)])
def test_rows_are_those_of_xarray(repo: frazil.Repository, chunks: dict[str, int], split: Split) -> None:
    session = write_dataset(repo, climate(), chunks)
    result = rows(session, Selection(block_rows=1), split=split, batch_rows=11)
    assert set(result.columns) == set(climate().variables)
    same(result, frame(climate()))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "time": st.sampled_from([datetime(2020, 1, day, tzinfo=UTC) for day in range(1, 8)]),
    "lat": st.sampled_from([10.0, -3.0, 50.0, 7.5, 8, NAN, 99.0]),
    "lon": st.floats(-1, 8) | st.integers(-1, 8),
    "name": st.sampled_from(["a", "b", "", "d", "é", "z"]),
    "area": st.floats(-1.1, 1.1),
    "tas": st.floats(0, 210, width=32) | st.just(NAN),
    "count": st.integers(-1, 7) | st.just(2**70),
    "height": st.floats(0, 36),
}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(sorted(VALUES)))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>", "in", "not in", "is", "is not"]))
    if op in ("is", "is not"):
        return name, op, None
    if op in ("in", "not in"):
        return name, op, tuple(draw(st.lists(VALUES[name] | st.none(), max_size=3)))
    return name, op, draw(VALUES[name] | st.none())


def meets(value: Any, op: str, wanted: Any) -> bool:
    """One value, as Spark sees it: NaN is equal to NaN and larger than all else; null is unknown."""
    test = {"is": "null", "is not": "null", "not in": "in"}.get(op, op)
    literals = () if test == "null" else wanted if test == "in" else (wanted,)
    if test == "in" and not literals:
        return value is not None and op == "not in"
    tree = (test, *literals)
    return (
        truth(("not", tree) if op in ("is not", "not in") else tree, value, lambda each: each, True) is True
    )


@pytest.fixture(scope="module")
def unordered() -> frazil.Session:
    # Without CF decoding NaN stays NaN: in columns of floats nothing is null then.
    return write_dataset(memory(), climate(), {"time": 2, "lat": 2, "lon": 3})


@pytest.mark.deep
@settings(max_examples=35)
@given(where=st.lists(conditions(), max_size=3), cf=st.booleans())
def test_conditions_select_what_spark_would(
    unordered: frazil.Session, where: list[tuple[str, str, Any]], cf: bool
) -> None:
    session = unordered
    if not cf:  # times are numbers then
        where = [each for each in where if each[0] != "time"]
    selection = Selection(cf=cf, block_rows=1)
    scan, parts = planned(session, selection, where=where)
    result = table(scan, parts)
    whole = table(*planned(session, selection))
    keep = [all(meets(row[name], op, value) for name, op, value in where) for row in whole.to_pylist()]
    expected = whole.filter(pa.array(keep, pa.bool_()))
    order = [("time", "ascending"), ("tas", "ascending"), ("height", "ascending")]
    got = result.sort_by(order).to_pandas()
    pd.testing.assert_frame_equal(got, expected.sort_by(order).to_pandas())


def test_conditions_leave_out_chunks(repo: frazil.Repository) -> None:
    session = write_dataset(repo, climate(), {"time": 2, "lat": 1, "lon": 7})
    chosen = Selection(variables=("tas",), block_rows=1)

    def blocks(where: str) -> int:
        return sum(len(each.blocks) for each in planned(session, chosen, where=where)[1])

    assert blocks("") == 3 * 5
    assert blocks("lat > 20") == 3  # 50, and nothing of the others; a fill value is null
    assert blocks("lat IN (10, 7.5) AND time < '2020-01-03'") == 2
    assert blocks("name = 'b'") == 3
    assert blocks("area > 2") == 0
    assert blocks("tas > 1e9") == 15  # nobody knows but who reads them


def test_a_block_of_many_chunks_is_read_where_conditions_hold(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = write_dataset(repo, climate(), {"time": 2, "lat": 1, "lon": 1})
    asked: list[tuple[str | None, Any]] = []
    inner = BlockReader.values

    def read(self: Any, column: Any, region: Any) -> Values:
        asked.append((column.path, tuple(region[axis] for axis in column.axes)))
        return inner(self, column, region)

    monkeypatch.setattr(BlockReader, "values", read)
    result = rows(session, Selection(variables=("tas",)), where="lat = 50 AND lon IN (2, 4) AND area > -2")
    assert len(result) == 12
    assert ("/tas", (slice(0, 6), slice(2, 3), slice(2, 5))) in asked
    assert [region for path, region in asked if path == "/area"] == [(slice(2, 3), slice(2, 5))]


def test_a_task_asks_for_chunks_only(tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path / "repo"))
    session = write_dataset(frazil.Repository.create(storage), climate(), {"time": 2, "lat": 1, "lon": 7})
    scan, parts = planned(session, Selection(variables=("tas",), block_rows=1), split=Split(3))
    message = pickle.dumps(parts[0])
    for folder in ("snapshots", "manifests", "transactions"):
        for file in (tmp_path / "repo" / folder).iterdir():
            file.unlink()
    (tmp_path / "repo" / "repo").unlink()
    result = table(pickle.loads(pickle.dumps(scan)), [pickle.loads(message)])
    assert result.num_rows == 6 * 5 * 7 // 3
    assert len(message) < 5_000
    assert len(pickle.dumps(scan)) < 10_000


@pytest.mark.parametrize(("place", "ahead"), [("http://far.example/", True), ("file:///near/", False)])
def test_far_chunks_are_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, ahead: bool
) -> None:
    """Wherever the repository itself is."""
    local = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    with local.transaction("main", message="references") as store:
        zarr.create_array(
            store, name="v", shape=(4, 2), chunks=(1, 2), dtype="i4", dimension_names=["y", "x"]
        )
        numbers = np.arange(4, dtype="u8")
        places = [f"{place}{number}" for number in range(4)]
        store.set_virtual_refs_arr("v", (4, 1), places, numbers, numbers + 8, validate_containers=False)
    result, parts = planned(local.readonly_session("main"), Selection(block_rows=2), split=Split(1))
    threads, together = [], threading.Barrier(2, timeout=patience(30))

    def block(self: Any, number: Any) -> pa.RecordBatch:
        threads.append(threading.current_thread().name)
        if ahead:
            together.wait()
        return pa.RecordBatch.from_pylist([], result.schema)

    monkeypatch.setattr(ScanReader, "block", block)
    table(result, parts)
    assert len(threads) > 1
    assert all(name.startswith("frazil-scan") == ahead for name in threads)


def test_missing_chunks(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    shape: dict[str, Any] = {"shape": (6, 4), "chunks": (2, 2), "dtype": "i2", "dimension_names": ["y", "x"]}
    for name, fill in (("a", -1), ("b", 7)):
        zarr.create_array(session.store, name=name, fill_value=fill, **shape)
    zarr.open_array(session.store, path="a")[2:4, :2] = 5
    zarr.open_array(session.store, path="b")[2:4, 2:] = 9
    session = repo.readonly_session(snapshot_id=session.commit("two chunks"))
    small = Selection(block_rows=1)
    filled = rows(session, small, missing="fill")
    assert len(filled) == 24
    assert filled["a"].value_counts().to_dict() == {-1: 20, 5: 4}
    nulls = rows(session, small, missing="null")
    assert (len(nulls), nulls["a"].count(), nulls["b"].count()) == (24, 4, 4)
    some = rows(session, small, missing="skip")
    assert some[["y", "x", "a", "b"]].fillna(-9).astype(int).values.tolist() == [
        [2, 0, 5, -9], [2, 1, 5, -9], [3, 0, 5, -9], [3, 1, 5, -9],
        [2, 2, -9, 9], [2, 3, -9, 9], [3, 2, -9, 9], [3, 3, -9, 9],
    ]  # fmt: skip
    assert len(rows(session, Selection(variables=("a",), block_rows=1), missing="skip")) == 4


def test_arrays_of_no_elements_and_no_dimensions(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    group.create_array("empty", shape=(0, 3), chunks=(1, 3), dtype="f8", dimension_names=["t", "x"])
    group.create_array("scalar", shape=(), dtype="i4")[...] = 42
    session = repo.readonly_session(snapshot_id=session.commit("edge cases"))
    assert rows(session, Selection(variables=("empty",))).shape == (0, 3)
    assert rows(session, Selection(variables=("scalar",)))["scalar"].tolist() == [42]


@pytest.mark.parametrize("by_size", [True, False])
def test_ragged_data_is_a_row_for_each_observation(repo: frazil.Repository, by_size: bool) -> None:
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)

    def array(name: str, values: Any, dim: str, **attributes: Any) -> None:
        array_ = group.create_array(
            name, data=np.asarray(values), chunks=(2,), dimension_names=[dim], attributes=attributes
        )
        assert array_.shape

    array("depth", [1.0, 2.0, 1.0, 4.0, 5.0, 6.0], "obs")
    array("temperature", np.arange(6.0), "obs", coordinates="depth")
    array("lon", [100.0, 200.0, 300.0], "profile")
    group.create_array("station", shape=(3,), dtype=str, dimension_names=["profile"])[:] = np.array(
        ["a", "b", "c"], object
    )
    if by_size:
        array("row_size", [2, 0, 4], "profile", sample_dimension="obs")
    else:
        array("which", [0, 0, 2, 2, 2, 2], "obs", instance_dimension="profile")
    session = repo.readonly_session(snapshot_id=session.commit("profiles"))
    result = rows(session)
    assert result["station"].tolist() == ["a", "a", "c", "c", "c", "c"]
    assert result["lon"].tolist() == [100, 100, 300, 300, 300, 300]
    assert result["depth"].tolist() == [1, 2, 1, 4, 5, 6]
    assert result["obs"].tolist() == list(range(6))
    matching = rows(session, where="station = 'c' AND depth >= 4", columns=["temperature"])
    assert matching["temperature"].tolist() == [3, 4, 5]
    assert (
        sum(len(each.blocks) for each in planned(session, Selection(block_rows=1), where="lon < 150")[1]) == 1
    )


def test_times_of_other_calendars(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="days") as store:
        units: dict[str, Any] = {"units": "days since 2000-01-01", "calendar": "360_day"}
        zarr.create_array(store, name="late", data=np.array([0, 59]), dimension_names=["n"], attributes=units)
    session = repo.readonly_session("main")
    assert rows(session)["late"].tolist() == ["2000-01-01 00:00:00", "2000-02-30 00:00:00"]
    assert rows(session, Selection(calendars="raw"))["late"].tolist() == [0, 59]
    assert rows(session, Selection(cf=False))["late"].tolist() == [0, 59]
    with pytest.raises(InvalidInputError, match="360_day"):
        planned(session, Selection(calendars="error"))


def test_variables_of_several_grids_are_named(repo: frazil.Repository) -> None:
    data = xr.Dataset({"a": (("x", "y"), np.zeros((2, 3))), "b": (("u", "v"), np.zeros((2, 3)))})
    session = write_dataset(repo, data, {})
    with pytest.raises(InvalidInputError, match=r"\(x, y\): a; \(u, v\): b"):
        grid_of(session, Selection())
    assert grid_of(session, Selection(variables=("b",))).dims == ("u", "v")
    scan, parts = plan_scan(session, grid_of(session, Selection(variables=("a",))))
    assert table(scan, parts).num_rows == 6
