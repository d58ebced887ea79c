"""The names of `frazil.spark` and `frazil.pipeline`."""

from __future__ import annotations

import builtins
import importlib
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


@pytest.mark.parametrize("module", ["frazil.pipeline", "frazil.spark"])
def test_no_function_of_python_is_replaced(module: str) -> None:
    assert not set(importlib.import_module(module).__all__) & set(dir(builtins))
    namespace: dict[str, object] = {}
    exec(f"from {module} import *\nassert sum([1, 2]) == max(3, min(2, 5)) == 3", namespace)
    assert "mean" in namespace


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


def test_names_that_need_spark_are_objects_of_their_modules() -> None:
    for name, module in ON_SPARK.items():
        assert getattr(frazil.spark, name) is getattr(importlib.import_module(module), name)
    assert set(frazil.spark.__all__) <= set(dir(frazil.spark))
    with pytest.raises(AttributeError, match=r"module .frazil\.spark. has no attribute .nothing."):
        frazil.spark.nothing  # noqa: B018


@pytest.mark.deep
def test_pyspark_is_imported_when_it_is_asked_for() -> None:
    program = "import sys, frazil.spark; assert 'pyspark' not in sys.modules; import frazil.spark.daemon\n"
    program += "needed = 'runtime.on_spark', 'data_source', 'tables.write_table', 'streams.sink'\n"
    program += "assert all(f'frazil.spark.{each}' in sys.modules for each in needed)"
    subprocess.run([sys.executable, "-c", program], check=True)
