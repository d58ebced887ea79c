"""Writes the rows of a micro-batch to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.errors import NodeNotFoundError
from frazil.repository.session.session import Session
from frazil.spark.tables import row_chunks
from frazil.spark.tables.row_sources import InMemory
from frazil.spark.tables.target_arrays import prepare
from frazil.spark.tables.write_job import dims_for
from frazil.spark.tables.write_layout import Layout, layout_of
from frazil.spark.tables.write_options import WriteOptions

#: How rows are written. The first is the default.
MODES: Final = ("upsert", "append", "backfill", "insert")
#: What happens to two rows of one cell. The first is the default.
DUPLICATES: Final = ("error", "last")


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """How the rows of a batch are written: the group, the options, and one of `DUPLICATES`."""

    group: str
    options: WriteOptions
    duplicates: str = "error"


def check(session: Session, columns: Sequence[str], target: BatchWrite) -> None:
    """Raise those errors of `write_rows` that do not depend on the rows."""
    try:
        layout_of(session, target.group, columns)
    except NodeNotFoundError:
        if not target.options.dims:
            raise


def write_rows(session: Session, table: pa.Table, target: BatchWrite) -> None:
    """Write the rows through a session; new arrays are created, and existing arrays grow, before that.

    Raises ``InvalidInputError`` if rows and arrays do not fit, and for two rows of one cell.
    """
    dims = dims_for(session, target.group, table.schema, target.options.dims)
    distinct = InMemory(table).distinct(dims)
    layout = prepare(session, target.group, table.schema, distinct, target.options)
    rows = _last(layout, table) if target.duplicates == "last" else table
    row_chunks.write_rows(session, layout, rows, layout.edges)


def _last(layout: Layout, table: pa.Table) -> pa.Table:
    """Return the last row of each cell."""
    cells = np.zeros(len(table), np.int64)
    for at, size in zip(layout.require_positions(table), layout.shape, strict=True):
        cells = cells * size + at
    # `unique` gives the first row of each cell: here of the rows in reverse
    last = len(cells) - 1 - np.unique(cells[::-1], return_index=True)[1]
    return table.take(pa.array(last))
