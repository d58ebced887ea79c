"""Rows of arrays as DataFrames, and functions over their chunks.

    read         the data source: what SQL sees too; Spark hands conditions over to it
    scan         the same rows by ``mapInArrow``: half the work, conditions are arguments
    map_chunks   no rows: one call of a numpy function for each block, few numbers back

Tasks get the references of their chunks, and read nothing but these.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Source, Version
from frazil.repository.session.session import Session
from frazil.spark.data_source import register_repository
from frazil.spark.runtime.session import get_spark
from frazil.spark.tables.batches import batches, blocks_of
from frazil.spark.tables.conditions import Conditions, predicates
from frazil.spark.tables.grid import Selection
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.scan_plan import Scan, ScanTask, Split, plan_scan
from frazil.spark.tables.schemas import to_spark


class BlockOptions(TypedDict, total=False):
    """The options of `map_chunks`.

    selection      which arrays are the table, and how they are read
    split          how blocks are split into tasks
    branch         the version that is read: a branch (``main`` if no version is named),
    tag            a tag,
    snapshot_id    or a snapshot
    """

    selection: Selection
    split: Split
    branch: str | None
    tag: str | None
    snapshot_id: str | None


class ScanOptions(BlockOptions, total=False):
    """The options of `scan`.

    missing        the value of cells whose chunk is not stored: ``fill``, ``null``, or ``skip`` (no row)
    batch_rows     rows of one Arrow batch
    """

    missing: str
    batch_rows: int


@dataclass(frozen=True, slots=True)
class ScanValues:
    """The options of one scan, with their defaults: see `ScanOptions`."""

    selection: Selection = Selection()  # noqa: RUF009  # a frozen value
    split: Split = Split()  # noqa: RUF009  # a frozen value
    branch: str | None = None
    tag: str | None = None
    snapshot_id: str | None = None
    missing: str = "fill"
    batch_rows: int = 1 << 17


def read(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
    **version: str,
) -> DataFrame:
    """A DataFrame by the data source, of one version, with ``columns`` only and the rows that meet ``where``.

    ``options`` are those of docs/sql.md but for the place, which is that of ``source`` (its credentials
    are in no plan); ``version`` is that of ``Version.of``. Raises ``InvalidInputError`` for a column that is
    not there.
    """
    spark = get_spark() if spark is None else spark
    at = Version.of(source, **version)
    name = register_repository(spark, at.repo)
    reader = spark.read.format(name).options(
        **{"snapshot-id": at.snapshot_id, **(options or {}), **({} if where is None else {"where": where})}
    )
    if columns is None:
        return reader.load()
    schema = reader.load().schema
    by_lower_case = {name.lower(): name for name in schema.names}
    unknown = [name for name in columns if name.lower() not in by_lower_case]
    if unknown:
        raise InvalidInputError(
            f"expected columns of {', '.join(schema.names)}; found {', '.join(unknown)}",
            ErrorKind.NODE_NOT_FOUND,
        )
    fields = [schema[by_lower_case[name.lower()]] for name in columns]
    return reader.schema(type(schema)(fields)).load()


@with_options(ScanOptions, ScanValues)
def scan(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    **options: Unpack[ScanOptions],
) -> DataFrame:
    """A DataFrame of the rows that meet all conditions, by ``mapInArrow``.

    ``selection`` chooses the arrays of the table, ``missing`` is the value of cells whose chunk is not stored
    (``fill``, ``null``, ``skip``), ``split`` sets the number of tasks. The version is looked up now, once.
    """
    spark = get_spark() if spark is None else spark
    values = ScanValues(**options)
    plan, tasks = plan_rows(_session(source, values), columns, where, values)
    schema = to_spark(plan.schema)
    shared = pickle.dumps(plan)

    def rows(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scan_: Scan = pickle.loads(shared)
        for task in _messages(messages):
            yield from batches(scan_, pickle.loads(task))

    return _tasks(spark, tasks).mapInArrow(rows, schema)


@with_options(BlockOptions, ScanValues)
def map_chunks(
    spark: SparkSession | None,
    source: Source,
    function: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]],
    schema: str,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    **options: Unpack[BlockOptions],
) -> DataFrame:
    """``function`` of each block, one row each: for sums, counts, extremes.

    It gets the values of the columns as masked numpy arrays of one shape (those that a condition excludes, or
    that are null, are masked), and gives a value for each column of ``schema``, in words of Spark:
    ``"total double, cells long"``.
    """
    spark = get_spark() if spark is None else spark
    values = ScanValues(**options)
    plan, tasks = plan_rows(_session(source, values), columns, where, values)
    shared = pickle.dumps(plan)
    names = [each.split()[0] for each in schema.split(",")]

    def rows(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scan_: Scan = pickle.loads(shared)
        for task in _messages(messages):
            results = [function(block) for block in blocks_of(scan_, pickle.loads(task))]
            if results:
                yield pa.RecordBatch.from_pydict({name: [each[name] for each in results] for name in names})

    return _tasks(spark, tasks).mapInArrow(rows, schema)


def plan_rows(
    session: Session, columns: Sequence[str] | None, where: Conditions, options: ScanValues
) -> tuple[Scan, list[ScanTask]]:
    """The tasks of a scan. Raises ``InvalidInputError`` for conditions that cannot be evaluated exactly."""
    grid = grid_of(session, options.selection)
    schema = None
    if columns is not None:
        chosen = list(map(grid.column, columns))
        schema = pa.schema([pa.field(each.name, each.type) for each in chosen])
    return plan_scan(
        session,
        grid,
        predicates(grid, where),
        schema=schema,
        missing=options.missing,
        split=options.split,
        batch_rows=options.batch_rows,
    )


def _session(source: Source, options: ScanValues) -> Session:
    """A session that reads the version that the options name."""
    version = Version.of(source, branch=options.branch, tag=options.tag, snapshot_id=options.snapshot_id)
    return version.session()


def _tasks(spark: SparkSession, tasks: Sequence[ScanTask]) -> DataFrame:
    """One row for each task, each in a Spark partition of its own."""
    messages = [(number, pickle.dumps(each)) for number, each in enumerate(tasks)]
    if not messages:
        return spark.createDataFrame([], "number int, task binary")
    return spark.createDataFrame(messages, "number int, task binary").repartitionById(len(messages), "number")


def _messages(tasks: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in tasks:
        yield from batch.column(1).to_pylist()
