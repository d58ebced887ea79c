"""The change feed: one row for each chunk and each node that a commit has changed.

    snapshot_id, parent_id, written_at, message, metadata    the commit; metadata is JSON
    change       new_group, new_array, deleted_group, deleted_array, updated_group, updated_array (their
                 metadata), moved (``from_path``), chunk_added, chunk_changed, chunk_removed
    path, node_id, from_path
    chunk        coordinates in the grid of chunks

A transaction log names the touched chunks, and the manifests of both versions show how they changed. Only
manifests that may have one of these chunks are read. A chunk that is in neither version (written and deleted
by commits that have expired) has no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.changes.diff import compose_logs
from frazil.changes.log import union_of_chunks
from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import id_to_text
from frazil.format.nodes import NodeTable
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.repository.session.workspace import Workspace
from frazil.spark.streams.commit_order import CommitRange
from frazil.spark.tables.arrow_columns import index_column, paths_by_id
from frazil.spark.tables.change_table import CHUNK_CHANGES, node_changes
from frazil.spark.tables.repository_schemas import columns

SCHEMA: Final = columns(
    "snapshot_id, parent_id, written_at time, message, metadata, change, path, node_id, from_path, "
    "chunk numbers"
)

#: The table of the data source that has these columns.
FEED: Final = "feed"


@dataclass(frozen=True, slots=True)
class CommitSlice:
    """A part of a commit: its chunks from ``first`` up to ``last``. The first slice also has its nodes."""

    commits: CommitRange
    first: int
    last: int


def logs_of(assets: Assets, commits: CommitRange) -> list[TransactionLog]:
    """Return the transaction logs of commits, except those of expired commits that are deleted."""
    logs = []
    for id_ in commits.logs:
        try:
            logs.append(assets.transaction_log(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND or id_ == commits.after:
                raise
    return logs


def count_chunks(logs: Sequence[TransactionLog]) -> int:
    """Return how many chunks the logs name."""
    return sum(map(len, chain.from_iterable(log.updated_chunks.values() for log in logs)))


def commit_slices(assets: Assets, ranges: Sequence[CommitRange], rows: int) -> Iterator[CommitSlice]:
    """Yield the commits in slices of at most ``rows`` chunks."""
    for commits in ranges:
        count = max(count_chunks(logs_of(assets, commits)), 1)
        for first in range(0, count, rows):
            yield CommitSlice(commits, first, min(first + rows, count))


def read(context: Context, slice_: CommitSlice) -> pa.Table:
    """Return the rows of a slice."""
    commits = slice_.commits
    logs = logs_of(context.assets, commits)
    before, after = Workspace(context, commits.before), Workspace(context, commits.after)
    parts = [_node_part(logs, before.base, after.base)] if slice_.first == 0 else []
    parts += _chunk_parts(union_of_chunks([log.updated_chunks for log in logs]), before, after, slice_)
    table = pa.concat_tables(parts) if parts else _part()
    commit = {
        "snapshot_id": id_to_text(commits.id),
        "parent_id": id_to_text(commits.before),
        "written_at": commits.committed_at,
        "message": commits.message,
        "metadata": None if commits.metadata is None else json.dumps(commits.metadata, sort_keys=True),
    }
    fields = [SCHEMA.field(name) for name in commit]
    columns = [pa.array([value], field.type) for value, field in zip(commit.values(), fields, strict=True)]
    same = pa.array(np.zeros(len(table), np.int64))
    return pa.table([*(column.take(same) for column in columns), *table.columns], schema=SCHEMA)


def _part(**columns: Any) -> pa.Table:
    """Return rows with the columns after those of the commit."""
    schema = pa.schema(list(SCHEMA)[5:])
    return pa.table({name: columns.get(name, []) for name in schema.names}, schema)


def _node_part(logs: Sequence[TransactionLog], before: NodeTable, after: NodeTable) -> pa.Table:
    changes = compose_logs(logs, before, after)
    old, new = paths_by_id(before), paths_by_id(after)
    ids = {path: id_to_text(id_) for id_, path in [*old.items(), *new.items()]}
    deleted = {path: id_to_text(id_) for id_, path in old.items()}
    rows = [
        (kind, path, (deleted if kind.startswith("deleted") else ids).get(path), source, None)
        for kind, path, source in node_changes(changes)
    ]
    names = SCHEMA.names[5:]
    return _part(**dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))) if rows else _part()


def _chunk_parts(
    touched: Mapping[bytes, NDArray[np.uint32]], before: Workspace, after: Workspace, slice_: CommitSlice
) -> Iterator[pa.Table]:
    old, new = paths_by_id(before.base), paths_by_id(after.base)
    start = 0
    # of an array that was deleted since, the only row is its deletion
    for id_ in filter(new.__contains__, sorted(touched)):
        index = touched[id_]
        some = index[max(slice_.first - start, 0) : max(slice_.last - start, 0)]
        start += len(index)
        if not len(some):
            continue
        change = has_chunks(after, new[id_], some)
        if id_ in old:
            change += 2 * has_chunks(before, old[id_], some)
        rows = np.flatnonzero(change)
        same = np.zeros(len(rows), np.int64)
        yield _part(
            change=pa.array(CHUNK_CHANGES).take(pa.array(change[rows])),
            path=pa.array([new[id_]]).take(same),
            node_id=pa.array([id_to_text(id_)]).take(same),
            from_path=pa.nulls(len(rows), pa.string()),
            chunk=index_column(some[rows]),
        )


def has_chunks(workspace: Workspace, path: str, index: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return 1 for each chunk (k, ndim) of an array that a version has, else 0."""
    node = workspace.require_array(path)
    stored = np.zeros(len(index), np.int64)
    assert node.array is not None
    for ref in node.array.manifests:
        if len(ref.extents) != index.shape[1]:
            continue
        inside = np.flatnonzero(((index >= ref.extents[:, 0]) & (index < ref.extents[:, 1])).all(axis=1))
        table = workspace.context.assets.manifest(ref.id).arrays.get(node.id) if len(inside) else None
        if table is not None:
            stored[inside] |= table.find_chunks(index[inside]) >= 0
    return stored
