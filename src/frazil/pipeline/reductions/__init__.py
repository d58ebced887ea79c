"""Reductions of arrays: tasks compute partial results, which are combined to one version.

kernels         the arithmetic of each statistic, pure; a new reduction begins with its table
fields, zones   arrays, their coordinates and groups; labels from polygons
options         the options of the operations, and weights
plan            what is computed, by which tasks, and where partial results are combined
tasks           the tasks: which regions they read, and what they compute
reduction_job   the job on the driver, and the arrays that it creates
functions       the operations; `anomaly` is in anomalies
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.jobs.blocks import Limits
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
    from frazil.pipeline.reductions.options import ReductionOptions

import_on_demand(
    __name__,
    {
        "Limits": "frazil.jobs.blocks",
        "anomaly": "frazil.pipeline.reductions.anomalies",
        "count": "frazil.pipeline.reductions.functions",
        "max": "frazil.pipeline.reductions.functions",
        "mean": "frazil.pipeline.reductions.functions",
        "min": "frazil.pipeline.reductions.functions",
        "quantile": "frazil.pipeline.reductions.functions",
        "reduce": "frazil.pipeline.reductions.functions",
        "std": "frazil.pipeline.reductions.functions",
        "sum": "frazil.pipeline.reductions.functions",
        "climatology": "frazil.pipeline.reductions.functions",
        "groupby": "frazil.pipeline.reductions.functions",
        "resample": "frazil.pipeline.reductions.functions",
        "zonal_stats": "frazil.pipeline.reductions.functions",
        "ReductionOptions": "frazil.pipeline.reductions.options",
    },
    extra="pipeline",
)

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
