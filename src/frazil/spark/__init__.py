"""Pipelines on Spark: plan on the driver, work on the executors, commit once.

    session    a Spark session: the active one, the one that the environment names, or a local one
    places     local, cluster, Connect: the settings for each
    engine     run a function over many small messages: on Spark, on this machine, or right here
    engines    which engine runs an operation: the caller's, one by its name, or the default
    versions   what a job reads and writes, and how that is recorded
    job        prepare, work, commit: what every operation is made of
    staging    what a job has done so far, for a run that goes on from there
    history    what jobs have cost
    wire       what a task changed, as columns on their way to the driver
    write      write the blocks of arrays in parallel, from forks of one session
    reductions statistics along dimensions, of groups, zones and periods
    ingest     many files become one dataset
    transform  arrays to arrays: rechunk, map_blocks, coarsen, regrid, ...
    validation rules about data, and what breaks them
    publishing write, audit, publish; roll back
    provenance what was made from what
    streams    commits as a source, micro-batches as commits
    tables     arrays as tables of SQL and DataFrames, and what a repository knows of itself
    progress   how far a job is, on a terminal or in a log

What needs no Spark is in `frazil.pipeline` too, which does not need pyspark. What does need it is imported
when it is asked for, so that this package can be imported where pyspark is not installed.

Only Spark's DataFrame API is used, so that the same code runs in local mode, on a cluster and through
Spark Connect.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from frazil.extras import needs

with needs("frazil.spark", extra="spark"):
    import frazil.pipeline
    from frazil.pipeline import *  # noqa: F403  # all of it, so that one import is enough on Spark
    from frazil.pipeline import max as max  # noqa: A004
    from frazil.pipeline import min as min  # noqa: A004
    from frazil.pipeline import sum as sum  # noqa: A004

if TYPE_CHECKING:
    from frazil.spark.data_source import register
    from frazil.spark.dataframes import map_chunks, read, scan
    from frazil.spark.runtime.deployment import ready, settings
    from frazil.spark.runtime.on_spark import OnSpark
    from frazil.spark.runtime.session import get_spark
    from frazil.spark.stream_queries import read_stream, write_stream
    from frazil.spark.streams.batch_pipelines import foreach_batch
    from frazil.spark.tables.grid import Selection
    from frazil.spark.tables.scan_plan import Split
    from frazil.spark.tables.write_table import write_table

#: Names that need pyspark -> the modules that have them.
_ON_SPARK: Final[Mapping[str, str]] = {
    "OnSpark": "frazil.spark.runtime.on_spark",
    "ready": "frazil.spark.runtime.deployment",
    "settings": "frazil.spark.runtime.deployment",
    "get_spark": "frazil.spark.runtime.session",
    "foreach_batch": "frazil.spark.streams.batch_pipelines",
    "read_stream": "frazil.spark.stream_queries",
    "write_stream": "frazil.spark.stream_queries",
    "Selection": "frazil.spark.tables.grid",
    "Split": "frazil.spark.tables.scan_plan",
    "map_chunks": "frazil.spark.dataframes",
    "read": "frazil.spark.dataframes",
    "register": "frazil.spark.data_source",
    "scan": "frazil.spark.dataframes",
    "write_table": "frazil.spark.tables.write_table",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(f"{__name__}.{name}", extra="spark"):
        value = getattr(importlib.import_module(_ON_SPARK[name]), name)
    globals()[name] = value  # the next time it is found without a call
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_SPARK})


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
