"""Pipelines on Spark: plan on the driver, work on the executors, commit once.

    session    a Spark session: the active one, the one that the environment names, or a local one
    places     local, cluster, Connect: the settings for each
    engine     run a function over many small messages: on Spark, on this machine, or right here
    versions   what a job reads and writes, and how that is recorded
    job        prepare, work, commit: what every operation is made of
    staging    what a job has done so far, for a run that goes on from there
    history    what jobs have cost
    wire       what a task changed, as columns on their way to the driver
    write      write the blocks of arrays in parallel, from forks of one session
    progress   how far a job is, on a terminal or in a log

Only Spark's DataFrame API is used, so that the same code runs in local mode, on a cluster and through
Spark Connect.
"""

from frazil.spark.engine import Engine, Inline
from frazil.spark.history import job_metrics
from frazil.spark.job import Job, JobResult, Metrics, Phase, Tasks, run_job
from frazil.spark.local import Local
from frazil.spark.on_spark import OnSpark
from frazil.spark.places import ready, settings
from frazil.spark.progress import Progress
from frazil.spark.results import Outcome
from frazil.spark.session import get_spark
from frazil.spark.staging import StagedJob, discard_job, staged_jobs
from frazil.spark.versions import Input, Source, Target, Version
from frazil.spark.write import Block, Plan, Written, plan, write_blocks

__all__ = [
    "Block",
    "Engine",
    "Inline",
    "Input",
    "Job",
    "JobResult",
    "Local",
    "Metrics",
    "OnSpark",
    "Outcome",
    "Phase",
    "Plan",
    "Progress",
    "Source",
    "StagedJob",
    "Target",
    "Tasks",
    "Version",
    "Written",
    "discard_job",
    "get_spark",
    "job_metrics",
    "plan",
    "ready",
    "run_job",
    "settings",
    "staged_jobs",
    "write_blocks",
]
