"""The manifests that a commit must read, if windows divide the references of an array.

A commit reads a manifest if an edit is between its first and last chunk, if it shares a window with an edit,
or if it reaches out of the grid of a smaller shape. It also reads a neighbour of a window that has become
small. All other manifests stay.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from frazil.changes.grid_keys import Axes, Spans, corners, leading_axis
from frazil.changes.manifests import ManifestRewrite
from frazil.changes.windows import Windows, capacity_for, neighbours, windows_of
from frazil.format.columns import I64, U32
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ArrayData, ManifestRefs


def axes_of(array: ArrayData, before: tuple[int, ...]) -> Axes:
    """Return the order of the dimensions for the windows of an array.

    ``before`` are the chunks along each dimension before the changes of the session.
    """
    extents = _extents(array)
    limits = np.array(array.num_chunks, np.int64)
    if len(extents):
        limits = np.maximum(limits, extents[:, :, 1].max(axis=0))
    return Axes.leading(leading_axis(extents, array.num_chunks, before), limits.tolist())


def plan_windows(
    array: ArrayData, edits: ChunkTable, counts: I64, axes: Axes, *, everything: bool = False
) -> tuple[ManifestRewrite, Windows]:
    """Return which manifests of an array a commit reads, and the windows for its references and edits."""
    most = int(counts.sum()) + len(edits)
    capacity = capacity_for(min(most, math.prod(array.num_chunks)))
    is_one_window = most <= capacity and bool((edits.kind != ChunkKind.ABSENT).any())
    if everything or is_one_window or not array.manifests:
        return ManifestRewrite((), array.manifests), Windows(axes, capacity)
    extents = _extents(array)
    first, last = corners(axes, extents)
    spans, number = Spans.of(first, last, counts)
    is_read = _spans_to_read(spans, axes, edits, capacity)
    outside = (extents[:, :, 1] > np.array(array.num_chunks, np.int64)).any(axis=1)
    is_read[number[outside]] = True
    read = is_read[number]
    manifests = ManifestRefs.of(array.manifests, len(array.shape))
    others = np.concatenate([first[~read], last[~read]]).tobytes()
    return ManifestRewrite(manifests.select_refs(~read), manifests.select_refs(read)), Windows(
        axes, capacity, others
    )


def _spans_to_read(spans: Spans, axes: Axes, edits: ChunkTable, capacity: int) -> NDArray[np.bool_]:
    keys = axes.keys(edits.index)
    order = np.argsort(keys, kind="stable")
    keys, is_stored = keys[order], (edits.kind != ChunkKind.ABSENT)[order]
    at = spans.having(keys)
    is_read = np.zeros(len(spans), bool)
    is_read[at[at >= 0]] = True
    spans = spans.without(at[(at >= 0) & ~is_stored])
    loose = keys[(at < 0) & is_stored]
    # An overfull span is read and cut. There is no window to look for.
    probes = is_stored & (at < 0)
    probes[at >= 0] = spans.counts[at[at >= 0]] <= capacity
    first, bits = windows_of(keys[probes], spans, loose, capacity)
    if len(first):
        end = first + ((np.int64(1) << bits) - 1)
        low, high = spans.meeting(first, end)
        marks = np.zeros(len(spans) + 1, np.int64)
        np.add.at(marks, low, 1)
        np.add.at(marks, high, -1)
        is_read |= np.cumsum(marks[:-1]) > 0
        is_read[neighbours(spans, first, end, capacity)] = True
    return is_read


def _extents(array: ArrayData) -> U32:
    return ManifestRefs.of(array.manifests, len(array.shape)).extents
