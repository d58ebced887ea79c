"""Rows of a DataFrame to arrays, in one commit.

    driver      the distinct coordinates (one pass over the rows) -> arrays are created or grow, units, groups
    shuffle     each row goes to the task of its unit: no two tasks write one chunk
    executors   rows -> chunks
    driver      merge, one commit

It is a job like any other (`frazil.jobs.job`), on an engine that brings each task its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import DataFrame

from frazil.jobs.job_result import JobResult
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress
from frazil.jobs.run_options import with_options
from frazil.jobs.versions import Target
from frazil.spark.tables.dataframe_rows import DataFrameRows
from frazil.spark.tables.row_sources import InMemory, RowSource
from frazil.spark.tables.write_job import job_of
from frazil.spark.tables.write_options import WriteOptions


class WriteRunOptions(TypedDict, total=False):
    """The options of a run of `write_table`.

    job_id      the name of the job: if the history of the branch has a commit of this job, nothing is done
    message     the message of the commit; None is a message that names the operation
    metadata    more metadata of the commit
    progress    a `Progress` that shows the tasks
    """

    job_id: str | None
    message: str | None
    metadata: Mapping[str, Any] | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class WriteRun:
    """The options of one run, with their defaults: see `WriteRunOptions`."""

    job_id: str | None = None
    message: str | None = None
    metadata: Mapping[str, Any] | None = None
    progress: Progress | None = None


@with_options(WriteRunOptions, WriteRun)
def write_table(
    rows: DataFrame | pa.Table,
    target: Target,
    *,
    mode: str = "upsert",
    dims: Sequence[str] | None = None,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    partitions: int | None = None,
    **run_options: Unpack[WriteRunOptions],
) -> JobResult:
    """Write rows to the arrays of the target's group: a column for each dimension and each array.

    ``mode`` is one of

        upsert, backfill   cells get the values of their rows; new coordinates go where they belong
        append             all rows are new along ``append_dim`` (the first dimension unless given), and
                           behind the existing ones
        insert             as upsert, but nothing is added
        overwrite-region   as insert, and cells in the box of all coordinates of the rows that have no row
                           are cleared

    Where no column but the dimensions is an array yet they are created: ``dims`` says which columns are
    the dimensions, and ``chunks`` how many cells of each are a chunk. Existing coordinates are kept.
    ``partitions`` is the number of tasks. This process writes a ``pyarrow.Table`` without Spark. The rows are
    read twice: cache a DataFrame that is costly to compute.

    Raises ``InvalidInputError``: ``invalid-array-metadata`` (columns and arrays do not fit),
    ``invalid-chunk-index`` (coordinates that a mode does not allow); ``TaskFailedError`` from tasks, for two
    rows of one cell and values that an array cannot hold; then nothing is committed. ``IcechunkError``
    (``concurrency``) if Spark cannot compute the rows.

    >>> import frazil, pyarrow
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> rows = pyarrow.table({"x": [10, 30, 20], "t2m": [1.0, 3.0, 2.0]})
    >>> result = write_table(rows, Target(repo), dims=["x"])
    >>> import zarr
    >>> zarr.open_group(result.version.session().store, mode="r")["t2m"][:].tolist()
    [1.0, 2.0, 3.0]
    """
    run = WriteRun(**run_options)
    source: RowSource = InMemory(_without_views(rows)) if isinstance(rows, pa.Table) else DataFrameRows(rows)
    options = WriteOptions(mode, dims, append_dim, chunks, partitions)
    job, engine = job_of(source, target, options, id=run.job_id, message=run.message, metadata=run.metadata)
    return run_job(job, engine, progress=run.progress)


def _without_views(rows: pa.Table) -> pa.Table:
    """The rows with strings instead of string views, from which Arrow cannot take rows."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
