"""The data source, scans and SQL on a real Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pyspark.sql import DataFrame, SparkSession
from tests.spark.tables.test_reading import climate, frame, same, written

import frazil
from frazil.spark import Selection, map_chunks, read, scan

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tables") / "repo"
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    written(repo, climate(), {"time": 2, "lat": 3, "lon": 4})
    repo.create_tag("v1", repo.lookup_branch("main"))
    later = xr.Dataset({"tas": (("time", "lat", "lon"), np.full((6, 5, 7), -1, "f4"))})
    session = repo.writable_session("main")
    later.to_zarr(session.store, mode="r+", consolidated=False)
    session.commit("all is -1")
    return str(path)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def test_the_data_source_is_found_and_reads_versions(spark: SparkSession, place: str) -> None:
    reader = spark.read.format("frazil").option("path", place)
    now = reader.load()
    assert now.schema["time"].dataType.simpleString() == "timestamp"
    assert now.where("tas = -1").count() == 210
    first = reader.option("tag", "v1").load()
    same(arrow(first), frame(climate()))


def arrow(found: DataFrame) -> pd.DataFrame:
    return found.toArrow().to_pandas()


def test_conditions_as_an_option(spark: SparkSession, place: str) -> None:
    where = "lat > 0 AND time < '2020-01-03' AND tas IS NOT NULL"
    reader = spark.read.format("frazil").option("path", place).option("tag", "v1").option("where", where)
    every = frame(climate())
    expected = every[(every["lat"] > 0) & (every["time"] < "2020-01-03") & every["tas"].notna()]
    same(arrow(reader.load()), expected)
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    found = read(spark, repo, columns=["tas", "lat"], where=where, tag="v1")
    assert found.columns == ["tas", "lat"]
    assert place not in found._jdf.queryExecution().toString()
    assert sorted(arrow(found)["tas"]) == sorted(expected["tas"])


def test_conditions_of_the_query(pushing: SparkSession, place: str) -> None:
    """Pushed where it is asked for; what Spark does with them is seen in the plan."""
    made = pushing.read.format("frazil").option("path", place).option("tag", "v1").option("pushdown", "true")
    every = frame(climate())
    query = made.load().where(
        "lat > 0 AND time = timestamp'2020-01-02 00:00:00' AND tas > 50 AND name <> 'd'"
    )
    plan = query._jdf.queryExecution().optimizedPlan().toString()
    assert "tas" in plan.split("RelationV2")[0]
    assert "lat#" not in plan.split("RelationV2")[0]
    expected = every[(every["lat"] > 0) & (every["time"] == "2020-01-02") & (every["tas"] > 50)]
    same(arrow(query), expected[expected["name"] != "d"])
    pushing.conf.set(PUSHDOWN, "false")
    assert made.load().where("lat > 0").count() == 3 * 6 * 7


def test_one_dataframe_serves_many_queries(pushing: SparkSession, place: str) -> None:
    """Spark uses what was planned for one query again for others: without being asked nothing is pushed."""
    found = pushing.read.format("frazil").option("path", place).option("tag", "v1").load()
    assert found.where("lat > 0").count() == 126
    assert found.count() == 210
    assert found.where("lat > 0").union(found.where("lat < 0")).count() == 168


def test_sql(spark: SparkSession, place: str) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW climate USING frazil OPTIONS (path '{place}', tag 'v1', where 'lat > 0')"
    )
    spark.sql(f"CREATE TABLE kept USING frazil OPTIONS (path '{place}', tag 'v1', variables 'tas')")
    try:
        assert spark.sql("SELECT count(*) FROM climate").first() == (126,)
        assert spark.sql("SELECT max(tas), count(*) FROM kept WHERE lon = 3").first() == (206.0, 30)
    finally:
        spark.sql("DROP TABLE kept")
        spark.catalog.dropTempView("climate")


def test_scans(spark: SparkSession, place: str) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    found = scan(spark, repo, where=[("lat", ">", 0.0), ("name", "!=", "d")], tag="v1")
    every = frame(climate())
    same(arrow(found), every[(every["lat"] > 0) & (every["name"] != "d")])
    assert scan(spark, repo, where="lat > 1e9").count() == 0
    totals = map_chunks(
        spark,
        repo,
        lambda block: {"total": float(block["tas"].sum()), "cells": int(block["tas"].count())},
        "total double, cells long",
        columns=["tas"],
        selection=Selection(block_rows=1),
        tag="v1",
    )
    added = totals.groupBy().sum("total", "cells").first()
    assert added == (np.nansum(climate()["tas"].values, dtype="f8"), 203)


def test_unknown_options_and_columns(spark: SparkSession, place: str) -> None:
    with pytest.raises(Exception, match="found brnch"):
        spark.read.format("frazil").option("path", place).option("brnch", "main").load()
    repo = frazil.Repository.open(frazil.local_filesystem_storage(place))
    with pytest.raises(frazil.errors.InvalidInputError, match="found nothing"):
        read(spark, repo, columns=["nothing"])


def test_tables_about_the_repository(spark: SparkSession, place: str) -> None:
    reader = spark.read.format("frazil").option("path", place)
    assert reader.option("table", "history").load().count() == 3
    chunks = reader.option("table", "chunks").option("array", "tas").load()
    assert sorted(map(tuple, (row.chunk for row in chunks.select("chunk").collect()))) == [
        (t, y, x) for t in range(3) for y in range(2) for x in range(2)
    ]
