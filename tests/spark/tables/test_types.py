"""Columns of all types on a real Spark, and what its queries push to a relation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame, SparkSession
from tests.spark.column_types import there_and_back

import frazil
from frazil.errors import InvalidInputError
from frazil.spark import Selection, Split, read, register, scan

pytestmark = pytest.mark.spark


@pytest.mark.deep
def test_values_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "repo")
    repo = frazil.Repository.create(frazil.local_filesystem_storage(path))
    assert there_and_back(spark, repo, path) == {}


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    """A group with chunks of ten cells, one within it, and one with two grids."""
    repo = frazil.Repository.create(tmp_path / "repo")
    with repo.transaction("main", message="arrays") as store:
        group = zarr.create_group(store)
        for place in ("", "air/2m/", "both/"):
            more = {"chunks": (10,), "dimension_names": ["x"]}
            group.create_array(f"{place}t", data=np.arange(100.0), **more)  # type: ignore[arg-type]
        group.create_array("both/u", data=np.arange(5.0), dimension_names=["y"])
        group.create_group("empty")
    return repo


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_a_query_reads_the_chunks_that_it_needs(spark: SparkSession, repo: frazil.Repository) -> None:
    frame = scan(spark, repo, selection=Selection(block_rows=1), split=Split(rows=10))
    assert [frame.where(text).rdd.getNumPartitions() for text in ("x > 0", "x = 45 OR x > 95")] == [10, 2]
    for each in (frame, read(spark, repo)):
        each.createOrReplaceTempView("cells")
        assert each.where("x BETWEEN 40 AND 49 AND (t > 44 OR t < 0)").count() == 5
        both = each.where("x >= 98").union(each.where("x < 1")).union(each.where("x = 50"))
        assert sorted(row.x for row in both.collect()) == [0, 50, 98, 99]
        assert each.count() == 100  # no filter of another query stays
        joined = spark.sql("SELECT count(*) FROM cells a JOIN cells b USING (x) WHERE a.x < 3 AND b.t > 0")
        assert joined.first() == (2,)
        largest = spark.sql("SELECT count(*) FROM cells WHERE x > (SELECT max(x) - 3 FROM cells)")
        assert largest.first() == (3,)
    spark.catalog.dropTempView("cells")


def test_a_plan_shows_the_version_and_the_conditions(spark: SparkSession, repo: frazil.Repository) -> None:
    plan = plan_of(scan(spark, repo, where="t >= 0").where("x = 3 OR x < 2").select("t"))
    tip = repo.lookup_branch("main")
    assert f"{repo.storage.label()} rows of {tip} where t >= 0" in plan
    assert "`x` = 3 OR `x` < 2" in plan


def test_a_view_for_each_group(spark: SparkSession, repo: frazil.Repository) -> None:
    with pytest.warns(UserWarning, match="The group /both has no view: .* Name the variables"):
        views = register(spark, repo, view="climate")
    assert views == ["climate", "climate_air_2m"]
    try:
        assert spark.sql("SELECT max(t) FROM climate_air_2m WHERE x < 7").first() == (6.0,)
        assert register(spark) == []
        with repo.transaction("main", message="one name twice") as store:
            zarr.create_array(store, name="air_2m/t", data=np.arange(3.0), dimension_names=["x"])
        with pytest.raises(InvalidInputError, match="different names of views, got /air/2m and /air_2m"):
            register(spark, repo)
        assert spark.sql("SELECT count(*) FROM climate_air_2m").first() == (100,)
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def test_an_error_of_a_plan_names_its_cause(
    spark: SparkSession, repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.spark.tables.scan.MOST_BLOCKS", 0)
    with pytest.raises(Py4JError, match="InvalidInputError: A query must read at most 0 blocks of cells"):
        scan(spark, repo).where("x = 3").collect()
