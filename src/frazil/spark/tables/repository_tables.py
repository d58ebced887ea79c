"""What a repository knows of itself, as tables: of Spark, SQL, or pyarrow.

    snapshots   every snapshot that a branch or tag leads to      history   those of one ref, newest first
    refs        branches and tags                                 ops       everything that was ever done
    nodes       groups and arrays of one version                  arrays    arrays: shape, chunks, types
    manifests   files of references of one version                chunks    every reference of one version
    regions     how full arrays are, or slabs of them             storage   bytes by kind of file
    changes     what was done from one version to another

Each is a function of a repository that gives a ``pyarrow.Table`` with the schema in ``SCHEMAS``, so it needs
no Spark. Versions are named as in ``Repository.readonly_session``: the tip of ``main`` unless told otherwise.
Columns are made of columns: no loop runs over chunks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import batched, chain
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_edges
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import Ragged, intern
from frazil.format.ids import id_to_text, ids_to_text
from frazil.format.keys import chunk_key
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.nodes import NodeTable
from frazil.format.ops_log import OpsEntry
from frazil.format.snapshot_table import SnapshotEntry
from frazil.repository.catalog.history import ancestry, ops_log
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.session.differences import difference
from frazil.repository.session.session import Session
from frazil.spark.tables import location
from frazil.spark.tables.location import Options

_TIME: Final = pa.timestamp("us", "UTC")
_NUMBERS: Final = pa.list_(pa.int64())


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(list(fields.items()))


#: Columns of each table. Ids are text as in ``Session.snapshot_id``; metadata is JSON.
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "snapshots": _schema(
        snapshot_id=pa.string(),
        parent_id=pa.string(),
        written_at=_TIME,
        message=pa.string(),
        metadata=pa.string(),
    ),
    "history": _schema(
        position=pa.int64(),
        snapshot_id=pa.string(),
        parent_id=pa.string(),
        written_at=_TIME,
        message=pa.string(),
        metadata=pa.string(),
    ),
    "refs": _schema(name=pa.string(), type=pa.string(), snapshot_id=pa.string()),
    "ops": _schema(
        position=pa.int64(),
        operation=pa.string(),
        updated_at=_TIME,
        name=pa.string(),
        previous_snapshot_id=pa.string(),
        new_snapshot_id=pa.string(),
        details=pa.string(),
        backup=pa.string(),
    ),
    "nodes": _schema(path=pa.string(), type=pa.string(), node_id=pa.string(), document=pa.string()),
    "arrays": _schema(
        path=pa.string(),
        node_id=pa.string(),
        shape=_NUMBERS,
        chunk_shape=_NUMBERS,
        num_chunks=_NUMBERS,
        dimensions=pa.list_(pa.string()),
        data_type=pa.string(),
        fill_value=pa.string(),
        codecs=pa.string(),
        attributes=pa.string(),
        manifests=pa.int64(),
    ),
    "manifests": _schema(
        manifest_id=pa.string(),
        location=pa.string(),
        bytes=pa.int64(),
        references=pa.int64(),
        path=pa.string(),
        first_chunk=_NUMBERS,
        end_chunk=_NUMBERS,
    ),
    "chunks": _schema(
        path=pa.string(),
        chunk=_NUMBERS,
        kind=pa.string(),
        location=pa.string(),
        offset=pa.int64(),
        length=pa.int64(),
        etag=pa.string(),
        modified_at=_TIME,
    ),
    "regions": _schema(
        path=pa.string(),
        dimension=pa.string(),
        start=pa.int64(),
        stop=pa.int64(),
        chunks=pa.int64(),
        stored=pa.int64(),
        fill_ratio=pa.float64(),
        bytes=pa.int64(),
        native=pa.int64(),
        virtual=pa.int64(),
        inline=pa.int64(),
    ),
    "storage": _schema(kind=pa.string(), files=pa.int64(), bytes=pa.int64()),
    "changes": _schema(change=pa.string(), path=pa.string(), from_path=pa.string(), chunk=_NUMBERS),
}


def schema_of(name: str) -> pa.Schema:
    """The columns of a table; ``InvalidInputError`` if there is none of that name."""
    if name not in SCHEMAS:
        raise InvalidInputError(
            f"option `table`: expected one of {', '.join(SCHEMAS)}, found {name!r}{suggest(name, SCHEMAS)}",
            ErrorKind.NOT_ALLOWED,
        )
    return SCHEMAS[name]


def table(repo: Repository, options: Options) -> pa.Table:
    """The table that the options name, of the version that they name."""
    schema_of(options["table"])
    return _BY_OPTIONS[options["table"]](repo, options)


# Versions


def snapshots(repo: Repository) -> pa.Table:
    """Every snapshot that the repository knows, newest first.

    >>> import frazil
    >>> snapshots(frazil.Repository.create(frazil.in_memory_storage()))["message"].to_pylist()
    ['Repository initialized']
    """
    known = context_of(repo).catalog.full_repo_info().snapshots
    newest = np.argsort(known.flushed_at(), kind="stable")[::-1].astype(np.int64)
    return pa.table(_entries(known.entries(newest)), SCHEMAS["snapshots"])


def history(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """A snapshot and all before it, newest first."""
    tip = _session(repo, branch, tag, snapshot_id).workspace.snapshot_id
    columns = _entries(chain.from_iterable(ancestry(context_of(repo).catalog.repo_info(), tip)))
    return pa.table({"position": np.arange(len(columns["snapshot_id"])), **columns}, SCHEMAS["history"])


def refs(repo: Repository) -> pa.Table:
    """Branches, tags, and tags that were deleted, whose names are never used again."""
    info = context_of(repo).catalog.repo_info()
    groups = {"branch": info.branches, "tag": info.tags}
    names = [name for each in groups.values() for name in sorted(each)]
    ids = [id_to_text(each[name]) for each in groups.values() for name in sorted(each)]
    kinds = [kind for kind, each in groups.items() for _ in each]
    gone = sorted(info.deleted_tags)
    return pa.table(
        {
            "name": [*names, *gone],
            "type": [*kinds, *["deleted tag"] * len(gone)],
            "snapshot_id": [*ids, *[None] * len(gone)],
        },
        SCHEMAS["refs"],
    )


def ops(repo: Repository) -> pa.Table:
    """Everything that was ever done to the repository, newest first (spec version 2)."""
    context_of(repo).require_version_2()
    entries = list(ops_log(repo.storage, context_of(repo).catalog.repo_info()))
    return pa.table(
        {
            "position": np.arange(len(entries)),
            "operation": [entry.kind.name.lower().replace("_", "-") for entry in entries],
            "updated_at": pa.array([entry.updated_at for entry in entries], pa.int64()).view(_TIME),
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
        "written_at": pa.array([each.flushed_at for each in rows], pa.int64()).view(_TIME),
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


# One version


def nodes(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Groups and arrays, with their ``zarr.json``."""
    found = _session(repo, branch, tag, snapshot_id).workspace.snapshot.nodes
    return pa.table(
        {
            "path": _text(found.paths),
            "type": pa.array(np.where(found.is_array, "array", "group")),
            "node_id": ids_to_text(found.ids),
            "document": _text(found.user_data),
        },
        SCHEMAS["nodes"],
    )


def arrays(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Arrays: shape, chunks, dimensions, types, attributes."""
    found = _session(repo, branch, tag, snapshot_id).workspace.snapshot.nodes
    rows = found.select_nodes(found.is_array).exact()
    documents = list(map(json.loads, rows.user_data.blobs()))
    grids = [each.get("chunk_grid", {}).get("configuration", {}).get("chunk_shape") for each in documents]
    return pa.table(
        {
            "path": _text(rows.paths),
            "node_id": ids_to_text(rows.ids),
            "shape": _lists(rows.array_length),
            "chunk_shape": pa.array([_sizes(grid) for grid in grids], _NUMBERS),
            "num_chunks": _lists(rows.num_chunks),
            "dimensions": pa.array(
                [each.get("dimension_names") for each in documents], pa.list_(pa.string())
            ),
            "data_type": [_json(each.get("data_type")) for each in documents],
            "fill_value": [_json(each.get("fill_value")) for each in documents],
            "codecs": [json.dumps(each.get("codecs")) for each in documents],
            "attributes": [json.dumps(each.get("attributes", {})) for each in documents],
            "manifests": rows.manifests.lengths,
        },
        SCHEMAS["arrays"],
    )


def _sizes(grid: Any) -> list[int] | None:
    """Chunks of one shape; None for a grid of several."""
    regular = isinstance(grid, list) and all(isinstance(each, int) for each in grid)
    return grid if regular else None


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def manifests(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """A row for each manifest and array that it has references of, with the box that these lie in."""
    snapshot = _session(repo, branch, tag, snapshot_id).workspace.snapshot
    rows = snapshot.nodes.select_nodes(snapshot.nodes.is_array)
    used = rows.manifests.compact()
    owner = np.repeat(np.arange(len(rows)), used.lengths)
    ids = np.ascontiguousarray(used.values).view(np.uint8).reshape(len(owner), -1)
    place = np.fromiter(map(snapshot.manifests.find_manifest, used.values.tolist()), np.int64, len(owner))
    ndim = rows.array_length.lengths[owner]
    boxes = rows.extents.compact().values.astype(np.int64).reshape(-1, 2)
    texts = ids_to_text(ids)
    known = place >= 0
    return pa.table(
        {
            "manifest_id": texts,
            "location": list(map("manifests/{}".format, texts)),
            "bytes": pa.array(snapshot.manifests.size_bytes[place].astype(np.int64), mask=~known),
            "references": pa.array(snapshot.manifests.num_chunk_refs[place].astype(np.int64), mask=~known),
            "path": _text(rows.paths).take(pa.array(owner)),
            "first_chunk": _lists(Ragged.from_lengths(boxes[:, 0], ndim)),
            "end_chunk": _lists(Ragged.from_lengths(boxes[:, 1], ndim)),
        },
        SCHEMAS["manifests"],
    )


def chunks(
    repo: Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    array: str | None = None,
) -> pa.Table:
    """Every reference: of one array, or of all. ``location`` of a native chunk is its file."""
    session = _session(repo, branch, tag, snapshot_id)
    parts = [_chunks(path, session.chunk_table(path)) for path in _paths(session, array)]
    return pa.concat_tables([SCHEMAS["chunks"].empty_table(), *parts])


_KINDS: Final = pa.array([kind.name.lower() for kind in ChunkKind])


def _chunks(path: str, found: ChunkTable) -> pa.Table:
    n = len(found)
    native = list(
        map(
            "{}/{}".format,
            np.repeat(chunk_key(bytes(12)).split("/")[0], len(found.chunk_ids)),
            ids_to_text(found.chunk_ids),
        )
    )
    # The places of all kinds, one after the other, and a last one that is null.
    places_ = pa.concat_arrays(
        [pa.array(native, pa.string()), _text(found.foreign.locations), pa.nulls(1, pa.string())]
    )
    etags = pa.concat_arrays([_text(found.foreign.etags), pa.nulls(1, pa.string())])
    is_native, is_virtual = found.kind == ChunkKind.NATIVE, found.kind == ChunkKind.VIRTUAL
    source = found.source.astype(np.int64)
    where = np.where(is_native, source, np.where(is_virtual, source + len(native), len(places_) - 1))
    foreign = np.where(is_virtual, source, len(etags) - 1)
    modified = np.zeros(n, np.int64)
    modified[is_virtual] = found.foreign.modified[source[is_virtual]].astype(np.int64) * 1_000_000
    tagged = etags.take(pa.array(foreign))
    return pa.table(
        {
            "path": pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [path]).cast(pa.string()),
            "chunk": _matrix(found.index),
            "kind": _KINDS.take(pa.array(found.kind)),
            "location": places_.take(pa.array(where)),
            "offset": found.offset.astype(np.int64),
            "length": found.length.astype(np.int64),
            "etag": pc.if_else(pc.equal(tagged, ""), pa.scalar(None, pa.string()), tagged),
            "modified_at": pa.array(modified, mask=modified == 0).view(_TIME),
        },
        SCHEMAS["chunks"],
    )


def regions(
    repo: Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    array: str | None = None,
    slab: str | None = None,
) -> pa.Table:
    """How many chunks of each array are stored, and their bytes.

    With ``slab``, the name or number of a dimension: for each row of chunks along it, with the elements
    ``start`` up to but not including ``stop``. Arrays without that dimension are left out.
    """
    session = _session(repo, branch, tag, snapshot_id)
    parts = [_regions(session, path, slab) for path in _paths(session, array)]
    return pa.concat_tables([SCHEMAS["regions"].empty_table(), *[each for each in parts if each is not None]])


def _regions(session: Session, path: str, slab: str | None) -> pa.Table | None:
    node = session.workspace.nodes.require_array(path)
    assert node.array is not None
    counts, shape, names = node.array.num_chunks, node.array.shape, node.array.dimension_names or ()
    found = session.chunk_table(path)
    total = int(np.prod(counts, dtype=np.int64))
    if slab is None:
        number, slabs, each = np.zeros(len(found), np.int64), 1, total
        dimension, start, stop = None, np.zeros(1, np.int64), np.zeros(1, np.int64)
    else:
        axis = names.index(slab) if slab in names else int(slab) if slab.isdigit() else -1
        if not 0 <= axis < len(shape):
            return None
        number, slabs = found.index[:, axis].astype(np.int64), counts[axis]
        each = total // max(slabs, 1)
        dimension = (names[axis] if names else None) or str(axis)
        start, stop = _borders(node.user_data, axis, slabs, shape[axis])
    stored = np.bincount(number, minlength=slabs)
    size = np.bincount(number, found.length.astype(np.float64), minlength=slabs).astype(np.int64)
    kinds = {
        kind.name.lower(): np.bincount(number[found.kind == kind], minlength=slabs)
        for kind in (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
    }
    whole = slab is None
    return pa.table(
        {
            "path": [path] * slabs,
            "dimension": [dimension] * slabs,
            "start": pa.array(start, mask=np.full(slabs, whole)),
            "stop": pa.array(stop, mask=np.full(slabs, whole)),
            "chunks": np.full(slabs, each),
            "stored": stored,
            "fill_ratio": stored / each if each else np.ones(slabs),
            "bytes": size,
            **kinds,
        },
        SCHEMAS["regions"],
    )


def _borders(
    document: bytes, axis: int, count: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Elements of each row of chunks along an axis."""
    length = chunk_edges(document)[axis]
    steps = np.full(count, length) if isinstance(length, int) else np.array(length[:count], np.int64)
    stop = np.cumsum(steps, dtype=np.int64)
    return stop - steps, np.minimum(stop, size)


# All files


def storage(repo: Repository) -> pa.Table:
    """Files of each kind, and their bytes: everything that lies in the storage, garbage included."""
    folders: list[str] = []
    count = bytes_ = np.zeros(0, np.int64)
    for found in batched(repo.storage.list(""), _LISTED):
        keys = map(attrgetter("key"), found)
        # What is in no folder is the repo info.
        places_ = [folder if slash else "repo" for folder, slash, _ in map(_partition, keys)]
        distinct, codes = intern([*folders, *places_])
        sizes = np.fromiter(map(attrgetter("size"), found), np.float64, len(found))
        codes = codes[len(folders) :]
        count = np.bincount(codes, minlength=len(distinct)) + np.pad(count, (0, len(distinct) - len(count)))
        added = np.bincount(codes, sizes, len(distinct)).astype(np.int64)
        bytes_ = added + np.pad(bytes_, (0, len(distinct) - len(bytes_)))
        folders = distinct
    order = sorted(range(len(folders)), key=folders.__getitem__)
    return pa.table(
        {"kind": [folders[at] for at in order], "files": count[order], "bytes": bytes_[order]},
        SCHEMAS["storage"],
    )


_LISTED: Final = 50_000
_partition = methodcaller("partition", "/")


# Between versions


def changes(
    repo: Repository,
    start: str | None = None,
    end: str | None = None,
) -> pa.Table:
    """What was done after ``start`` and up to ``end``, by the logs of the commits in between.

    Each is a snapshot id, a branch or a tag; ``end`` is ``main`` and ``start`` the snapshot before ``end``
    unless given. ``change`` is one of new_group, new_array, deleted_group, deleted_array, updated_group,
    updated_array (metadata), moved (``from_path``), chunk_added, chunk_changed, chunk_removed (``chunk``, of
    arrays that are there at the end). Chunks that were written and taken back in between are in no row.
    """
    context = context_of(repo)
    info = context.catalog.repo_info()
    after = _snapshot(repo, end or "main")
    row = require_snapshot(info, after)
    before = _snapshot(repo, start) if start is not None else info.snapshots.entry(row).parent or after
    found = difference(context, info, before, after)
    kinds = ("new_group", "new_array", "deleted_group", "deleted_array", "updated_group", "updated_array")
    named = [(kind, path) for kind in kinds for path in sorted(getattr(found, f"{kind}s"))]
    moved = list(found.moved)
    parts = [
        pa.table(
            {
                "change": [*(kind for kind, _ in named), *["moved"] * len(moved)],
                "path": [*(path for _, path in named), *(target for _, target in moved)],
                "from_path": [*[None] * len(named), *(source for source, _ in moved)],
                "chunk": pa.nulls(len(named) + len(moved), _NUMBERS),
            },
            SCHEMAS["changes"],
        )
    ]
    old, new = (repo.readonly_session(snapshot_id=id_to_text(each)) for each in (before, after))
    old_paths = _paths_by_id(old.workspace.snapshot.nodes)
    for path, index in sorted(found.updated_chunks.items()):
        node = new.workspace.nodes.node(path)
        if node is None or node.array is None or path in found.deleted_arrays:
            continue
        was = old_paths.get(node.id)
        parts.append(
            _changed(path, index, None if was is None else old.chunk_table(was), new.chunk_table(path))
        )
    return pa.concat_tables(parts)


_CHANGES: Final = pa.array(["none", "chunk_added", "chunk_removed", "chunk_changed"])


def _changed(path: str, index: NDArray[np.uint32], old: ChunkTable | None, new: ChunkTable) -> pa.Table:
    there = np.zeros(len(index), np.int64)
    if old is not None and old.ndim == index.shape[1]:
        there += 2 * (old.find_chunks(index) >= 0)
    there += new.find_chunks(index) >= 0
    rows = np.flatnonzero(there)
    return pa.table(
        {
            "change": _CHANGES.take(pa.array(there[rows])),
            "path": pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), [path]).cast(pa.string()),
            "from_path": pa.nulls(len(rows), pa.string()),
            "chunk": _matrix(index[rows]),
        },
        SCHEMAS["changes"],
    )


def _paths_by_id(found: NodeTable) -> dict[bytes, str]:
    ids, _ = found.identities(np.arange(len(found)))
    return dict(zip(ids, found.paths_list(), strict=True))


def _snapshot(repo: Repository, name: str) -> bytes:
    """The snapshot that a text names: its id or the first characters of that, a branch or a tag."""
    info = context_of(repo).catalog.repo_info()
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    require_snapshot(info, id_)
    return id_


# Pieces


def _session(repo: Repository, branch: str | None, tag: str | None, snapshot_id: str | None) -> Session:
    if branch is None and tag is None and snapshot_id is None:
        branch = "main"
    return repo.readonly_session(branch, tag=tag, snapshot_id=snapshot_id)


def _paths(session: Session, array: str | None) -> list[str]:
    if array is not None:
        path = "/" + array.strip("/")
        session.workspace.nodes.require_array(path)
        return [path]
    found = session.workspace.snapshot.nodes
    return found.select_nodes(found.is_array).paths_list()


def _text(rows: Ragged) -> pa.Array:
    """Text, without an object for each."""
    whole = rows.compact()
    offsets = np.append(whole.starts, whole.total()).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(whole.values))]
    return pa.StringArray.from_buffers(len(whole), *buffers[1:])


def _lists(rows: Ragged) -> pa.Array:
    whole = rows.compact()
    offsets = np.append(whole.starts, whole.total()).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(whole.values.astype(np.int64)))


def _matrix(index: NDArray[np.uint32]) -> pa.Array:
    """A list of numbers for each row."""
    n, width = index.shape
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * np.int32(width))
    return pa.ListArray.from_arrays(offsets, pa.array(index.reshape(-1).astype(np.int64)))


def _versioned(made: Callable[..., pa.Table], *more: str) -> Callable[[Repository, Options], pa.Table]:
    def call(repo: Repository, options: Options) -> pa.Table:
        id_ = location.session_at(repo, options).snapshot_id
        return made(repo, snapshot_id=id_, **{name: options[name] for name in more if name in options})

    return call


def _between(repo: Repository, options: Options) -> pa.Table:
    end = options.get("end") or location.session_at(repo, options).snapshot_id
    return changes(repo, options.get("start"), end)


_BY_OPTIONS: Final[dict[str, Callable[[Repository, Options], pa.Table]]] = {
    "snapshots": lambda repo, options: snapshots(repo),
    "history": _versioned(history),
    "refs": lambda repo, options: refs(repo),
    "ops": lambda repo, options: ops(repo),
    "nodes": _versioned(nodes),
    "arrays": _versioned(arrays),
    "manifests": _versioned(manifests),
    "chunks": _versioned(chunks, "array"),
    "regions": _versioned(regions, "array", "slab"),
    "storage": lambda repo, options: storage(repo),
    "changes": _between,
}
