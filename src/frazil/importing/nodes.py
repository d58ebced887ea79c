"""Converts old nodes to new nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from frazil.changes.zarr_metadata import parse_node
from frazil.errors import FormatError, InvalidInputError
from frazil.format.older.elements import OldManifestRef, OldNode, OldSnapshot
from frazil.format.snapshot import ManifestRef, Node, NodeTable
from frazil.importing.ids import new_node_id
from frazil.importing.manifests import Converted


def new_nodes(snapshot: OldSnapshot, name: str, manifests: Mapping[bytes, Sequence[Converted]]) -> NodeTable:
    """Return the nodes of a snapshot. ``manifests`` are by old id."""
    try:
        return NodeTable.from_nodes([_node(node, manifests) for node in snapshot.nodes])
    except InvalidInputError as error:
        raise FormatError(f"{name}: {error.message}") from error


def _node(node: OldNode, manifests: Mapping[bytes, Sequence[Converted]]) -> Node:
    id_ = new_node_id(node.id, node.path)
    document = json.dumps(node.document).encode()
    array = parse_node(document)
    if array is not None:
        refs = [
            ref
            for old in node.manifests or ()
            for converted in manifests.get(old.id, ())
            if (ref := _ref(old, converted, id_, len(array.shape))) is not None
        ]
        array = replace(array, manifests=tuple(refs))
    return Node(id_, node.path, document, array)


def _ref(old: OldManifestRef, converted: Converted, node: bytes, rank: int) -> ManifestRef | None:
    """Return the reference to a new manifest. None if it has no chunk of the array in the old extents."""
    box = converted.bounds.get((node, rank))
    if box is None:
        return None
    if old.extents is None:
        return ManifestRef(converted.id, box)
    first, end = (np.array(corner, np.int64) for corner in old.extents)
    low, high = np.maximum(box[:, 0], first), np.minimum(box[:, 1], end)
    if (low >= high).any():
        return None
    return ManifestRef(converted.id, np.stack((low, high), axis=1).astype(np.uint32))
