"""Rows of a DataFrame to arrays, in one commit.

    driver      the distinct coordinates (one pass over the rows) -> arrays are created or grow, units, groups
    shuffle     each row goes to the task of its unit: no two tasks write one chunk
    executors   rows -> chunks
    driver      merge, one commit

This is a job as any other (`frazil.jobs.job`), on an engine that brings each task its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame

from frazil.jobs.job_result import JobResult
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Target
from frazil.spark.tables.dataframe_rows import DataFrameRows
from frazil.spark.tables.row_sources import InMemory, RowSource
from frazil.spark.tables.write_job import job_of
from frazil.spark.tables.write_options import WriteOptions


def write_table(
    rows: DataFrame | pa.Table,
    target: Target,
    *,
    mode: str = "upsert",
    dims: Sequence[str] | None = None,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    partitions: int | None = None,
    job_id: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    merge_schema: bool = False,
) -> JobResult:
    """Write rows to the arrays of a group, with one column for each dimension and each array, in one commit.

    A ``pyarrow.Table`` is written by this process, without Spark. The rows of a DataFrame are read twice:
    cache a DataFrame that is costly to compute. Existing coordinates do not change. If a task fails, the
    branch stays unchanged. The modes are:

        upsert, backfill   cells get the values of their rows; new coordinates are inserted in order
        append             all rows are new along ``append_dim``, and behind the existing ones
        insert             as upsert, but new coordinates are refused
        overwrite-region   as insert; cells without a row in the box around the rows become missing. Along
                           each dimension, the box has all positions from the first to the last coordinate

    Args:
        rows: The rows, as a DataFrame of Spark or a ``pyarrow.Table``.
        target: The `Target`: the repository, the branch and the group.
        mode: The mode: ``"upsert"`` (the default), ``"backfill"``, ``"append"``, ``"insert"`` or
            ``"overwrite-region"``.
        dims: The columns that are the dimensions of new arrays. It is needed if only dimensions, or none of
            the columns, are arrays yet.
        append_dim: The dimension along which the mode ``"append"`` adds rows. The default, None, is the first
            one.
        chunks: The chunk lengths of new arrays, by dimension.
        partitions: The number of tasks. The default, None, is about 128 MiB of elements for each task.
        job_id: The id of the job. If the history of the branch has a commit of this job, the call returns its
            result without writing. An id belongs to one set of rows: Frazil refuses it with other rows. The
            rows of a DataFrame are read once more, for their hashes. The default, None, is a new id for each
            call.
        message: The message of the commit. The default, None, is a message that names the operation.
        metadata: More metadata of the commit.
        progress: A `Progress`, which shows how many tasks are done. The default, None, shows nothing.
        merge_schema: Whether columns that are neither an array nor a dimension become arrays, with the
            dimensions and chunks of the existing arrays. The default, False, raises an error for such
            columns.

    Returns:
        The `JobResult`, whose ``version`` has the rows.

    Raises:
        InvalidInputError: The columns do not fit the arrays (``invalid-array-metadata``), or the mode does
            not allow the coordinates (``invalid-chunk-index``). ``conflicting-arguments`` if a commit with
            other rows or arguments has the ``job_id``.
        TaskFailedError: Two rows are about one cell, or an array cannot hold a value.
        IcechunkError: Spark cannot compute the rows (``concurrency``).

    Examples:
        >>> import frazil.spark, pyarrow, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> rows = pyarrow.table({"x": [10, 30, 20], "t2m": [1.0, 3.0, 2.0]})
        >>> result = frazil.spark.write_table(rows, frazil.spark.Target(repo), dims=["x"])
        >>> zarr.open_group(result.version.session().store, mode="r")["t2m"][:].tolist()
        [1.0, 2.0, 3.0]
    """
    source: RowSource = InMemory(_without_views(rows)) if isinstance(rows, pa.Table) else DataFrameRows(rows)
    options = WriteOptions(mode, dims, append_dim, chunks, partitions, merge_schema)
    job, engine = job_of(source, target, options, id=job_id, message=message, metadata=metadata)
    return run_job(job, engine, progress=progress)


def _without_views(rows: pa.Table) -> pa.Table:
    """Return the rows with strings instead of string views, from which Arrow cannot take rows."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
