"""Where Frazil's tasks run, by the name of an implementation."""

from __future__ import annotations

import atexit

from pyspark.sql import SparkSession

from frazil.spark import Engine, Inline, Local, OnSpark, get_spark
from pipeline.names import ONE, PROCESSES, SLOTS, SPARK

#: As many as the machine has that the numbers are for.
WORKERS = 2


def engine_of(implementation: str) -> Engine:
    if implementation == ONE:
        return Inline()
    if implementation == PROCESSES:
        return Local(WORKERS, processes=True)
    return OnSpark(spark_with({SPARK: WORKERS, **SLOTS}[implementation]))


def spark_with(slots: int) -> SparkSession:
    """A session with that many slots. One JVM serves all sessions of a process, one after the other."""
    active = SparkSession.getActiveSession()
    if active is not None:
        if active.sparkContext.defaultParallelism == slots:
            return active
        active.stop()
    session = get_spark(cores=slots)
    atexit.register(session.stop)
    return session
