"""Rows of arrays as DataFrames, and functions over their chunks.

    read         the data source: what SQL sees too; Spark hands conditions over to it
    scan         the same rows by ``mapInArrow``: half the work, conditions are arguments
    map_chunks   no rows: one call of a numpy function for each block, few numbers back

Tasks get the references of their chunks, and read nothing but these.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.versions import Source, Version
from frazil.repository.session.session import Session
from frazil.spark.data_source import register_repository
from frazil.spark.runtime.session import get_spark
from frazil.spark.tables.batches import batches, blocks_of
from frazil.spark.tables.conditions import Conditions, predicates
from frazil.spark.tables.grid import Selection, grid_of
from frazil.spark.tables.scan_plan import Part, Scan, Split, plan
from frazil.spark.tables.schemas import to_spark


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
    made = register_repository(spark, at.repo)
    reader = spark.read.format(made).options(
        **{"snapshot-id": at.snapshot_id, **(options or {}), **({} if where is None else {"where": where})}
    )
    if columns is None:
        return reader.load()
    with_all = reader.load().schema
    known = {name.lower(): name for name in with_all.names}
    unknown = [name for name in columns if name.lower() not in known]
    if unknown:
        raise InvalidInputError(
            f"expected columns of {', '.join(with_all.names)}; found {', '.join(unknown)}",
            ErrorKind.NODE_NOT_FOUND,
        )
    fields = [with_all[known[name.lower()]] for name in columns]
    return reader.schema(type(with_all)(fields)).load()


def scan(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    selection: Selection = Selection(),  # noqa: B008  # a frozen value
    missing: str = "fill",
    split: Split = Split(),  # noqa: B008  # a frozen value
    batch_rows: int = 1 << 17,
    **version: str,
) -> DataFrame:
    """A DataFrame of the rows that meet all conditions, by ``mapInArrow``.

    ``selection`` says which arrays are the table, ``missing`` what becomes of chunks that are not there
    (``fill``, ``null``, ``skip``), ``split`` how many tasks. The version is looked up now, and stays.
    """
    spark = get_spark() if spark is None else spark
    session = Version.of(source, **version).session()
    found, parts = planned(
        session,
        selection,
        columns=columns,
        where=where,
        missing=missing,
        split=split,
        batch_rows=batch_rows,
    )
    schema = to_spark(found.schema)
    shared = pickle.dumps(found)

    def rows(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        this: Scan = pickle.loads(shared)
        for task in _messages(tasks):
            yield from batches(this, pickle.loads(task))

    return _tasks(spark, parts).mapInArrow(rows, schema)


def map_chunks(
    spark: SparkSession | None,
    source: Source,
    function: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]],
    schema: str,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    selection: Selection = Selection(),  # noqa: B008  # a frozen value
    split: Split = Split(),  # noqa: B008  # a frozen value
    **version: str,
) -> DataFrame:
    """``function`` of each block, one row each: for sums, counts, extremes.

    It gets the values of the columns as masked numpy arrays of one shape (those that a condition excludes, or
    that are null, are masked), and gives a value for each column of ``schema``, in words of Spark:
    ``"total double, cells long"``.
    """
    spark = get_spark() if spark is None else spark
    session = Version.of(source, **version).session()
    found, parts = planned(session, selection, columns=columns, where=where, split=split)
    shared = pickle.dumps(found)
    names = [each.split()[0] for each in schema.split(",")]

    def rows(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        this: Scan = pickle.loads(shared)
        for task in _messages(tasks):
            made = [function(block) for block in blocks_of(this, pickle.loads(task))]
            if made:
                yield pa.RecordBatch.from_pydict({name: [each[name] for each in made] for name in names})

    return _tasks(spark, parts).mapInArrow(rows, schema)


def planned(
    session: Session,
    selection: Selection,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    missing: str = "fill",
    split: Split = Split(),  # noqa: B008  # a frozen value
    batch_rows: int = 1 << 17,
) -> tuple[Scan, list[Part]]:
    """The tasks of a scan. Raises ``InvalidInputError`` for conditions that cannot be evaluated exactly."""
    grid = grid_of(session, selection)
    schema = None
    if columns is not None:
        chosen = list(map(grid.column, columns))
        schema = pa.schema([pa.field(each.name, each.type) for each in chosen])
    return plan(
        session,
        grid,
        predicates(grid, where),
        schema=schema,
        missing=missing,
        split=split,
        batch_rows=batch_rows,
    )


def _tasks(spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
    """One row for each task, each in a Spark partition of its own."""
    messages = [(number, pickle.dumps(each)) for number, each in enumerate(parts)]
    if not messages:
        return spark.createDataFrame([], "number int, task binary")
    return spark.createDataFrame(messages, "number int, task binary").repartitionById(len(messages), "number")


def _messages(tasks: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in tasks:
        yield from batch.column(1).to_pylist()
