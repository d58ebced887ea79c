"""Where the rows of a job come from, and how a task gets the rows of its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from frazil.jobs.engine import Task
from frazil.spark.tables.row_groups import Grouping
from frazil.spark.tables.write_layout import Distinct, normalize_zeros

#: The rows of the task that runs in this thread.
_CURRENT: ContextVar[pa.Table] = ContextVar("rows")


class RowSource(Protocol):
    """Rows that a job writes: in memory, or in a DataFrame."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call ``task`` for each group, with its rows as `current_rows`; results in order of messages.

        ``messages``: number of a group -> message of its task.
        """


def current_rows() -> pa.Table:
    """Return the rows of the task that runs in this thread."""
    return _CURRENT.get()


@contextmanager
def with_rows(rows: pa.Table) -> Iterator[None]:
    """Enter a context in which `current_rows` returns these rows."""
    token = _CURRENT.set(rows)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows of an Arrow table."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.table.schema

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""
        return {name: distinct_values([self.table[name]]) for name in dims}

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call the task for each group in this process, and yield its results."""
        groups = grouping.group(self.table)
        order = np.argsort(groups, kind="stable")
        bounds = np.searchsorted(groups[order], np.arange(grouping.groups + 1))
        for number, message in messages.items():
            with with_rows(self.table.take(pa.array(order[bounds[number] : bounds[number + 1]]))):
                yield task(shared, message)


def distinct_values(columns: Sequence[Any]) -> pa.Array:
    """Return the distinct values of columns of one type."""
    return pc.unique(normalize_zeros(columns[0] if len(columns) == 1 else pa.chunked_array(columns)))
