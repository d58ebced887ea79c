"""Reductions of arrays on Spark: partial results on the executors, combined to one version.

partials, quantiles     the arithmetic, pure
fields, grouping        arrays and their coordinates; which group a cell belongs to
plan                    which task reads what, and where partial results meet
work, running           the tasks; the job
functions               what users call
"""

from frazil.jobs.memory import Limits
from frazil.pipeline.reductions.anomalies import anomaly
from frazil.pipeline.reductions.functions import (
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
from frazil.pipeline.reductions.reduction_job import Settings

__all__ = [
    "Limits",
    "Settings",
    "anomaly",
    "climatology",
    "count",
    "groupby",
    "max",
    "mean",
    "min",
    "quantile",
    "reduce",
    "resample",
    "std",
    "sum",
    "zonal_stats",
]
