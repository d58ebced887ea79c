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
    from frazil.spark.engine import Engine, Inline
    from frazil.spark.history import job_metrics
    from frazil.spark.ingest.operation import IngestResult, ingest, inspect_files
    from frazil.spark.ingest.pattern import ConcatDim, FilePattern, MergeDim
    from frazil.spark.inputs import run_again_if_stale
    from frazil.spark.job import Job, Phase, Tasks, run_job
    from frazil.spark.job_result import JobResult, Metrics
    from frazil.spark.local import Local
    from frazil.spark.maintenance import verify
    from frazil.spark.progress import Progress
    from frazil.spark.provenance import Graph, Step, lineage, lineage_graph
    from frazil.spark.publishing import Published, publish, rollback_to, write_audit_publish
    from frazil.spark.reductions import (
        Limits,
        anomaly,
        climatology,
        count,
        groupby,
        mean,
        quantile,
        reduce,
        resample,
        std,
        zonal_stats,
    )

    # Named as in numpy and xarray. Not in `__all__`: `import *` must not replace the functions of Python.
    from frazil.spark.reductions import max as max  # noqa: A004
    from frazil.spark.reductions import min as min  # noqa: A004
    from frazil.spark.reductions import sum as sum  # noqa: A004
    from frazil.spark.results import Outcome
    from frazil.spark.staging import StagedJob, discard_job, staged_jobs
    from frazil.spark.transform import (
        Copied,
        coarsen,
        copy_repository,
        crop,
        map_blocks,
        materialize,
        pyramid,
        rechunk,
        recompress,
        regrid,
        select,
    )
    from frazil.spark.validation import (
        Attributes,
        Dims,
        DType,
        Exists,
        Filled,
        Finite,
        Monotonic,
        NanShare,
        NoDuplicates,
        Range,
        Regular,
        Report,
        Row,
        Rule,
        Shape,
        StatisticsAgainst,
        Units,
        rules_from,
        validate,
    )
    from frazil.spark.versions import Input, Source, Target, Version
    from frazil.spark.write import Block, Plan, Written, plan, write_blocks

if TYPE_CHECKING:
    from frazil.spark.on_spark import OnSpark
    from frazil.spark.places import ready, settings
    from frazil.spark.session import get_spark
    from frazil.spark.streams.pipelines import foreach_batch
    from frazil.spark.streams.queries import read_stream, write_stream
    from frazil.spark.tables.grid import Selection
    from frazil.spark.tables.planning import Split
    from frazil.spark.tables.scan import map_chunks, read, register, scan
    from frazil.spark.tables.writing import write_table

#: Names that need pyspark -> the modules that have them.
_ON_SPARK: Final[Mapping[str, str]] = {
    "OnSpark": "frazil.spark.on_spark",
    "ready": "frazil.spark.places",
    "settings": "frazil.spark.places",
    "get_spark": "frazil.spark.session",
    "foreach_batch": "frazil.spark.streams.pipelines",
    "read_stream": "frazil.spark.streams.queries",
    "write_stream": "frazil.spark.streams.queries",
    "Selection": "frazil.spark.tables.grid",
    "Split": "frazil.spark.tables.planning",
    "map_chunks": "frazil.spark.tables.scan",
    "read": "frazil.spark.tables.scan",
    "register": "frazil.spark.tables.scan",
    "scan": "frazil.spark.tables.scan",
    "write_table": "frazil.spark.tables.writing",
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
    "Attributes",
    "Block",
    "ConcatDim",
    "Copied",
    "DType",
    "Dims",
    "Engine",
    "Exists",
    "FilePattern",
    "Filled",
    "Finite",
    "Graph",
    "IngestResult",
    "Inline",
    "Input",
    "Job",
    "JobResult",
    "Limits",
    "Local",
    "MergeDim",
    "Metrics",
    "Monotonic",
    "NanShare",
    "NoDuplicates",
    "OnSpark",
    "Outcome",
    "Phase",
    "Plan",
    "Progress",
    "Published",
    "Range",
    "Regular",
    "Report",
    "Row",
    "Rule",
    "Selection",
    "Shape",
    "Source",
    "Split",
    "StagedJob",
    "StatisticsAgainst",
    "Step",
    "Target",
    "Tasks",
    "Units",
    "Version",
    "Written",
    "anomaly",
    "climatology",
    "coarsen",
    "copy_repository",
    "count",
    "crop",
    "discard_job",
    "foreach_batch",
    "get_spark",
    "groupby",
    "ingest",
    "inspect_files",
    "job_metrics",
    "lineage",
    "lineage_graph",
    "map_blocks",
    "map_chunks",
    "materialize",
    "mean",
    "plan",
    "publish",
    "pyramid",
    "quantile",
    "read",
    "read_stream",
    "ready",
    "rechunk",
    "recompress",
    "reduce",
    "register",
    "regrid",
    "resample",
    "rollback_to",
    "rules_from",
    "run_again_if_stale",
    "run_job",
    "scan",
    "select",
    "settings",
    "staged_jobs",
    "std",
    "validate",
    "verify",
    "write_audit_publish",
    "write_blocks",
    "write_stream",
    "write_table",
    "zonal_stats",
]
