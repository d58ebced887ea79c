"""Pipelines: files to arrays, arrays to arrays and statistics, validation, publishing, lineage.

    ingest         many files become one dataset
    transform      arrays to arrays: rechunk, map_blocks, coarsen, regrid, ...
    reductions     statistics along dimensions, of groups, zones and periods
    validation     rules about data, and reports of the rules that fail
    publishing     write, audit, publish; roll back
    provenance     lineage: the inputs and outputs of jobs
    replication    copies, clones and exports of repositories

`frazil.jobs` has the parts that every operation consists of: a job, which is prepared, run by tasks, and
committed; and engines, which run tasks in this thread, in processes of this machine, or on Spark.

Each operation takes an ``engine``. The default is Spark where Spark is in use, else processes of this
machine. The modules of this package do not import pyspark; `frazil.spark` does.

>>> import frazil, numpy, zarr
>>> from frazil.pipeline import Target, mean
>>> repo = frazil.Repository.create(frazil.in_memory_storage())
>>> with repo.transaction("main", message="an array") as store:
...     array = zarr.create_array(
...         store, name="t", data=numpy.array([[1.0, 3.0]]), dimension_names=["y", "x"]
...     )
>>> result = mean(repo, "t", "x", to=Target(repo, "main", "/mean"), engine="inline")
>>> zarr.open_array(result.version.session().store, path="/mean/t")[:].tolist()
[2.0]
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.jobs.engine import Engine, Inline, Local, default_engine
    from frazil.jobs.job import Input, Job, JobResult, Metrics, Phase, Source, Target, Tasks, Version
    from frazil.jobs.job_history import job_metrics
    from frazil.jobs.job_run import run_again_if_stale, run_job
    from frazil.jobs.parallel_write import Block, Plan, WriteResult, plan, write_blocks
    from frazil.jobs.progress import Progress
    from frazil.jobs.staging import StagedJob, discard_job, staged_jobs
    from frazil.jobs.task_results import Outcome
    from frazil.pipeline.ingest.operation import IngestResult, ingest, inspect_files
    from frazil.pipeline.ingest.options import ConcatDim, FilePattern, MergeDim
    from frazil.pipeline.provenance import Graph, Step, lineage, lineage_graph
    from frazil.pipeline.publishing import Published, publish, rollback_to, write_audit_publish
    from frazil.pipeline.reductions import (
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
    from frazil.pipeline.reductions import max as max  # noqa: A004
    from frazil.pipeline.reductions import min as min  # noqa: A004
    from frazil.pipeline.reductions import sum as sum  # noqa: A004
    from frazil.pipeline.replication import (
        Copied,
        RepositoryPart,
        clone_repository,
        copy_repository,
        export_netcdf,
        export_zarr,
        export_zip,
    )
    from frazil.pipeline.transform import (
        cell,
        coarsen,
        crop,
        map_blocks,
        materialize,
        pyramid,
        rechunk,
        recompress,
        regrid,
        select,
    )
    from frazil.pipeline.validation import (
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
        RuleCheck,
        Shape,
        StatisticsAgainst,
        Units,
        rules_from,
        validate,
    )

import_on_demand(
    __name__,
    {
        "Engine": "frazil.jobs.engine",
        "Inline": "frazil.jobs.engine",
        "default_engine": "frazil.jobs.engine",
        "run_again_if_stale": "frazil.jobs.job_run",
        "Job": "frazil.jobs.job",
        "Phase": "frazil.jobs.job",
        "Tasks": "frazil.jobs.job",
        "job_metrics": "frazil.jobs.job_history",
        "JobResult": "frazil.jobs.job",
        "Metrics": "frazil.jobs.job",
        "run_job": "frazil.jobs.job_run",
        "Local": "frazil.jobs.engine",
        "Block": "frazil.jobs.parallel_write",
        "Plan": "frazil.jobs.parallel_write",
        "WriteResult": "frazil.jobs.parallel_write",
        "plan": "frazil.jobs.parallel_write",
        "write_blocks": "frazil.jobs.parallel_write",
        "Progress": "frazil.jobs.progress",
        "StagedJob": "frazil.jobs.staging",
        "discard_job": "frazil.jobs.staging",
        "staged_jobs": "frazil.jobs.staging",
        "Outcome": "frazil.jobs.task_results",
        "Input": "frazil.jobs.job",
        "Source": "frazil.jobs.job",
        "Target": "frazil.jobs.job",
        "Version": "frazil.jobs.job",
        "IngestResult": "frazil.pipeline.ingest.operation",
        "ingest": "frazil.pipeline.ingest.operation",
        "inspect_files": "frazil.pipeline.ingest.operation",
        "ConcatDim": "frazil.pipeline.ingest.options",
        "FilePattern": "frazil.pipeline.ingest.options",
        "MergeDim": "frazil.pipeline.ingest.options",
        "Graph": "frazil.pipeline.provenance",
        "Step": "frazil.pipeline.provenance",
        "lineage": "frazil.pipeline.provenance",
        "lineage_graph": "frazil.pipeline.provenance",
        "Published": "frazil.pipeline.publishing",
        "publish": "frazil.pipeline.publishing",
        "rollback_to": "frazil.pipeline.publishing",
        "write_audit_publish": "frazil.pipeline.publishing",
        "Limits": "frazil.pipeline.reductions",
        "anomaly": "frazil.pipeline.reductions",
        "climatology": "frazil.pipeline.reductions",
        "count": "frazil.pipeline.reductions",
        "groupby": "frazil.pipeline.reductions",
        "mean": "frazil.pipeline.reductions",
        "quantile": "frazil.pipeline.reductions",
        "reduce": "frazil.pipeline.reductions",
        "resample": "frazil.pipeline.reductions",
        "std": "frazil.pipeline.reductions",
        "zonal_stats": "frazil.pipeline.reductions",
        "max": "frazil.pipeline.reductions",
        "min": "frazil.pipeline.reductions",
        "sum": "frazil.pipeline.reductions",
        "Copied": "frazil.pipeline.replication",
        "RepositoryPart": "frazil.pipeline.replication",
        "clone_repository": "frazil.pipeline.replication",
        "copy_repository": "frazil.pipeline.replication",
        "export_netcdf": "frazil.pipeline.replication",
        "export_zarr": "frazil.pipeline.replication",
        "export_zip": "frazil.pipeline.replication",
        "cell": "frazil.pipeline.transform",
        "coarsen": "frazil.pipeline.transform",
        "crop": "frazil.pipeline.transform",
        "map_blocks": "frazil.pipeline.transform",
        "materialize": "frazil.pipeline.transform",
        "pyramid": "frazil.pipeline.transform",
        "rechunk": "frazil.pipeline.transform",
        "recompress": "frazil.pipeline.transform",
        "regrid": "frazil.pipeline.transform",
        "select": "frazil.pipeline.transform",
        "Attributes": "frazil.pipeline.validation",
        "Dims": "frazil.pipeline.validation",
        "DType": "frazil.pipeline.validation",
        "Exists": "frazil.pipeline.validation",
        "Filled": "frazil.pipeline.validation",
        "Finite": "frazil.pipeline.validation",
        "Monotonic": "frazil.pipeline.validation",
        "NanShare": "frazil.pipeline.validation",
        "NoDuplicates": "frazil.pipeline.validation",
        "Range": "frazil.pipeline.validation",
        "Regular": "frazil.pipeline.validation",
        "Report": "frazil.pipeline.validation",
        "Row": "frazil.pipeline.validation",
        "Rule": "frazil.pipeline.validation",
        "Shape": "frazil.pipeline.validation",
        "StatisticsAgainst": "frazil.pipeline.validation",
        "Units": "frazil.pipeline.validation",
        "RuleCheck": "frazil.pipeline.validation",
        "rules_from": "frazil.pipeline.validation",
        "validate": "frazil.pipeline.validation",
    },
    extra="pipeline",
)

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
    "Outcome",
    "Phase",
    "Plan",
    "Progress",
    "Published",
    "Range",
    "Regular",
    "Report",
    "RepositoryPart",
    "Row",
    "Rule",
    "RuleCheck",
    "Shape",
    "Source",
    "StagedJob",
    "StatisticsAgainst",
    "Step",
    "Target",
    "Tasks",
    "Units",
    "Version",
    "WriteResult",
    "anomaly",
    "cell",
    "climatology",
    "clone_repository",
    "coarsen",
    "copy_repository",
    "count",
    "crop",
    "default_engine",
    "discard_job",
    "export_netcdf",
    "export_zarr",
    "export_zip",
    "groupby",
    "ingest",
    "inspect_files",
    "job_metrics",
    "lineage",
    "lineage_graph",
    "map_blocks",
    "materialize",
    "mean",
    "plan",
    "publish",
    "pyramid",
    "quantile",
    "rechunk",
    "recompress",
    "reduce",
    "regrid",
    "resample",
    "rollback_to",
    "rules_from",
    "run_again_if_stale",
    "run_job",
    "select",
    "staged_jobs",
    "std",
    "validate",
    "write_audit_publish",
    "write_blocks",
    "zonal_stats",
]
