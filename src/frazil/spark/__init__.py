"""Pipelines on Spark: plan on the driver, work on the executors, commit once.

    session    a Spark session: the active one, the one that the environment names, or a local one
    places     local, cluster, Connect: the settings for each
    engine     run a function over many small messages, on Spark or right here
    versions   what a job reads and writes, and how that is recorded
    job        prepare, work, commit: what every operation is made of
    wire       what a task changed, as columns on their way to the driver
    write      write the blocks of arrays in parallel, from forks of one session
    tables     arrays as tables of SQL and DataFrames, and what a repository knows of itself
    progress   how far a job is, on a terminal or in a log

Only Spark's DataFrame API is used, so that the same code runs in local mode, on a cluster and through
Spark Connect.
"""

from frazil.spark.engine import Engine, Inline, OnSpark
from frazil.spark.job import Job, JobResult, Metrics, Outcome, Phase, Tasks, run_job
from frazil.spark.places import ready, settings
from frazil.spark.progress import Progress
from frazil.spark.session import get_spark
from frazil.spark.tables.grid import Selection
from frazil.spark.tables.planning import Split
from frazil.spark.tables.scan import map_chunks, read, register, scan
from frazil.spark.tables.writing import write_table
from frazil.spark.versions import Input, Source, Target, Version
from frazil.spark.write import Block, Plan, Written, plan, write_blocks

__all__ = [
    "Block",
    "Engine",
    "Inline",
    "Input",
    "Job",
    "JobResult",
    "Metrics",
    "OnSpark",
    "Outcome",
    "Phase",
    "Plan",
    "Progress",
    "Selection",
    "Source",
    "Split",
    "Target",
    "Tasks",
    "Version",
    "Written",
    "get_spark",
    "map_chunks",
    "plan",
    "read",
    "ready",
    "register",
    "run_job",
    "scan",
    "settings",
    "write_blocks",
    "write_table",
]
