"""The partitions of a Spark job: how messages reach their tasks."""

from __future__ import annotations

from functools import partial

import pytest
from pyspark.sql import SparkSession
from tests.jobs import tasks

from frazil.spark.runtime.on_spark import RESULTS, partitioned, worker

#: Slot, number and message: two slots with three tasks.
ROWS = [(0, 0, b"a" * 600), (0, 1, b""), (1, 2, b"c" * 500)]


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_both_ways_give_each_slot_its_tasks(spark: SparkSession, limit: int) -> None:
    frame, tasks_of = partitioned(spark, ROWS, limit)
    assert frame.rdd.getNumPartitions() == 2
    work = worker(tasks.joined, partial(bytes, b"shared "), "token")
    results = sorted(frame.mapInArrow(partial(work, tasks_of), RESULTS).collect())
    assert [(number, bytes(result)) for number, result in results] == [
        (number, b"shared " + message) for _, number, message in ROWS
    ]
