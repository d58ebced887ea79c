"""The differences in the values of an array between two versions.

Chunks with the same reference have the same bytes, so they are not read. Of each other chunk, both versions
are read and compared. If the chunk grids or the encodings differ, all chunks are read. Cells that only one
version has are not compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.changes.compare import differing
from frazil.changes.zarr_metadata import chunk_lengths, same_encoding
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import I64, U32
from frazil.format.snapshot import Node
from frazil.repository.history.value_report import ValueDifference
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.threads import Purpose, map_bounded
from frazil.zarr_store.arrays import array_at


@dataclass(frozen=True, slots=True)
class _Sums:
    """The changed cells of one chunk: their number, the numbers among them, and sums of their differences."""

    changed: int
    numbers: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: float = float("nan")


def value_differences(before: Session, after: Session, path: str) -> ValueDifference:
    """Compare the values of an array. See ``Repository.diff_values``."""
    new = after.workspace.nodes.require_array(absolute(path))
    old = _node_before(before, new)
    assert old.array is not None
    assert new.array is not None
    if len(old.array.shape) != len(new.array.shape):
        raise InvalidInputError(
            f"the array `{new.path}` must have the same number of dimensions in both versions, got "
            f"{len(old.array.shape)} and {len(new.array.shape)}",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    shape = tuple(map(min, old.array.shape, new.array.shape))
    edges = _edges(new)
    index = _chunks_to_read(before, after, old, new)
    is_common = np.ones(len(index), np.bool_)
    for axis, (edge, end) in enumerate(zip(edges, shape, strict=True)):
        is_common &= edge[index[:, axis]] < end
    index = index[is_common]
    arrays = array_at(before, old.path), array_at(after, new.path)

    def compare(chunk: NDArray[np.uint32]) -> _Sums:
        where = tuple(
            slice(int(edge[at]), int(min(edge[at + 1], end)))
            for at, edge, end in zip(chunk.tolist(), edges, shape, strict=True)
        )
        return _compared(*(np.asarray(array[where]) for array in arrays))

    sums = map_bounded(Purpose.CHUNK_COPIES, compare, list(index))
    return _report(new, prod(shape), index, sums)


def _node_before(before: Session, new: Node) -> Node:
    """Return the array in the earlier version: the one with the same id, else the one at the same path."""
    nodes = before.workspace.nodes
    table = nodes.node_table()
    rows = np.flatnonzero((table.ids == np.frombuffer(new.id, np.uint8)).all(axis=1))
    return table.node(int(rows[0])) if len(rows) else nodes.require_array(new.path)


def _edges(node: Node) -> list[I64]:
    """Return the first cell of each chunk along each dimension, and the end of the last chunk."""
    assert node.array is not None
    counts = node.array.num_chunks
    return [
        np.arange(count + 1) * edge if isinstance(edge, int) else np.array([0, *accumulate(edge)], np.int64)
        for edge, count in zip(chunk_lengths(node.user_data), counts, strict=True)
    ]


def _chunks_to_read(before: Session, after: Session, old: Node, new: Node) -> U32:
    """Return the coordinates of the chunks, in the later version, whose values can differ."""
    assert old.array is not None
    assert new.array is not None
    if _fill(old) == _fill(new) and same_encoding(old.user_data, new.user_data):
        tables = [
            session.workspace.chunks.ref_table(node.path) for session, node in ((before, old), (after, new))
        ]
        index = differing(*tables)
        return index[(index < np.array(new.array.num_chunks, np.uint32)).all(axis=1)]
    counts = new.array.num_chunks
    return np.indices(counts, np.uint32).reshape(len(counts), -1).T


def _fill(node: Node) -> Any:
    return json.loads(node.user_data).get("fill_value")


def _compared(old: NDArray[Any], new: NDArray[Any]) -> _Sums:
    differs = np.asarray(old != new)
    if old.dtype.kind in "fc" and new.dtype.kind in "fc":
        differs &= ~(np.isnan(old) & np.isnan(new))
    changed = int(np.count_nonzero(differs))
    if not changed or not {old.dtype.kind, new.dtype.kind} <= set("biuf"):
        return _Sums(changed)
    steps = np.asarray(new)[differs].astype(np.float64) - np.asarray(old)[differs].astype(np.float64)
    steps = steps[~np.isnan(steps)]
    if not len(steps):
        return _Sums(changed)
    with np.errstate(over="ignore"):  # the sum is infinite then
        squares = float((steps * steps).sum())
    return _Sums(changed, len(steps), float(steps.sum()), squares, float(np.abs(steps).max()))


def _report(node: Node, cells: int, index: U32, sums: list[_Sums]) -> ValueDifference:
    assert node.array is not None
    changed = np.array([each.changed for each in sums], np.int64)
    largest = np.array([each.largest for each in sums], np.float64)
    numbers = sum(each.numbers for each in sums)
    has = changed > 0
    nothing = float("nan")
    return ValueDifference(
        node.path,
        cells,
        int(changed.sum()),
        sum(each.total for each in sums) / numbers if numbers else nothing,
        float(np.nanmax(largest)) if numbers else nothing,
        sqrt(sum(each.squares for each in sums) / numbers) if numbers else nothing,
        node.array.num_chunks,
        index[has],
        changed[has],
        largest[has],
        len(index),
    )
