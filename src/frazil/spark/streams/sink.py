"""A sink: ``df.writeStream``, one commit for each micro-batch.

    branch          the branch; the default is ``main``
    group           the group of the arrays
    write           ``upsert`` (the default): cells get the values of their rows, new coordinates are inserted
                    in order; ``append``: all rows are new along ``append-dim`` and behind the existing ones;
                    ``backfill``, ``insert``: see `frazil.spark.tables.target_arrays`
    dims, chunks    for new arrays: see `frazil.spark.tables.write_table`
    duplicates      two rows of one cell: ``error`` (the default), or the ``last`` row wins
    txnAppId        a name for the query, instead of Spark's id: a query with a new checkpoint and the same
                    name does not write its earlier batches again, if it cuts its batches in the same way
    message         the message of the commits

The tasks send their rows, compressed, to the driver's machine, where one process writes them and commits.
So the rows of a batch must fit into memory there: limit the rate of the source. For more rows, use a pipeline
for each batch (`foreach_batch`).

A batch without rows makes no commit. If a batch fails, its chunks are not deleted: they are garbage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.spark.runtime.errors import causes_only
from frazil.spark.streams.stamps import Stamp, commit_once
from frazil.spark.tables.options import Options, choice, flag, require_branch
from frazil.spark.tables.row_chunks import InMemory, message_of, write_rows
from frazil.spark.tables.target_arrays import WriteOptions, prepare
from frazil.spark.tables.write_layout import Layout, layout_of
from frazil.spark.tables.write_table import SentRows, dims_for, received, sent, write_options

_log = logging.getLogger(__name__)

#: How rows are written, and what happens to two rows of one cell. The first ones are the defaults.
MODES: Final = ("upsert", "append", "backfill", "insert")
DUPLICATES: Final = ("error", "last")
_QUERY: Final = "sql.streaming.queryId"


@causes_only
class RowsWriter(DataSourceStreamArrowWriter):
    """The writer of a stream: see the module."""

    def __init__(self, repo: Repository, options: Options, names: Sequence[str]) -> None:
        self._repo = repo
        self._branch = require_branch(options)
        self._query = options.get("txnappid")
        self._message = options.get("message")
        self._options = write_options(options, MODES)
        if flag(options, "merge-schema", False):
            raise InvalidInputError(
                "Option `merge-schema` must not be true for a stream, whose columns are checked before its "
                "first batch. Add the arrays with one batch write of rows",
                ErrorKind.INVALID_ARGUMENT,
            )
        self._group = "/" + options.get("group", "/").strip("/")
        self._duplicates = choice(options, "duplicates", DUPLICATES)
        try:
            layout_of(repo.writable_session(self._branch), self._group, names)
        except NodeNotFoundError:
            if not self._options.dims:
                raise

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Compress the rows of a task on an executor."""
        context = TaskContext.get()
        spark_query = None if context is None else context.getLocalProperty(_QUERY)
        query = self._query or spark_query
        batches = [batch for batch in iterator if batch.num_rows]
        return SentRows(sent(pa.Table.from_batches(batches)) if batches else b"", query=query)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write the rows of a batch on the driver's machine. Spark may call it twice for a batch."""
        tables = received(messages)
        named = (each.query for each in messages if isinstance(each, SentRows) and each.query)
        query = self._query or next(named, None)
        if not tables:
            return
        if query is None:
            raise InvalidInputError(
                "The tasks must know the id of the query, got none. Set the option txnAppId",
                ErrorKind.INVALID_ARGUMENT,
            )
        table = pa.concat_tables(tables)
        stamp = Stamp(query, batchId)
        summary = message_of(len(table), table.column_names, self._group, self._options.mode)
        message = self._message or f"{summary}: batch {batchId} of query {query}"
        write = partial(
            write_batch, group=self._group, table=table, options=self._options, duplicates=self._duplicates
        )
        snapshot_id = commit_once(self._repo, self._branch, stamp, write, message)
        _log.info("batch %d of %s: %s", batchId, query, snapshot_id or "done before")

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing. Spark also calls it after a commit, if the query fails after the commit."""


def stream_writer(
    repo: Repository, options: Options, schema: StructType, overwrite: bool = False
) -> RowsWriter:
    """Return the writer of a data source, from options with names in lower case and the columns of the rows.

    Raises ``InvalidInputError`` if the columns do not belong to arrays, or for the output mode "complete".
    """
    if overwrite:
        raise InvalidInputError(
            'The output mode must be "append" or "update", got "complete"', ErrorKind.INVALID_ARGUMENT
        )
    return RowsWriter(repo, options, schema.names)


def write_batch(
    session: Session, *, group: str, table: pa.Table, options: WriteOptions, duplicates: str = "error"
) -> None:
    """Write the rows of a batch through a session; arrays are created, or grow, before that."""
    dims = dims_for(session, group, table.schema, options.dims)
    layout = prepare(session, group, table.schema, InMemory(table).distinct(dims), options)
    write_rows(session, layout, _last(layout, table) if duplicates == "last" else table, layout.edges)


def _last(layout: Layout, table: pa.Table) -> pa.Table:
    """Return the last row of each cell."""
    cells = np.zeros(len(table), np.int64)
    for at, size in zip(layout.require_positions(table), layout.shape, strict=True):
        cells = cells * size + at
    # `unique` gives the first row of each cell: here of the rows in reverse
    last = len(cells) - 1 - np.unique(cells[::-1], return_index=True)[1]
    return table.take(pa.array(last))
