"""Columns of snapshots and manifests as columns of Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.format.columns import Ragged
from frazil.format.nodes import NodeTable


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
