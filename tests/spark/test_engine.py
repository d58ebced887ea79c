"""Engines: order, what tasks get, what failures look like."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.spark import tasks

from frazil.errors import IcechunkError
from frazil.spark import Engine, Inline, OnSpark


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_tasks(engine: Engine, count: int) -> None:
    messages = [f"{n}-task".encode() for n in range(count)]
    results = list(engine.run(tasks.joined, messages, b"shared:\0"))
    assert results == [b"shared:\0" + message[::-1] for message in messages]


def test_a_failure_names_the_task_and_the_reason(engine: Engine) -> None:
    messages = [str(n).encode() for n in range(5)]
    with pytest.raises(IcechunkError) as caught:
        list(engine.run(tasks.fails_on_two, messages, b""))
    assert caught.value.message == "task 3 of 5 failed with FileNotFoundError: no file with the name `a}b.nc`"
    assert caught.value.kind == "concurrency"


def test_the_caller_may_stop(engine: Engine) -> None:
    results = engine.run(tasks.joined, [b"a", b"b", b"c", b"d", b"e", b"f"], b"")
    assert next(results) == b"a"
    results.close()
    assert list(engine.run(tasks.joined, [b"x"], b"")) == [b"x"]  # and go on with something else


def test_inline_stays_in_this_thread() -> None:
    here = []
    assert list(Inline().run(lambda shared, task: here.append(task) or task, [b"1"], b"")) == [b"1"]
    assert here == [b"1"]


@pytest.mark.spark
def test_each_task_has_a_slot_of_its_own(spark: SparkSession) -> None:
    results = list(OnSpark(spark, jobs=1).run(tasks.process, [b"%d" % n for n in range(8)], b""))
    workers, frozen = zip(*(result.decode().split() for result in results), strict=True)
    assert len(set(workers)) == 2  # both cores had work
    assert set(frozen) == {"True"}
