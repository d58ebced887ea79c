"""Rows of arrays as DataFrames, and functions over their chunks.

    read         the data source, as SQL uses it
    scan         the same rows by ``mapInArrow``: half the work
    map_chunks   no rows: one call of a numpy function for each block, with a few numbers as result

Tasks get the references of their chunks, and read only these chunks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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
from frazil.spark.tables.grid import Selection
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.scan_plan import Scan, ScanTask, Split, plan_scan
from frazil.spark.tables.schemas import to_spark

_SELECTION: Final = Selection()
_SPLIT: Final = Split()


def read(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
    **version: str,
) -> DataFrame:
    """Return the rows of arrays as a DataFrame of the data source.

    The version is looked up once, during the call. The credentials of the repository are not in the plan of
    the query.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` to read.
        columns: The names of the columns, upper or lower case. The default, None, is all columns.
        where: Conditions in SQL that every row must meet, such as ``"lat >= 80 AND x IN (1, 2)"``: see
            `frazil.spark.tables.conditions`. The default, None, is all rows.
        options: Other options of the data source (docs/sql.md), such as ``{"group": "/air"}``, except those
            of the place.
        **version: For a repository, the version to read: ``branch``, ``tag`` or ``snapshot_id``. The default
            is the branch ``main``.

    Returns:
        The DataFrame.

    Raises:
        InvalidInputError: A column does not exist (``node-not-found``).

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> table = frazil.spark.read(frazil.spark.get_spark(), repo, where="t > 2")
        >>> table.columns
        ['x', 't']
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
            f"columns must be among {', '.join(schema.names)}, got {', '.join(unknown)}",
            ErrorKind.NODE_NOT_FOUND,
        )
    fields = [schema[by_lower_case[name.lower()]] for name in columns]
    return reader.schema(type(schema)(fields)).load()


def scan(
    spark: SparkSession | None,
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    selection: Selection = _SELECTION,
    split: Split = _SPLIT,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    missing: str = "fill",
    batch_rows: int = 1 << 17,
) -> DataFrame:
    """Return the rows of arrays as a DataFrame, by ``mapInArrow``.

    The version is looked up once, during the call. The DataFrame has the same rows as that of `read`, for
    half the work.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` to read.
        columns: The names of the columns. The default, None, is all columns.
        where: Conditions that every row must meet, as tuples (``[("lat", ">=", 80.0)]``) or in SQL: see
            `frazil.spark.tables.conditions`. The default is all rows.
        selection: A `Selection`: which arrays are the table, and how they are read. The default is the arrays
            of the root group that share the dimensions of the array with the most dimensions.
        split: A `Split`: how the blocks are distributed over tasks. The default is about 128 MiB of rows for
            each task.
        branch: The name of the branch to read. Without ``branch``, ``tag`` and ``snapshot_id`` it is
            ``main``.
        tag: The name of the tag to read.
        snapshot_id: The id of the snapshot to read.
        missing: The value of cells whose chunk is missing: ``"fill"`` (the fill value of the array, the
            default), ``"null"``, or ``"skip"`` (no row if no variable has a chunk).
        batch_rows: The number of rows of one Arrow batch. The default is 131072.

    Returns:
        The DataFrame.

    Raises:
        InvalidInputError: A column does not exist (``node-not-found``), or a condition cannot be evaluated
            exactly (``invalid-argument``).

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-scan"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> table = frazil.spark.scan(frazil.spark.get_spark(), repo, where=[("t", ">", 2.0)])
        >>> [(row.x, row.t) for row in table.collect()]
        [(3, 3.0)]
    """
    spark = get_spark() if spark is None else spark
    session = Version.of(source, branch=branch, tag=tag, snapshot_id=snapshot_id).session()
    plan, tasks = plan_rows(
        session, columns, where, selection, missing=missing, split=split, batch_rows=batch_rows
    )
    schema = to_spark(plan.schema)
    shared = pickle.dumps(plan)

    def rows(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scan_: Scan = pickle.loads(shared)
        for task in _messages(messages):
            yield from batches(scan_, pickle.loads(task))

    return _tasks(spark, tasks).mapInArrow(rows, schema)


def map_chunks(
    spark: SparkSession | None,
    source: Source,
    function: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]],
    schema: str,
    *,
    columns: Sequence[str] | None = None,
    where: Conditions = (),
    selection: Selection = _SELECTION,
    split: Split = _SPLIT,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> DataFrame:
    """Call a function for each block of arrays, and return a DataFrame with one row for each block.

    This is for sums, counts and extremes, which need no rows.

    Args:
        spark: The session. The default, None, is the session of `get_spark`.
        source: The `Repository` or the `Version` to read.
        function: The function. It gets a mapping of column names to masked numpy arrays of one shape; cells
            that a condition excludes, and null, are masked. It returns a value for each column of ``schema``.
        schema: The columns of the result, in the syntax of Spark: ``"total double, cells long"``.
        columns: The names of the columns that the function gets. The default, None, is all columns.
        where: Conditions on the cells, as in `scan`.
        selection: A `Selection`: which arrays are the table, and how they are read. The default is the arrays
            of the root group that share the dimensions of the array with the most dimensions.
        split: A `Split`: how the blocks are distributed over tasks. The default is about 128 MiB of rows for
            each task.
        branch: The name of the branch to read. Without ``branch``, ``tag`` and ``snapshot_id`` it is
            ``main``.
        tag: The name of the tag to read.
        snapshot_id: The id of the snapshot to read.

    Returns:
        The DataFrame.

    Raises:
        InvalidInputError: As in `scan`.

    Examples:
        >>> import frazil.spark, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.local_filesystem_storage("ice-map"))
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> def total(block):
        ...     return {"total": float(block["t"].sum())}
        >>> table = frazil.spark.map_chunks(frazil.spark.get_spark(), repo, total, "total double")
        >>> table.groupBy().sum("total").first()[0]
        6.0
    """
    spark = get_spark() if spark is None else spark
    session = Version.of(source, branch=branch, tag=tag, snapshot_id=snapshot_id).session()
    plan, tasks = plan_rows(session, columns, where, selection, split=split)
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
    session: Session,
    columns: Sequence[str] | None,
    where: Conditions,
    selection: Selection,
    **settings: Any,
) -> tuple[Scan, list[ScanTask]]:
    """Return the tasks of a scan, with the settings of `plan_scan`."""
    grid = grid_of(session, selection)
    schema = None
    if columns is not None:
        chosen = list(map(grid.column, columns))
        schema = pa.schema([pa.field(each.name, each.type) for each in chosen])
    return plan_scan(session, grid, predicates(grid, where), schema=schema, **settings)


def _tasks(spark: SparkSession, tasks: Sequence[ScanTask]) -> DataFrame:
    """Return one row for each task, each in a separate Spark partition."""
    messages = [(number, pickle.dumps(each)) for number, each in enumerate(tasks)]
    if not messages:
        return spark.createDataFrame([], "number int, task binary")
    return spark.createDataFrame(messages, "number int, task binary").repartitionById(len(messages), "number")


def _messages(tasks: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in tasks:
        yield from batch.column(1).to_pylist()
