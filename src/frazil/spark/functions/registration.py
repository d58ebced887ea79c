"""The registration of all functions of SQL with a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from frazil.spark.functions.rows_function import rows_function
from frazil.spark.functions.table_functions import table_function
from frazil.spark.functions.upkeep_calls import upkeep_udtf
from frazil.spark.functions.upkeep_table import UPKEEP
from frazil.spark.tables.profiles import Profiles
from frazil.spark.tables.repository_schemas import SCHEMAS


def register_functions(spark: SparkSession, profiles: Profiles) -> None:
    """Register ``frazil_rows``, the tables about a repository, and the functions for upkeep."""
    functions = {
        "frazil_rows": rows_function(profiles),
        **{f"frazil_{table}": table_function(table, profiles) for table in SCHEMAS},
        **{each.name: upkeep_udtf(each, profiles) for each in UPKEEP},
    }
    for name, function in functions.items():
        spark.udtf.register(name, function)
