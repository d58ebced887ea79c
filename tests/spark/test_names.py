"""The names of `frazil.spark` and `frazil.pipeline`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import frazil.pipeline
import frazil.spark
from frazil.lazy_names import TABLES

#: Names that need pyspark -> their modules.
ON_SPARK = {
    name: module for name, (module, _) in TABLES["frazil.spark"].items() if module.startswith("frazil.spark.")
}


def test_names_are_imported_by_name() -> None:
    assert [getattr(frazil.spark, name).__module__ for name in ("sum", "min", "max")] == [
        frazil.spark.mean.__module__
    ] * 3


def test_the_pipeline_has_all_names_that_need_no_spark() -> None:
    shared = set(frazil.pipeline.__all__) & set(frazil.spark.__all__)
    assert set(frazil.pipeline.__all__) == shared
    assert set(frazil.spark.__all__) - shared == set(ON_SPARK)
    for name in (*shared, "sum", "min", "max"):
        assert getattr(frazil.pipeline, name) is getattr(frazil.spark, name)
    assert frazil.pipeline.ingest.__name__ == "ingest"  # not the package of that name
    assert frazil.spark.ingest is frazil.pipeline.ingest


@pytest.mark.deep
def test_pyspark_is_imported_when_it_is_asked_for() -> None:
    program = "import sys, frazil.spark; assert 'pyspark' not in sys.modules; import frazil.spark.daemon\n"
    program += "needed = 'runtime.on_spark', 'data_source', 'tables.write_table', 'streams.sink'\n"
    program += "assert all(f'frazil.spark.{each}' in sys.modules for each in needed)"
    subprocess.run([sys.executable, "-c", program], check=True)
