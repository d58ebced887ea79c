"""The table of changes between two versions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.format.ids import id_from_text, id_to_text
from frazil.format.manifest import ChunkTable
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.differences import difference
from frazil.spark.tables.arrow_columns import constant_column, index_column, paths_by_id
from frazil.spark.tables.location import snapshot_named
from frazil.spark.tables.repository_schemas import NUMBERS, SCHEMAS


def changes(
    repo: Repository,
    start: str | None = None,
    end: str | None = None,
) -> pa.Table:
    """Return the changes after ``start`` up to ``end``, from the transaction logs of the commits in between.

    Each is a snapshot id, a branch or a tag. The default of ``end`` is ``main``, the default of ``start`` is
    the parent snapshot of ``end``. ``change`` is one of new_group, new_array, deleted_group, deleted_array,
    updated_group, updated_array (metadata), moved (``from_path``), chunk_added, chunk_changed, chunk_removed
    (``chunk``, of arrays that ``end`` has). A chunk that was added and removed in between has no row.
    """
    context = context_of(repo)
    info = context.catalog.repo_info()
    after = id_from_text(snapshot_named(repo, end or "main"))
    row = require_snapshot(info, after)
    before = (
        id_from_text(snapshot_named(repo, start))
        if start is not None
        else info.snapshots.entry(row).parent or after
    )
    diff = difference(context, info, before, after)
    rows = node_changes(diff)
    names = ("change", "path", "from_path")
    nodes = dict(zip(names, map(list, zip(*rows, strict=True)) if rows else ([], [], []), strict=True))
    parts = [pa.table({**nodes, "chunk": pa.nulls(len(rows), NUMBERS)}, SCHEMAS["changes"])]
    old, new = (repo.readonly_session(snapshot_id=id_to_text(each)) for each in (before, after))
    old_paths = paths_by_id(old.workspace.snapshot.nodes)
    for path, index in sorted(diff.updated_chunks.items()):
        node = new.workspace.node(path)
        if node is None or node.array is None or path in diff.deleted_arrays:
            continue
        old_path = old_paths.get(node.id)
        parts.append(
            _chunk_changes(
                path, index, None if old_path is None else old.chunk_table(old_path), new.chunk_table(path)
            )
        )
    return pa.concat_tables(parts)


#: The kinds of changed nodes, as attributes of a difference without the last letter.
_NODES: Final = ("new_group", "new_array", "deleted_group", "deleted_array", "updated_group", "updated_array")
#: The change of a chunk: 1 if only the new version has it, 2 if only the old one, 3 if both.
CHUNK_CHANGES: Final = ("none", "chunk_added", "chunk_removed", "chunk_changed")


def node_changes(diff: Any) -> list[tuple[str, str, str | None]]:
    """Return the change, the path and the earlier path of each node of a difference."""
    rows = [(kind, path, None) for kind in _NODES for path in sorted(getattr(diff, f"{kind}s"))]
    return [*rows, *(("moved", target, source) for source, target in diff.moved)]


def _chunk_changes(path: str, index: NDArray[np.uint32], old: ChunkTable | None, new: ChunkTable) -> pa.Table:
    change = np.zeros(len(index), np.int64)
    if old is not None and old.ndim == index.shape[1]:
        change += 2 * (old.find_chunks(index) >= 0)
    change += new.find_chunks(index) >= 0
    rows = np.flatnonzero(change)
    return pa.table(
        {
            "change": pa.array(CHUNK_CHANGES).take(pa.array(change[rows])),
            "path": constant_column(path, len(rows)),
            "from_path": pa.nulls(len(rows), pa.string()),
            "chunk": index_column(index[rows]),
        },
        SCHEMAS["changes"],
    )
