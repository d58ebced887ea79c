"""Reductions of arrays: tasks compute partial results, which are combined to one version.

partials, kernels, quantiles        the arithmetic, pure
fields, groups, zones, weights      arrays and their coordinates; the group and the weight of a cell
options, request                    the arguments of the caller
reduction, measures                 the computed statistics
plan, regions, tasks                the tasks: which regions they read, and what they compute
reduction_job, result_arrays        the job on the driver, and the arrays that it creates
functions, group_functions,
anomalies                           the operations
"""

from frazil.jobs.memory import Limits
from frazil.pipeline.reductions.anomalies import anomaly
from frazil.pipeline.reductions.functions import (
    count,
    max,  # noqa: A004  # as numpy and xarray have it
    mean,
    min,  # noqa: A004
    quantile,
    reduce,
    std,
    sum,  # noqa: A004
)
from frazil.pipeline.reductions.group_functions import climatology, groupby, resample, zonal_stats
from frazil.pipeline.reductions.options import ReductionOptions

__all__ = [
    "Limits",
    "ReductionOptions",
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
