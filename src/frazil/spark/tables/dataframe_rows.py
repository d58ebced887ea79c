"""Rows of a DataFrame: each row is sent to the task of its group."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import DataFrame

from frazil.errors import IcechunkError, InternalError
from frazil.jobs.engine import Task, description
from frazil.spark.runtime.error_translation import SPARK_ERRORS, from_spark, marked
from frazil.spark.runtime.on_spark import labelled
from frazil.spark.tables.row_groups import Grouping
from frazil.spark.tables.row_sources import distinct_values, rows_digest, with_rows
from frazil.spark.tables.schemas import to_arrow_schema, to_spark
from frazil.spark.tables.write_layout import Distinct

#: The column that has the number of the group of a row.
_GROUP: Final = "__frazil_group"


@dataclass(frozen=True, slots=True)
class DataFrameRows:
    """Rows of a DataFrame."""

    frame: DataFrame

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, as an Arrow schema."""
        return to_arrow_schema(self.frame.schema)

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns, by one Spark job."""
        columns = self.frame.select(*dims)
        schema = to_arrow_schema(columns.schema)

        def unique(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts: list[list[pa.Array]] = [[] for _ in schema]
            for batch in batches:
                for values, column in zip(parts, batch.columns, strict=True):
                    values.append(pc.unique(column))
            lists = [
                pa.array([distinct_values(values).cast(field.type).to_pylist()], pa.list_(field.type))
                for values, field in zip(parts, schema, strict=True)
                if values
            ]
            if lists:
                yield pa.RecordBatch.from_arrays(lists, schema.names)

        as_lists = pa.schema([pa.field(field.name, pa.list_(field.type)) for field in schema])
        spark = self.frame.sparkSession
        try:
            with labelled(spark, description(unique)):
                every = columns.mapInArrow(unique, to_spark(as_lists)).toArrow()
        except SPARK_ERRORS as error:
            raise from_spark(error, "", (), 1)  # noqa: B904  # the error has a cause
        return {
            name: distinct_values(
                [each.flatten() for each in every[name].chunks] or [pa.array([], field.type)]
            ).cast(field.type)
            for name, field in zip(dims, schema, strict=True)
        }

    def digest(self) -> int:
        """Return the `rows_digest` of all rows, by one Spark job."""
        schema = self.schema

        def sums(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.table(batch.columns, schema.names).cast(schema)
                yield pa.RecordBatch.from_pydict({"digest": [rows_digest(rows).to_bytes(8)]})

        try:
            with labelled(self.frame.sparkSession, description(sums)):
                digests = self.frame.mapInArrow(sums, "digest binary").collect()
        except SPARK_ERRORS as error:
            raise from_spark(error, "", (), 1)  # noqa: B904  # the error has a cause
        return sum(int.from_bytes(row[0]) for row in digests) % 2**64

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Send each row to the task of its group, and yield the results of the tasks."""
        schema, token = self.schema, str(uuid.uuid4())
        keyed = to_spark(pa.schema([*schema, pa.field(_GROUP, pa.int32())]))
        work = _group_worker(task, messages, shared, to_arrow_schema(keyed), token)
        shuffled = self.frame.mapInArrow(_group_keys(grouping, schema, token), keyed)
        shuffled = shuffled.repartitionById(grouping.groups, _GROUP)
        try:
            with labelled(self.frame.sparkSession, description(task)):
                collected = shuffled.mapInArrow(work, "number int, result binary").collect()
        except SPARK_ERRORS as error:
            groups = range(grouping.groups)
            raise from_spark(error, token, groups, grouping.groups)  # noqa: B904  # the error has a cause
        results = {row[0]: bytes(row[1]) for row in collected}
        yield from map(results.__getitem__, messages)


#: A function that Spark calls with the batches of a partition.
type PartitionFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _group_keys(grouping: Grouping, schema: pa.Schema, token: str) -> PartitionFunction:
    """Return a function that adds the number of its group to each row."""

    def key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            try:
                number = pa.array(grouping.group(rows), pa.int32())
            except IcechunkError as error:
                raise marked(token, None, error) from None
            yield pa.RecordBatch.from_arrays([*batch.columns, number], [*schema.names, _GROUP])

    return key


def _group_worker(
    task: Task, messages: Mapping[int, bytes], shared: bytes, schema: pa.Schema, token: str
) -> PartitionFunction:
    """Return a function that calls the task of a partition with its rows. The partition is one group."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        filled = [batch for batch in batches if batch.num_rows]
        if number not in messages:
            return
        rows = pa.Table.from_batches(filled) if filled else schema.empty_table()
        if filled and pc.min_max(rows[_GROUP]).as_py() != {"min": number, "max": number}:
            raise InternalError(f"task {number} got rows of another task")
        with with_rows(rows.drop_columns([_GROUP])):
            try:
                result = task(shared, messages[number])
            except BaseException as error:
                raise marked(token, number, error) from None
        arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

    return work
