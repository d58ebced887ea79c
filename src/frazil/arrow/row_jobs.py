"""The job that writes rows to the arrays of a group, with one commit. Its engine brings each task its rows.

Rows have a *source*: `ArrowRows` are in the memory of this process, and those of Spark are in a DataFrame.
"""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.arguments import misfit
from frazil.arrow import target_arrays, write_layout
from frazil.jobs.engine import Engine, Task
from frazil.jobs.job import Input, Job, Target, Tasks
from frazil.jobs.task_results import Outcome
from frazil.repository.session.session import ForkSession, Session


class RowSource(Protocol):
    """Rows that a job writes."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def distinct(self, dims: Sequence[str]) -> write_layout.Distinct:
        """Return the distinct values of some columns."""

    def nulls(self, names: Sequence[str]) -> set[str]:
        """Return which of these columns have nulls."""

    def digest(self) -> int:
        """Return the `rows_digest` of all rows."""

    def run(
        self, grouping: write_layout.UnitGroups, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call the task for each group with its rows, and yield its results."""


#: Bytes of elements that one task writes, if the number of tasks is not given.
TARGET_BYTES: Final = 128 << 20
#: The message of a task: the number of its group.
_MARK: Final = re.compile(rb"frazil rows (\d{8})")


def job_of(
    source: RowSource,
    target: Target,
    options: target_arrays.WriteOptions,
    *,
    id: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    inputs: Sequence[Input] = (),
) -> tuple[Job, Engine]:
    """Return the job that writes rows, and the engine that brings the rows to its tasks.

    A job with an ``id`` has the digest of the rows as a parameter.
    """
    engine = _RowEngine(source)
    schema = pa.schema([each for each in source.schema if each.name != write_layout.ABSENT])

    def prepare_arrays(session: Session) -> Tasks:
        group = "/" + target.group.strip("/")
        distinct = source.distinct(dims_for(session, group, schema, options.dims))
        layout = target_arrays.prepare(session, group, schema, distinct, options, source.nulls)
        touched = [axis.find_positions(distinct[axis.name]) for axis in layout.axes]
        with_cells = [len(np.unique(at // step)) for at, step in zip(touched, layout.unit, strict=True)]
        units = math.prod(with_cells) + len(layout.edges)
        size = math.prod(layout.unit) * sum(each.dtype.itemsize for each in layout.variables)
        groups = options.partitions or max(-(-units * size // TARGET_BYTES), 2 * (os.cpu_count() or 1))
        engine.grouping = grouping = write_layout.UnitGroups.of(layout, touched, groups)
        items = [b"frazil rows %08d" % number for number in range(grouping.groups if grouping.total else 0)]
        return Tasks(items, grouping)

    parameters: dict[str, Any] = {"mode": options.mode, "columns": schema.names}
    if id is not None:
        parameters["rows"] = f"{source.digest():016x}"
    job = Job(
        "write_table",
        target,
        prepare_arrays,
        _write,
        parameters=parameters,
        inputs=tuple(inputs),
        writes=(target.path(""),),
        message=message,
        metadata=dict(metadata or {}),
        # Frazil does not know whether rows are the same again: without an id each write is a new job.
        id=id or uuid.uuid4().hex,
    )
    return job, engine


def dims_for(session: Session, group: str, schema: pa.Schema, dims: Sequence[str] | None) -> list[str]:
    """Return the dimensions of the rows: those of the existing arrays, or ``dims``."""
    write_layout.require_distinct_names(schema.names)
    result = list(write_layout.open_arrays(session, group, schema.names)[1] or dims or ())
    missing = [name for name in result if name not in schema.names]
    if missing or not result:
        problem = "no column that is an array. Pass dims to create arrays"
        if missing:
            problem = f"none for {', '.join(missing)}"
        raise misfit(f"The rows must have a column for each dimension, got {problem}")
    return result


def _write(fork: ForkSession, shared: write_layout.UnitGroups, item: bytes) -> Outcome:
    """Return the work of a task: it writes the rows and the edges of its group."""
    number = int(_MARK.search(item)[1])  # type: ignore[index]  # made above
    return write_layout.write_rows(fork, shared.layout, write_layout.CURRENT.get(), shared.edges(number))


class _RowEngine:
    """An engine that brings each task its rows. It stages no results: a later run may have other rows."""

    resumable = False

    def __init__(self, rows: RowSource) -> None:
        self._rows = rows
        self.grouping: write_layout.UnitGroups | None = None

    def run(self, task: Task, tasks: Sequence[bytes], shared: bytes) -> Iterator[bytes]:
        assert self.grouping is not None
        numbers = [int(match[1]) for each in tasks if (match := _MARK.search(each)) is not None]
        return self._rows.run(self.grouping, task, dict(zip(numbers, tasks, strict=True)), shared)
