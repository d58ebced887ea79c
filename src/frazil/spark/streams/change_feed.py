"""The change feed: one row for each chunk and each node that a commit has changed.

    snapshot_id, parent_id, written_at, message, metadata    the commit; metadata is JSON
    change       new_group, new_array, deleted_group, deleted_array, updated_group, updated_array (their
                 metadata), moved (``from_path``), chunk_added, chunk_changed, chunk_removed
    path, node_id, from_path
    chunk        coordinates in the grid of chunks

A transaction log says which chunks were touched; the manifests of both versions say what that was. Only
those that may have one of these chunks are read. A chunk that is in neither version (written and deleted by
commits that have expired) has no row.
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

from frazil.changes.diff import compose
from frazil.changes.log import united
from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import id_to_text
from frazil.format.nodes import NodeTable
from frazil.format.transaction_log import TransactionLog
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.repository.session.workspace import Workspace
from frazil.spark.streams.commit_order import Step

SCHEMA: Final = pa.schema(
    {
        "snapshot_id": pa.string(),
        "parent_id": pa.string(),
        "written_at": pa.timestamp("us", "UTC"),
        "message": pa.string(),
        "metadata": pa.string(),
        "change": pa.string(),
        "path": pa.string(),
        "node_id": pa.string(),
        "from_path": pa.string(),
        "chunk": pa.list_(pa.int64()),
    }
)

#: The table of the data source that has these columns.
FEED: Final = "feed"

_NODES: Final = (
    "new_group",
    "new_array",
    "deleted_group",
    "deleted_array",
    "updated_group",
    "updated_array",
)
# by: was there, is there
_CHANGES: Final = pa.array([None, "chunk_added", "chunk_removed", "chunk_changed"])


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a step: its chunks from ``first`` up to ``last``, and its nodes with the first of them."""

    step: Step
    first: int
    last: int


def logs_of(assets: Assets, step: Step) -> list[TransactionLog]:
    """Its transaction logs. Those of expired commits are left out where a collector of garbage took them."""
    logs = []
    for id_ in step.logs:
        try:
            logs.append(assets.transaction_log(id_))
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND or id_ == step.after:
                raise
    return logs


def chunks_of(logs: Sequence[TransactionLog]) -> int:
    """How many chunks the logs name."""
    return sum(map(len, chain.from_iterable(log.updated_chunks.values() for log in logs)))


def pieces(assets: Assets, steps: Sequence[Step], rows: int) -> Iterator[Piece]:
    """The steps in pieces of at most so many chunks."""
    for step in steps:
        count = max(chunks_of(logs_of(assets, step)), 1)
        for first in range(0, count, rows):
            yield Piece(step, first, min(first + rows, count))


def read(context: Context, piece: Piece) -> pa.Table:
    """The rows of a piece."""
    step = piece.step
    logs = logs_of(context.assets, step)
    before, after = Workspace(context, step.before), Workspace(context, step.after)
    parts = [_node_part(logs, before.base, after.base)] if piece.first == 0 else []
    parts += _chunk_parts(united([log.updated_chunks for log in logs]), before, after, piece)
    table = pa.concat_tables(parts) if parts else _part()
    commit = {
        "snapshot_id": id_to_text(step.id),
        "parent_id": id_to_text(step.before),
        "written_at": step.written_at,
        "message": step.message,
        "metadata": None if step.metadata is None else json.dumps(step.metadata, sort_keys=True),
    }
    fields = [SCHEMA.field(name) for name in commit]
    columns = [pa.array([value], field.type) for value, field in zip(commit.values(), fields, strict=True)]
    same = pa.array(np.zeros(len(table), np.int64))
    return pa.table([*(column.take(same) for column in columns), *table.columns], schema=SCHEMA)


def _part(**columns: Any) -> pa.Table:
    """Rows of the columns behind those of the commit."""
    schema = pa.schema(list(SCHEMA)[5:])
    return pa.table({name: columns.get(name, []) for name in schema.names}, schema)


def _node_part(logs: Sequence[TransactionLog], before: NodeTable, after: NodeTable) -> pa.Table:
    changes = compose(logs, before, after)
    old, new = _paths(before), _paths(after)
    ids = {path: id_to_text(id_) for id_, path in [*old.items(), *new.items()]}
    gone = {path: id_to_text(id_) for id_, path in old.items()}
    rows: list[tuple[str | None, ...]] = [
        (kind, path, (gone if kind.startswith("deleted") else ids).get(path), None, None)
        for kind in _NODES
        for path in sorted(getattr(changes, f"{kind}s"))
    ]
    rows += [("moved", target, ids.get(target), source, None) for source, target in changes.moved]
    names = SCHEMA.names[5:]
    return _part(**dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))) if rows else _part()


def _chunk_parts(
    touched: Mapping[bytes, NDArray[np.uint32]], before: Workspace, after: Workspace, piece: Piece
) -> Iterator[pa.Table]:
    old, new = _paths(before.base), _paths(after.base)
    start = 0
    # of arrays that were deleted since, only that is told
    for id_ in filter(new.__contains__, sorted(touched)):
        index = touched[id_]
        some = index[max(piece.first - start, 0) : max(piece.last - start, 0)]
        start += len(index)
        if not len(some):
            continue
        there = has_chunks(after, new[id_], some)
        if id_ in old:
            there += 2 * has_chunks(before, old[id_], some)
        rows = np.flatnonzero(there)
        same = np.zeros(len(rows), np.int64)
        yield _part(
            change=_CHANGES.take(pa.array(there[rows])),
            path=pa.array([new[id_]]).take(same),
            node_id=pa.array([id_to_text(id_)]).take(same),
            from_path=pa.nulls(len(rows), pa.string()),
            chunk=_lists(some[rows]),
        )


def has_chunks(workspace: Workspace, path: str, index: NDArray[np.uint32]) -> NDArray[np.int64]:
    """1 for each chunk (k, ndim) of an array that a version has, else 0."""
    node = workspace.nodes.require_array(path)
    found = np.zeros(len(index), np.int64)
    assert node.array is not None
    for ref in node.array.manifests:
        if len(ref.extents) != index.shape[1]:
            continue
        inside = np.flatnonzero(((index >= ref.extents[:, 0]) & (index < ref.extents[:, 1])).all(axis=1))
        table = workspace.context.assets.manifest(ref.id).arrays.get(node.id) if len(inside) else None
        if table is not None:
            found[inside] |= table.find_chunks(index[inside]) >= 0
    return found


def _paths(nodes: NodeTable) -> dict[bytes, str]:
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, nodes.paths_list(), strict=True))


def _lists(index: NDArray[np.uint32]) -> pa.Array:
    offsets = np.arange(len(index) + 1, dtype=np.int32) * index.shape[1]
    return pa.ListArray.from_arrays(offsets, pa.array(index.reshape(-1).astype(np.int64)))
