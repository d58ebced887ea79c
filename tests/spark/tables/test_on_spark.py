"""The data source, scans and SQL on a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
import xarray as xr
import zarr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from tests.spark.tables.test_reading import climate, frame, same, write_dataset
from tests.support.patience import patience

import frazil
from frazil.errors import IcechunkError
from frazil.spark import Selection, Target, create_table_statement, map_chunks, read, scan, write_table

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tables") / "repo"
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    write_dataset(repo, climate(), {"time": 2, "lat": 3, "lon": 4})
    repo.create_tag("v1", repo.lookup_branch("main"))
    later = xr.Dataset({"tas": (("time", "lat", "lon"), np.full((6, 5, 7), -1, "f4"))})
    session = repo.writable_session("main")
    later.to_zarr(session.store, mode="r+", consolidated=False)
    session.commit("all is -1")
    return str(path)


@pytest.mark.deep
def test_the_data_source_reads_versions(spark: SparkSession, place: str) -> None:
    reader = spark.read.format("frazil").option("path", place)
    assert reader.load().schema["time"].dataType.simpleString() == "timestamp"
    assert set(arrow(reader.load())["tas"]) == {-1}
    same(arrow(reader.option("tag", "v1").load()), frame(climate()))


def arrow(frame_: DataFrame) -> pd.DataFrame:
    return frame_.toArrow().to_pandas()


@pytest.mark.deep
def test_conditions_as_an_option(spark: SparkSession, place: str) -> None:
    where = "lat > 0 AND time < '2020-01-03' AND tas IS NOT NULL"
    reader = spark.read.format("frazil").option("path", place).option("tag", "v1").option("where", where)
    every = frame(climate())
    expected = every[(every["lat"] > 0) & (every["time"] < "2020-01-03") & every["tas"].notna()]
    same(arrow(reader.load()), expected)
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    frame_ = read(spark, repo, columns=["tas", "lat"], where=where, tag="v1")
    assert frame_.columns == ["tas", "lat"]
    assert (
        f"{repo.storage.label()} rows of {repo.lookup_tag('v1')}" in frame_._jdf.queryExecution().toString()
    )
    assert sorted(arrow(frame_)["tas"]) == sorted(expected["tas"])
    with pytest.raises(frazil.errors.InvalidInputError, match="got 'nothing'"):
        read(spark, repo, columns=["nothing"])


@pytest.mark.deep
def test_one_dataframe_serves_many_queries(spark: SparkSession, place: str) -> None:
    """Spark uses what was planned for one query again for others: no condition of a query may stay in it."""
    frame_ = spark.read.format("frazil").option("path", place).option("tag", "v1").load()
    assert frame_.where("lat > 0").count() == 126
    assert frame_.count() == 210
    assert frame_.where("lat > 0").union(frame_.where("lat < 0")).count() == 168


def test_changed_rows_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "repo")
    repo = frazil.Repository.create(frazil.local_filesystem_storage(path))
    rows = {"x": [1, 2, 3], "v": [10.0, 20.0, 30.0]}
    write_table(pa.table(rows), Target(repo), dims=["x"])
    start = repo.lookup_branch("main")
    write_table(pa.table({"x": [2, 3, 4], "v": [21.0, 5.0, 40.0]}), Target(repo))
    commit = next(iter(repo.ancestry(branch="main")))
    options = f"path '{path}', table 'row_changes', start '{start}', where 'v > 6'"
    spark.sql(f"CREATE TEMPORARY VIEW changed USING frazil OPTIONS ({options})")
    try:
        changed = spark.sql("SELECT change, x, v, before_v, snapshot_id, written_at FROM changed ORDER BY x")
        assert [tuple(row)[:5] for row in changed.collect()] == [
            ("updated", 2, 21.0, 20.0, commit.id),
            ("deleted", 3, 30.0, 30.0, commit.id),
            ("inserted", 4, 40.0, None, commit.id),
        ]
        assert changed.toArrow()["written_at"].to_pylist() == [commit.written_at] * 3
        assert spark.sql("SELECT x FROM changed WHERE v > before_v").collect() == [(2,)]
    finally:
        spark.catalog.dropTempView("changed")


@pytest.mark.deep
def test_scans(spark: SparkSession, place: str) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    frame_ = scan(spark, repo, where=[("lat", ">", 0.0), ("name", "!=", "d")], tag="v1")
    every = frame(climate())
    same(arrow(frame_), every[(every["lat"] > 0) & (every["name"] != "d")])
    totals = map_chunks(
        spark,
        repo,
        lambda block: {"total": float(block["tas"].sum()), "cells": int(np.ma.count(block["tas"]))},
        "total double, cells long",
        columns=["tas"],
        selection=Selection(block_rows=1),
        tag="v1",
    )
    added = totals.groupBy().sum("total", "cells").first()
    assert added == (np.nansum(climate()["tas"].values, dtype="f8"), 203)


@pytest.fixture
def stations(tmp_path: Path) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    session = repo.writable_session("main")
    group = zarr.open_group(session.store)
    group.create_array("x", data=np.arange(8)[::-1], dimension_names=["x"])
    group.create_array("y", data=np.arange(6) * 10.0, dimension_names=["y"])
    more: dict[str, Any] = {"dtype": "f4", "fill_value": np.nan, "dimension_names": ["x", "y"]}
    group.create_array("v", shape=(8, 6), chunks=(2, 3), **more)
    session.commit("stations")
    return repo


def shuffled(spark: SparkSession, where: str = "true") -> DataFrame:
    """A row for each cell, v = 100 x + y, in no order and several partitions."""
    cells = spark.range(0, 48, 1, 5).selectExpr("(id * 29) % 48 AS id")
    every = cells.selectExpr("id % 8 AS x", "CAST(id DIV 8 * 10 AS double) AS y")
    return every.selectExpr("x", "CAST(x * 100 + y AS float) AS v", "y").where(where)


def values(repo: frazil.Repository) -> np.ndarray[Any, Any]:
    return np.asarray(frazil.read(repo.readonly_session("main"), "/v"))


WHOLE = np.arange(8)[::-1, None] * 100 + np.arange(6) * 10.0


@pytest.mark.deep
def test_the_task_of_a_chunk_writes_its_rows(spark: SparkSession, stations: frazil.Repository) -> None:
    result = write_table(shuffled(spark), Target(stations), partitions=3)
    assert (values(stations) == WHOLE).all()
    assert (result.metrics.tasks, result.metrics.rows, result.metrics.chunks) == (3, 48, 8)
    twice = shuffled(spark).union(shuffled(spark, "x = 3 AND y = 20"))
    with pytest.raises(IcechunkError, match=r"Each cell must have one row.* x = 3, y = 20.0"):
        write_table(twice, Target(stations))
    assert len(list(stations.ancestry(branch="main"))) == 3


@pytest.mark.deep
def test_a_job_id_belongs_to_the_rows_of_a_dataframe(
    spark: SparkSession, stations: frazil.Repository
) -> None:
    first = write_table(shuffled(spark), Target(stations), job_id="stations")
    same_rows = shuffled(spark).orderBy("v").coalesce(1)
    assert write_table(same_rows, Target(stations), job_id="stations").done_before
    assert write_table(shuffled(spark).toArrow(), Target(stations), job_id="stations").done_before
    with pytest.raises(IcechunkError, match="other rows"):
        write_table(shuffled(spark, "x < 7"), Target(stations), job_id="stations")
    assert stations.lookup_branch("main") == first.snapshot_id


@pytest.mark.deep
def test_the_data_source_writes_rows(
    spark: SparkSession, stations: frazil.Repository, tmp_path: Path
) -> None:
    place = str(tmp_path / "repo")
    writer = shuffled(spark, "x < 4").write.format("frazil").option("path", place)
    writer.mode("append").option("write", "upsert").option("message", "by Spark").save()
    assert (values(stations)[4:] == WHOLE[4:]).all()
    assert np.isnan(values(stations)[:4]).all()
    commit = next(iter(stations.ancestry(branch="main")))
    assert commit.message == "by Spark"
    spark.sql(f"CREATE TABLE stations USING frazil OPTIONS (path '{place}')")
    try:
        shuffled(spark, "x >= 4").selectExpr("x - 100 AS a", "y", "v").createOrReplaceTempView("more")
        spark.sql(f"INSERT INTO stations WITH (path = '{place}') SELECT * FROM more")
        commit = next(iter(stations.ancestry(branch="main")))
        assert commit.message == "Write 24 rows to `/` (x, y, v), mode append"
        assert commit.metadata["written_to"] == stations.storage.label()
        own_names = "SELECT a - 4 AS x, y, v FROM more"
        spark.sql(f"INSERT INTO stations WITH (path = '{place}') {own_names}")
        later = spark.sql("SELECT a - 8 AS x, y, v FROM more")
        later.writeTo("stations").option("path", place).append()
    finally:
        spark.sql("DROP TABLE stations")
    assert values(stations).shape == (20, 6)
    assert all((values(stations)[start : start + 4] == WHOLE[:4]).all() for start in (8, 12, 16))


@pytest.mark.deep
def test_a_statement_writes_to_the_repository_that_it_names(spark: SparkSession, tmp_path: Path) -> None:
    """The columns of a query have the metadata of the table that is read: it does not name the target."""
    paths = {name: str(tmp_path / name) for name in "abc"}
    targets = {name: frazil.Repository.create(paths[name]) for name in "ab"}
    options = dict.fromkeys("ab", "write 'upsert'") | {
        "c": "dims 'x,y', columns 'x BIGINT, y DOUBLE, v DOUBLE'"
    }
    table = pa.table({"x": [0, 1], "y": [0.5, 0.5], "v": [1.0, 2.0]})
    for repo in targets.values():
        write_table(table, Target(repo), dims=["x", "y"])
    for name, more in options.items():
        spark.sql(f"CREATE TABLE {name} USING frazil OPTIONS (path '{paths[name]}', {more})")
    tips = {name: repo.lookup_branch("main") for name, repo in targets.items()}
    b, plain = spark.table("b"), "SELECT * FROM b"
    renamed = "SELECT x, y AS y2, v + 1 AS v FROM b"
    refused: list[Callable[[], object]] = [
        *(
            lambda sql=f"INSERT {verb} a {query}": spark.sql(sql)
            for verb in ("INTO", "OVERWRITE")
            for query in (plain, renamed)
        ),
        lambda: b.write.mode("overwrite").insertInto("a"),
        lambda: b.write.mode("append").format("frazil").option("write", "insert").saveAsTable("a"),
        lambda: b.writeTo("a").append(),
        lambda: spark.sql(
            f"CREATE TABLE d USING frazil OPTIONS (path '{paths['c']}', dims 'x,y') AS {plain}"
        ),
    ]
    try:
        for call in refused:
            with pytest.raises(PySparkException, match=r"INSERT INTO t WITH \(path"):
                call()
        assert {name: repo.lookup_branch("main") for name, repo in targets.items()} == tips
        for query in (plain, renamed):
            spark.sql(f"INSERT INTO a WITH (path = '{paths['a']}', write = 'upsert') {query}")
            assert targets["b"].lookup_branch("main") == tips["b"]
        assert sorted(map(tuple, spark.table("a").collect())) == [(0, 0.5, 2.0), (1, 0.5, 3.0)]
        with pytest.raises(PySparkException, match=f"Nothing was written to .*{paths['a']}"):
            spark.sql(f"INSERT INTO a WITH (path = '{paths['a']}') {plain}")
        spark.sql(f"CREATE TEMPORARY VIEW view_of_a USING frazil OPTIONS (path '{paths['a']}')")
        spark.sql(f"INSERT OVERWRITE view_of_a {plain}")
        assert spark.table("a").collect() == b.collect()
        spark.sql(f"INSERT INTO c WITH (path = '{paths['c']}', dims = 'x,y') {plain}")
        statement = create_table_statement(spark, "c")
        spark.sql("DROP TABLE c")
        spark.sql(statement)
        assert sorted(map(tuple, spark.table("c").collect())) == sorted(map(tuple, b.collect()))
    finally:
        spark.catalog.dropTempView("view_of_a")
        for name in "abc":
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_the_first_write_creates_the_repository(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    writer = shuffled(spark).write.format("frazil").mode("append").option("path", path)
    with pytest.raises(PySparkException, match="With the option `dims`, the first write creates"):
        writer.save()
    writer.option("dims", "x,y").save()
    assert values(frazil.Repository.open(path)).tolist() == WHOLE[::-1].tolist()


def test_a_scan_reads_the_columns_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """The chunks of ``far`` are lost. Only queries that name the column notice."""
    repo = frazil.Repository.create(tmp_path / "repo")
    files = []
    for name in ("near", "far"):
        with repo.transaction("main", message=name) as store:
            data = np.arange(3000.0).reshape(30, 100)
            more: dict[str, Any] = {"chunks": (7, 50), "dimension_names": ["x", "y"], "compressors": None}
            zarr.create_array(store, name=name, data=data, **more)
        files.append({each for each in (tmp_path / "repo" / "chunks").rglob("*") if each.is_file()})
    lost = files[1] - files[0]
    for each in lost:
        each.rename(tmp_path / each.name)
    frame_ = scan(
        spark, repo, where="x < 20 AND near != 150", selection=Selection(block_rows=1), batch_rows=64
    )
    assert repo.lookup_branch("main") in frame_._jdf.queryExecution().toString()
    assert "near != 150" in frame_._jdf.queryExecution().toString()
    assert frame_.count() == 1999
    sums = frame_.where("x > 0").groupBy().sum("near", "x").collect()
    assert sums == [(sum(range(100, 2000)) - 150, 100 * sum(range(20)) - 1)]
    with pytest.raises(PySparkException):
        frame_.groupBy().sum("far").collect()

    # A function of the user over the columns gets values, not the lists of segments.
    @arrow_udf("double")  # type: ignore[call-overload, untyped-decorator]  # pyspark warns of a kind
    def plus(near: pa.Array) -> pa.Array:
        return pc.add(near, 1.0)

    assert max(row[0] for row in frame_.select(plus("near")).collect()) == 2000
    for each in lost:
        (tmp_path / each.name).rename(each)


def test_times_do_not_depend_on_the_zone_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    seconds = list(range(0, 4 * 86400, 86400))
    path = str(tmp_path / "repo")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        days = spark.createDataFrame([(each, each * 1.0) for each in seconds], "at long, v double")
        days = days.selectExpr("timestamp_seconds(at) AS time", "v")
        days.write.format("frazil").mode("append").options(path=path, dims="time").save()
        repo = frazil.Repository.open(path)
        instants = xr.open_zarr(repo.readonly_session("main").store, consolidated=False)["time"]
        assert instants.values.astype("M8[s]").astype(int).tolist() == seconds
        where = "time >= '1970-01-02'"
        for zone in ("America/New_York", "Asia/Tokyo"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            for frame_ in (read(spark, repo, where=where), scan(spark, repo, where=where)):
                rows = frame_.selectExpr("unix_seconds(time)", "v").collect()
                assert sorted(map(tuple, rows)) == [(each, each * 1.0) for each in seconds[1:]]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"brunch": "x"}, "InvalidInputError: unknown option `brunch`. Did you mean `branch`?"),
        ({"branch": "v1"}, "RefNotFoundError: no branch `v1`, but a tag `v1` exists"),
        ({"where": "tsa > 0"}, "InvalidInputError: A column must be one of"),
    ],
)
def test_an_error_is_not_buried_in_a_traceback(
    spark: SparkSession, place: str, options: dict[str, str], cause: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("frazil").options(**options).load(place).collect()
    assert f": frazil.errors.{cause}" in str(caught.value).splitlines()[0]


@pytest.mark.deep
def test_a_stream_of_rows_has_one_error(spark: SparkSession, place: str, tmp_path: Path) -> None:
    rows = spark.readStream.format("frazil").load(place)
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match="table=feed") as caught:
        query.awaitTermination(int(patience(60)))
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.deep
def test_an_error_while_spark_plans_is_not_one_of_pickle(spark: SparkSession, tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(tmp_path))
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="t", data=np.arange(200), chunks=(100,), dimension_names=["x"])
    away = (tmp_path / "manifests").rename(tmp_path / "away")
    with pytest.raises(PySparkException, match=r"StorageError: object 'manifests/\w+' not found") as caught:
        spark.read.format("frazil").load(str(tmp_path)).collect()
    assert "PicklingError" not in str(caught.value)
    away.rename(tmp_path / "manifests")
