"""Tables about the contents of one version: nodes, arrays, manifests, references to chunks."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from frazil.format.columns import Ragged
from frazil.format.ids import ids_to_text
from frazil.format.keys import chunk_key
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.repository.handle.repository import Repository
from frazil.spark.tables.arrow_columns import constant_column, index_column, list_column, text_column
from frazil.spark.tables.repository_schemas import NUMBERS, SCHEMAS, TIME
from frazil.spark.tables.table_sessions import array_paths, session_of


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
