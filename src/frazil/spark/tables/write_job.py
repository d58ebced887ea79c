"""The job that writes rows to arrays: its plan on the driver, its tasks on the executors."""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, Task
from frazil.jobs.job import Job, Tasks
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Target
from frazil.repository.session.session import ForkSession, Session
from frazil.spark.tables.row_chunks import write_rows
from frazil.spark.tables.row_groups import Grouping
from frazil.spark.tables.row_sources import RowSource, current_rows
from frazil.spark.tables.target_arrays import prepare
from frazil.spark.tables.write_layout import Distinct, Layout, require_distinct_names
from frazil.spark.tables.write_options import WriteOptions

#: Bytes of elements that one task writes, if the number of tasks is not given.
TARGET_BYTES: Final = 128 << 20
#: The message of a task: the number of its group.
_MARK: Final = re.compile(rb"frazil rows (\d{8})")


def job_of(
    source: RowSource,
    target: Target,
    options: WriteOptions,
    *,
    id: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> tuple[Job, Engine]:
    """Return the job that writes rows, and the engine that brings the rows to its tasks.

    A job with an ``id`` has the digest of the rows as a parameter.
    """
    engine = _RowEngine(source)

    def prepare_arrays(session: Session) -> Tasks:
        distinct = source.distinct(dims_for(session, target.group, source.schema, options.dims))
        layout = prepare(session, "/" + target.group.strip("/"), source.schema, distinct, options)
        grouping = _grouping(layout, distinct, options.partitions)
        engine.grouping = grouping
        items = [b"frazil rows %08d" % number for number in range(grouping.groups if grouping.total else 0)]
        return Tasks(items, grouping)

    parameters: dict[str, Any] = {"mode": options.mode, "columns": source.schema.names}
    if id is not None:
        parameters["rows"] = f"{source.digest():016x}"
    job = Job(
        "write_table",
        target,
        prepare_arrays,
        _write,
        parameters=parameters,
        writes=(target.path(""),),
        message=message,
        metadata=dict(metadata or {}),
        # Frazil does not know whether rows are the same again: without an id each write is a new job.
        id=id or uuid.uuid4().hex,
    )
    return job, engine


def dims_for(session: Session, group: str, schema: pa.Schema, dims: Sequence[str] | None) -> list[str]:
    """Return the dimensions of the rows: those of the existing arrays, or ``dims``."""
    require_distinct_names(schema.names)
    from_arrays: list[str] = []
    for name in schema.names:
        node = session.workspace.node(f"{('/' + group.strip('/')).rstrip('/')}/{name}")
        if node is not None and node.array is not None:
            declared = node.array.dimension_names or (None,) * len(node.array.shape)
            names = [each or f"dim_{axis}" for axis, each in enumerate(declared)]
            if names != [name]:  # a coordinate alone is not a table
                from_arrays = max(from_arrays, names, key=len)
    result = from_arrays or list(dims or ())
    missing = [name for name in result if name not in schema.names]
    if missing or not result:
        problem = "no column that is an array. Pass dims to create arrays"
        if missing:
            problem = f"none for {', '.join(missing)}"
        raise InvalidInputError(
            f"The rows must have a column for each dimension, got {problem}", ErrorKind.INVALID_ARRAY_METADATA
        )
    return result


def _grouping(layout: Layout, distinct: Distinct, partitions: int | None) -> Grouping:
    touched = [axis.find_positions(distinct[axis.name]) for axis in layout.axes]
    with_rows = [len(np.unique(at // step)) for at, step in zip(touched, layout.unit, strict=True)]
    units = math.prod(with_rows) + len(layout.edges)
    size = int(np.prod(layout.unit, dtype=np.int64)) * sum(each.dtype.itemsize for each in layout.variables)
    groups = partitions or max(-(-units * size // TARGET_BYTES), 2 * (os.cpu_count() or 1))
    return Grouping.of(layout, touched, groups)


def _write(fork: ForkSession, shared: Grouping, item: bytes) -> Outcome:
    """Return the work of a task: it writes the rows and the edges of its group."""
    number = int(_MARK.search(item)[1])  # type: ignore[index]  # made above
    return write_rows(fork, shared.layout, current_rows(), shared.edges(number))


class _RowEngine:
    """An engine that brings each task its rows.

    It does not stage results, because a later run may have other rows.
    """

    resumable = False

    def __init__(self, rows: RowSource) -> None:
        self._rows = rows
        self.grouping: Grouping | None = None

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        assert self.grouping is not None
        numbers = [int(match[1]) for each in tasks if (match := _MARK.search(each)) is not None]
        return self._rows.run(self.grouping, task, dict(zip(numbers, tasks, strict=True)), shared)
