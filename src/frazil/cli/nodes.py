"""Groups and arrays of a version as documents for JSON and as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from frazil.cli.opening import OpenVersion
from frazil.format.ids import NODE_ID_BYTES
from frazil.format.nodes import Node
from frazil.repository.session.workspace import Workspace

#: The option of commands that leave out hidden nodes.
all_option: Final = click.option(
    "-a", "--all", "everything", is_flag=True, help="Also show nodes whose names begin with a dot."
)


def shown(names: Iterable[str], everything: bool) -> list[str]:
    """Return names, without hidden ones unless ``everything`` is shown.

    >>> shown(["t", ".frazil"], False)
    ['t']
    """
    return [name for name in names if everything or not name.startswith(".")]


def workspace_of(version: OpenVersion) -> Workspace:
    """Return the nodes and chunks of a version."""
    return Workspace(version.context, version.raw_id)


def node_at(workspace: Workspace, path: str) -> Node:
    """Return the node at a path. The root exists, also in an empty version."""
    node = workspace.node(path)
    if node is None and path == "/":
        return Node(bytes(NODE_ID_BYTES), path, b"{}", None)
    return workspace.require_node(path) if node is None else node


def node_document(node: Node) -> dict[str, Any]:
    """Return a group or an array in the form that JSON has."""
    stored = json.loads(node.user_data)
    document: dict[str, Any] = {"path": node.path, "kind": "group" if node.array is None else "array"}
    if node.array is not None:
        names = node.array.dimension_names
        document |= {
            "shape": list(node.array.shape),
            "dtype": _name(stored.get("data_type")),
            "chunks": stored.get("chunk_grid", {}).get("configuration", {}).get("chunk_shape"),
            "dimensions": None if names is None else list(names),
            "fill_value": stored.get("fill_value"),
            "codecs": list(map(_name, stored.get("codecs", ()))),
        }
    return {**document, "attributes": stored.get("attributes", {})}


def _name(value: Any) -> str:
    """Return the name of a type or a codec of Zarr, which may be an object with a name."""
    return str(value.get("name") if isinstance(value, Mapping) else value)


def summary(document: Mapping[str, Any]) -> str:
    """Return what an array is in a few words; nothing for a group.

    >>> summary({"kind": "array", "dtype": "float32", "shape": [8, 4], "dimensions": ["time", "x"]})
    'float32 (time: 8, x: 4)'
    """
    if document["kind"] == "group":
        return ""
    names = document["dimensions"] or [None] * len(document["shape"])
    parts = (
        f"{name}: {size}" if name else str(size) for name, size in zip(names, document["shape"], strict=True)
    )
    return f"{document['dtype']} ({', '.join(parts)})"
