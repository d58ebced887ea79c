"""``df.write.format("frazil")``: rows in their order, without a shuffle.

With the option ``write`` = ``upsert`` a task writes the units of which it has all cells, and sends back the
rows of the others; in other modes it sends back all rows. The driver joins these rows, and commits once. So
this writer is for rows in the order of the arrays, or for few rows. ``write_table`` first sends every row to
the task of its unit.

Nothing is deleted when a job is aborted: the chunks of its tasks are garbage. Spark also aborts after a
commit whose end it could not see, so the lease of the chunks also stays, until it expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, override

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from frazil.errors import ConflictError, ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs import wire
from frazil.jobs.job_run import run_job
from frazil.jobs.versions import Target
from frazil.repository.handle.repository import Repository
from frazil.repository.session.interior import state_of
from frazil.repository.session.session import ForkSession, Session
from frazil.spark.tables import location
from frazil.spark.tables.added_columns import new_columns
from frazil.spark.tables.axes import GROWING, MODES, OVERWRITE, box_around, box_text
from frazil.spark.tables.location import Options
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.row_chunks import message_of, unit_numbers, write_rows
from frazil.spark.tables.row_sources import InMemory, rows_digest
from frazil.spark.tables.write_job import job_of
from frazil.spark.tables.write_layout import Layout, layout_of
from frazil.spark.tables.write_options import WriteOptions

#: The most bytes of compressed rows that all tasks together may send to the driver.
LEFT_BYTES: Final = 1 << 30


@dataclass
class TaskWrite(WriterCommitMessage):
    """The result of one task: changes of its fork, its written units, and rows that it could not write."""

    changes: bytes | None
    units: NDArray[np.int64]
    rows: bytes
    count: int
    digest: int


@causes_only
class TableWriter(DataSourceArrowWriter):
    """The writer of rows: see the module.

    Spark's modes mean ``append`` and ``overwrite-region``; the option ``write`` names the mode exactly.
    """

    def __init__(self, repo: Repository, options: Options, schema: pa.Schema, overwrite: bool) -> None:
        branch = location.require_branch(options)
        usual = "overwrite-region" if overwrite else "append"
        self._write_options = write_options({"write": usual, **options}, MODES)
        mode = self._write_options.mode
        self._schema = schema
        self._repo = repo
        self._target = Target(repo, branch, options.get("group", "/"))
        self._message = options.get("message")
        self._id = options.get("job-id")
        session = repo.writable_session(self._target.branch)
        self._base = session.snapshot_id
        self._fork: ForkSession | None = None
        self._layout: Layout | None = None
        group = "/" + self._target.group.strip("/")
        if self._write_options.merge_schema and new_columns(session, group, schema.names):
            return  # the driver creates arrays, and writes all rows
        try:
            layout = layout_of(session, group, schema.names)
        except NodeNotFoundError:
            if not self._write_options.dims:
                raise
        else:
            if mode in (*GROWING, OVERWRITE):
                self._layout = layout
            if mode in GROWING:
                self._fork = session.fork()

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrite:
        rows = rest = _rows(iterator, self._schema)
        changes, units = None, np.zeros(0, np.int64)
        if self._fork is not None and self._layout is not None and len(rows):
            mine, units = complete(self._layout, rows)
            if len(units):
                fork = self._fork.fork()
                write_rows(fork, self._layout, rows.filter(pa.array(mine)))
                fork.workspace.writer.flush()  # references may only name durable chunks
                changes = wire.encode(fork.workspace.changes)
                rest = rows.filter(pa.array(~mine))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
            out.write_table(rest)
        digest = 0 if self._id is None else rows_digest(rows)
        return TaskWrite(changes, units, sink.getvalue().to_pybytes(), len(rows), digest)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [each for each in messages if isinstance(each, TaskWrite)]
        if not sum(each.count for each in done):
            self._give_back_lease()
            return
        left = sum(len(each.rows) for each in done)
        if left > LEFT_BYTES:
            raise InvalidInputError(
                f"The rows must be in the order of the arrays, got {left} bytes of rows whose chunks are in "
                "many tasks. Write them with frazil.spark.write_table, which sends each row to the task of "
                "its chunk",
                ErrorKind.NOT_ALLOWED,
            )
        rows = pa.concat_tables(
            [self._schema.empty_table(), *(pa.ipc.open_stream(each.rows).read_all() for each in done)]
        )
        complete_writes = [each for each in done if each.changes is not None]

        def merge(session: Session) -> None:
            if not complete_writes:
                return
            if session.snapshot_id != self._base:
                raise ConflictError(self._base, session.snapshot_id)
            base = session.fork()
            forks = [base.fork() for _ in complete_writes]
            for fork, each in zip(forks, complete_writes, strict=True):
                assert each.changes is not None
                fork.workspace.changes = wire.decode(each.changes)
            session.merge(*forks)
            self._once(rows, np.concatenate([each.units for each in complete_writes]))

        count = sum(each.count for each in done)
        job, engine = job_of(
            InMemory(rows, sum(each.digest for each in done) % 2**64),
            self._target,
            self._write_options,
            id=self._id,
            message=self._message
            or message_of(count, self._schema.names, self._target.group, self._mode_text(rows)),
            before=merge,
        )
        run_job(job, engine)
        self._give_back_lease()

    def _mode_text(self, rows: pa.Table) -> str:
        """Return the mode for the message of the commit, and the box that it clears."""
        mode = self._write_options.mode
        if mode != OVERWRITE or self._layout is None:
            return mode
        box = box_around(self._layout, InMemory(rows).distinct([axis.name for axis in self._layout.axes]))
        return mode if box is None else f"{mode} of {box_text(self._layout, box)}"

    def _give_back_lease(self) -> None:
        """End the lease of the fork. Without this, it delays garbage collections until it expires."""
        if self._fork is not None and (lease := state_of(self._fork).lease) is not None:
            lease.give_back(self._repo.storage)

    def _once(self, rows: pa.Table, units: NDArray[np.int64]) -> None:
        """Raise ``InvalidInputError`` for rows in units that a task wrote whole.

        All cells of such a unit have a row already.
        """
        assert self._layout is not None
        numbers, has_unit = unit_numbers(self._layout, self._layout.find_positions(rows))
        if len(np.unique(units)) < len(units) or np.isin(numbers[has_unit], units).any():
            raise InvalidInputError(
                "Each cell must have one row, got more rows of cells that another task has written",
                ErrorKind.INVALID_CHUNK_INDEX,
            )

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: see the module."""


def _rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the rows of a task with the types of ``schema``.

    Spark's batches have the time zone of the session, and fields that may be null.
    """
    tables = [pa.table(batch.columns, schema.names).cast(schema) for batch in batches]
    return pa.concat_tables([schema.empty_table(), *tables])


def complete(layout: Layout, rows: pa.Table) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which rows, bool (n,), are of units of which all cells are among the rows, and these units."""
    numbers, has_unit = unit_numbers(layout, layout.find_positions(rows))
    units, counts = np.unique(numbers[has_unit], return_counts=True)
    cells = np.ones(len(units), np.int64)
    corners = np.unravel_index(units, layout.units) if layout.units else ()
    for corner, step, size in zip(corners, layout.unit, layout.shape, strict=True):
        cells *= np.minimum((corner + 1) * step, size) - corner * step
    whole = units[counts == cells]
    return has_unit & np.isin(numbers, whole), whole


def write_options(options: Options, modes: Sequence[str]) -> WriteOptions:
    """Return how rows are written: the option ``write`` is one of the modes, by default the first."""
    pairs = [each.partition("=") for each in location.listed(options, "chunks")]
    if any(not size.strip().isdigit() or int(size) < 1 for _, _, size in pairs):
        raise InvalidInputError(
            f"Option `chunks` must be dimension=number, such as time=24,lat=100, got {options['chunks']!r}",
            ErrorKind.INVALID_ARGUMENT,
        )
    return WriteOptions(
        location.choice(options, "write", tuple(modes)),
        location.listed(options, "dims") or None,
        options.get("append-dim"),
        {name.strip(): int(size) for name, _, size in pairs} or None,
        merge_schema=location.flag(options, "merge-schema", False),
    )
