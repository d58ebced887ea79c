"""The columns of the tables about a repository; the tables of its snapshots, refs, updates and changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import OpsEntry
from frazil.format.snapshot import SnapshotEntry
from frazil.repository.catalog.ancestry import ancestry
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.repository.catalog.repo_update import ops_log
from frazil.repository.handle.repository import Repository, context_of
from frazil.repository.session.differences import difference
from frazil.repository.session.session import Session
from frazil.spark.tables.options import snapshot_named

TIME: Final = pa.timestamp("us", "UTC")
NUMBERS: Final = pa.list_(pa.int64())


#: The table of rows of arrays, whose columns are those of the arrays.
ROW_CHANGES: Final = "row_changes"


_TYPES: Final = {
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "number": pa.int64(),
    "numbers": NUMBERS,
    "ratio": pa.float64(),
    "flag": pa.bool_(),
    "time": TIME,
}


def columns(text: str) -> pa.Schema:
    """Return the schema of ``name type, ...``. A column without a type has texts."""
    pairs = [each.split() for each in text.split(",")]
    return pa.schema([(name, _TYPES[kind[0] if kind else "text"]) for name, *kind in pairs])


_SNAPSHOT: Final = "snapshot_id, parent_id, written_at time, message, metadata"
#: Columns of each table. Ids are text as in ``Session.snapshot_id``; metadata is JSON.
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "snapshots": columns(_SNAPSHOT),
    "history": columns(f"position number, {_SNAPSHOT}"),
    "refs": columns("name, type, snapshot_id"),
    "ops": columns(
        "position number, update, updated_at time, name, previous_snapshot_id, new_snapshot_id, details, "
        "backup"
    ),
    "nodes": columns("path, type, node_id, document"),
    "arrays": columns(
        "path, node_id, shape numbers, chunk_shape numbers, num_chunks numbers, dimensions texts, data_type, "
        "fill_value, codecs, attributes, manifests number"
    ),
    "manifests": columns(
        "manifest_id, location, bytes number, references number, path, first_chunk numbers, end_chunk numbers"
    ),
    "chunks": columns(
        "path, chunk numbers, kind, location, offset number, length number, etag, modified_at time"
    ),
    "regions": columns(
        "path, dimension, start number, stop number, chunks number, stored number, fill_ratio ratio, "
        "bytes number, native number, virtual number, inline number"
    ),
    "storage": columns("kind, files number, bytes number"),
    "changes": columns("change, path, from_path, chunk numbers"),
}


def schema_of(name: str) -> pa.Schema:
    """Return the columns of a table. Raise ``InvalidInputError`` for an unknown name."""
    if name not in SCHEMAS:
        names = [*SCHEMAS, ROW_CHANGES]
        raise InvalidInputError(
            f"Option `table` must be one of {', '.join(names)}, got {name!r}{suggest(name, names)}",
            ErrorKind.UNKNOWN_CHOICE,
        )
    return SCHEMAS[name]


def text_column(rows: Ragged) -> pa.Array:
    """Return a column of text, without a Python object for each text."""
    whole = rows.compact()
    offsets = np.append(whole.starts, whole.total()).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(whole.values))]
    return pa.StringArray.from_buffers(len(whole), *buffers[1:])


def list_column(rows: Ragged) -> pa.Array:
    """Return a column of lists of numbers."""
    whole = rows.compact()
    offsets = np.append(whole.starts, whole.total()).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(whole.values.astype(np.int64)))


def index_column(index: NDArray[np.uint32]) -> pa.Array:
    """Return a column of lists, each the chunk coordinates of one row."""
    n, width = index.shape
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * np.int32(width))
    return pa.ListArray.from_arrays(offsets, pa.array(index.reshape(-1).astype(np.int64)))


def constant_column(text: str, rows: int) -> pa.Array:
    """Return a column of text that has the same text in every row."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text]).cast(pa.string())


def paths_by_id(nodes: NodeTable) -> dict[bytes, str]:
    """Return the path of each node, by its id."""
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, nodes.paths_list(), strict=True))


def session_of(repo: Repository, branch: str | None, tag: str | None, snapshot_id: str | None) -> Session:
    """Return a session that reads a version: the tip of ``main`` if none is named."""
    if branch is None and tag is None and snapshot_id is None:
        branch = "main"
    return repo.readonly_session(branch, tag=tag, snapshot_id=snapshot_id)


def array_paths(session: Session, array: str | None) -> list[str]:
    """Return the path of one array, or those of all arrays if ``array`` is None."""
    if array is not None:
        path = "/" + array.strip("/")
        session.workspace.require_array(path)
        return [path]
    nodes = session.workspace.snapshot.nodes
    return nodes.select_nodes(nodes.is_array).paths_list()


def snapshots(repo: Repository) -> pa.Table:
    """Return every snapshot of the repository, newest first."""
    rows = context_of(repo).catalog.full_repo_info().snapshots
    newest = np.argsort(rows.flushed_at(), kind="stable")[::-1].astype(np.int64)
    return pa.table(_entries(rows.entries(newest)), SCHEMAS["snapshots"])


def history(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Return a snapshot and its ancestors, newest first."""
    tip = session_of(repo, branch, tag, snapshot_id).workspace.snapshot_id
    columns = _entries(chain.from_iterable(ancestry(context_of(repo).catalog.repo_info(), tip)))
    return pa.table({"position": np.arange(len(columns["snapshot_id"])), **columns}, SCHEMAS["history"])


def refs(repo: Repository) -> pa.Table:
    """Return branches, tags, and deleted tags, whose names cannot be used again."""
    info = context_of(repo).catalog.repo_info()
    groups = {"branch": info.branches, "tag": info.tags}
    names = [name for each in groups.values() for name in sorted(each)]
    ids = [id_to_text(each[name]) for each in groups.values() for name in sorted(each)]
    kinds = [kind for kind, each in groups.items() for _ in each]
    deleted = sorted(info.deleted_tags)
    return pa.table(
        {
            "name": [*names, *deleted],
            "type": [*kinds, *["deleted tag"] * len(deleted)],
            "snapshot_id": [*ids, *[None] * len(deleted)],
        },
        SCHEMAS["refs"],
    )


def ops(repo: Repository) -> pa.Table:
    """Return all updates of the repository, newest first (spec version 2)."""
    context_of(repo).require_version_2()
    entries = list(ops_log(repo.storage, context_of(repo).catalog.repo_info()))
    return pa.table(
        {
            "position": np.arange(len(entries)),
            "update": [entry.kind.name.lower().replace("_", "-") for entry in entries],
            "updated_at": pa.array([entry.updated_at for entry in entries], pa.int64()).view(TIME),
            "name": [entry.name for entry in entries],
            "previous_snapshot_id": [_id(entry.previous_snapshot) for entry in entries],
            "new_snapshot_id": [_id(entry.new_snapshot) for entry in entries],
            "details": list(map(_details, entries)),
            "backup": [entry.backup_path for entry in entries],
        },
        SCHEMAS["ops"],
    )


def _entries(entries: Iterable[SnapshotEntry]) -> dict[str, Any]:
    rows = list(entries)
    return {
        "snapshot_id": [id_to_text(each.id) for each in rows],
        "parent_id": [_id(each.parent) for each in rows],
        "written_at": pa.array([each.flushed_at for each in rows], pa.int64()).view(TIME),
        "message": [each.message for each in rows],
        "metadata": [json.dumps(each.metadata, default=str) for each in rows],
    }


def _id(id_: bytes | None) -> str | None:
    return None if id_ is None else id_to_text(id_)


def _details(entry: OpsEntry) -> str | None:
    if entry.versions is not None:
        return json.dumps({"from_version": entry.versions[0], "to_version": entry.versions[1]})
    if entry.flag is not None:
        return json.dumps({"flag": entry.flag[0], "value": entry.flag[1] if entry.flag[2] else None})
    if entry.status is not None:
        return json.dumps(
            {"availability": entry.status.availability.name.lower(), "reason": entry.status.reason}
        )
    return None


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
