"""Rows and tables of a repository on Sail: each way returns what a program without Spark reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import frazil
from frazil import arrow
from frazil.spark import Split, map_chunks, read, register, scan
from frazil.spark.tables import repository_tables
from frazil.spark.tables.repository_tables import SCHEMAS

type Ways = dict[str, Callable[[SparkSession, frazil.Repository, str], DataFrame]]


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows in an order of their own, with times as instants."""
    table = frame.toArrow() if isinstance(frame, DataFrame) else frame
    columns = {name: table[name].to_pylist() for name in sorted(table.column_names)}
    for name, values in columns.items():
        columns[name] = [each.replace(tzinfo=None) if hasattr(each, "tzinfo") else each for each in values]
    return sorted(zip(*columns.values(), strict=True), key=repr)


def expected(repo: frazil.Repository, lat: float = -90, **version: str) -> list[tuple[Any, ...]]:
    session = repo.readonly_session(**(version or {"branch": "main"}))  # type: ignore[arg-type]
    return [row for row in rows(arrow.dataset(session).to_table()) if row[0] > lat]


def test_the_columns_of_the_expected_rows(repo: frazil.Repository) -> None:
    assert min(arrow.dataset(repo.readonly_session("main")).schema.names) == "lat"
    assert (len(expected(repo)), len(expected(repo, 0))) == (24, 8)


def view(statement: str) -> Callable[[SparkSession, frazil.Repository, str], DataFrame]:
    def made(spark: SparkSession, repo: frazil.Repository, path: str) -> DataFrame:
        spark.sql(statement.format(path=path)).collect()
        return spark.sql("SELECT * FROM climate WHERE lat > 0")

    return made


NORTH: Ways = {
    "format": lambda spark, _, path: spark.read.format("frazil").option("where", "lat > 0").load(path),
    "filter": lambda spark, _, path: spark.read.format("frazil").load(path).where("lat > 0"),
    "partitions": lambda spark, _, path: (
        spark.read.format("frazil").options(path=path, partitions="4", where="lat > 0").load()
    ),
    "read": lambda spark, repo, _: read(spark, repo, where="lat > 0"),
    "scan": lambda spark, repo, _: scan(spark, repo, where=[("lat", ">", 0.0)]),
    "scan_tasks": lambda spark, repo, _: scan(spark, repo, where="lat > 0", split=Split(partitions=4)),
    "frazil_rows": lambda spark, _, path: spark.sql(
        f"SELECT * FROM frazil_rows('{path}', where => 'lat > 0')"
    ),
    "parts": lambda spark, _, path: spark.sql(
        "SELECT r.* FROM range(0, 4, 1, 4) AS p, LATERAL "
        f"frazil_rows('{path}', partitions => 4, part => p.id) AS r WHERE r.lat > 0"
    ),
    "path": lambda spark, _, path: spark.sql(f"SELECT * FROM frazil.`{path}` WHERE lat > 0"),
    "view": view("CREATE OR REPLACE TEMPORARY VIEW climate USING frazil OPTIONS (path '{path}')"),
    "table": view("CREATE OR REPLACE TABLE climate USING frazil OPTIONS (path '{path}')"),
    "location": view("CREATE OR REPLACE TABLE climate USING frazil LOCATION '{path}'"),
}


@pytest.mark.parametrize("way", NORTH)
def test_rows(way: str, spark: SparkSession, repo: frazil.Repository, path: str) -> None:
    register(spark)
    try:
        assert rows(NORTH[way](spark, repo, path)) == expected(repo, 0)
    finally:
        spark.sql("DROP VIEW IF EXISTS climate").collect()
        spark.sql("DROP TABLE IF EXISTS climate").collect()


VERSIONS: Ways = {
    "option": lambda spark, _, path: spark.read.format("frazil").option("versionAsOf", "v1").load(path),
    "read": lambda spark, repo, _: read(spark, repo, tag="v1"),
    "scan": lambda spark, repo, _: scan(spark, repo, tag="v1"),
    "frazil_rows": lambda spark, _, path: spark.sql(f"SELECT * FROM frazil_rows('{path}', tag => 'v1')"),
}


@pytest.mark.parametrize("way", VERSIONS)
def test_versions(way: str, spark: SparkSession, repo: frazil.Repository, path: str) -> None:
    register(spark)
    found = rows(VERSIONS[way](spark, repo, path))
    assert found == expected(repo, tag="v1") != expected(repo)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_times_are_the_same_instants_in_every_zone(
    zone: str, spark: SparkSession, repo: frazil.Repository, path: str
) -> None:
    register(spark)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frames = {
            "format": spark.read.format("frazil").load(path),
            "scan": scan(spark, repo),
            "rows": spark.sql(f"SELECT * FROM frazil_rows('{path}')"),
        }
        types = {name: frame.schema["time"].dataType.simpleString() for name, frame in frames.items()}
        # Sail cannot convert a TIMESTAMP of `analyze`.
        assert types == {"format": "timestamp", "scan": "timestamp", "rows": "timestamp_ntz"}
        seconds = [
            frames[name].selectExpr("unix_timestamp(min(time))").first() for name in ("format", "scan")
        ]
        assert [int(each[0]) for each in seconds if each] == [1704067200] * 2
        assert rows(frames["rows"]) == expected(repo)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize("table", SCHEMAS)
def test_tables_about_a_repository(
    table: str, spark: SparkSession, repo: frazil.Repository, path: str
) -> None:
    register(spark)
    known = rows(repository_tables.table(repo, {"table": table}))
    assert bool(known) == (table != "derived")  # the repository has no derived arrays
    assert rows(spark.sql(f"SELECT * FROM frazil_{table}('{path}')")) == known
    assert rows(spark.read.format("frazil").options(path=path, table=table).load()) == known


def test_changed_rows(spark: SparkSession, repo: frazil.Repository, path: str) -> None:
    reader = spark.read.format("frazil").options(path=path, table="row_changes", start="v1", variables="tas")
    changed = reader.load().selectExpr("change", "tas - before_tas AS more").distinct().collect()
    assert [tuple(each) for each in changed] == [("updated", 100.0)]
    assert reader.load().count() == 24


def test_blocks(spark: SparkSession, repo: frazil.Repository) -> None:
    frame = map_chunks(spark, repo, lambda block: {"total": float(block["rain"].sum())}, "total double")
    assert sum(each.total for each in frame.collect()) == sum(range(24)) * 3


def test_profiles(spark: SparkSession, repo: frazil.Repository, path: str) -> None:
    spark.conf.set("spark.frazil.profile.sailing.location", path)
    spark.conf.set("spark.frazil.profile.sailing.tag", "v1")
    try:
        register(spark)
        known = expected(repo, tag="v1")
        assert rows(spark.sql("SELECT * FROM frazil_rows('sailing')")) == known
        assert rows(spark.read.format("frazil").option("profile", "sailing").load()) == known
    finally:
        for name in ("location", "tag"):
            spark.conf.unset(f"spark.frazil.profile.sailing.{name}")


def test_errors_name_the_cause(spark: SparkSession, path: str, repo: frazil.Repository) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"unknown option `whre`\. Did you mean `where`"):
        spark.read.format("frazil").option("whre", "x").load(path).collect()
    with pytest.raises(Exception, match="frazil_tag must have the argument name, got none"):
        spark.sql(f"SELECT * FROM frazil_tag('{path}')").collect()
    with pytest.raises(Exception, match="there is no repository in"):
        spark.sql(f"SELECT * FROM frazil_rows('{path}-other')").collect()
