"""The rules for the manifests of arrays, and for the list of manifests of a snapshot.

Specification: *ManifestRef* and *ManifestFileInfo*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64
from frazil.format.flatbuffer import Tables
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_to_text
from frazil.format.rules.violation import Violation, unsorted_ids

_NODES, _FILES_V1, _FILES_V2 = 2, 6, 7
_ARRAY: Final = 1
_STRUCT_BYTES: Final = 32
#: The number of pairs of manifests that are compared at once.
_PAIRS: Final = 1 << 20


def boxes_of_manifests(root: Tables, version: int) -> Iterator[Violation]:
    """The extents have the rank of the array, are not negative, and do not overlap."""
    nodes = root.children(_NODES)[0]
    is_array = nodes.scalars(3, np.uint8) == _ARRAY
    ids = nodes.structs(0, NODE_ID_BYTES)[is_array]
    arrays, _ = nodes.take(is_array).tables(4)
    refs, counts = arrays.children(2)
    if not (refs.all_have(0) and refs.all_have(1)):
        yield Violation("snapshot-required", "a manifest of an array lacks its id or its extents")
        return
    boxes = refs.numbers(1, "V8")
    ranks = (arrays.vectors(0, "V16").lengths // 16) if version == 1 else arrays.children(3)[1]
    wrong = np.flatnonzero(boxes.lengths != np.repeat(ranks, counts))
    if len(wrong):
        owner = np.repeat(np.arange(len(ids)), counts)[wrong[0]]
        detail = f"extents must have {ranks[owner]} ranges, got {boxes.lengths[wrong[0]]}"
        yield Violation("extents-rank", detail, ids[owner].tobytes())
        return
    edges = boxes.values.view("<u4").reshape(-1, 2)
    if (edges[:, 0] > edges[:, 1]).any():
        start, stop = edges[edges[:, 0] > edges[:, 1]][0].tolist()
        yield Violation("extents-range", f"extents must begin before their end, got {start} to {stop}")
    firsts = np.cumsum(counts) - counts
    for row in np.flatnonzero(counts > 1).tolist():
        first, count, rank = int(firsts[row]), int(counts[row]), int(ranks[row])
        low = int(boxes.lengths[:first].sum())
        box = edges[low : low + count * rank].reshape(count, rank, 2)
        if overlapping(box):
            detail = f"the extents of its {count} manifests overlap"
            yield Violation("extents-overlap", detail, ids[row].tobytes())


def overlapping(boxes: NDArray[Any]) -> bool:
    """Return whether any two of n half-open boxes, (n, ndim, 2), have a common point.

    >>> overlapping(np.array([[[0, 2]], [[2, 4]]])), overlapping(np.array([[[0, 3]], [[2, 4]]]))
    (False, True)
    """
    boxes = boxes[(boxes[:, :, 0] < boxes[:, :, 1]).all(axis=1)].astype(np.int64)
    count, rank = boxes.shape[:2]
    if count < 2 or not rank:
        return bool(count > 1)
    # Along the best dimension, each box is compared only with boxes that begin before its end.
    orders = [np.argsort(boxes[:, axis, 0], kind="stable") for axis in range(rank)]
    lasts = [_last_rivals(boxes[order, axis]) for axis, order in enumerate(orders)]
    axis = min(range(rank), key=lambda each: int(lasts[each].sum()))
    boxes, rivals = boxes[orders[axis]], lasts[axis]
    blocks = np.cumsum(rivals) // _PAIRS
    for rows in np.split(np.arange(count), np.flatnonzero(np.diff(blocks)) + 1):
        one = np.repeat(rows, rivals[rows])
        ends = np.cumsum(rivals[rows])
        two = np.arange(len(one)) - np.repeat(ends - rivals[rows], rivals[rows]) + one + 1
        a, b = boxes[one], boxes[two]
        common = ((a[:, :, 0] < b[:, :, 1]) & (b[:, :, 0] < a[:, :, 1])).all(axis=1)
        if common.any():
            return True
    return False


def _last_rivals(edges: NDArray[Any]) -> I64:
    """Return for each interval, sorted by start, how many later intervals begin before its end."""
    stops = np.searchsorted(edges[:, 0], edges[:, 1], side="left")
    rivals: I64 = np.maximum(stops - np.arange(len(edges)) - 1, 0)
    return rivals


def lists_of_manifests(root: Tables, version: int) -> Iterator[Violation]:
    """The list of manifests has the form of the spec version, and is sorted."""
    old = root.numbers(_FILES_V1, f"V{_STRUCT_BYTES}").values
    if version == 1:
        ids = old.view(np.uint8).reshape(-1, _STRUCT_BYTES)[:, :OBJECT_ID_BYTES]
        yield from unsorted_ids("manifest-files-sorted", "manifest_files", id_keys(ids))
        return
    if len(old):
        yield Violation("manifest-files-v1-empty", f"manifest_files must be empty, got {len(old)} elements")
    if not root.all_have(_FILES_V2):
        yield Violation("manifest-files-v2", "a snapshot of spec version 2 must have manifest_files_v2")
        return
    files = root.children(_FILES_V2)[0]
    ids = files.structs(0, OBJECT_ID_BYTES)
    yield from unsorted_ids("manifest-files-sorted", "manifest_files_v2", id_keys(ids))
    empty = ~files.present(0) | (files.scalars(1, "<u8") == 0)
    if empty.any():
        yield Violation("manifest-file-fields", "a manifest in the list lacks its id or its size")


def unlisted_manifests(root: Tables, version: int) -> Iterator[Violation]:
    """Every manifest of an array is in the list of manifests."""
    nodes = root.children(_NODES)[0]
    arrays, _ = nodes.take(nodes.scalars(3, np.uint8) == _ARRAY).tables(4)
    uses = arrays.children(2)[0].structs(0, OBJECT_ID_BYTES)
    if version == 1:
        rows = root.numbers(_FILES_V1, f"V{_STRUCT_BYTES}").values.view(np.uint8)
        listed = rows.reshape(-1, _STRUCT_BYTES)[:, :OBJECT_ID_BYTES]
    else:
        listed = root.children(_FILES_V2)[0].structs(0, OBJECT_ID_BYTES)
    missing = uses[~np.isin(id_keys(uses), id_keys(listed))]
    if len(missing):
        id_ = id_to_text(missing[0].tobytes())
        yield Violation("manifest-listed", f"the manifest {id_} of an array is not among the manifest files")


RULES: Final = (boxes_of_manifests, lists_of_manifests, unlisted_manifests)
