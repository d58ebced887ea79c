"""Pipelines on Spark: plan on the driver, work on the executors, commit once.

    session    a Spark session: the active one, the one that the environment names, or a local one
    places     local, cluster, Connect: the settings for each
    engine     run a function over many small messages, on Spark or right here
    versions   what a job reads and writes, and how that is recorded
    job        prepare, work, commit: what every operation is made of
    wire       what a task changed, as columns on their way to the driver
    write      write the blocks of arrays in parallel, from forks of one session
    reductions statistics along dimensions, of groups, zones and periods
    validation rules about data, and what breaks them
    publishing write, audit, publish; roll back
    provenance what was made from what
    progress   how far a job is, on a terminal or in a log

Only Spark's DataFrame API is used, so that the same code runs in local mode, on a cluster and through
Spark Connect.
"""

from frazil.spark.engine import Engine, Inline, OnSpark
from frazil.spark.job import Job, JobResult, Metrics, Outcome, Phase, Tasks, run_job
from frazil.spark.places import ready, settings
from frazil.spark.progress import Progress
from frazil.spark.provenance import Graph, Step, lineage, lineage_graph
from frazil.spark.publishing import Published, publish, rollback_to, write_audit_publish
from frazil.spark.reductions import (
    Limits,
    climatology,
    count,
    groupby,
    max,  # noqa: A004  # as numpy and xarray have it
    mean,
    min,  # noqa: A004
    quantile,
    reduce,
    resample,
    std,
    sum,  # noqa: A004
    zonal_stats,
)
from frazil.spark.session import get_spark
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

__all__ = [
    "Attributes",
    "Block",
    "DType",
    "Dims",
    "Engine",
    "Exists",
    "Filled",
    "Finite",
    "Graph",
    "Inline",
    "Input",
    "Job",
    "JobResult",
    "Limits",
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
    "Shape",
    "Source",
    "StatisticsAgainst",
    "Step",
    "Target",
    "Tasks",
    "Units",
    "Version",
    "Written",
    "climatology",
    "count",
    "get_spark",
    "groupby",
    "lineage",
    "lineage_graph",
    "max",
    "mean",
    "min",
    "plan",
    "publish",
    "quantile",
    "ready",
    "reduce",
    "resample",
    "rollback_to",
    "rules_from",
    "run_job",
    "settings",
    "std",
    "sum",
    "validate",
    "write_audit_publish",
    "write_blocks",
    "zonal_stats",
]
