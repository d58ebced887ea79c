"""The size of the chunks: of a repository by their place, and of the arrays of one version.

Each range of a chunk file or foreign object counts once, and an inline chunk once for each manifest with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.engines import Engine, EngineName
from frazil.format.chunk_table import within
from frazil.format.columns import I64
from frazil.format.manifest import ChunkKind
from frazil.format.snapshot import Node
from frazil.maintenance.plan import ChunkStorageStats
from frazil.repository.catalog.assets import MANIFEST
from frazil.repository.catalog.context import Context
from frazil.survey.columns import DistinctRanges
from frazil.survey.survey import Bounds, Survey, reachable, run_with, snapshot_batches


def storage_stats(
    context: Context, engine: Engine | EngineName | None = None, bounds: Bounds | None = None
) -> ChunkStorageStats:
    """Return the statistics. Memory: 12 bytes for each distinct range."""
    info = context.catalog.full_repo_info()
    # The stored index may be large, and the ranges are not in it. Its survey is gone when they are read.
    manifests = Survey(context, engine, bounds=bounds).manifests(info.snapshots.ids()[reachable(info)])
    survey = Survey(context, engine, bounds=bounds, is_incremental=False)
    native, virtual = DistinctRanges(), DistinctRanges()
    inline = 0
    for sums in survey.range_sums(manifests):
        native.add(sums.native)
        virtual.add(sums.virtual)
        inline += sums.inline
    return ChunkStorageStats(native.length(), virtual.length(), inline)


_KINDS: Final = max(ChunkKind) + 1
#: The number of manifests of one item of work.
_BATCH: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class ArraySizes:
    """The stored chunks of an array, by kind and by row of chunks along an axis. Without an axis, one row."""

    node: Node
    counts: I64
    bytes: I64


def array_sizes(
    context: Context, arrays: Sequence[tuple[Node, int | None]], engine: Engine | EngineName | None = None
) -> list[ArraySizes]:
    """Return the sizes of arrays of a version, each with an axis or None. Each manifest is read once."""
    sizes: dict[bytes, ArraySizes] = {}
    users: dict[bytes, list[tuple[bytes, tuple[int, ...], int | None]]] = {}
    for node, axis in arrays:
        counts = node.array_data.num_chunks
        shape = (_KINDS, 1 if axis is None else counts[axis])
        sizes[node.id] = ArraySizes(node, np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        for ref in node.array_data.manifests:
            users.setdefault(ref.id, []).append((node.id, counts, axis))
    items = snapshot_batches(list(users.items()), _BATCH)
    for node_id, code, counts_of, bytes_of in run_with(context, engine)(_read_sizes, items):
        rows = np.divmod(code, sizes[node_id].counts.shape[1])
        np.add.at(sizes[node_id].counts, rows, counts_of)
        np.add.at(sizes[node_id].bytes, rows, bytes_of)
    return list(sizes.values())


def _read_sizes(context: Context, item: Any) -> Iterator[tuple[bytes, I64, I64, I64]]:
    """Yield for each manifest and array the numbers and bytes of chunks by kind and row: a piece of work."""
    for manifest, users in item:
        tables = MANIFEST.read(context.storage, manifest).arrays
        for node_id, num_chunks, axis in users:
            if (table := tables.get(node_id)) is None or not len(table):
                continue
            rows = within(table.index, num_chunks) & (table.kind != ChunkKind.ABSENT)
            number = table.kind[rows].astype(np.int64)
            if axis is not None:
                number = number * num_chunks[axis] + table.index[rows, axis]
            code, place = np.unique(number, return_inverse=True)
            size = np.bincount(place, table.length[rows].astype(np.float64), len(code))
            yield node_id, code, np.bincount(place, minlength=len(code)), size.astype(np.int64)
