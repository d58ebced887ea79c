"""Columns of all types on Sail: see `tests.spark.column_types`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.column_types import there_and_back

import frazil


def test_values_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "repo")
    repo = frazil.Repository.create(frazil.local_filesystem_storage(path))
    assert there_and_back(spark, repo, path) == {}
