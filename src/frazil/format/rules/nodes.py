"""The rules for the nodes of a snapshot.

Specification: *Node Paths*, *NodeSnapshot* and *ArrayNodeData*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import Ragged
from frazil.format.flatbuffer import Tables
from frazil.format.ids import NODE_ID_BYTES, id_keys, id_to_text
from frazil.format.row_vectors import ascending
from frazil.format.rules.violation import Violation, absent_fields

_NODES: Final = 2
_ARRAY, _GROUP = 1, 2
_SLASH, _DOT = ord("/"), ord(".")
_NOTHING: Final[dict[str, Any]] = {}


def order_of_nodes(root: Tables, version: int) -> Iterator[Violation]:
    """Nodes are sorted by path.

    The specification compares paths by their segments. Readers search by bytes, and all present writers sort
    by bytes. Both orders are accepted. A slash is the smallest byte in a comparison by segments.
    """
    paths = root.children(_NODES)[0].vectors(1).compact()
    by_segment = Ragged(np.where(paths.values == _SLASH, 0, paths.values).astype(np.uint8), *_places(paths))
    if not ascending(paths) and not ascending(by_segment):
        yield Violation("nodes-sorted", "nodes must be sorted by path, each path once")


def _places(rows: Ragged) -> Any:
    return rows.starts, rows.lengths


def paths_of_nodes(root: Tables, version: int) -> Iterator[Violation]:
    """Paths are absolute and in canonical form."""
    paths = root.children(_NODES)[0].vectors(1)
    paths.texts()
    wrong = np.flatnonzero(~canonical(paths))
    if len(wrong):
        text = paths.text(int(wrong[0]))
        yield Violation("node-path", f"a path must be absolute and in canonical form, got {text!r}")


def canonical(paths: Ragged) -> NDArray[np.bool_]:
    """Return which paths are absolute, without empty segments, `.` and `..`.

    >>> canonical(Ragged.of_text(["/", "/a/b", "a", "/a/", "//a", "/./a", "/a/..", "/..a"])).tolist()
    [True, True, False, False, False, False, False, True]
    """
    rows = paths.compact()
    count, lengths = len(rows), rows.lengths
    valid = lengths > 0
    if not rows.total():
        return valid
    # Each row is followed by a slash, so that its last segment ends like the others.
    values = np.insert(rows.values, rows.starts[1:], _SLASH)
    values = np.append(values, np.array([_SLASH, 0, 0], np.uint8))
    owner = np.append(np.repeat(np.arange(count), lengths + 1), [-1, -1])
    starts = rows.starts + np.arange(count)
    valid &= values[np.minimum(starts, len(values) - 1)] == _SLASH
    slash, dot = values == _SLASH, values == _DOT
    begins = np.flatnonzero(slash[:-3] & (owner[1:-2] == owner[:-3]))
    is_root = lengths[owner[begins]] == 1
    empty = slash[begins + 1] & ~is_root
    one = dot[begins + 1] & slash[begins + 2]
    two = dot[begins + 1] & dot[begins + 2] & slash[np.minimum(begins + 3, len(slash) - 1)]
    valid[owner[begins[empty | one | two]]] = False
    return valid


def fields_of_nodes(root: Tables, version: int) -> Iterator[Violation]:
    """Nodes have all required fields, and one of the two kinds."""
    nodes = root.children(_NODES)[0]
    names = {0: "id", 1: "path", 2: "user_data", 4: "node_data"}
    missing = absent_fields(nodes, names)
    kinds = nodes.scalars(3, np.uint8)
    if not np.isin(kinds, (_ARRAY, _GROUP)).all():
        missing.append("type of node_data")
    if missing:
        yield Violation("snapshot-required", f"a node lacks these required fields: {', '.join(missing)}")


def ids_of_nodes(root: Tables, version: int) -> Iterator[Violation]:
    """No two nodes have the same id."""
    keys = id_keys(root.children(_NODES)[0].structs(0, NODE_ID_BYTES))
    distinct, counts = np.unique(keys, return_counts=True)
    if (counts > 1).any():
        id_ = bytes(distinct[counts > 1][:1].view(np.uint8))
        yield Violation("node-ids", f"{int(counts.max())} nodes have the id {id_to_text(id_)}", id_)


def shapes_of_arrays(root: Tables, version: int) -> Iterator[Violation]:
    """Arrays have the shape of their spec version, and none of the other one."""
    nodes, is_array = _arrays(root)
    arrays, _ = nodes.take(is_array).tables(4)
    names = {0: "shape", 2: "manifests"}
    missing = absent_fields(arrays, names)
    if missing:
        yield Violation("snapshot-required", f"an array lacks these required fields: {', '.join(missing)}")
    if version == 1:
        if arrays.present(3).any():
            yield Violation("array-shape-v1", "an array of spec version 1 must not have shape_v2")
        return
    if arrays.vectors(0, "V16").lengths.any():
        yield Violation("array-shape-v1-empty", "the list shape must be empty in spec version 2")
    if not arrays.all_have(3):
        yield Violation("array-shape-v2", "an array of spec version 2 must have shape_v2")


def documents_of_nodes(root: Tables, version: int) -> Iterator[Violation]:
    """The Zarr metadata are JSON, of the kind of the node, and fit its shape."""
    nodes, is_array = _arrays(root)
    blobs = nodes.vectors(2).blobs()
    documents = {blob: _parsed(blob) for blob in set(blobs)}
    ids = nodes.structs(0, NODE_ID_BYTES)
    rows = [documents[blob] for blob in blobs]
    kinds = np.array(["array" if each else "group" for each in is_array.tolist()])
    stored = np.array([str(row.get("node_type")) for row in rows])
    wrong = np.flatnonzero(kinds != stored)
    if len(wrong):
        row = int(wrong[0])
        detail = f"the Zarr metadata must be of a node of type {kinds[row]}, got {stored[row]}"
        yield Violation("node-document", detail, ids[row].tobytes())
    yield from _summaries(nodes, is_array, rows, ids, version)


def _summaries(
    nodes: Tables, is_array: NDArray[np.bool_], rows: list[dict[str, Any]], ids: Any, version: int
) -> Iterator[Violation]:
    numbers = np.flatnonzero(is_array)
    arrays, _ = nodes.take(is_array).tables(4)
    for number, (lengths, counts) in zip(numbers.tolist(), _shapes(arrays, version), strict=True):
        document, id_ = rows[number], ids[number].tobytes()
        shape = document.get("shape")
        if isinstance(shape, list) and shape != lengths:
            yield Violation("array-shape", f"the Zarr metadata have the shape {shape}, got {lengths}", id_)
        expected = _chunk_counts(document)
        if counts is not None and expected is not None and expected != counts:
            detail = f"the Zarr metadata have {expected} chunks along the dimensions, got {counts}"
            yield Violation("num-chunks", detail, id_)
    each = arrays.children(1)[1]
    ranks = np.array([len(lengths) for lengths, _ in _shapes(arrays, version)])
    wrong = np.flatnonzero(arrays.present(1) & (each != ranks)) if len(ranks) else numbers[:0]
    for row in wrong[:1].tolist():
        detail = f"an array must have {ranks[row]} dimension names, got {each[row]}"
        yield Violation("dimension-names", detail, ids[numbers[row]].tobytes())


def _shapes(arrays: Tables, version: int) -> list[tuple[list[int], list[int] | None]]:
    """Return the lengths and, in spec version 2, the numbers of chunks of each array."""
    if version == 1:
        pairs = arrays.numbers(0, "V16")
        lengths = pairs.values.view("<u8").reshape(-1, 2)[:, 0].tolist()
        return [(lengths[start : start + size], None) for start, size in _spans(pairs.lengths)]
    dims, each = arrays.children(3)
    lengths, counts = dims.scalars(0, "<u8").tolist(), dims.scalars(1, "<u4").tolist()
    return [(lengths[start : start + size], counts[start : start + size]) for start, size in _spans(each)]


def _spans(counts: Any) -> list[tuple[int, int]]:
    return list(zip((np.cumsum(counts) - counts).tolist(), counts.tolist(), strict=True))


def _arrays(root: Tables) -> tuple[Tables, NDArray[np.bool_]]:
    nodes = root.children(_NODES)[0]
    return nodes, nodes.scalars(3, np.uint8) == _ARRAY


def _parsed(blob: bytes) -> dict[str, Any]:
    try:
        document = json.loads(blob)
    except (ValueError, RecursionError):
        return _NOTHING
    return document if isinstance(document, dict) else _NOTHING


def _chunk_counts(document: dict[str, Any]) -> list[int] | None:
    """Return the number of chunks along each dimension of a regular grid, or None."""
    try:
        chunks = document["chunk_grid"]["configuration"]["chunk_shape"]
        if document["chunk_grid"]["name"] != "regular" or not all(type(each) is int for each in chunks):
            return None
        return [-(-length // chunk) for length, chunk in zip(document["shape"], chunks, strict=True)]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


RULES: Final = (
    order_of_nodes,
    paths_of_nodes,
    fields_of_nodes,
    ids_of_nodes,
    shapes_of_arrays,
    documents_of_nodes,
)
