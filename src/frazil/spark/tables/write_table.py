"""Rows to arrays, in one commit: from a DataFrame, a table of Arrow, and the writer of the data source.

    driver      the distinct coordinates (one pass over the rows) -> arrays are created or grow, units, groups
    shuffle     each row goes to the task of its unit: no two tasks write one chunk
    executors   rows -> chunks
    driver      merge, one commit

This is a job as any other (`frazil.jobs.job`), on an engine that brings each task its rows. The tasks of
the data source send their rows, compressed, to the driver instead, which commits once. So the data source
is for few rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, override

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from frazil.arrow import target_arrays, write_layout
from frazil.arrow.row_jobs import RowSource, job_of
from frazil.errors import ErrorKind, IcechunkError, InternalError, InvalidInputError
from frazil.handle.repository import Repository
from frazil.jobs.engine import Task, description
from frazil.jobs.job import JobResult, Target
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress
from frazil.spark.runtime.on_spark import RESULTS, SPARK_ERRORS, causes_only, from_spark, labelled, marked
from frazil.spark.runtime.session import is_sail
from frazil.spark.tables.options import Options, choice, flag, listed, require_branch
from frazil.spark.tables.schemas import to_arrow_schema, to_spark

#: The column that has the number of the group of a row.
_GROUP: Final = "__frazil_group"
_ROWS: Final = "__frazil_rows"
_RESULT: Final = ["number", "result"]


@dataclass(frozen=True, slots=True)
class DataFrameRows:
    """Rows of a DataFrame."""

    frame: DataFrame

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, as an Arrow schema."""
        return to_arrow_schema(self.frame.schema)

    def distinct(self, dims: Sequence[str]) -> write_layout.Distinct:
        """Return the distinct values of some columns, by one Spark job."""
        columns = self.frame.select(*dims)
        schema = to_arrow_schema(columns.schema)

        def unique(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts: list[list[pa.Array]] = [[] for _ in schema]
            for batch in batches:
                for values, column in zip(parts, batch.columns, strict=True):
                    values.append(pc.unique(column))
            lists = [
                pa.array(
                    [write_layout.distinct_values(values).cast(field.type).to_pylist()], pa.list_(field.type)
                )
                for values, field in zip(parts, schema, strict=True)
                if values
            ]
            if lists:
                yield pa.RecordBatch.from_arrays(lists, schema.names)

        as_lists = pa.schema([pa.field(field.name, pa.list_(field.type)) for field in schema])
        every = self._result(unique, columns.mapInArrow(unique, to_spark(as_lists)).toArrow)
        return {
            name: write_layout.distinct_values(
                [each.flatten() for each in every[name].chunks] or [pa.array([], field.type)]
            ).cast(field.type)
            for name, field in zip(dims, schema, strict=True)
        }

    def nulls(self, names: Sequence[str]) -> set[str]:
        """Return which of these columns have nulls, by one Spark job if they may have some."""
        may = [each.name for each in self.frame.schema.fields if each.name in names and each.nullable]
        any_null = [sql.bool_or(sql.col(f"`{name}`").isNull()).alias(f"{at}") for at, name in enumerate(may)]
        found = self._result(DataFrameRows.nulls, self.frame.select(*any_null).collect)[0] if may else ()
        return {name for name, has_null in zip(may, found, strict=True) if has_null}

    def digest(self) -> int:
        """Return the `rows_digest` of all rows, by one Spark job."""
        schema = self.schema

        def sums(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.table(batch.columns, schema.names).cast(schema)
                yield pa.RecordBatch.from_pydict({"digest": [write_layout.rows_digest(rows).to_bytes(8)]})

        digests = self._result(sums, self.frame.mapInArrow(sums, "digest binary").collect)
        return sum(int.from_bytes(row[0]) for row in digests) % 2**64

    def run(
        self, grouping: write_layout.UnitGroups, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Send each row to the task of its group, and yield the results of the tasks."""
        schema, token = self.schema, str(uuid.uuid4())
        keyed = to_spark(pa.schema([*schema, pa.field(_GROUP, pa.int32())]))

        def key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                try:
                    group = pa.array(grouping.group(pa.Table.from_batches([batch])), pa.int32())
                except IcechunkError as error:
                    raise marked(token, None, error) from None
                yield pa.RecordBatch.from_arrays([*batch.columns, group], [*schema.names, _GROUP])

        def result_of(number: int, rows: pa.Table) -> pa.Table:
            with write_layout.with_rows(rows):
                try:
                    result = task(shared, messages[number])
                except BaseException as error:
                    raise marked(token, number, error) from None
            return pa.table([pa.array([number], pa.int32()), pa.array([result], pa.binary())], _RESULT)

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            number = context.partitionId()  # the partition is one group
            filled = [batch for batch in batches if batch.num_rows]
            if number not in messages:
                return
            rows = pa.Table.from_batches(filled) if filled else to_arrow_schema(keyed).empty_table()
            if filled and pc.min_max(rows[_GROUP]).as_py() != {"min": number, "max": number}:
                raise InternalError(f"task {number} got rows of another task")
            yield from result_of(number, rows.drop_columns([_GROUP])).to_batches()

        def nest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            """Sail (0.7) refuses a null in a column of a cogroup, and takes it in a struct."""
            for batch in batches:
                *columns, group = batch.columns
                rows = pa.StructArray.from_arrays(columns, schema.names)
                yield pa.RecordBatch.from_arrays([rows, group], [_ROWS, _GROUP])

        def work_on_sail(numbers: pa.Table, rows: pa.Table) -> pa.Table:
            every = pa.Table.from_struct_array(rows[_ROWS].combine_chunks())
            return result_of(numbers["id"][0].as_py(), every.rename_columns(schema.names).cast(schema))

        grouped = self.frame.mapInArrow(key, keyed)
        if is_sail(self.frame.sparkSession):  # it has no partition by number
            of_tasks = self.frame.sparkSession.createDataFrame([(each,) for each in messages], "id int")
            rows = grouped.mapInArrow(nest, StructType().add(_ROWS, to_spark(schema)).add(_GROUP, "integer"))
            both = of_tasks.groupBy("id").cogroup(rows.groupBy(_GROUP))
            call = both.applyInArrow(work_on_sail, RESULTS).collect
        else:
            call = grouped.repartitionById(grouping.groups, _GROUP).mapInArrow(work, RESULTS).collect
        results = {row[0]: bytes(row[1]) for row in self._result(task, call, token, grouping.groups)}
        yield from map(results.__getitem__, messages)

    def _result(self, function: Any, call: Callable[[], Any], token: str = "", groups: int = 0) -> Any:
        """Return the result of a Spark job that calls a function."""
        try:
            with labelled(self.frame.sparkSession, description(function)):
                return call()
        except SPARK_ERRORS as error:
            raise from_spark(error, token, range(groups), groups or 1)  # noqa: B904  # the error has a cause


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
    source: RowSource
    if isinstance(rows, pa.Table):
        source = write_layout.ArrowRows.of(rows)
    elif not hasattr(rows, "sparkSession"):
        raise InvalidInputError(
            f"rows must be a DataFrame of Spark or a pyarrow.Table, got {type(rows).__module__}."
            f"{type(rows).__qualname__}. pyarrow.Table.from_pandas makes a table of a pandas.DataFrame"
        )
    else:
        source = DataFrameRows(rows)
    options = target_arrays.WriteOptions(mode, dims, append_dim, chunks, partitions, merge_schema)
    job, engine = job_of(source, target, options, id=job_id, message=message, metadata=metadata)
    return run_job(job, engine, progress=progress)


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
class SparkRowWriter(DataSourceArrowWriter):
    """The writer of rows: see the module.

    Spark's modes mean ``append`` and ``overwrite-region``; the option ``write`` names the mode exactly. There
    is nothing to abort: the tasks have written nothing.
    """

    def __init__(self, repo: Repository, options: Options, schema: pa.Schema, overwrite: bool) -> None:
        usual = target_arrays.OVERWRITE if overwrite else "append"
        self._options = write_options({"write": usual, **options}, target_arrays.MODES)
        self._schema = schema
        self._target = Target(repo, require_branch(options), options.get("group", "/"))
        self._message = options.get("message")
        self._id = options.get("job-id")
        self._layout: write_layout.RowLayout | None = None
        session = repo.writable_session(self._target.branch)
        group = "/" + self._target.group.strip("/")
        if not (self._options.merge_schema and target_arrays.new_columns(session, group, schema.names)):
            self._layout = write_layout.layout_if_any(session, group, schema.names, self._options.dims)

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        # Spark's batches have the time zone of the session, and fields that may be null.
        tables = [pa.table(each.columns, self._schema.names).cast(self._schema) for each in iterator]
        rows = pa.concat_tables([self._schema.empty_table(), *tables])
        return SentRows(sent(rows), 0 if self._id is None else write_layout.rows_digest(rows))

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
        rows = write_layout.ArrowRows(
            pa.concat_tables(received(done)), sum(each.digest for each in done) % 2**64
        )
        mode = self._options.mode
        if mode == target_arrays.OVERWRITE and self._layout is not None:
            box = target_arrays.box_around(
                self._layout, rows.distinct([axis.name for axis in self._layout.axes])
            )
            mode += "" if box is None else f" of {target_arrays.box_text(self._layout, box)}"
        summary = write_layout.message_of(len(rows.table), self._schema.names, self._target.group, mode)
        place = self._target.repo.storage.label()
        job, engine = job_of(
            rows,
            self._target,
            self._options,
            id=self._id,
            message=self._message or summary,
            metadata={"written_to": place},
        )
        try:
            run_job(job, engine)
        except IcechunkError as error:
            error.add_note(f"Nothing was written to {place}, branch {self._target.branch}")
            raise


def write_options(options: Options, modes: Sequence[str]) -> target_arrays.WriteOptions:
    """Return how rows are written: the option ``write`` is one of the modes, by default the first."""
    pairs = [each.partition("=") for each in listed(options, "chunks")]
    if any(not size.strip().isdigit() or int(size) < 1 for _, _, size in pairs):
        raise InvalidInputError(f"Option `chunks` must be as in time=24,lat=100, got {options['chunks']!r}")
    return target_arrays.WriteOptions(
        choice(options, "write", tuple(modes)),
        listed(options, "dims") or None,
        options.get("append-dim"),
        {name.strip(): int(size) for name, _, size in pairs} or None,
        merge_schema=flag(options, "merge-schema", False),
    )
