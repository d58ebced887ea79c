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

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="spark")
