"""The rows of a micro-batch are written to arrays like rows of a table: see `spark.tables.target_arrays`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.errors import NodeNotFoundError
from frazil.repository.session.session import Session
from frazil.spark.tables import row_chunks
from frazil.spark.tables.target_arrays import prepare
from frazil.spark.tables.write_layout import Layout, layout_of
from frazil.spark.tables.write_table import Asked, InMemory, dims_for

#: How rows are written. The first is usual.
MODES: Final = ("upsert", "append", "backfill", "insert")
#: What to do with two rows of one cell. The first is usual.
DUPLICATES: Final = ("error", "last")


@dataclass(frozen=True, slots=True)
class Rows:
    """How rows are written: to which group, what ``write_table`` is asked, and one of ``DUPLICATES``."""

    group: str
    asked: Asked
    duplicates: str = "error"


def check(session: Session, columns: Sequence[str], how: Rows) -> None:
    """Raises what `write_rows` would, as far as it is known without rows."""
    try:
        layout_of(session, how.group, columns)
    except NodeNotFoundError:
        if not how.asked.dims:
            raise


def write_rows(session: Session, table: pa.Table, how: Rows) -> None:
    """Write the rows through a session; arrays are made or grow before, as they are asked to.

    Raises ``InvalidInputError`` where rows and arrays do not fit, and for two rows of one cell.
    """
    asked = how.asked
    distinct = InMemory(table).distinct(dims_for(session, how.group, table.schema, asked.dims))
    layout = prepare(
        session,
        how.group,
        table.schema,
        distinct,
        asked.mode,
        dims=asked.dims,
        append_dim=asked.append_dim,
        chunks=asked.chunks,
    )
    row_chunks.write_rows(session, layout, _last(layout, table) if how.duplicates == "last" else table)


def _last(layout: Layout, table: pa.Table) -> pa.Table:
    """Of the rows of each cell the last one."""
    cells = np.zeros(len(table), np.int64)
    for at, size in zip(layout.require(table), layout.shape, strict=True):
        cells = cells * size + at
    # the first one when looked at from behind
    found = len(cells) - 1 - np.unique(cells[::-1], return_index=True)[1]
    return table.take(pa.array(found))
