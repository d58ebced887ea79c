"""Rows as arrays, without Spark: what comes back is what pandas would have."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import xarray as xr
import zarr
from tests.spark.tables.test_reading import planned, rows

import frazil
from frazil.arrow.grid import Selection
from frazil.errors import IcechunkError, InvalidInputError
from frazil.repository.catalog.history_records import JOB
from frazil.spark import Target, write_table
from frazil.spark.tables.scan import table
from frazil.spark.tables.schemas import to_spark
from frazil.spark.tables.write_table import SparkRowWriter

SHAPE = (5, 7)
TIMESTAMP = pa.timestamp("us", "UTC")


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))


def grid(repo: frazil.Repository, chunks: tuple[int, int] = (2, 3)) -> dict[tuple[int, float], int]:
    """A grid of numbers, in no order of coordinates; what is in each cell."""
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    days, lats = np.array([3, 1, 9, 4, 7]), np.array([10.0, -3, 50, 7.5, 0, 1, 2])
    values = np.arange(35, dtype="i4").reshape(SHAPE) + 100
    group.create_array("day", data=days, dimension_names=["day"])
    group.create_array("lat", data=lats, dimension_names=["lat"])
    for name in ("n", "turned"):
        dims = ["day", "lat"] if name == "n" else ["lat", "day"]
        data = values if name == "n" else values.T.copy()
        group.create_array(name, data=data, chunks=chunks, dimension_names=dims, fill_value=-1)
    session.commit("a grid")
    return {(int(d), float(x)): int(values[i, j]) for i, d in enumerate(days) for j, x in enumerate(lats)}


def cells(repo: frazil.Repository) -> dict[tuple[int, float], tuple[int, int]]:
    result = stored_rows(repo)
    keys = zip(result["day"], result["lat"], strict=True)
    return dict(zip(keys, zip(result["n"], result["turned"], strict=True), strict=True))


def stored_rows(repo: frazil.Repository) -> dict[str, list[Any]]:
    stored: dict[str, list[Any]] = table(
        *planned(repo.readonly_session("main"), Selection(block_rows=1))
    ).to_pydict()
    return stored


def as_rows(some: dict[tuple[int, float], int]) -> pa.Table:
    days, lats = zip(*some, strict=True) if some else ((), ())
    values = pa.array(some.values(), pa.int64())
    columns = {
        "lat": pa.array(lats, pa.float32()),
        "turned": values,
        "day": pa.array(days, pa.int32()),
        "n": values,
    }
    return pa.table(columns)


def observations() -> pa.Table:
    return pa.table(
        {
            "station": ["b", "a", "b", "a"],
            "time": pa.array([datetime(2024, 1, day, tzinfo=UTC) for day in (2, 1, 1, 2)], TIMESTAMP),
            "t2m": pa.array([1.5, None, 2.5, 3.5], pa.float32()),
            "count": pa.array([1, 2, 3, 4], pa.int16()),
            "seen": [True, False, True, True],
            "note": ["x", "", "é", "z"],
            "at": pa.array([datetime(2024, 5, 1, tzinfo=UTC), None, None, None], TIMESTAMP),
        }
    )


@pytest.mark.interop
def test_columns_become_arrays(repo: frazil.Repository, tmp_path: Path) -> None:
    target = Target(repo, group="/obs")
    result_ = write_table(
        observations(), target, dims=["time", "station"], chunks={"time": 1}, message="stations"
    )
    group: Any = zarr.open_group(result_.version.session().store, path="obs", mode="r")
    assert group["t2m"].metadata.dimension_names == ("time", "station")
    assert (group["t2m"].chunks, group["count"].dtype) == ((1, 2), np.dtype("int16"))
    result = table(*planned(result_.version.session(), Selection("/obs")))
    order = [("time", "ascending"), ("station", "ascending")]
    given_ = observations()
    assert result.select(given_.column_names).sort_by(order).equals(given_.sort_by(order))
    info = next(iter(repo.ancestry(branch="main")))
    assert (info.message, info.metadata[JOB]["metrics"]["rows"]) == ("stations", 4)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "repo")))
    store = theirs.readonly_session(snapshot_id=result_.snapshot_id).store
    by_reference = xr.open_zarr(store, group="obs", consolidated=False)["t2m"]
    assert by_reference.sel(station="b").values.tolist() == [2.5, 1.5]
    more = pa.table({"station": ["c"], "time": [datetime(2024, 1, 3, tzinfo=UTC)], "t2m": [9.0]})
    with pytest.raises(InvalidInputError, match="station = 'c'"):
        write_table(more, target, mode="append")
    write_table(more, target)
    assert len(rows(repo.readonly_session("main"), Selection("/obs"))) == 9


def test_columns_and_arrays_have_to_fit(repo: frazil.Repository) -> None:
    grid(repo)
    good = as_rows({(3, 10.0): 1, (1, 10.0): 2})
    target = Target(repo)
    with pytest.raises(InvalidInputError, match=r"neither|dimensions.*got more"):
        write_table(good.append_column("more", [[1, 2]]), target)
    with pytest.raises(InvalidInputError, match="none for lat"):
        write_table(good.drop_columns(["lat"]), target)
    with pytest.raises(InvalidInputError, match="no column that is an array"):
        write_table(pa.table({"a": [1]}), target)
    with pytest.raises(IcechunkError, match="column turned must be int32"):
        write_table(good.set_column(1, "turned", [[1, 2**40]]), target)
    with pytest.raises(IcechunkError, match="column n must not have missing values"):
        write_table(good.set_column(3, "n", pa.array([1, None], pa.int64())), target)
    with pytest.raises(IcechunkError, match=r"Each cell must have one row.*day = 3"):
        write_table(pa.concat_tables([good, good]), target)
    with pytest.raises(InvalidInputError, match="day must have no nulls"):
        write_table(good.set_column(2, "day", pa.array([None, 1], pa.int32())), target)
    with pytest.raises(InvalidInputError, match=r"pyarrow\.Table\.from_pandas"):
        write_table(pd.DataFrame({"x": [1]}), target)
    with pytest.raises(InvalidInputError, match="mode must be one of"):
        write_table(good, target, mode="replace")
    assert len(list(repo.ancestry(branch="main"))) == 2


def through_the_source(
    repo: frazil.Repository, tasks: list[pa.Table], overwrite: bool = False, **options: str
) -> SparkRowWriter:
    """What Spark does with the writer of the data source."""
    writer = SparkRowWriter(repo, options, tasks[0].schema, overwrite)
    done = [writer.write(iter(task.to_batches())) for task in tasks]
    writer.commit([*done])
    return writer


def one_of_each(group: zarr.Group) -> None:
    def array(name: str, values: Any, **attributes: Any) -> None:
        group.create_array(name, data=np.asarray(values), dimension_names=["x"], attributes=attributes)

    array("x", np.arange(3.0))
    array("word", np.array(["a", "b", "c"], "U3"))
    array("hours", np.arange(3), units="hours since 2000-01-01")
    array("number", np.arange(3))
    array("single", np.arange(3, dtype="f4"))
    array("span", np.arange(3).astype("m8[s]"))
    array("packed", np.arange(3, dtype="i2"), scale_factor=0.5, add_offset=250.0, _FillValue=-9)


TWENTY_PAST = datetime(2000, 1, 1, 5, 20, tzinfo=UTC)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("word", pa.array(["longer"]), "<U3, got longer"),
        ("hours", pa.array([TWENTY_PAST], TIMESTAMP), "05:20.*nearest is .*05:00"),
        ("hours", pa.array([5]), "got int64. Convert them"),
        ("number", pa.array([TWENTY_PAST], TIMESTAMP), "got timestamp.*. Convert them"),
        ("number", pa.array(["5"]), "got string. Convert them"),
        ("number", pa.array([True]), "got bool. Convert them"),
        ("number", pa.array([1.5]), "must be int64"),
        ("single", pa.array([1e300]), "must fit into float"),
        ("span", pa.array([5], pa.duration("us")), "5e-06 s.*nearest"),
        ("packed", pa.array([float("nan")]), "Write null"),
        ("single", pa.array([2**24 + 1]), "16777217.*read as 16777216"),
    ],
)
def test_what_an_array_cannot_hold_is_refused(
    repo: frazil.Repository, name: str, value: pa.Array, message: str
) -> None:
    with repo.transaction("main", message="arrays") as store:
        one_of_each(zarr.open_group(store))
    with pytest.raises(IcechunkError, match=message):
        write_table(pa.table({"x": [1.0], name: value}), Target(repo))
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_zero_is_one_label_whatever_its_sign(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="arrays") as store:
        one_of_each(zarr.open_group(store))
    write_table(pa.table({"x": [-0.0, float("nan")], "number": [9, 8]}), Target(repo))
    write_table(pa.table({"x": [float("nan")], "number": [7]}), Target(repo))
    with pytest.raises(IcechunkError, match="Each cell must have one row"):
        write_table(pa.table({"x": [-0.0, 0.0], "number": [9, 8]}), Target(repo))
    numbers = rows(repo.readonly_session("main"), Selection(), columns=["number"])["number"]
    assert numbers.tolist() == [9, 1, 2, 7]


def test_arrays_are_added_on_existing_coordinates(repo: frazil.Repository) -> None:
    before = grid(repo)
    more = as_rows({(3, 10.0): 1, (41, 50.0): 2}).select(["day", "lat"]).append_column("late", [[0.5, 1.5]])
    with pytest.raises(InvalidInputError, match="Pass dims to create"):
        write_table(more, Target(repo))
    write_table(more, Target(repo), dims=["day", "lat"])
    assert cells(repo).items() >= {key: (value, value) for key, value in before.items()}.items()
    result = rows(repo.readonly_session("main")).set_index(["day", "lat"])["late"]
    assert (result[3, 10.0], result[41, 50.0], result.notna().sum()) == (0.5, 1.5, 2)
    with pytest.raises(InvalidInputError, match="got several named late"):
        write_table(more.append_column("late", [[0.5, 1.5]]), Target(repo))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 200], pa.uint8()),
        pa.array([1, 2**62], pa.uint64()),
        pa.array(np.array([0.5, 1.5], "f2")),
        pa.array([timedelta(days=1), timedelta(microseconds=5)], pa.duration("us")),
        pa.array([date(1900, 1, 1), date(2100, 1, 1)]),
        pa.array(["b", "a"], pa.large_string()),
        pa.array(["b", "a"], pa.string_view()),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_of_every_type_become_arrays_and_labels(repo: frazil.Repository, values: pa.Array) -> None:
    given_ = pa.table({"label": values, "n": [1, 2], "value": values})
    write_table(given_.slice(1), Target(repo), dims=["label"])
    result = write_table(given_.slice(0, 1), Target(repo), dims=["label"])
    rows_back = table(*planned(result.version.session(), Selection()))
    assert to_spark(rows_back.schema).names == ["label", "n", "value"]  # Spark has the types
    order = rows_back.sort_by("n")
    assert order["n"].to_pylist() == [1, 2]
    assert order["label"].equals(order["value"])
    assert order["value"].to_pylist() == values.cast(order["value"].type).to_pylist()
    data = xr.open_zarr(result.version.session().store, consolidated=False)
    kinds = {"duration[us]": "m", "date32[day]": "M", "large_string": "UOT", "string_view": "UOT"}
    assert data["value"].dtype.kind in kinds.get(str(values.type), "iuf")


def test_new_columns_become_arrays(repo: frazil.Repository) -> None:
    """They have the dimensions and chunks of the arrays beside them, unless an option has other chunks."""
    old = grid(repo)
    new = pa.table(
        {"lat": [50.0, 8.0], "quality": [0.5, 1.5], "day": [9, 4], "n": [-7, -8], "good": ["yes", "no"]},
        pa.schema({"lat": "f8", "quality": "f8", "day": "i8", "n": "i4", "good": "string"}),
    )
    with pytest.raises(InvalidInputError, match=r"got quality\. merge_schema \(the option mergeSchema\)"):
        write_table(new, Target(repo))
    with pytest.raises(InvalidInputError, match="mergeSchema"):
        SparkRowWriter(repo, {"write": "upsert"}, new.schema, False)
    options: dict[str, Any] = {"write": "upsert", "merge-schema": "true", "chunks": "lat=2"}
    through_the_source(repo, [new], **options)
    group: Any = zarr.open_group(repo.readonly_session("main").store, mode="r")
    for name in ("quality", "good"):
        assert (group[name].shape, group[name].chunks) == ((5, 8), (2, 2))
        assert group[name].metadata.dimension_names == ("day", "lat")
    result = stored_rows(repo)
    by_cell = dict(
        zip(
            zip(result["day"], result["lat"], strict=True),
            zip(result["n"], result["quality"], result["good"], strict=True),
            strict=True,
        )
    )
    assert by_cell[9, 50.0] == (-7, 0.5, "yes")
    assert by_cell[4, 8.0] == (-8, 1.5, "no")
    assert by_cell[1, 0.0] == (old[1, 0.0], None, None)
    write_table(new.drop_columns(["n"]), Target(repo), merge_schema=True)  # no column is new now
    assert stored_rows(repo) == result


def test_a_job_id_belongs_to_its_rows(repo: frazil.Repository) -> None:
    """In any order and distribution, by both writers."""
    before = grid(repo)
    parts = list({key: value + 1000 for key, value in before.items()}.items())
    options: dict[str, Any] = {"write": "upsert", "job-id": "day 1"}
    through_the_source(repo, [as_rows(dict(parts[:20])), as_rows(dict(parts[20:]))], **options)
    tip = repo.lookup_branch("main")
    through_the_source(repo, [as_rows(dict(parts[30:])), as_rows(dict(parts[:30]))], **options)
    assert write_table(as_rows(dict(parts[::-1])), Target(repo), job_id="day 1").snapshot_id == tip
    for other in (dict.fromkeys(before, 5), dict(parts[1:]), dict(parts) | {(99, 10.0): 1}):
        with pytest.raises(InvalidInputError, match="other rows") as refused:
            write_table(as_rows(other), Target(repo), job_id="day 1")
        assert refused.value.kind == "conflicting-arguments"
    with pytest.raises(InvalidInputError, match="other rows"):
        through_the_source(repo, [as_rows(dict(parts[:20])), as_rows(dict.fromkeys(before, 1))], **options)
    assert repo.lookup_branch("main") == tip
