"""The partitions of a Spark job: how messages reach their tasks, and what a worker does once."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.jobs import tasks

from frazil.spark.runtime import partitions
from frazil.spark.runtime.partitions import RESULTS, partitioned, worker

#: Slot, number and message: two slots with three tasks.
ROWS = [(0, 0, b"a" * 600), (0, 1, b""), (1, 2, b"c" * 500)]


class FakeSpark:
    """A session that records how a DataFrame is made."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def range(self, *arguments: int) -> FakeSpark:
        self.calls.append(("range", *arguments))
        return self

    def createDataFrame(self, rows: Any, schema: str) -> FakeSpark:  # noqa: N802  # the name of Spark
        self.calls.append(("rows", rows, schema))
        return self

    def repartitionById(self, count: int, column: str) -> FakeSpark:  # noqa: N802  # the name of Spark
        self.calls.append(("partitions", count, column))
        return self


def test_small_messages_travel_with_the_function() -> None:
    spark = FakeSpark()
    _, tasks_of = partitioned(spark, ROWS, 1100)  # type: ignore[arg-type]
    assert spark.calls == [("range", 0, 2, 1, 2)]
    batches = [pa.RecordBatch.from_pydict({"id": [slot]}) for slot in (0, 1)]
    assert [list(tasks_of(batch)) for batch in batches] == [[(0, b"a" * 600), (1, b"")], [(2, b"c" * 500)]]


def test_large_messages_travel_as_rows() -> None:
    spark = FakeSpark()
    _, tasks_of = partitioned(spark, ROWS, 1099)  # type: ignore[arg-type]
    assert spark.calls == [("rows", ROWS, "slot int, number int, task binary"), ("partitions", 2, "slot")]
    columns = dict(zip(("slot", "number", "task"), zip(*ROWS[:2], strict=True), strict=True))
    assert list(tasks_of(pa.RecordBatch.from_pydict(columns))) == [(0, b"a" * 600), (1, b"")]
    assert tasks_of.__name__ in dir(partitions)  # it carries no message


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


@pytest.mark.parametrize(("frozen", "expected"), [(0, ["count", "collect", "freeze"]), (5, ["count"])])
def test_a_worker_counts_frozen_objects_once(
    monkeypatch: pytest.MonkeyPatch, frozen: int, expected: list[str]
) -> None:
    calls: list[str] = []

    def count() -> int:
        calls.append("count")
        return frozen

    collector = SimpleNamespace(
        get_freeze_count=count,
        collect=partial(calls.append, "collect"),
        freeze=partial(calls.append, "freeze"),
    )
    monkeypatch.setattr(partitions, "gc", collector)
    partitions._freeze_imports.cache_clear()
    try:
        work = worker(tasks.joined, bytes, "token")
        for number in range(3):
            batch = pa.RecordBatch.from_pydict({"id": [number]})
            [result] = work(lambda _: [(0, b"ab")], [batch])
            assert result.to_pydict() == {"number": [0], "result": [b"ba"]}
    finally:
        partitions._freeze_imports.cache_clear()
    assert calls == expected
