"""Pipelines on Spark: plan on the driver, work on the executors, commit once.

    data_source       the data source ``frazil``, and rows and streams of an open repository: `read`, `scan`,
                      `map_chunks`, `read_stream`, `write_stream`
    daemon            the process that Spark forks its Python workers from
    runtime           Spark sessions, their settings, the engine `OnSpark`
    tables            arrays as tables, rows to arrays, tables about a repository
    functions         functions of SQL: rows of a version, tables about a repository, upkeep
    streams           commits as a source, micro-batches as commits

All names of `frazil.pipeline` are available here too. Names that need pyspark are imported when a program
uses them, so this package can be imported where pyspark is not installed.

The package uses only Spark's DataFrame API. So the same code runs in local mode, on a cluster and through
Spark Connect.
"""

from typing import TYPE_CHECKING

import frazil.pipeline
from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.pipeline import *  # noqa: F403  # one import is enough on Spark
    from frazil.pipeline import max as max  # noqa: A004
    from frazil.pipeline import min as min  # noqa: A004
    from frazil.pipeline import sum as sum  # noqa: A004
    from frazil.spark.data_source import map_chunks, read, read_stream, register, scan, write_stream
    from frazil.spark.runtime.deployment import ready, settings
    from frazil.spark.runtime.on_spark import OnSpark
    from frazil.spark.runtime.session import get_spark
    from frazil.spark.streams.stamps import foreach_batch
    from frazil.spark.tables.grid import Selection
    from frazil.spark.tables.scan import Split
    from frazil.spark.tables.write_table import write_table

import_on_demand(
    __name__,
    {
        **dict.fromkeys((*frazil.pipeline.__all__, "max", "min", "sum"), "frazil.pipeline"),
        "OnSpark": "frazil.spark.runtime.on_spark",
        "ready": "frazil.spark.runtime.deployment",
        "settings": "frazil.spark.runtime.deployment",
        "get_spark": "frazil.spark.runtime.session",
        "foreach_batch": "frazil.spark.streams.stamps",
        "read_stream": "frazil.spark.data_source",
        "write_stream": "frazil.spark.data_source",
        "Selection": "frazil.spark.tables.grid",
        "Split": "frazil.spark.tables.scan",
        "map_chunks": "frazil.spark.data_source",
        "read": "frazil.spark.data_source",
        "register": "frazil.spark.data_source",
        "scan": "frazil.spark.data_source",
        "write_table": "frazil.spark.tables.write_table",
    },
    extra="spark",
)

__all__ = [
    "OnSpark",
    "Selection",
    "Split",
    "foreach_batch",
    "get_spark",
    "map_chunks",
    "read",
    "read_stream",
    "ready",
    "register",
    "scan",
    "settings",
    "write_stream",
    "write_table",
]
__all__ += frazil.pipeline.__all__
