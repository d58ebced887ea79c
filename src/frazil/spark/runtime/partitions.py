"""The partitions of a Spark job of `OnSpark`, and the function that works on them.

The rows of the job are the numbers of its partitions (``spark.range``), and the messages of its tasks are a
part of the function. So the job has one stage. Rows with the messages need a shuffle, because only
``repartitionById`` chooses the partition of a row: two stages, and twice the time. Many bytes travel as such
rows, because each task reads the whole function.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from frazil.jobs.engine import Task, begin_attempt
from frazil.spark.runtime.error_translation import marked

#: The columns of the results.
RESULTS: Final = "number int, result binary"

type Rows = list[tuple[int, int, bytes]]
type TasksOf = Callable[[pa.RecordBatch], Iterable[tuple[int, bytes]]]


def partitioned(spark: SparkSession, rows: Rows, limit: int) -> tuple[DataFrame, TasksOf]:
    """Return a DataFrame with a partition for each slot, and the function from its batches to their tasks.

    ``rows`` are the slot, the number and the message of each task, in the order of the slots. Messages of
    more than ``limit`` bytes are not sent with the function.
    """
    count = rows[-1][0] + 1
    if sum(len(message) for _, _, message in rows) > limit:
        frame = spark.createDataFrame(rows, "slot int, number int, task binary")
        return frame.repartitionById(count, "slot"), _tasks_in_rows
    of_slots: list[list[tuple[int, bytes]]] = [[] for _ in range(count)]
    for slot, number, message in rows:
        of_slots[slot].append((number, message))
    return spark.range(0, count, 1, count), partial(_tasks_of_slots, of_slots)


def _tasks_in_rows(batch: pa.RecordBatch) -> Iterable[tuple[int, bytes]]:
    _, numbers, messages = (column.to_pylist() for column in batch.columns)
    return zip(numbers, messages, strict=True)


def _tasks_of_slots(
    of_slots: list[list[tuple[int, bytes]]], batch: pa.RecordBatch
) -> Iterable[tuple[int, bytes]]:
    return chain.from_iterable(of_slots[slot] for slot in batch.column(0).to_pylist())


def worker(
    task: Task, shared: Callable[[], bytes], token: str
) -> Callable[[TasksOf, Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that works on a partition. It gets the tasks of a batch by its first argument."""

    def work(tasks_of: TasksOf, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_imports()
        context = TaskContext.get()
        begin_attempt(0 if context is None else context.attemptNumber())
        for batch in batches:
            for number, message in tasks_of(batch):
                try:
                    result = task(shared(), message)
                except BaseException as error:  # also of sys.exit, which would end the worker
                    raise marked(token, number, error) from None
                arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

    return work


@cache
def _freeze_imports() -> None:
    """Collect garbage and freeze the rest, once in each process, unless the daemon has done so.

    Spark's worker collects garbage after each task: frozen objects of numpy and zarr are skipped. The number
    of frozen objects is not asked for in each task, because the interpreter counts them one by one.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
