"""``df.write.format("frazil")``: the tasks send their rows, compressed, to the driver, which commits once.

So this writer is for few rows. ``write_table`` sends each row to the task of its chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, override

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.jobs.job_run import run_job
from frazil.jobs.versions import Target
from frazil.repository.handle.repository import Repository
from frazil.spark.tables import location
from frazil.spark.tables.added_columns import new_columns
from frazil.spark.tables.axes import MODES, OVERWRITE, box_around, box_text
from frazil.spark.tables.location import Options
from frazil.spark.tables.process_errors import causes_only
from frazil.spark.tables.row_chunks import message_of
from frazil.spark.tables.row_sources import InMemory, rows_digest
from frazil.spark.tables.write_job import job_of
from frazil.spark.tables.write_layout import Layout, layout_of
from frazil.spark.tables.write_options import WriteOptions

#: The most bytes of compressed rows that all tasks together may send to the driver.
MOST_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """The rows of one task, as a compressed stream of Arrow; empty without rows.

    ``digest`` is the `rows_digest`, if the job needs it. ``query`` is the query of a stream.
    """

    rows: bytes
    digest: int = 0
    query: str | None = None


def sent(rows: pa.Table) -> bytes:
    """Return the rows as a compressed stream of Arrow; empty without rows."""
    if not len(rows):
        return b""
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(out, rows.schema, options=options) as stream:
        stream.write_table(rows)
    return bytes(out.getvalue())


def received(messages: Iterable[WriterCommitMessage | None]) -> list[pa.Table]:
    """Return the tables that tasks have sent."""
    rows = (each.rows for each in messages if isinstance(each, SentRows))
    return [pa.ipc.open_stream(each).read_all() for each in rows if each]


@causes_only
class TableWriter(DataSourceArrowWriter):
    """The writer of rows: see the module.

    Spark's modes mean ``append`` and ``overwrite-region``; the option ``write`` names the mode exactly.
    """

    def __init__(self, repo: Repository, options: Options, schema: pa.Schema, overwrite: bool) -> None:
        usual = OVERWRITE if overwrite else "append"
        self._options = write_options({"write": usual, **options}, MODES)
        self._schema = schema
        self._target = Target(repo, location.require_branch(options), options.get("group", "/"))
        self._message = options.get("message")
        self._id = options.get("job-id")
        self._layout: Layout | None = None
        session = repo.writable_session(self._target.branch)
        group = "/" + self._target.group.strip("/")
        if self._options.merge_schema and new_columns(session, group, schema.names):
            return  # the job creates the arrays
        try:
            self._layout = layout_of(session, group, schema.names)
        except NodeNotFoundError:
            if not self._options.dims:
                raise

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        # Spark's batches have the time zone of the session, and fields that may be null.
        tables = [pa.table(each.columns, self._schema.names).cast(self._schema) for each in iterator]
        rows = pa.concat_tables([self._schema.empty_table(), *tables])
        return SentRows(sent(rows), 0 if self._id is None else rows_digest(rows))

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [each for each in messages if isinstance(each, SentRows)]
        size = sum(len(each.rows) for each in done)
        if size > MOST_BYTES:
            raise InvalidInputError(
                f"The rows must have at most {MOST_BYTES} bytes, compressed, got {size}. Write them with "
                "frazil.spark.write_table, which sends each row to the task of its chunk",
                ErrorKind.NOT_ALLOWED,
            )
        if not size:
            return
        rows = InMemory(pa.concat_tables(received(done)), sum(each.digest for each in done) % 2**64)
        mode = self._options.mode
        if mode == OVERWRITE and self._layout is not None:
            box = box_around(self._layout, rows.distinct([axis.name for axis in self._layout.axes]))
            mode += "" if box is None else f" of {box_text(self._layout, box)}"
        summary = message_of(len(rows.table), self._schema.names, self._target.group, mode)
        run_job(*job_of(rows, self._target, self._options, id=self._id, message=self._message or summary))

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the tasks have written nothing."""


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
