"""The tables about a repository: for Spark, SQL, or pyarrow.

    snapshots   every snapshot of a branch or tag                 history   those of one ref, newest first
    refs        branches and tags                                 ops       every update of the repository
    nodes       groups and arrays of one version                  arrays    arrays: shape, chunks, types
    manifests   files of references of one version                chunks    every reference of one version
    regions     how full arrays are, or slabs of them             storage   bytes by kind of file
    changes     changes from one version to another

Each is a function of a repository that returns a ``pyarrow.Table`` with the schema in ``SCHEMAS``. It
needs no Spark. Versions are named as in ``Repository.readonly_session``; the default is the tip of
``main``. No loop runs over chunks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import batched
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.format.columns import Ragged, intern
from frazil.format.ids import chunk_key, ids_to_text
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.nodes import Node
from frazil.maintenance.statistics import ArraySizes, array_sizes
from frazil.repository.handle.repository import Repository, context_of
from frazil.spark.tables.options import Options, session_at
from frazil.spark.tables.snapshot_tables import (
    NUMBERS,
    SCHEMAS,
    TIME,
    array_paths,
    changes,
    constant_column,
    history,
    index_column,
    list_column,
    ops,
    refs,
    schema_of,
    session_of,
    snapshots,
    text_column,
)


def nodes(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Return groups and arrays, with their ``zarr.json``."""
    table = session_of(repo, branch, tag, snapshot_id).workspace.snapshot.nodes
    return pa.table(
        {
            "path": text_column(table.paths),
            "type": pa.array(np.where(table.is_array, "array", "group")),
            "node_id": ids_to_text(table.ids),
            "document": text_column(table.user_data),
        },
        SCHEMAS["nodes"],
    )


def arrays(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Return arrays: shape, chunks, dimensions, types, attributes."""
    table = session_of(repo, branch, tag, snapshot_id).workspace.snapshot.nodes
    rows = table.select_nodes(table.is_array).exact()
    documents = list(map(json.loads, rows.user_data.blobs()))
    grids = [each.get("chunk_grid", {}).get("configuration", {}).get("chunk_shape") for each in documents]
    return pa.table(
        {
            "path": text_column(rows.paths),
            "node_id": ids_to_text(rows.ids),
            "shape": list_column(rows.array_length),
            "chunk_shape": pa.array([_sizes(grid) for grid in grids], NUMBERS),
            "num_chunks": list_column(rows.num_chunks),
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
    """Return chunks of one shape; None for a grid of several."""
    regular = isinstance(grid, list) and all(isinstance(each, int) for each in grid)
    return grid if regular else None


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def manifests(
    repo: Repository, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
) -> pa.Table:
    """Return a row for each manifest and array, with the box of the references in the manifest."""
    snapshot = session_of(repo, branch, tag, snapshot_id).workspace.snapshot
    rows = snapshot.nodes.select_nodes(snapshot.nodes.is_array)
    used = rows.manifests.compact()
    owner = np.repeat(np.arange(len(rows)), used.lengths)
    ids = np.ascontiguousarray(used.values).view(np.uint8).reshape(len(owner), -1)
    row = np.fromiter(map(snapshot.manifests.find_manifest, used.values.tolist()), np.int64, len(owner))
    ndim = rows.array_length.lengths[owner]
    boxes = rows.extents.compact().values.astype(np.int64).reshape(-1, 2)
    texts = ids_to_text(ids)
    listed = row >= 0
    return pa.table(
        {
            "manifest_id": texts,
            "location": list(map("manifests/{}".format, texts)),
            "bytes": pa.array(snapshot.manifests.size_bytes[row].astype(np.int64), mask=~listed),
            "references": pa.array(snapshot.manifests.num_chunk_refs[row].astype(np.int64), mask=~listed),
            "path": text_column(rows.paths).take(pa.array(owner)),
            "first_chunk": list_column(Ragged.from_lengths(boxes[:, 0], ndim)),
            "end_chunk": list_column(Ragged.from_lengths(boxes[:, 1], ndim)),
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
    """Return every reference of one array, or of all. ``location`` of a native chunk is its file."""
    session = session_of(repo, branch, tag, snapshot_id)
    parts = [_chunks(path, session.chunk_table(path)) for path in array_paths(session, array)]
    return pa.concat_tables([SCHEMAS["chunks"].empty_table(), *parts])


_KINDS: Final = tuple(kind.name.lower() for kind in ChunkKind)


def _chunks(path: str, table: ChunkTable) -> pa.Table:
    n = len(table)
    native = list(
        map(
            "{}/{}".format,
            np.repeat(chunk_key(bytes(12)).split("/")[0], len(table.chunk_ids)),
            ids_to_text(table.chunk_ids),
        )
    )
    # The locations of native chunks, those of virtual chunks, and a last one that is null.
    locations = pa.concat_arrays(
        [pa.array(native, pa.string()), text_column(table.foreign.locations), pa.nulls(1, pa.string())]
    )
    etags = pa.concat_arrays([text_column(table.foreign.etags), pa.nulls(1, pa.string())])
    is_native, is_virtual = table.kind == ChunkKind.NATIVE, table.kind == ChunkKind.VIRTUAL
    source = table.source.astype(np.int64)
    location = np.where(is_native, source, np.where(is_virtual, source + len(native), len(locations) - 1))
    foreign = np.where(is_virtual, source, len(etags) - 1)
    modified = np.zeros(n, np.int64)
    modified[is_virtual] = table.foreign.modified[source[is_virtual]].astype(np.int64) * 1_000_000
    tagged = etags.take(pa.array(foreign))
    return pa.table(
        {
            "path": constant_column(path, n),
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


#: The number of objects that one step counts.
_BATCH: Final = 50_000
_partition = methodcaller("partition", "/")


def regions(
    repo: Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    array: str | None = None,
    slab: str | None = None,
) -> pa.Table:
    """Return how many chunks of each array are stored, and their bytes.

    With ``slab``, the name or number of a dimension: for each row of chunks along it, with the elements
    ``start`` up to but not including ``stop``. Arrays without that dimension have no row.
    """
    session = session_of(repo, branch, tag, snapshot_id)
    view = session.workspace
    nodes = [(node, _axis(node, slab)) for node in map(view.require_array, array_paths(session, array))]
    chosen = [(node, axis) for node, axis in nodes if slab is None or axis is not None]
    sizes = array_sizes(context_of(repo), chosen)
    parts = [_regions(each, axis) for each, (_, axis) in zip(sizes, chosen, strict=True)]
    return pa.concat_tables([SCHEMAS["regions"].empty_table(), *parts])


def _axis(node: Node, slab: str | None) -> int | None:
    """Return the axis with the name or number ``slab``. None if there is no such axis."""
    assert node.array is not None
    names, rank = node.array.dimension_names or (), len(node.array.shape)
    axis = names.index(slab) if slab in names else int(slab) if slab and slab.isdigit() else -1
    return axis if 0 <= axis < rank else None


def _regions(sizes: ArraySizes, axis: int | None) -> pa.Table:
    node = sizes.node
    assert node.array is not None
    counts, shape, names = node.array.num_chunks, node.array.shape, node.array.dimension_names
    slabs = sizes.counts.shape[1]
    chunks_each = int(np.prod(counts, dtype=np.int64)) // max(slabs, 1)
    dimension = None if axis is None else (names[axis] if names else None) or str(axis)
    start = stop = np.zeros(1, np.int64)
    if axis is not None:
        start, stop = _slab_bounds(node.user_data, axis, slabs, shape[axis])
    stored = sizes.counts.sum(axis=0)
    kinds = (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
    whole = axis is None
    return pa.table(
        {
            "path": [node.path] * slabs,
            "dimension": [dimension] * slabs,
            "start": pa.array(start, mask=np.full(slabs, whole)),
            "stop": pa.array(stop, mask=np.full(slabs, whole)),
            "chunks": np.full(slabs, chunks_each),
            "stored": stored,
            "fill_ratio": stored / chunks_each if chunks_each else np.ones(slabs),
            "bytes": sizes.bytes.sum(axis=0),
            **{kind.name.lower(): sizes.counts[kind] for kind in kinds},
        },
        SCHEMAS["regions"],
    )


def _slab_bounds(
    document: bytes, axis: int, count: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first element of each row of chunks along an axis, and the one after its last."""
    length = chunk_lengths(document)[axis]
    steps = np.full(count, length) if isinstance(length, int) else np.array(length[:count], np.int64)
    stop = np.cumsum(steps, dtype=np.int64)
    return stop - steps, np.minimum(stop, size)


def storage(repo: Repository) -> pa.Table:
    """Return the number of files of each kind and their bytes: all objects of the storage with garbage."""
    folders: list[str] = []
    count = bytes_ = np.zeros(0, np.int64)
    for objects in batched(repo.storage.list(""), _BATCH):
        keys = map(attrgetter("key"), objects)
        # An object that is in no folder is the repo info.
        kinds = [folder if slash else "repo" for folder, slash, _ in map(_partition, keys)]
        distinct, codes = intern([*folders, *kinds])
        sizes = np.fromiter(map(attrgetter("size"), objects), np.float64, len(objects))
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


def table(repo: Repository, options: Options) -> pa.Table:
    """Return the table that the options name, of the version that they name."""
    schema_of(options["table"])
    return _BY_OPTIONS[options["table"]](repo, options)


def _of_version(table_of: Callable[..., pa.Table], *names: str) -> Callable[[Repository, Options], pa.Table]:
    def call(repo: Repository, options: Options) -> pa.Table:
        id_ = session_at(repo, options).snapshot_id
        return table_of(repo, snapshot_id=id_, **{name: options[name] for name in names if name in options})

    return call


def _between(repo: Repository, options: Options) -> pa.Table:
    end = options.get("end") or session_at(repo, options).snapshot_id
    return changes(repo, options.get("start"), end)


_BY_OPTIONS: Final[dict[str, Callable[[Repository, Options], pa.Table]]] = {
    "snapshots": lambda repo, options: snapshots(repo),
    "history": _of_version(history),
    "refs": lambda repo, options: refs(repo),
    "ops": lambda repo, options: ops(repo),
    "nodes": _of_version(nodes),
    "arrays": _of_version(arrays),
    "manifests": _of_version(manifests),
    "chunks": _of_version(chunks, "array"),
    "regions": _of_version(regions, "array", "slab"),
    "storage": lambda repo, options: storage(repo),
    "changes": _between,
}


__all__ = [
    "SCHEMAS",
    "arrays",
    "changes",
    "chunks",
    "history",
    "manifests",
    "nodes",
    "ops",
    "refs",
    "regions",
    "schema_of",
    "snapshots",
    "storage",
    "table",
]
