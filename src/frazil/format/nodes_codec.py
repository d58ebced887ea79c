"""The vector of NodeSnapshot tables in a snapshot file, read and written by columns.

    NodeSnapshot       0 id  1 path  2 user_data  3 type of node_data  4 node_data  5 extra
    ArrayNodeData      0 shape (version 1)  1 dimension_names  2 manifests  3 shape_v2
    DimensionShapeV2   0 array_length  1 num_chunks
    DimensionName      0 name
    ManifestRef        0 object_id  1 extents

Specification: *NodeSnapshot*.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import I64, Ragged, ascending, ranges, require, spread, structs, unshared, writable
from frazil.format.envelope import Violation, collect, reading, with_late_fields
from frazil.format.flatbuffer import Layout, Tables, Writer, link
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_list, id_to_text
from frazil.format.nodes import Memo, NodeTable, chunk_counts, tuples

_ARRAY: Final = 1
_GROUP: Final = 2
_SLASH: Final = ord("/")
_MAX_CHUNKS: Final = (1 << 32) - 1

_NODE_LAYOUT: Final = Layout({0: f"V{NODE_ID_BYTES}", 1: "u4", 2: "u4", 3: "u1", 4: "u4"}, slots=5)
_GROUP_LAYOUT: Final = Layout({}, slots=0)
#: Spec version -> whether dimensions have names -> layout.
_ARRAY_LAYOUTS: Final = {
    1: {
        False: Layout({0: "u4", 2: "u4"}, slots=3),
        True: Layout({0: "u4", 1: "u4", 2: "u4"}, slots=3),
    },
    2: {
        False: Layout({0: "u4", 2: "u4", 3: "u4"}, slots=4),
        True: Layout({0: "u4", 1: "u4", 2: "u4", 3: "u4"}, slots=4),
    },
}
_DIM_LAYOUT: Final = Layout({0: "u8", 1: "u4"}, slots=2)
_NAME_LAYOUT: Final = Layout({0: "u4"}, slots=1)
_NO_NAME_LAYOUT: Final = Layout({}, slots=0)
_REF_LAYOUT: Final = Layout({0: f"V{OBJECT_ID_BYTES}", 1: "u4"}, slots=2)


_REQUIRED: Final = "snapshot-required"
#: The number of pairs of manifests that are compared at once.
_PAIRS: Final = 1 << 20
#: Returns a match for an absolute path without empty segments, ``.`` and ``..``.
_CANONICAL: Final = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/]+)+", re.DOTALL).fullmatch


def read_nodes(
    nodes: Tables, spec_version: int, source: str = "snapshot", broken: list[Violation] | None = None
) -> NodeTable:
    """Return the nodes, sorted by the bytes of their paths in any order of the file.

    The names of dimensions are decoded when they are read. ``source`` is the name of the file, for the errors
    of that read.
    """
    require(nodes, "node", _REQUIRED, id=0, path=1, user_data=2, node_type=3, node_data=4)
    kinds = nodes.scalars(3, np.uint8)
    is_array = kinds == _ARRAY
    if not (is_array | (kinds == _GROUP)).all():
        kind = int(kinds[~is_array].max())
        raise FormatError(f"a node must have kind 1 (array) or 2 (group), got {kind}", check=_REQUIRED)
    paths = nodes.vectors(1)
    _check_paths(paths)
    arrays, _ = nodes.take(is_array).tables(4)
    collect(broken, _shape_violations(arrays, spec_version))
    lengths, counts = _shapes_v1(arrays) if spec_version == 1 else _shapes_v2(arrays)

    named = np.zeros(len(nodes), bool)
    named[is_array] = arrays.present(1)
    require(arrays, "array", _REQUIRED, manifests=2)
    refs, refs_each = arrays.children(2)
    require(refs, "manifest reference", _REQUIRED, object_id=0, extents=1)
    boxes = refs.numbers(1, "V8")
    ranks = np.repeat(lengths.lengths, refs_each)
    if not np.array_equal(boxes.lengths, ranks):
        wrong = int(np.argmax(boxes.lengths != ranks))
        text = f"the extents of an array must have {ranks[wrong]} ranges, got {boxes.lengths[wrong]}"
        raise FormatError(text, check="extents-rank")
    ids = Ragged.from_lengths(structs(refs.structs(0, OBJECT_ID_BYTES)), refs_each)
    extents = Ragged.from_lengths(boxes.values.view("<u4"), 2 * refs_each * lengths.lengths)
    fields = {
        "ids": nodes.structs(0, NODE_ID_BYTES),
        "paths": paths,
        "user_data": nodes.vectors(2),
        "is_array": is_array,
        "array_length": spread(lengths, is_array),
        "num_chunks": spread(counts, is_array),
        "guessed": is_array if spec_version == 1 else np.zeros(len(nodes), bool),
        "named": named,
        "manifests": spread(ids, is_array),
        "extents": spread(extents, is_array),
        "_memo": Memo(),
    }
    names = partial(_read_names, arrays, is_array, source)
    table = with_late_fields(NodeTable, fields, {"dim_rows": names, "dim_names": names})
    if ascending(paths):
        return table
    texts = paths.texts()
    if len(set(texts)) != len(texts):
        raise FormatError("nodes must have different paths, got two with the same", check="nodes-sorted")
    return table.select_nodes(np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64))


def _read_names(arrays: Tables, is_array: NDArray[np.bool_], source: str) -> dict[str, Ragged]:
    """Return the names of the dimensions of all nodes."""
    with reading(source):
        dims, each = arrays.children(1)
        numbers = Ragged.from_lengths(np.where(dims.present(0), np.arange(len(dims)), -1), each)
        return {"dim_rows": spread(numbers, is_array), "dim_names": dims.vectors(0)}


def _check_paths(paths: Ragged) -> None:
    unshared(paths, "paths")
    if not paths.lengths.all() or (paths.values[paths.starts] != _SLASH).any():
        raise FormatError("the path of a node must start with `/`", check="node-path")


def _shapes_v1(arrays: Tables) -> tuple[Ragged, Ragged]:
    """Return the array lengths, and the numbers of chunks as far as version 1 stores them."""
    require(arrays, "array", _REQUIRED, shape=0)
    pairs = arrays.numbers(0, "V16")
    both = pairs.values.view("<u8").reshape(-1, 2)
    length, chunk = both[:, 0], np.maximum(both[:, 1], 1)
    counts = length // chunk + (length % chunk > 0)
    return (
        Ragged(np.ascontiguousarray(length), pairs.starts, pairs.lengths),
        Ragged(np.minimum(counts, _MAX_CHUNKS).astype(np.uint32), pairs.starts, pairs.lengths),
    )


def _shapes_v2(arrays: Tables) -> tuple[Ragged, Ragged]:
    require(arrays, "array", "array-shape-v2", shape_v2=3)
    dims, each = arrays.children(3)
    lengths = Ragged.from_lengths(dims.scalars(0, "<u8"), each)
    return lengths, Ragged(dims.scalars(1, "<u4"), lengths.starts, lengths.lengths)


def node_violations(snapshot: Tables, nodes: NodeTable) -> Iterator[Violation]:
    """Yield the broken rules of the nodes of a snapshot that readers do not need."""
    paths = snapshot.children(2)[0].vectors(1).texts()
    # The specification compares paths by their segments. Readers search by bytes, and all present writers
    # sort by bytes. Both orders are accepted.
    if paths != nodes.paths_list() and [path.split("/") for path in paths] != sorted(
        path.split("/") for path in set(paths)
    ):
        yield Violation("nodes-sorted", "nodes must be sorted by path, each path once")
    strange = [path for path in paths if _CANONICAL(path) is None]
    if strange:
        rule = "a path must be absolute and in canonical form"
        yield Violation("node-path", f"{rule}, got {strange[0]!r}")
    distinct, counts = np.unique(id_keys(nodes.ids), return_counts=True)
    if (counts > 1).any():
        id_ = distinct[counts > 1][:1].view(np.uint8).tobytes()
        yield Violation("node-ids", f"{counts.max()} nodes have the id {id_to_text(id_)}", id_)
    yield from _document_violations(nodes)
    yield from _extent_violations(nodes)


def _shape_violations(arrays: Tables, spec_version: int) -> Iterator[Violation]:
    if spec_version == 1 and arrays.present(3).any():
        yield Violation("array-shape-v1", "an array of spec version 1 must not have shape_v2")
    if spec_version > 1 and arrays.vectors(0, "V16").lengths.any():
        yield Violation("array-shape-v1-empty", "the list shape must be empty in spec version 2")


def _document_violations(nodes: NodeTable) -> Iterator[Violation]:
    """Yield the nodes whose Zarr metadata do not fit the other fields of the node."""
    # Many nodes may share the bytes of one document, which is parsed once.
    texts = nodes.user_data
    places, codes = np.unique(np.stack((texts.starts, texts.lengths)), axis=1, return_inverse=True)
    if int(places[1].sum()) > len(texts.values):
        return  # the documents of a damaged file share bytes
    documents = [_document(texts.values[at : at + size].tobytes()) for at, size in places.T.tolist()]
    ranks = nodes.array_length.lengths
    columns = zip(
        id_list(nodes.ids),
        map(documents.__getitem__, codes.reshape(-1).tolist()),
        nodes.is_array.tolist(),
        tuples(nodes.array_length),
        tuples(nodes.num_chunks),
        strict=True,
    )
    for row, (id_, document, is_array, shape, chunks) in enumerate(columns):
        kind = "array" if is_array else "group"
        if document.get("node_type") != kind:
            detail = f"the Zarr metadata must be of a node of type {kind}, got {document.get('node_type')}"
            yield Violation("node-document", detail, id_)
        if not is_array:
            continue
        stored = document.get("shape")
        if isinstance(stored, list) and tuple(stored) != shape:
            yield Violation("array-shape", f"the Zarr metadata have the shape {stored}, got {shape}", id_)
        expected = chunk_counts(document, stored)
        if not nodes.guessed[row] and expected not in (None, chunks):
            detail = f"the Zarr metadata have {expected} chunks along the dimensions, got {chunks}"
            yield Violation("num-chunks", detail, id_)
        if nodes.named[row] and nodes.dim_rows.lengths[row] != ranks[row]:
            detail = f"an array must have {ranks[row]} dimension names, got {nodes.dim_rows.lengths[row]}"
            yield Violation("dimension-names", detail, id_)


def _document(blob: bytes) -> dict[str, Any]:
    try:
        document = json.loads(blob)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _extent_violations(nodes: NodeTable) -> Iterator[Violation]:
    """Yield the arrays whose manifests have empty, negative or common extents."""
    edges = nodes.extents.compact().values.reshape(-1, 2)
    if (edges[:, 0] > edges[:, 1]).any():
        start, stop = edges[edges[:, 0] > edges[:, 1]][0].tolist()
        yield Violation("extents-range", f"extents must begin before their end, got {start} to {stop}")
    for row in np.flatnonzero(nodes.manifests.lengths > 1).tolist():
        count = int(nodes.manifests.lengths[row])
        if overlapping(nodes.extents.row(row).reshape(count, int(nodes.array_length.lengths[row]), 2)):
            detail = f"the extents of the {count} manifests of an array must not overlap"
            yield Violation("extents-overlap", detail, nodes.ids[row].tobytes())


def overlapping(boxes: NDArray[Any]) -> bool:
    """Return whether any two of n half-open boxes, (n, ndim, 2), have a common point."""
    boxes = boxes[(boxes[:, :, 0] < boxes[:, :, 1]).all(axis=1)].astype(np.int64)
    count, rank = boxes.shape[:2]
    if count < 2 or not rank:
        return bool(count > 1)
    best = (np.zeros(count, np.int64), boxes)
    for axis in range(rank):
        # Along the best dimension, each box is compared only with boxes that begin before its end.
        ordered = boxes[np.argsort(boxes[:, axis, 0], kind="stable")]
        last = np.searchsorted(ordered[:, axis, 0], ordered[:, axis, 1]) - np.arange(count) - 1
        rivals = np.maximum(last, 0)
        if not axis or rivals.sum() < best[0].sum():
            best = rivals, ordered
    rivals, boxes = best
    for rows in np.split(np.arange(count), np.flatnonzero(np.diff(np.cumsum(rivals) // _PAIRS)) + 1):
        one = np.repeat(rows, rivals[rows])
        a, b = boxes[one], boxes[ranges(rows + 1, rivals[rows])]
        if ((a[:, :, 0] < b[:, :, 1]) & (b[:, :, 0] < a[:, :, 1])).all(axis=1).any():
            return True
    return False


def write_nodes(writer: Writer, table: NodeTable, spec_version: int = 2) -> int:
    """Write the nodes and return the position of their vector."""
    table = table.exact()
    vector = writer.offset_vectors([len(table)])
    records, positions = writer.tables(_NODE_LAYOUT, len(table))
    vector.fill(positions)
    records["f0"] = structs(table.ids)
    records["f3"] = np.where(table.is_array, _ARRAY, _GROUP)
    contents = np.zeros(len(table), np.int64)
    if table.is_array.any():
        _write_array_data(writer, contents, table, spec_version)
    # Offsets may share a target: all groups share one empty table, all empty vectors one vector.
    contents[~table.is_array] = writer.table(_GROUP_LAYOUT).position
    link(records, _NODE_LAYOUT, 4, positions, contents)
    link(records, _NODE_LAYOUT, 1, positions, writer.strings(writable(table.paths)))
    link(records, _NODE_LAYOUT, 2, positions, writer.vectors(writable(table.user_data)))
    return int(vector.positions[0])


def _write_array_data(writer: Writer, contents: I64, table: NodeTable, spec_version: int) -> None:
    """Write the tables of all arrays, and put their positions into ``contents``."""
    shapes = (table.is_array & ~table.named, table.is_array & table.named)
    array_records = []
    for chosen, layout in zip(shapes, _ARRAY_LAYOUTS[spec_version].values(), strict=True):
        rows = np.flatnonzero(chosen)
        if len(rows):
            arrays, contents[rows] = writer.tables(layout, len(rows))
            array_records.append((layout, arrays, contents[rows], rows))
    none = writer.offset_vectors([0]).positions
    for layout, arrays, places, rows in array_records:
        if spec_version == 1:
            link(arrays, layout, 0, places, _write_shapes_v1(writer, table, rows))
        else:
            link(arrays, layout, 0, places, none)
            _write_shapes(writer, table, layout, arrays, places, rows)
        _write_arrays(writer, table, layout, arrays, places, rows)


def _write_shapes_v1(writer: Writer, table: NodeTable, rows: I64) -> I64:
    """Write vectors of pairs of array length and chunk length, and return their positions.

    Only the number of chunks is known. As in the reference implementation, the written chunk length is the
    smallest one that results in this number. The Zarr metadata contain the true chunk length.
    """
    lengths = table.array_length.take(rows).compact()
    counts = np.maximum(table.num_chunks.take(rows).compact().values, 1).astype(np.uint64)
    chunks = lengths.values // counts + (lengths.values % counts > 0)
    # In words of 8 bytes: one of padding and the count, then two for each dimension, which are aligned.
    ranks = lengths.lengths
    words = np.zeros(len(ranks) + 2 * len(chunks), "<u8")
    heads = np.arange(len(ranks)) + 2 * (np.cumsum(ranks) - ranks)
    is_head = np.zeros(len(words), bool)
    is_head[heads] = True
    words[heads] = ranks.astype(np.uint64) << np.uint64(32)
    words[~is_head] = np.stack([lengths.values, chunks], axis=1).reshape(-1)
    part, start = writer.reserve(words.nbytes, 8)
    part[:] = words.view(np.uint8)
    positions: I64 = start + 8 * heads + 4
    return positions


def _write_shapes(
    writer: Writer, table: NodeTable, layout: Layout, records: Any, places: I64, rows: I64
) -> None:
    lengths = table.array_length.take(rows).compact()
    shapes = writer.offset_vectors(lengths.lengths)
    link(records, layout, 3, places, shapes.positions)
    dims, dim_places = writer.tables(_DIM_LAYOUT, len(lengths.values))
    dims["f0"] = lengths.values
    dims["f1"] = table.num_chunks.take(rows).compact().values
    shapes.fill(dim_places)


def _write_arrays(
    writer: Writer, table: NodeTable, layout: Layout, records: Any, places: I64, rows: I64
) -> None:
    lengths = table.array_length.take(rows)
    ids = table.manifests.take(rows).compact()
    refs = writer.offset_vectors(ids.lengths)
    link(records, layout, 2, places, refs.positions)
    ref_records, ref_places = writer.tables(_REF_LAYOUT, len(ids.values))
    ref_records["f0"] = ids.values
    refs.fill(ref_places)
    boxes = table.extents.take(rows).compact().values.view("V8")
    ranks = np.repeat(lengths.lengths, ids.lengths)
    link(ref_records, _REF_LAYOUT, 1, ref_places, writer.vectors(Ragged.from_lengths(boxes, ranks)))

    if 1 in layout.offsets:
        numbers = table.dim_rows.take(rows).compact()
        names = writer.offset_vectors(numbers.lengths)
        link(records, layout, 1, places, names.positions)
        names.fill(_write_names(writer, table.dim_names, numbers.values))


def _write_names(writer: Writer, names: Ragged, numbers: I64) -> I64:
    """Write a DimensionName for each number; dimensions without a name share one table."""
    given = numbers >= 0
    out = np.zeros(len(numbers), np.int64)
    records, places = writer.tables(_NAME_LAYOUT, int(given.sum()))
    out[given] = places
    if len(places) < len(out):
        out[~given] = writer.table(_NO_NAME_LAYOUT).position
    link(records, _NAME_LAYOUT, 0, places, writer.strings(writable(names.take(numbers[given]))))
    return out


__all__ = ["node_violations", "overlapping", "read_nodes", "write_nodes"]
