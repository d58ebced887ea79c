"""The engines for the tasks of Frazil, by the name of the implementation."""

from __future__ import annotations

import atexit

from pyspark.sql import SparkSession

from frazil.spark import Engine, Inline, OnSpark, Processes, get_spark
from pipeline.names import ONE, PROCESSES, SLOTS, SPARK

#: The number of cores of the machine of `RESULTS.md`.
WORKERS = 2


def engine_of(implementation: str) -> Engine:
    if implementation == ONE:
        return Inline()
    if implementation == PROCESSES:
        return Processes(WORKERS)
    return OnSpark(spark_with({SPARK: WORKERS, **SLOTS}[implementation]))


def spark_with(slots: int) -> SparkSession:
    """Return a session with ``slots`` slots. One JVM serves all sessions of a process in turn."""
    active = SparkSession.getActiveSession()
    if active is not None:
        if active.sparkContext.defaultParallelism == slots:
            return active
        active.stop()
    session = get_spark(cores=slots)
    atexit.register(session.stop)
    return session
