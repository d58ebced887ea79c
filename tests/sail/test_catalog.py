"""The statements of the catalog on Sail."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.sql.statements import STATEMENTS, Statement, check, filled, new_rows

import frazil
from frazil.spark import Catalog


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.text[:60])
def test_statements(case: Statement, spark: SparkSession, tmp_path: Path) -> None:
    ice, other = (
        filled(frazil.Repository.create(frazil.local_filesystem_storage(tmp_path / name)), first)
        for name, first in (("ice", 0), ("other", 100))
    )
    spark.createDataFrame(new_rows()).createOrReplaceTempView("new_rows")
    check(case, "sail", Catalog(spark, {"ice": ice, "other": other}).sql, ice, other)
