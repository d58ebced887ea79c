"""The tables about a repository: for Spark, SQL, or pyarrow.

Each is a function of a repository, or of a session that reads a version. It returns a ``pyarrow.Table`` with
the columns in ``SCHEMAS``, and needs no Spark. No loop runs over chunks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil import pipeline
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged
from frazil.format.ids import chunk_key, id_from_text, id_to_text, ids_to_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import OpsEntry
from frazil.format.snapshot import SnapshotEntry
from frazil.handle.repository import Repository, context_of
from frazil.jobs.job import Version
from frazil.maintenance.statistics import ArraySizes, array_sizes
from frazil.repository.catalog.ancestry import ancestry
from frazil.repository.catalog.repo_changes import require_snapshot
from frazil.repository.catalog.repo_update import ops_log
from frazil.repository.session.differences import difference
from frazil.repository.session.session import Session
from frazil.repository.session.workspace import Workspace
from frazil.spark.tables.options import TABLES, VERSION_OPTIONS, Options, session_at, snapshot_named

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
    "derived": columns(
        "path, operation, sources texts, snapshot, state, chunks number, of_chunks number, "
        "bytes_read number, reason"
    ),
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


def _text_column(rows: Ragged) -> pa.Array:
    """Return a column of text, without a Python object for each text."""
    whole = rows.compact()
    offsets = np.append(whole.starts, int(whole.lengths.sum())).astype(np.int32)
    values = np.ascontiguousarray(whole.values)
    return pa.StringArray.from_buffers(len(whole), pa.py_buffer(offsets), pa.py_buffer(values))


def _list_column(rows: Ragged) -> pa.Array:
    whole = rows.compact()
    offsets = np.append(whole.starts, int(whole.lengths.sum())).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(whole.values.astype(np.int64)))


def index_column(index: NDArray[np.uint32]) -> pa.Array:
    """Return a column of lists, each the chunk coordinates of one row."""
    n, width = index.shape
    return _list_column(Ragged.from_lengths(index.reshape(-1), np.full(n, width)))


def paths_by_id(nodes: NodeTable) -> dict[bytes, str]:
    """Return the path of each node, by its id."""
    ids, _ = nodes.identities(np.arange(len(nodes)))
    return dict(zip(ids, nodes.paths_list(), strict=True))


def snapshots(repo: Repository) -> pa.Table:
    """Return every snapshot of the repository, newest first."""
    rows = context_of(repo).catalog.full_repo_info().snapshots
    newest = np.argsort(rows.flushed_at(), kind="stable")[::-1].astype(np.int64)
    return pa.Table.from_pylist(list(map(_entry, rows.entries(newest))), SCHEMAS["snapshots"])


def refs(repo: Repository) -> pa.Table:
    """Return branches, tags, and deleted tags, whose names cannot be used again."""
    info = context_of(repo).catalog.repo_info()
    rows = [
        {"name": name, "type": kind, "snapshot_id": id_to_text(ids[name])}
        for kind, ids in (("branch", info.branches), ("tag", info.tags))
        for name in sorted(ids)
    ]
    rows += [{"name": name, "type": "deleted tag"} for name in sorted(info.deleted_tags)]
    return pa.Table.from_pylist(rows, SCHEMAS["refs"])


def ops(repo: Repository) -> pa.Table:
    """Return all updates of the repository, newest first (spec version 2)."""
    context_of(repo).require_version_2()
    rows = [
        {
            "position": position,
            "update": entry.kind.name.lower().replace("_", "-"),
            "updated_at": entry.updated_at,
            "name": entry.name,
            "previous_snapshot_id": _id(entry.previous_snapshot),
            "new_snapshot_id": _id(entry.new_snapshot),
            "details": _details(entry),
            "backup": entry.backup_path,
        }
        for position, entry in enumerate(ops_log(repo.storage, context_of(repo).catalog.repo_info()))
    ]
    return pa.Table.from_pylist(rows, SCHEMAS["ops"])


def _entry(entry: SnapshotEntry) -> dict[str, Any]:
    return {
        "snapshot_id": id_to_text(entry.id),
        "parent_id": _id(entry.parent),
        "written_at": entry.flushed_at,
        "message": entry.message,
        "metadata": json.dumps(entry.metadata, default=str),
    }


def _id(id_: bytes | None) -> str | None:
    return None if id_ is None else id_to_text(id_)


def _details(entry: OpsEntry) -> str | None:
    if entry.versions is not None:
        return json.dumps({"from_version": entry.versions[0], "to_version": entry.versions[1]})
    if entry.flag is not None:
        return json.dumps({"flag": entry.flag[0], "value": entry.flag[1] if entry.flag[2] else None})
    if entry.status is None:
        return None
    return json.dumps({"availability": entry.status.availability.name.lower(), "reason": entry.status.reason})


def history(session: Session) -> pa.Table:
    """Return a snapshot and its ancestors, newest first."""
    workspace = session.workspace
    entries = chain.from_iterable(ancestry(workspace.context.catalog.repo_info(), workspace.snapshot_id))
    rows = [{"position": position, **_entry(each)} for position, each in enumerate(entries)]
    return pa.Table.from_pylist(rows, SCHEMAS["history"])


def nodes(session: Session) -> pa.Table:
    """Return groups and arrays, with their ``zarr.json``."""
    table = session.workspace.snapshot.nodes
    return pa.table(
        {
            "path": _text_column(table.paths),
            "type": pa.array(np.where(table.is_array, "array", "group")),
            "node_id": ids_to_text(table.ids),
            "document": _text_column(table.user_data),
        },
        SCHEMAS["nodes"],
    )


def arrays(session: Session) -> pa.Table:
    """Return arrays: shape, chunks, dimensions, types, attributes."""
    table = session.workspace.snapshot.nodes
    rows = table.select_nodes(table.is_array).exact()
    documents = list(map(json.loads, rows.user_data.blobs()))
    # A grid with chunks of several shapes has no chunk shape.
    grids = [each.get("chunk_grid", {}).get("configuration", {}).get("chunk_shape") for each in documents]
    regular = [isinstance(grid, list) and all(isinstance(each, int) for each in grid) for grid in grids]
    dimensions = [each.get("dimension_names") for each in documents]
    return pa.table(
        {
            "path": _text_column(rows.paths),
            "node_id": ids_to_text(rows.ids),
            "shape": _list_column(rows.array_length),
            "chunk_shape": [grid if one else None for grid, one in zip(grids, regular, strict=True)],
            "num_chunks": _list_column(rows.num_chunks),
            "dimensions": pa.array(dimensions, pa.list_(pa.string())),
            "data_type": [_json(each.get("data_type")) for each in documents],
            "fill_value": [_json(each.get("fill_value")) for each in documents],
            "codecs": [json.dumps(each.get("codecs")) for each in documents],
            "attributes": [json.dumps(each.get("attributes", {})) for each in documents],
            "manifests": rows.manifests.lengths,
        },
        SCHEMAS["arrays"],
    )


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def manifests(session: Session) -> pa.Table:
    """Return a row for each manifest and array, with the box of the references in the manifest."""
    snapshot = session.workspace.snapshot
    rows = snapshot.nodes.select_nodes(snapshot.nodes.is_array)
    used = rows.manifests.compact()
    owner = np.repeat(np.arange(len(rows)), used.lengths)
    ids = np.ascontiguousarray(used.values).view(np.uint8).reshape(len(owner), -1)
    row = np.fromiter(map(snapshot.manifests.find_manifest, used.values.tolist()), np.int64, len(owner))
    ndim = rows.array_length.lengths[owner]
    boxes = rows.extents.compact().values.astype(np.int64).reshape(-1, 2)
    texts = ids_to_text(ids)
    return pa.table(
        {
            "manifest_id": texts,
            "location": list(map("manifests/{}".format, texts)),
            "bytes": pa.array(snapshot.manifests.size_bytes[row].astype(np.int64), mask=row < 0),
            "references": pa.array(snapshot.manifests.num_chunk_refs[row].astype(np.int64), mask=row < 0),
            "path": _text_column(rows.paths).take(pa.array(owner)),
            "first_chunk": _list_column(Ragged.from_lengths(boxes[:, 0], ndim)),
            "end_chunk": _list_column(Ragged.from_lengths(boxes[:, 1], ndim)),
        },
        SCHEMAS["manifests"],
    )


def _array_paths(session: Session, array: str | None) -> list[str]:
    """Return the path of one array, or those of all arrays if ``array`` is None."""
    if array is not None:
        path = "/" + array.strip("/")
        session.workspace.require_array(path)
        return [path]
    nodes = session.workspace.snapshot.nodes
    return nodes.select_nodes(nodes.is_array).paths_list()


def chunks(session: Session, array: str | None = None) -> pa.Table:
    """Return every reference of one array, or of all. ``location`` of a native chunk is its file."""
    parts = [_chunks(path, session.chunk_table(path)) for path in _array_paths(session, array)]
    return pa.concat_tables([SCHEMAS["chunks"].empty_table(), *parts])


_KINDS: Final = tuple(kind.name.lower() for kind in ChunkKind)


def _chunks(path: str, table: ChunkTable) -> pa.Table:
    folder = chunk_key(bytes(12)).split("/")[0]
    native = list(map(f"{folder}/{{}}".format, ids_to_text(table.chunk_ids)))
    # The locations of native chunks, those of virtual chunks, and a last one that is null.
    locations = pa.concat_arrays(
        [pa.array(native, pa.string()), _text_column(table.foreign.locations), pa.nulls(1, pa.string())]
    )
    etags = pa.concat_arrays([_text_column(table.foreign.etags), pa.nulls(1, pa.string())])
    is_native, is_virtual = table.kind == ChunkKind.NATIVE, table.kind == ChunkKind.VIRTUAL
    source = table.source.astype(np.int64)
    location = np.where(is_native, source, np.where(is_virtual, source + len(native), len(locations) - 1))
    tagged = etags.take(pa.array(np.where(is_virtual, source, len(etags) - 1)))
    modified = np.zeros(len(table), np.int64)
    modified[is_virtual] = table.foreign.modified[source[is_virtual]].astype(np.int64) * 1_000_000
    return pa.table(
        {
            "path": pa.repeat(path, len(table)),
            "chunk": index_column(table.index),
            "kind": pa.array(_KINDS).take(pa.array(table.kind)),
            "location": locations.take(pa.array(location)),
            "offset": table.offset.astype(np.int64),
            "length": table.length.astype(np.int64),
            "etag": pc.if_else(pc.equal(tagged, ""), pa.scalar(None, pa.string()), tagged),
            "modified_at": pa.array(modified, mask=modified == 0).view(TIME),
        },
        SCHEMAS["chunks"],
    )


def regions(session: Session, array: str | None = None, slab: str | None = None) -> pa.Table:
    """Return how many chunks of each array are stored, and their bytes.

    With ``slab``, the name or number of a dimension: for each row of chunks along it, with the elements
    ``start`` up to but not including ``stop``. Arrays without that dimension have no row.
    """
    chosen = []
    for node in map(session.workspace.require_array, _array_paths(session, array)):
        assert node.array is not None
        names, rank = node.array.dimension_names or (), len(node.array.shape)
        axis = names.index(slab) if slab in names else int(slab) if slab and slab.isdigit() else -1
        if slab is None or 0 <= axis < rank:
            chosen.append((node, None if slab is None else axis))
    sizes = array_sizes(session.workspace.context, chosen)
    parts = [_regions(each, axis) for each, (_, axis) in zip(sizes, chosen, strict=True)]
    return pa.concat_tables([SCHEMAS["regions"].empty_table(), *parts])


def _regions(sizes: ArraySizes, axis: int | None) -> pa.Table:
    node = sizes.node
    assert node.array is not None
    slabs = sizes.counts.shape[1]
    each = int(np.prod(node.array.num_chunks, dtype=np.int64)) // max(slabs, 1)
    dimension = None
    start = stop = np.zeros(1, np.int64)
    if axis is not None:
        names, length = node.array.dimension_names, chunk_lengths(node.user_data)[axis]
        dimension = (names[axis] if names else None) or str(axis)
        steps = np.full(slabs, length) if isinstance(length, int) else np.array(length[:slabs], np.int64)
        stop = np.cumsum(steps, dtype=np.int64)
        start, stop = stop - steps, np.minimum(stop, node.array.shape[axis])
    stored = sizes.counts.sum(axis=0)
    kinds = (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
    return pa.table(
        {
            "path": [node.path] * slabs,
            "dimension": [dimension] * slabs,
            "start": pa.array(start, mask=np.full(slabs, axis is None)),
            "stop": pa.array(stop, mask=np.full(slabs, axis is None)),
            "chunks": np.full(slabs, each),
            "stored": stored,
            "fill_ratio": stored / each if each else np.ones(slabs),
            "bytes": sizes.bytes.sum(axis=0),
            **{kind.name.lower(): sizes.counts[kind] for kind in kinds},
        },
        SCHEMAS["regions"],
    )


def storage(repo: Repository) -> pa.Table:
    """Return the number of files of each kind and their bytes: all objects of the storage with garbage."""
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for each in repo.storage.list(""):
        folder, slash, _ = each.key.partition("/")
        kind = folder if slash else "repo"  # an object that is in no folder
        files[kind] += 1
        sizes[kind] += each.size
    rows = [{"kind": kind, "files": files[kind], "bytes": sizes[kind]} for kind in sorted(files)]
    return pa.Table.from_pylist(rows, SCHEMAS["storage"])


#: The kinds of changed nodes, as attributes of a difference without the last letter.
_NODES: Final = ("new_group", "new_array", "deleted_group", "deleted_array", "updated_group", "updated_array")
#: The change of a chunk: 1 if only the new version has it, 2 if only the old one, 3 if both.
_CHUNK_CHANGES: Final = ("none", "chunk_added", "chunk_removed", "chunk_changed")


def node_changes(diff: Any) -> list[dict[str, str]]:
    """Return the change, the path and the earlier path of each changed node of a difference."""
    rows = [{"change": kind, "path": path} for kind in _NODES for path in sorted(getattr(diff, f"{kind}s"))]
    moved = ({"change": "moved", "path": target, "from_path": source} for source, target in diff.moved)
    return [*rows, *moved]


def chunk_changes(
    before: Workspace, after: Workspace, old_path: str | None, path: str, index: NDArray[np.uint32]
) -> pa.Table:
    """Return rows of the table ``changes`` for those chunks (k, ndim) of an array that a version has."""
    change = _has_chunks(after, path, index)
    if old_path is not None:
        change += 2 * _has_chunks(before, old_path, index)
    rows = np.flatnonzero(change)
    part = {
        "change": pa.array(_CHUNK_CHANGES).take(pa.array(change[rows])),
        "path": pa.repeat(path, len(rows)),
        "from_path": pa.nulls(len(rows), pa.string()),
        "chunk": index_column(index[rows]),
    }
    return pa.table(part, SCHEMAS["changes"])


def _has_chunks(workspace: Workspace, path: str, index: NDArray[np.uint32]) -> NDArray[np.int64]:
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
            stored[inside] |= table.of_rank(index.shape[1]).find_chunks(index[inside]) >= 0
    return stored


def changes(repo: Repository, start: str | None = None, end: str | None = None) -> pa.Table:
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
    if start is None:
        before = info.snapshots.entry(row).parent or after
    else:
        before = id_from_text(snapshot_named(repo, start))
    diff = difference(context, info, before, after)
    parts = [pa.Table.from_pylist(node_changes(diff), SCHEMAS["changes"])]
    old, new = (repo.readonly_session(snapshot_id=id_to_text(each)) for each in (before, after))
    old_paths = paths_by_id(old.workspace.snapshot.nodes)
    for path, index in sorted(diff.updated_chunks.items()):
        node = new.workspace.node(path)
        if node is None or node.array is None or path in diff.deleted_arrays:
            continue
        parts.append(chunk_changes(old.workspace, new.workspace, old_paths.get(node.id), path, index))
    return pa.concat_tables(parts)


def derived(repo: Repository, end: str) -> pa.Table:
    """Return the derived arrays of a snapshot: their states, and what a refresh would compute."""
    rows = pipeline.derived(Version(repo, end)).arrays
    documents = [{**asdict(each), "sources": list(each.sources)} for each in rows]
    return pa.Table.from_pylist(documents, SCHEMAS["derived"])


_FUNCTIONS: Final[dict[str, Callable[..., pa.Table]]] = {
    each.__name__: each
    for each in (
        snapshots,
        history,
        refs,
        ops,
        nodes,
        arrays,
        manifests,
        chunks,
        regions,
        storage,
        changes,
        derived,
    )
}


def table(repo: Repository, options: Options) -> pa.Table:
    """Return the table that the options name, of the version that they name."""
    name = options["table"]
    schema_of(name)
    arguments = {each: options[each] for each in TABLES[name].difference(VERSION_OPTIONS) if each in options}
    if not TABLES[name].isdisjoint(VERSION_OPTIONS) and "end" not in arguments:
        session = session_at(repo, options)
        if name not in ("changes", "derived"):
            return _FUNCTIONS[name](session, **arguments)
        arguments["end"] = session.snapshot_id
    return _FUNCTIONS[name](repo, **arguments)
