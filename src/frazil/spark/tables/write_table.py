"""Rows of a DataFrame to arrays, in one commit.

    driver      which coordinates there are (one pass over the rows) -> arrays made or grown, units, groups
    shuffle     every row to the task that has its unit: no two tasks write one chunk
    executors   rows -> chunks
    driver      merge, one commit

It is a job like any other (``frazil.jobs.job``), on an engine that brings each task its rows.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame

from frazil.errors import ErrorKind, IcechunkError, InternalError, InvalidInputError
from frazil.jobs.engine import Engine, Task, description
from frazil.jobs.job import Job, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.progress import Progress
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Target
from frazil.repository.session.session import ForkSession, Session
from frazil.spark.runtime.error_translation import SPARK_ERRORS, from_spark, marked
from frazil.spark.runtime.on_spark import labelled
from frazil.spark.tables.row_chunks import write_rows
from frazil.spark.tables.schemas import to_arrow_schema, to_spark
from frazil.spark.tables.target_arrays import prepare
from frazil.spark.tables.write_layout import Distinct, Grouping, Layout, once, one_zero

#: Bytes of elements that one task writes, unless told otherwise.
TARGET_BYTES: Final = 128 << 20
_GROUP: Final = "__frazil_group"
_MARK: Final = re.compile(rb"frazil rows (\d{8})")

#: The rows of the task that runs in this thread.
_ROWS: ContextVar[pa.Table] = ContextVar("rows")


class Rows(Protocol):
    """Rows, wherever they are."""

    @property
    def schema(self) -> pa.Schema: ...

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """All values of some columns, each once."""

    def run(
        self, group: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call the task of each group with its rows at hand; results in the order of the messages."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all tasks know; ``cleared`` is that of ``write_rows``."""

    grouping: Grouping
    cleared: tuple[NDArray[np.bool_], ...] | None


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
) -> JobResult:
    """Write rows to the arrays of the target's group: a column for each dimension and each array.

    ``mode`` is one of

        upsert, backfill   cells get the values of their rows; new coordinates go where they belong
        append             all rows are new along ``append_dim`` (the first dimension unless given), and
                           behind those that are there
        insert             as upsert, but nothing is added
        overwrite-region   as insert, and cells in the box of all coordinates of the rows that have no row
                           are cleared

    Where no column but the dimensions is an array yet they are created: ``dims`` says which columns are
    the dimensions, and ``chunks`` how many cells of each are a chunk. Coordinates that are there already are
    kept. A ``pyarrow.Table`` is written here, without Spark. The rows are read twice: cache what is costly.
    With a ``job_id`` that is in the history of the branch nothing is done.

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
    source: Rows = InMemory(_plain(rows)) if isinstance(rows, pa.Table) else _Frame(rows)
    asked = Asked(mode, dims, append_dim, chunks, partitions)
    job, engine = job_of(source, target, asked, id=job_id, message=message, metadata=metadata)
    return run_job(job, engine, progress=progress)


@dataclass(frozen=True, slots=True)
class Asked:
    """How rows are to be written: see ``write_table``."""

    mode: str = "upsert"
    dims: Sequence[str] | None = None
    append_dim: str | None = None
    chunks: Mapping[str, int] | None = None
    partitions: int | None = None


def job_of(
    source: Rows,
    target: Target,
    asked: Asked,
    *,
    id: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    before: Callable[[Session], None] | None = None,
) -> tuple[Job, Engine]:
    """The job that writes rows, and the engine that brings them; ``before`` is done to its session first."""
    engine = _WithRows(source)

    def make_room(session: Session) -> Tasks:
        if before is not None:
            before(session)
        known = dims_for(session, target.group, source.schema, asked.dims)
        distinct = source.distinct(known)
        layout = prepare(
            session,
            "/" + target.group.strip("/"),
            source.schema,
            distinct,
            asked.mode,
            dims=asked.dims,
            append_dim=asked.append_dim,
            chunks=asked.chunks,
        )
        grouping, cleared = _planned(layout, distinct, asked.mode, asked.partitions)
        engine.grouping = grouping
        items = [b"frazil rows %08d" % number for number in range(grouping.groups if grouping.total else 0)]
        return Tasks(items, _Shared(grouping, cleared))

    job = Job(
        "write_table",
        target,
        make_room,
        _write,
        parameters={"mode": asked.mode, "columns": source.schema.names},
        writes=(target.path(""),),
        message=message,
        metadata=dict(metadata or {}),
        # Nobody can tell whether rows are the same again: without an id each write is another one.
        id=id or uuid.uuid4().hex,
    )
    return job, engine


def dims_for(session: Session, group: str, schema: pa.Schema, given: Sequence[str] | None) -> list[str]:
    """The dimensions of the rows: those of the arrays that are there, or what is given."""
    once(schema.names)
    from_arrays: list[str] = []
    for name in schema.names:
        node = session.workspace.nodes.node(f"{('/' + group.strip('/')).rstrip('/')}/{name}")
        if node is not None and node.array is not None:
            named = node.array.dimension_names or (None,) * len(node.array.shape)
            names = [each or f"dim_{axis}" for axis, each in enumerate(named)]
            if names != [name]:  # a coordinate alone is no table
                from_arrays = max(from_arrays, names, key=len)
    found = from_arrays or list(given or ())
    missing = [name for name in found if name not in schema.names]
    if missing or not found:
        said = "no array for any column: give dims to create them"
        if missing:
            said = f"none for {', '.join(missing)}"
        raise InvalidInputError(
            f"expected a column for each dimension, found {said}", ErrorKind.INVALID_ARRAY_METADATA
        )
    return found


def _planned(
    layout: Layout, distinct: Distinct, mode: str, partitions: int | None
) -> tuple[Grouping, tuple[NDArray[np.bool_], ...] | None]:
    touched = [axis.find(distinct[axis.name]) for axis in layout.axes]
    cleared = None
    if mode == "overwrite-region":
        masks = []
        for positions, size in zip(touched, layout.shape, strict=True):
            mask = np.zeros(size, np.bool_)
            mask[positions] = True
            masks.append(mask)
        cleared = tuple(masks)
    units = Grouping.of(layout, touched, 1).total
    size = int(np.prod(layout.unit, dtype=np.int64)) * sum(each.dtype.itemsize for each in layout.variables)
    groups = partitions or max(-(-units * size // TARGET_BYTES), 2 * (os.cpu_count() or 1))
    return Grouping.of(layout, touched, groups), cleared


def _write(fork: ForkSession, shared: _Shared, item: bytes) -> Outcome:
    """The work of a task: its rows came along with it."""
    number = int(_MARK.search(item)[1])  # type: ignore[index]  # made above
    units = None if shared.cleared is None else shared.grouping.units(number)
    return write_rows(fork, shared.grouping.layout, _ROWS.get(), cleared=shared.cleared, units=units)


@contextmanager
def _at_hand(rows: pa.Table) -> Iterator[None]:
    token = _ROWS.set(rows)
    try:
        yield
    finally:
        _ROWS.reset(token)


class _WithRows:
    """An engine whose tasks have rows.

    Nothing is staged: whether a later run would bring the same rows nobody knows.
    """

    resumable = False

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.grouping: Grouping | None = None

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        assert self.grouping is not None
        numbers = [int(found[1]) for each in tasks if (found := _MARK.search(each)) is not None]
        return self._rows.run(self.grouping, task, dict(zip(numbers, tasks, strict=True)), shared)


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows that are here."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def distinct(self, dims: Sequence[str]) -> Distinct:
        return {name: _unique([self.table[name]]) for name in dims}

    def run(
        self, group: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        groups = group.group(self.table)
        order = np.argsort(groups, kind="stable")
        bounds = np.searchsorted(groups[order], np.arange(group.groups + 1))
        for number, message in messages.items():
            with _at_hand(self.table.take(pa.array(order[bounds[number] : bounds[number + 1]]))):
                yield task(shared, message)


@dataclass(frozen=True, slots=True)
class _Frame:
    """Rows of a DataFrame."""

    frame: DataFrame

    @property
    def schema(self) -> pa.Schema:
        return to_arrow_schema(self.frame.schema)

    def distinct(self, dims: Sequence[str]) -> Distinct:
        found = self.frame.select(*dims)
        schema = to_arrow_schema(found.schema)

        def unique(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts: list[list[pa.Array]] = [[] for _ in schema]
            for batch in batches:
                for known, column in zip(parts, batch.columns, strict=True):
                    known.append(pc.unique(column))
            lists = [
                pa.array([_unique(known).cast(field.type).to_pylist()], pa.list_(field.type))
                for known, field in zip(parts, schema, strict=True)
                if known
            ]
            if lists:
                yield pa.RecordBatch.from_arrays(lists, schema.names)

        as_lists = pa.schema([pa.field(field.name, pa.list_(field.type)) for field in schema])
        spark = self.frame.sparkSession
        try:
            with labelled(spark, description(unique)):
                every = found.mapInArrow(unique, to_spark(as_lists)).toArrow()
        except SPARK_ERRORS as error:
            raise from_spark(error, "", (), 1)  # noqa: B904  # it has a cause
        return {
            name: _unique([each.flatten() for each in every[name].chunks] or [pa.array([], field.type)]).cast(
                field.type
            )
            for name, field in zip(dims, schema, strict=True)
        }

    def run(
        self, group: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        schema, token = self.schema, str(uuid.uuid4())
        keyed = to_spark(pa.schema([*schema, pa.field(_GROUP, pa.int32())]))

        def key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                try:
                    number = pa.array(group.group(rows), pa.int32())
                except IcechunkError as error:
                    raise marked(token, None, error) from None
                yield pa.RecordBatch.from_arrays([*batch.columns, number], [*schema.names, _GROUP])

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            number = context.partitionId()
            mine = [batch for batch in batches if batch.num_rows]
            if number not in messages:
                return
            rows = pa.Table.from_batches(mine) if mine else keyed_schema.empty_table()
            if mine and pc.min_max(rows[_GROUP]).as_py() != {"min": number, "max": number}:
                raise InternalError(f"rows of another task came to task {number}")
            with _at_hand(rows.drop_columns([_GROUP])):
                try:
                    result = task(shared, messages[number])
                except BaseException as error:
                    raise marked(token, number, error) from None
            arrays = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, ["number", "result"])

        keyed_schema = to_arrow_schema(keyed)
        shuffled = self.frame.mapInArrow(key, keyed).repartitionById(group.groups, _GROUP)
        try:
            with labelled(self.frame.sparkSession, description(task)):
                found = shuffled.mapInArrow(work, "number int, result binary").collect()
        except SPARK_ERRORS as error:
            raise from_spark(error, token, range(group.groups), group.groups)  # noqa: B904  # it has a cause
        results = {row[0]: bytes(row[1]) for row in found}
        yield from map(results.__getitem__, messages)


def _unique(columns: Sequence[Any]) -> pa.Array:
    """Each value once."""
    return pc.unique(one_zero(columns[0] if len(columns) == 1 else pa.chunked_array(columns)))


def _plain(rows: pa.Table) -> pa.Table:
    """The rows without views of text, of which Arrow can select none."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
