"""Small ``zarr.json`` documents, and values put into a session without the store."""

from __future__ import annotations

import json

from zarr.core.buffer import Buffer, cpu

from frazil import IcechunkStore
from frazil.zarr_store.references import Document, parse_key

GROUP = b'{"zarr_format": 3, "node_type": "group"}'
EDGE = 16


def array_document(ndim: int, shape: list[int] | None = None) -> bytes:
    """An array with 16 chunks along each of its dimensions, or of another shape."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape or [EDGE] * ndim,
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * ndim}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
        }
    ).encode()


def make_arrays(store: IcechunkStore, *keys: str) -> None:
    """Create the arrays that chunk keys belong to, where there are none."""
    workspace = store.session.workspace
    for key in keys:
        path, coords = parse_key(key)
        if not isinstance(coords, Document) and workspace.node(path) is None:
            workspace.set_node(path, array_document(len(coords)))


def put(store: IcechunkStore, key: str, value: Buffer) -> None:
    """Set a value without the store; chunks get an array around them."""
    make_arrays(store, key)
    path, coords = parse_key(key)
    workspace = store.session.workspace
    if isinstance(coords, Document):
        workspace.set_node(path, value.to_bytes())
    else:
        workspace.write_chunk(path, coords, value.to_bytes())


def take(store: IcechunkStore, key: str) -> Buffer:
    """Get a value without the store."""
    path, coords = parse_key(key)
    workspace = store.session.workspace
    data = (
        workspace.require_node(path).user_data
        if isinstance(coords, Document)
        else workspace.read_chunk(path, coords)
    )
    assert data is not None
    return cpu.Buffer.from_bytes(bytes(data))


def buffer(data: bytes) -> cpu.Buffer:
    return cpu.Buffer.from_bytes(data)
