"""The DataFrames of a scan: batches of tasks, and rows whose columns are read one by one.

A batch of ``mapInArrow`` has all columns, whether a query names them or not. So in `frame_of_rows` each
column is an Arrow function of Spark. It returns the values of a *segment*, some rows of one block, as a list.
Spark drops the functions of columns that a query does not name, and its generated code makes rows of lists.

The last step is nondeterministic on purpose. Otherwise Spark would merge it with a function of the user, and
copy the lists of a segment for each of its rows.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import prod
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, DataType, IntegerType, StructType

from frazil.arrow.grid import to_arrow
from frazil.spark.runtime.session import is_sail
from frazil.spark.tables.scan import BlockReader, Cells, Scan, ScanTask, batches, cast, prefetched
from frazil.spark.tables.schemas import to_spark, to_spark_type

#: With more columns, the code that Spark generates for a row is too large for the compiler of the JVM.
MOST_COLUMNS: Final = 32


def frame_of_tasks(
    spark: SparkSession,
    plan: Scan,
    tasks: Sequence[ScanTask],
    work: Callable[[Scan, ScanTask], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return the batches of a function of tasks, each of which is in a separate Spark partition."""
    shared = pickle.dumps(plan)

    def rows(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scan_: Scan = pickle.loads(shared)
        for batch in messages:
            for task in batch.column(1).to_pylist():
                yield from work(scan_, pickle.loads(task))

    return _tasks(spark, plan, tasks).select("number", "task").mapInArrow(rows, schema)


def frame_of_rows(spark: SparkSession, plan: Scan, tasks: Sequence[ScanTask], text: str) -> DataFrame:
    """Return the rows of a scan. The plans of its queries have the ``text``."""
    generates_code = spark.conf.get("spark.sql.codegen.wholeStage", "true") == "true"
    # Sail copies the list of a segment for each of its rows.
    if len(plan.schema) > MOST_COLUMNS or not generates_code or is_sail(spark):
        return frame_of_tasks(spark, plan, tasks, batches, to_spark(plan.schema))
    shared = pickle.dumps(plan)
    segments = _tasks(spark, plan, tasks).select("task", sql.explode(_numbers("segments")).alias("segment"))
    columns = [(f"column_{number}", each) for number, each in enumerate(plan.schema)]
    lists = [
        _lists(shared, number, field.name, ArrayType(to_spark_type(field.type))).alias(name)
        for number, (name, field) in enumerate(columns)
    ]
    counts = _lists(shared, None, text, IntegerType()).alias("rows")
    rows = segments.select(counts, *lists).select("*", sql.explode(_numbers("rows")).alias("row"))
    row = sql.col("row") + sql.spark_partition_id() * 0
    return rows.select(*(sql.get(name, row).alias(field.name) for name, field in columns))


def _tasks(spark: SparkSession, plan: Scan, tasks: Sequence[ScanTask]) -> DataFrame:
    """Return a row for each task, in a separate partition."""
    segments = _segments_of_block(plan)
    numbered = [
        (number, pickle.dumps(each), len(each.blocks) * segments) for number, each in enumerate(tasks)
    ]
    frame = spark.createDataFrame(numbered, "number int, task binary, segments int")
    if not numbered:
        return frame
    # Sail has no partition by number. With a hash, several tasks may be in one partition.
    partition = frame.repartition if is_sail(spark) else frame.repartitionById
    return partition(len(numbered), "number")


def _numbers(length: str) -> Column:
    """Return the numbers below a column."""
    numbers = sql.sequence(sql.lit(0), sql.col(length) - 1)
    return sql.when(sql.col(length) > 0, numbers).otherwise(sql.array().cast("array<int>"))


def _segments_of_block(plan: Scan) -> int:
    return max(1, -(-prod(plan.grid.block) // plan.batch_rows))


def _lists(shared: bytes, number: int | None, name: str, result: DataType) -> Column:
    """Return the lists of a column for segments of tasks, or without a ``number`` their lengths."""

    def function(tasks: pa.Array, segments: pa.Array) -> pa.Array:
        every = zip(tasks.to_pylist(), segments.to_pylist(), strict=True)
        parts = [
            _reader(shared, task).lists(np.array([segment for _, segment in group]), number)
            for task, group in groupby(every, itemgetter(0))
        ]
        return pa.concat_arrays(parts)

    function.__name__ = name
    # Spark warns if the kind is an argument too, which its types demand.
    values: Column = arrow_udf(function, result)("task", "segment")  # type: ignore[call-overload]
    return values


class _SegmentReader:
    """Reads segments of one task. It keeps which cells of each block meet the conditions, for all columns."""

    def __init__(self, plan: Scan, task: ScanTask) -> None:
        self._plan, self._task = plan, task
        self._reader = BlockReader(plan, task)
        self._cells: dict[int, Cells] = {}

    def lists(self, segments: NDArray[np.int64], number: int | None) -> pa.Array:
        """Return a list of the values of a column for each segment, or their lengths."""
        size = self._plan.batch_rows
        numbers, places = np.divmod(segments, _segments_of_block(self._plan))
        blocks, first, at = np.unique(numbers, return_index=True, return_inverse=True)
        cells = self._cells_of(blocks)
        counts = np.array([each.count for each in cells])
        lengths = np.clip(counts[at] - places * size, 0, size)
        if number is None:
            return pa.array(lengths, pa.int32())
        column, field = self._plan.grid.columns[number], self._plan.schema.field(number)
        stops = np.add.reduceat(lengths, first) + (starts := places[first] * size)

        def read(index: int) -> pa.Array:
            values = self._reader.column(column, cells[index])
            part = values.take((slice(int(starts[index]), int(stops[index])),))
            return cast(to_arrow(part, column.type), field)

        with_rows = np.flatnonzero(stops > starts)
        parts = list(prefetched(read, with_rows.tolist(), self._reader.is_local))
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        return pa.ListArray.from_arrays(
            offsets, pa.concat_arrays(parts) if parts else pa.array([], field.type)
        )

    def _cells_of(self, blocks: NDArray[np.int64]) -> list[Cells]:
        """Return the cells of some blocks of the task."""
        new = [each for each in blocks.tolist() if each not in self._cells]
        cells = prefetched(self._reader.cells, self._task.blocks[new], self._reader.is_local)
        self._cells.update(zip(new, cells, strict=True))
        return [self._cells[each] for each in blocks.tolist()]


@functools.lru_cache(maxsize=1)
def _reader(shared: bytes, task: bytes) -> _SegmentReader:
    return _SegmentReader(pickle.loads(shared), pickle.loads(task))
