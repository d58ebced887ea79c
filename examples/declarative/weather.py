"""The definitions of a declarative pipeline: rows of files that arrive go into the arrays of a repository.

`spark-pipelines run` imports this file in the folder of the specification. A sink names the repository, and a
flow the rows. Each micro-batch becomes one commit, exactly once. `run.py` prepares the folder.
"""

from __future__ import annotations

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

FOLDER = os.getcwd()

pipelines.create_sink("weather", "frazil", {"path": f"{FOLDER}/repository", "branch": "main"})


@pipelines.append_flow(target="weather")
def observations() -> DataFrame:
    """The rows of all files that have arrived since the last run."""
    spark = SparkSession.active()
    return spark.readStream.schema("time timestamp, station int, t float").csv(f"{FOLDER}/arriving")
