"""The options of a write of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows are written: see `frazil.spark.tables.write_table.write_table`."""

    mode: str = "upsert"
    dims: Sequence[str] | None = None
    append_dim: str | None = None
    chunks: Mapping[str, int] | None = None
    partitions: int | None = None
    merge_schema: bool = False
