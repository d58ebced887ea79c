"""Where the rows of a job come from, and how a task gets the rows of its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.jobs.engine import Task
from frazil.lazy_names import ModuleOnDemand
from frazil.spark.tables.row_groups import Grouping
from frazil.spark.tables.write_layout import Distinct, normalize_zeros

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types
else:
    pd = ModuleOnDemand("pandas")

#: The rows of the task that runs in this thread.
_CURRENT: ContextVar[pa.Table] = ContextVar("rows")


class RowSource(Protocol):
    """Rows that a job writes: in memory, or in a DataFrame."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""

    def digest(self) -> int:
        """Return the `rows_digest` of all rows."""

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
    """Rows of an Arrow table. ``total`` is the digest of these rows and of rows that tasks have written."""

    table: pa.Table
    total: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.table.schema

    def distinct(self, dims: Sequence[str]) -> Distinct:
        """Return the distinct values of some columns."""
        return {name: distinct_values([self.table[name]]) for name in dims}

    def digest(self) -> int:
        """Return the `rows_digest` of all rows."""
        return rows_digest(self.table) if self.total is None else self.total

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


def rows_digest(rows: pa.Table) -> int:
    """Return the sum of the hashes of all rows, modulo 2**64: it does not depend on their order."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        hashes = hashes * np.uint64(1_000_003) + _hashes(column.combine_chunks())
    mixed: NDArray[np.uint64] = pd.util.hash_array(hashes)
    return int(mixed.sum(dtype=np.uint64))


def _hashes(column: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of each value. All nulls have one hash."""
    if (
        pa.types.is_timestamp(column.type)
        or pa.types.is_time64(column.type)
        or pa.types.is_duration(column.type)
    ):
        column = column.view(pa.int64())
    elif not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_boolean(column.type)
    ):
        is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        column = column.cast(pa.binary() if is_bytes else pa.string())
    values = column.drop_null().to_numpy(zero_copy_only=False)
    hashes = np.zeros(len(column), np.uint64)
    hashes[column.is_valid().to_numpy(zero_copy_only=False)] = pd.util.hash_array(values)
    return hashes
