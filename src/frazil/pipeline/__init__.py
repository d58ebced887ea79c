"""Pipelines: files to arrays, arrays to arrays and statistics, validation, publishing, lineage.

    ingest         many files become one dataset
    transform      arrays to arrays: rechunk, map_blocks, coarsen, regrid, ...
    reductions     statistics along dimensions, of groups, zones and periods
    validation     rules about data, and reports of the rules that fail
    publishing     write, audit, publish; roll back
    provenance     lineage: the inputs and outputs of jobs
    maintenance    garbage collection, verification and others, by tasks
    replication    copies, clones and exports of repositories
    compaction     the merge of small chunk files, by tasks

`frazil.jobs` has the parts that every operation consists of: a job, which is prepared, run by tasks, and
committed; and engines, which run tasks in this thread, in processes of this machine, or on Spark.

Each operation takes an ``engine``. The default is Spark where pyspark is installed, else processes of this
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

from frazil.extras import needs

with needs("frazil.pipeline", extra="pipeline"):
    from frazil.jobs.engine import Engine, Inline
    from frazil.jobs.engines import default_engine
    from frazil.jobs.inputs import run_again_if_stale
    from frazil.jobs.job import Job, Phase, Tasks
    from frazil.jobs.job_metrics import job_metrics
    from frazil.jobs.job_result import JobResult, Metrics
    from frazil.jobs.job_run import run_job
    from frazil.jobs.local_engine import Local
    from frazil.jobs.parallel_write import Block, Plan, WriteResult, plan, write_blocks
    from frazil.jobs.progress import Progress
    from frazil.jobs.staging import StagedJob, discard_job, staged_jobs
    from frazil.jobs.task_results import Outcome
    from frazil.jobs.versions import Input, Source, Target, Version
    from frazil.pipeline.compaction import compact
    from frazil.pipeline.ingest.chunk_source import IngestedFiles
    from frazil.pipeline.ingest.operation import IngestResult, ingest, inspect_files
    from frazil.pipeline.ingest.pattern import ConcatDim, FilePattern, MergeDim
    from frazil.pipeline.maintenance import verify
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
    )
    from frazil.pipeline.transform import (
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
        Shape,
        StatisticsAgainst,
        Units,
        rules_from,
        validate,
    )

#: The former name of `WriteResult`.
Written = WriteResult

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
    "IngestedFiles",
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
    "Written",
    "anomaly",
    "climatology",
    "clone_repository",
    "coarsen",
    "compact",
    "copy_repository",
    "count",
    "crop",
    "default_engine",
    "discard_job",
    "export_netcdf",
    "export_zarr",
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
    "verify",
    "write_audit_publish",
    "write_blocks",
    "zonal_stats",
]
