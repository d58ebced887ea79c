"""Rows to arrays, upkeep and pipelines on Sail: each does what it does without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
import xarray as xr
import zarr
from pyspark.sql import SparkSession
from tests.support.program_runner import FORKS
from tests.test_docs import code_of

import frazil
from frazil import arrow
from frazil.errors import TaskFailedError
from frazil.pipeline import Inline, coarsen, derived, ingest, rechunk, refresh
from frazil.spark import OnSpark, Target, get_spark, ready, register, scan, write_table

SOON = datetime.now(UTC) + timedelta(days=1)
DOCS = Path(__file__).parents[2] / "docs"


def table_of(repo: frazil.Repository, branch: str = "main") -> pa.Table:
    table = arrow.dataset(repo.readonly_session(branch)).to_table()
    return table.sort_by([(name, "ascending") for name in ("time", "lat", "lon")])


def days(start: int, stop: int, more: float = 0, lat: tuple[float, ...] = (-60, 0, 60)) -> pa.Table:
    """Return rows of some days of January."""
    cells = [(day, each, lon) for day in range(start, stop) for each in lat for lon in (0.0, 180.0)]
    return pa.table(
        {
            "time": pa.array([datetime(2024, 1, day, tzinfo=UTC) for day, *_ in cells]),
            "lat": pa.array([each for _, each, _ in cells], pa.float64()),
            "lon": pa.array([each for *_, each in cells], pa.float64()),
            "tas": pa.array([day + each + more for day, each, _ in cells], pa.float32()),
            "rain": pa.array(range(len(cells)), pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("mode", "batch"),
    [
        ("append", days(5, 9)),
        ("upsert", days(3, 7)),
        ("insert", days(2, 4)),
        ("backfill", days(4, 6, lat=(-60, 30))),
        ("overwrite-region", days(1, 3, lat=(-60, 60)).slice(0, 5)),
    ],
)
def test_each_mode_writes_what_it_writes_without_spark(
    mode: str, batch: pa.Table, spark: SparkSession, repo: frazil.Repository, path: str
) -> None:
    for branch in ("alone", "frame", "writer"):
        repo.create_branch(branch, "v1")
    write_table(batch, Target(repo, branch="alone"), mode=mode)
    frame = spark.createDataFrame(batch)
    result = write_table(frame, Target(repo, branch="frame"), mode=mode, partitions=3)
    writer = frame.repartition(2).write.format("frazil").mode("append")
    writer.options(path=path, branch="writer", write=mode).save()
    assert table_of(repo, "frame") == table_of(repo, "alone") == table_of(repo, "writer")
    assert result.metrics.rows == len(batch)
    assert repo.lookup_branch("frame") != repo.lookup_tag("v1")


def test_a_row_may_lack_a_value(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "x": pa.array([1, 2, 3], pa.int32()),
            "v": pa.array([1.5, None, float("nan")]),
            "w": pa.array([None, 2.5, None]),
        }
    )
    frames = {"local": spark.createDataFrame(rows), "union": spark.createDataFrame(rows[:1])}
    frames["union"] = frames["union"].union(spark.createDataFrame(rows[1:]))
    expected = write_table(rows, Target(frazil.Repository.create(tmp_path / "alone")), dims=["x"])
    for name, frame in frames.items():
        repo = frazil.Repository.create(tmp_path / name)
        result = write_table(frame, Target(repo), dims=["x"], partitions=2)
        tables = [arrow.dataset(each.version.session()).to_table() for each in (result, expected)]
        assert tables[0] == tables[1]


def test_a_new_repository_has_columns_of_all_types(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT id AS x, CAST(id AS STRING) AS text, id % 2 = 0 AS flag, id * 1.5D AS value, "
        "TIMESTAMP '2024-01-01 00:00:00' + id * INTERVAL 1 HOUR AS at FROM range(0, 20000, 1, 4)"
    )
    path = str(tmp_path / "new")
    frame.repartition(3).write.format("frazil").mode("append").options(path=path, dims="x").save()
    repo = frazil.Repository.open(path)
    other = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "other")))
    write_table(frame, Target(other), dims=["x"], chunks={"x": 3000})
    found = scan(spark, other).orderBy("x").toArrow()
    for each in (repo, other):
        table = arrow.dataset(each.readonly_session("main")).to_table()
        assert table["x"].to_pylist() == list(range(20000))
        assert table["text"].to_pylist() == found["text"].to_pylist() == list(map(str, range(20000)))
        assert table["at"][1].as_py() == datetime(2024, 1, 1, 1)
        assert table["value"].to_pylist() == found["value"].to_pylist()
        assert table["flag"].to_pylist()[:2] == [True, False]


def test_a_write_that_fails_changes_nothing(spark: SparkSession, repo: frazil.Repository) -> None:
    tip = repo.lookup_branch("main")
    twice = spark.createDataFrame(pa.concat_tables([days(1, 3), days(1, 2)]))
    with pytest.raises(TaskFailedError, match="Each cell must have one row"):
        write_table(twice, Target(repo))
    assert repo.lookup_branch("main") == tip


def test_a_job_id_writes_once(spark: SparkSession, repo: frazil.Repository) -> None:
    frame = spark.createDataFrame(days(5, 7))
    ids = {write_table(frame, Target(repo), job_id="daily").version.snapshot_id for _ in range(2)}
    assert ids == {repo.lookup_branch("main")}


def test_an_insert_appends(spark: SparkSession, repo: frazil.Repository, path: str) -> None:
    spark.sql(f"CREATE TABLE landing USING frazil LOCATION '{path}'").collect()
    row = "TIMESTAMP '2024-01-05 00:00:00', 0D, 0D, 7F, 8L"
    spark.sql(f"INSERT INTO landing (time, lat, lon, tas, rain) VALUES ({row})").collect()
    assert spark.sql("SELECT tas FROM landing WHERE day(time) = 5 AND lat = 0 AND lon = 0").first() == (7.0,)
    assert repo.lookup_snapshot(repo.lookup_branch("main")).message.startswith("Write 1 row to `/`")
    spark.sql("DROP TABLE landing").collect()


UPKEEP: dict[str, Callable[[frazil.Repository, list[Any]], bool]] = {
    "tag('{path}', 'v2', version => 'v1')": lambda repo, rows: repo.lookup_tag("v2") == rows[0].snapshot_id,
    "reset('{path}', 'main', 'v1')": lambda repo, _: repo.lookup_branch("main") == repo.lookup_tag("v1"),
    "publish('{path}', 'dev', tag => 'v2')": lambda repo, _: (
        repo.lookup_branch("main") == repo.lookup_branch("dev") == repo.lookup_tag("v2")
    ),
    "compact('{path}')": lambda repo, rows: not rows[0].dry_run,
    "hold('{path}', 'season', 'tas', TIMESTAMP '2199-06-01 00:00:00')": lambda repo, rows: (
        rows[0].tag == "hold.season.1" and len(repo.upkeep.holds()) == 1
    ),
    "rewrite_manifests('{path}')": lambda repo, rows: repo.lookup_branch("main") == rows[0].snapshot_id,
    "copy('{path}', '{path}-copy')": lambda repo, rows: rows[0].objects > 9,
    "verify('{path}', level => 'decode')": lambda repo, rows: rows == [],
    "expire('{path}', current_timestamp() + INTERVAL 1 DAY, dry_run => false, delete_tags => true)": (
        lambda repo, rows: "v1" not in repo.list_tags() and {"tag", "version"} <= {row.kind for row in rows}
    ),
    "collect('{path}', older_than => TIMESTAMP '2000-01-01 00:00:00')": lambda repo, rows: rows[0].dry_run,
}


@pytest.mark.parametrize("call", UPKEEP, ids=lambda call: call.partition("(")[0])
def test_upkeep(call: str, spark: SparkSession, repo: frazil.Repository, path: str) -> None:
    register(spark)
    repo.create_branch("dev", "main")
    repo.writable_session("dev").commit("one more", allow_empty=True)
    rows = spark.sql(f"SELECT * FROM frazil_{call.format(path=path)}").collect()
    assert UPKEEP[call](repo, rows)


def test_jobs(spark: SparkSession, repo: frazil.Repository, tmp_path: Path) -> None:
    engine = OnSpark(spark)
    for number in range(3):
        data = xr.Dataset(
            {"t": (("time", "x"), np.full((2, 9), number, "f4"))}, {"time": [number * 2, number * 2 + 1]}
        )
        data.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4")
    results = []
    for each in (engine, Inline()):
        places = [tmp_path / f"{type(each).__name__}-{number}" for number in range(3)]
        files, series, means = (
            frazil.Repository.create(frazil.local_filesystem_storage(str(at))) for at in places
        )
        ingest(str(tmp_path / "*.nc"), files, concat_dim="time", engine=each)
        rechunk(repo, ["tas"], {"time": 4, "lat": 1, "lon": 1}, to=Target(series), engine=each)
        coarsen(repo, ["tas"], {"lat": 3}, to=Target(means), engine=each)
        stores = [at.readonly_session("main").store for at in (files, series, means)]
        results.append([xr.open_zarr(store, consolidated=False).load() for store in stores])
    for one, other in zip(*results, strict=True):
        xr.testing.assert_identical(one, other)
    with means.transaction("main", message="results of results") as store:
        xr.Dataset({"t": ("x", np.arange(8.0))}).to_zarr(store, group="data", consolidated=False)
    coarsen(means, ["data/t"], {"x": 2}, to=Target(means, group="pairs"), engine=engine)
    with means.transaction("main", message="a correction") as store:
        zarr.open_array(store, path="data/t")[0] = 5
    assert refresh(means, mode="strict", engine=engine).apply().metrics.tasks == 1
    assert derived(means).is_current
    assert frazil.read(means.readonly_session("main"), "/pairs/data/t").tolist() == [3.0, 2.5, 4.5, 6.5]


def fails(shared: bytes, task: bytes) -> bytes:
    raise ValueError(f"bad {task.decode()}")


def test_the_engine(spark: SparkSession) -> None:
    engine = OnSpark(spark)
    large = b"0" * (5 << 20)
    results = engine.run(lambda shared, task: shared[:1] + task, [large, b"1", large, b"2"], b"x" + large)
    assert [len(each) for each in results] == [len(large) + 1, 2, len(large) + 1, 2]
    with pytest.raises(TaskFailedError, match="ValueError: bad b"):
        list(engine.run(fails, [b"b"], b""))


def test_a_session_of_sail_needs_no_settings(spark: SparkSession) -> None:
    assert ready(spark) == ()
    assert get_spark() is spark


@pytest.mark.parametrize("page", ["sql", "merge"])
def test_pages_run_on_sail(page: str, sail: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(code_of(DOCS / f"{page}.md"))
    environment = {**os.environ, "SPARK_REMOTE": sail}
    done = FORKS.run(tmp_path / "program.py", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
