"""Where the rows come from that a job writes, and how a task gets those of its group."""

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
    def schema(self) -> pa.Schema: ...

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """The distinct values of some columns."""

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        """Call ``task`` for each group, with its rows as `current_rows`; results in order of messages.

        ``messages``: number of a group -> message of its task.
        """


def current_rows() -> pa.Table:
    """The rows of the task that runs in this thread."""
    return _CURRENT.get()


@contextmanager
def with_rows(rows: pa.Table) -> Iterator[None]:
    """A context in which `current_rows` are these."""
    token = _CURRENT.set(rows)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows of a table of Arrow."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def distinct(self, dims: Sequence[str]) -> Distinct:
        return {name: distinct_values([self.table[name]]) for name in dims}

    def run(
        self, grouping: Grouping, task: Task, messages: Mapping[int, bytes], shared: bytes
    ) -> Iterator[bytes]:
        groups = grouping.group(self.table)
        order = np.argsort(groups, kind="stable")
        bounds = np.searchsorted(groups[order], np.arange(grouping.groups + 1))
        for number, message in messages.items():
            with with_rows(self.table.take(pa.array(order[bounds[number] : bounds[number + 1]]))):
                yield task(shared, message)


def distinct_values(columns: Sequence[Any]) -> pa.Array:
    """The distinct values of columns of one type."""
    return pc.unique(normalize_zeros(columns[0] if len(columns) == 1 else pa.chunked_array(columns)))
