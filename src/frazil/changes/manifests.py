"""The division of the references of an array into manifests.

The chunk grid of an array is cut into boxes of ``split`` chunks along each dimension. The references of a box
share a manifest, which stays if there is no change in its box. A commit writes all boxes again that a changed
manifest reaches. So the manifests of an array never overlap. Specification: *Chunk Manifest Files*.

With the splitting ``"auto"`` the boxes are windows: the largest *cells* (equal keys without the last k bits)
that have no more references than the *capacity*. They follow from the boxes and the counts of the manifests
in the snapshot. Design: ``design/055-manifests-that-split-themselves.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.chunk_table import box, keys, within
from frazil.format.columns import I64, U32
from frazil.format.ids import id_list
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.format.snapshot import ArrayData, ManifestRef, ManifestRefs

#: Keys have at most this number of bits.
MOST_BITS: Final = 62


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans of keys, sorted: the first and last key, and the sum of the counts before each span."""

    first: I64
    last: I64
    before: I64

    @classmethod
    def of(cls, first: I64, last: I64, counts: I64) -> tuple[Spans, I64]:
        """Return disjoint spans, and for each given span the number of the span that contains it."""
        order = np.argsort(first, kind="stable")
        reach = np.maximum.accumulate(last[order])
        begins = np.ones(len(order), bool)
        begins[1:] = first[order][1:] > reach[:-1]
        number = np.empty(len(order), np.int64)
        number[order] = np.cumsum(begins) - 1
        rows = np.flatnonzero(begins)
        ends = np.append(rows[1:], len(order)) - 1 if len(rows) else rows
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[order])])
        return cls(first[order][rows], reach[ends], np.append(total[rows], total[-1])), number

    def __len__(self) -> int:
        return len(self.first)

    @property
    def counts(self) -> I64:
        """The number of references of each span."""
        return np.diff(self.before)

    def without(self, deleted: I64) -> Spans:
        """Return the spans with one reference less for each number of a span in ``deleted``."""
        if not len(deleted):
            return self
        left = np.maximum(self.counts - np.bincount(deleted, minlength=len(self)), 0)
        return replace(self, before=np.concatenate([np.zeros(1, np.int64), np.cumsum(left)]))

    def meeting(self, first: I64, last: I64) -> tuple[I64, I64]:
        """Return the half-open ranges of spans that meet other spans."""
        low = np.searchsorted(self.last, first, "left")
        return low, np.maximum(np.searchsorted(self.first, last, "right"), low)

    def having(self, keys: I64) -> I64:
        """Return the numbers of the spans of keys, or -1 for keys without a span."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        at = np.searchsorted(self.first, keys, "right") - 1
        return np.where((at >= 0) & (keys <= self.last[np.maximum(at, 0)]), at, -1)


@dataclass(frozen=True, slots=True)
class Axes:
    """The order of the dimensions in keys, and the bits of each dimension, by this order."""

    order: tuple[int, ...]
    bits: tuple[int, ...]

    @classmethod
    def leading(cls, axis: int, limits: Sequence[int]) -> Axes:
        """Return the axes with one dimension first. ``limits`` are the chunks along each dimension."""
        order = (axis, *[other for other in range(len(limits)) if other != axis])
        return cls(order, tuple([max(limits[each] - 1, 0).bit_length() for each in order]))

    @property
    def is_possible(self) -> bool:
        """Whether keys of the grid fit into a number."""
        return sum(self.bits) <= MOST_BITS

    def keys(self, index: NDArray[np.integer]) -> I64:
        """Return the keys of coordinates of shape (n, ndim)."""
        out = np.zeros(len(index), np.int64)
        for axis, bits in zip(self.order, self.bits, strict=True):
            out <<= bits
            out |= index[:, axis].astype(np.int64)
        return out

    def is_box(self, first: int, last: int) -> bool:
        """Return whether the chunks between two keys, inclusive, are a box that no other box can cross."""
        low = sum(self.bits)
        for bits in self.bits:
            low -= bits
            if first >> low != last >> low:
                whole = (1 << low) - 1
                return first & whole == 0 and last & whole == whole
        return True


def axes_of(array: ArrayData, before: Sequence[int]) -> Axes:
    """Return the order of the dimensions for the windows of an array. The windows that exist decide."""
    num_chunks = array.num_chunks
    extents = ManifestRefs.of(array.manifests, len(array.shape)).extents
    limits = np.array(num_chunks, np.int64)
    if len(extents):
        limits = np.maximum(limits, extents[:, :, 1].max(axis=0))
    grown = [axis for axis, (new, old) in enumerate(zip(num_chunks, before, strict=True)) if new > old]
    several = [axis for axis, count in enumerate(num_chunks) if count > 1]
    preferred = list(dict.fromkeys([*grown, *several, 0]))
    best = (0, preferred[0])
    reached = np.maximum(extents[:, :, 1].max(axis=0), 1).tolist() if len(extents) > 1 else []
    for axis in preferred if len(extents) > 1 else ():
        axes = Axes.leading(axis, reached)
        if not axes.is_possible:
            continue
        spans, _ = Spans.of(*corners(axes, extents), np.zeros(len(extents), np.int64))
        if len(spans) > best[0]:
            best = (len(spans), axis)
        if len(spans) == len(extents):
            break
    return Axes.leading(best[1], limits.tolist())


def corners(axes: Axes, extents: U32) -> tuple[I64, I64]:
    """Return the first and the last key of boxes, (m, ndim, 2), half-open."""
    boxes = extents.astype(np.int64)
    return axes.keys(boxes[:, :, 0]), axes.keys(np.maximum(boxes[:, :, 1] - 1, 0))


#: The largest number of references in a manifest of a small array: 40 to 190 KB.
CAPACITY: Final = 8192
#: The bytes of a manifest in the snapshot, divided by the bytes of a reference in its manifest.
_ENTRY_BYTES: Final = 1.5
#: How full windows are on average: a window is between half full and full.
_FULLNESS: Final = 0.75
#: A window with less than this part of the capacity is small.
_SMALL: Final = 4
#: The number of keys whose windows are looked up at once.
_PROBES: Final = 512


def capacity_for(refs: int) -> int:
    """Return the largest number of references in a manifest, for an array with ``refs`` references."""
    best = (_ENTRY_BYTES * refs) ** 0.5 / _FULLNESS
    return int(CAPACITY * 2 ** max(0, round(np.log2(max(best, 1) / CAPACITY))))


def windows_of(keys: I64, spans: Spans, loose: I64, capacity: int) -> tuple[I64, I64]:
    """Return the first keys and the numbers of bits of the windows that contain ``keys``."""
    first: list[I64] = []
    bits: list[I64] = []
    left = keys
    while len(left):
        probes = left[:: -(-len(left) // _PROBES)]
        level = _bits_of(probes, spans, loose, capacity)
        start = (probes >> level) << level
        start, rows = np.unique(start, return_index=True)
        first.append(start)
        bits.append(level[rows])
        left = _outside(left, start, start + (np.int64(1) << level[rows]))
    if not first:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts, levels = np.concatenate(first), np.concatenate(bits)
    order = np.argsort(starts)
    return starts[order], levels[order]


def _outside(keys: I64, start: I64, stop: I64) -> I64:
    """Return the sorted keys outside of disjoint half-open spans, which are sorted, too."""
    begins = np.append(np.searchsorted(keys, start), len(keys))
    ends = np.append(np.zeros(1, np.int64), np.searchsorted(keys, stop))
    gaps = np.flatnonzero(ends < begins)
    parts = [keys[low:high] for low, high in zip(ends[gaps].tolist(), begins[gaps].tolist(), strict=True)]
    return np.concatenate(parts) if parts else keys[:0]


def _bits_of(keys: I64, spans: Spans, loose: I64, capacity: int) -> I64:
    """Return the bits of the window of each key, by a binary search over the sizes of cells."""
    low = np.zeros(len(keys), np.int64)
    high = np.full(len(keys), MOST_BITS, np.int64)
    while (low < high).any():
        middle = (low + high + 1) >> 1
        start = (keys >> middle) << middle
        last = start + ((np.int64(1) << middle) - 1)
        begin, end = spans.meeting(start, last)
        count = spans.before[end] - spans.before[begin]
        count += np.searchsorted(loose, last, "right") - np.searchsorted(loose, start, "left")
        fits = count <= capacity
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low


def neighbours(spans: Spans, first: I64, last: I64, capacity: int) -> list[int]:
    """Return spans next to small windows (``first``, ``last``) that are read too, so that these grow."""
    out: list[int] = []
    low, high = spans.meeting(first, last)
    counts = spans.before[high] - spans.before[low]
    for row in np.flatnonzero(counts * _SMALL < capacity).tolist():
        if high[row] >= len(spans):
            continue
        for other in (int(low[row]) - 1, int(high[row])):
            if 0 <= other < len(spans) - 1 and counts[row] + spans.counts[other] <= capacity:
                out.append(other)
                break
    return out


@dataclass(frozen=True, slots=True)
class KeyWindows:
    """How a commit divides the references that it writes into manifests."""

    axes: Axes
    capacity: int
    others: bytes = b""

    def rows(self, index: U32) -> list[NDArray[np.int64] | slice]:
        """Return the rows of each window, for coordinates of shape (n, ndim) without repetitions."""
        if 0 < len(index) <= self.capacity and not self.others:
            return [np.arange(len(index))]
        keys = self.axes.keys(index)
        order = None
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
        pairs = np.frombuffer(self.others, np.int64).reshape(2, -1)
        spans, _ = Spans.of(pairs[0], pairs[1], np.full(pairs.shape[1], self.capacity + 1, np.int64))
        first, bits = windows_of(keys, spans, keys, self.capacity)
        cuts = np.searchsorted(keys, first)
        last = first + ((np.int64(1) << bits) - 1)
        starts = self._joined(first, last, np.diff(np.append(cuts, len(keys))), spans)
        ends = [*cuts[starts][1:].tolist(), len(keys)]
        parts = [slice(low, high) for low, high in pairwise([0, *ends])] if len(keys) else []
        return list(parts) if order is None else [order[part] for part in parts]

    def _joined(self, first: I64, last: I64, counts: I64, spans: Spans) -> list[int]:
        """Return the windows at which manifests begin, after small windows joined a neighbour."""
        starts: list[int] = []
        size = 0
        tail = len(counts) - 1  # the last window of the array may be small: it grows when the array grows
        if len(spans) and len(first) and spans.last[-1] > first[-1]:
            tail = len(counts)
        for row, count in enumerate(counts.tolist()):
            small = min(size, count) * _SMALL < self.capacity and row < tail
            if starts and small and size + count <= self.capacity:
                begin, end = int(first[starts[-1]]), int(last[row])
                low, high = spans.meeting(np.array([begin]), np.array([end]))
                if low[0] == high[0] and self.axes.is_box(begin, end):
                    size += count
                    continue
            starts.append(row)
            size = count
        return starts


#: The limits of a manifest that several arrays share: references and chunk files of one array, and bytes of
#: all arrays.
_SHARED_REFS: Final = 1000
_SHARED_FILES: Final = 64
_SHARED_BYTES: Final = 1 << 20
#: About the bytes of a reference.
_REF_BYTES: Final = 32

#: By default, an array with up to this number of references has one manifest. To read one chunk, a reader
#: reads a whole manifest: with this number of references it has 6 to 30 MB, and takes half a second.
UNSPLIT_REFS: Final = 2_000_000
#: A larger array has about this number of references in each manifest. A manifest takes a fifth of a second,
#: and a hundred million references are a hundred files.
SPLIT_REFS: Final = 1 << 20
#: The largest number of chunks along a dimension.
_WHOLE: Final = (1 << 32) - 1


#: The size of a box in chunks along each dimension, or windows by the number of references.
type Split = tuple[int, ...] | KeyWindows


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRewrite:
    """The manifests of an array that stay, and those that are read and merged with the edits."""

    unchanged: Sequence[ManifestRef]
    read: Sequence[ManifestRef]


def plan_rewrite(array: ArrayData, changed: ChunkTable, split: tuple[int, ...]) -> ManifestRewrite:
    """Return which manifests an update with the edits ``changed`` must read, for boxes of size ``split``."""
    if not array.manifests:
        return ManifestRewrite((), ())
    if not array.shape:
        return ManifestRewrite((), array.manifests) if len(changed) else ManifestRewrite(array.manifests, ())
    size = np.array(split, np.int64)
    refs = ManifestRefs.of(array.manifests, len(array.shape))
    extents = refs.extents.astype(np.int64)
    low, high = extents[:, :, 0] // size, (extents[:, :, 1] - 1) // size
    outside = (extents[:, :, 1] > np.array(array.num_chunks, np.int64)).any(axis=1)
    touched = np.unique(changed.index.astype(np.int64) // size, axis=0)
    read = outside | _meet(low, high, touched, touched)
    while True:
        # A manifest that is read touches every box that it reaches.
        reach = read | _meet(low, high, low[read], high[read])
        if (reach == read).all():
            break
        read = reach
    return ManifestRewrite(refs.select_refs(~read), refs.select_refs(read))


def _meet(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    other_low: NDArray[np.int64],
    other_high: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which of the boxes low..high (inclusive) overlap with one of the other boxes."""
    out = np.zeros(len(low), bool)
    for start in range(0, len(other_low), 4096):
        part = slice(start, start + 4096)
        out |= (
            ((low[:, None] <= other_high[None, part]) & (other_low[None, part] <= high[:, None]))
            .all(axis=2)
            .any(axis=1)
        )
    return out


def auto_split(num_chunks: tuple[int, ...], refs: int, unsplit_refs: int = UNSPLIT_REFS) -> tuple[int, ...]:
    """Return the default size of boxes in chunks, for an array with ``refs`` references."""
    if refs <= unsplit_refs:
        return (_WHOLE,) * len(num_chunks)
    return boxes_with(num_chunks, refs, min(SPLIT_REFS, unsplit_refs), range(len(num_chunks)))


def boxes_with(num_chunks: tuple[int, ...], refs: int, each: int, order: Iterable[int]) -> tuple[int, ...]:
    """Return the size of boxes of about ``each`` references, as powers of two, cut along ``order``."""
    left = each / max(refs, 1)  # the part of the array in one manifest
    sizes = [_WHOLE] * len(num_chunks)
    for axis in order:
        if left >= 1:
            break
        along = left * num_chunks[axis]
        sizes[axis] = 1 << max(0, int(along).bit_length() - 1)
        left = min(along, 1.0)
    return tuple(sizes)


def distribute(
    array: ArrayData, old: list[ChunkTable], changed: ChunkTable, split: Split
) -> list[ChunkTable]:
    """Merge the references of the old manifests with the edits. Return a table for each non-empty box.

    Of two old references of one chunk, readers see the one of the first manifest.
    """
    table = ChunkTable.merge_tables([*reversed(old), changed]) if old else changed
    table = table.stored()
    if not len(table):
        return []
    if not array.shape:
        return [table.prune()]
    inside = within(table.index, array.num_chunks)
    if not inside.all():
        table = table.select_chunks(inside)
    return [part.prune() for part in in_boxes(table, split)]


def in_boxes(table: ChunkTable, split: Split) -> list[ChunkTable]:
    """Return the rows of each box that is not empty. The sources stay as they are."""
    if not len(table):
        return []
    if isinstance(split, KeyWindows):
        parts = split.rows(table.index)
        return [table] if len(parts) == 1 else list(map(table.select_chunks, map(_as_slice, parts)))
    low, high = table.bounds().T
    size = np.array(split, np.uint32)
    if (low // size == (high - 1) // size).all():
        return [table]
    boxes = table.index // size
    _, numbers = np.unique(keys(boxes, box(boxes)), return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return list(map(table.select_chunks, map(_as_slice, np.split(order, cuts))))


def _as_slice(rows: NDArray[np.int64] | slice) -> NDArray[np.int64] | slice:
    """Return rows in ascending order, as a slice if possible, which copies nothing."""
    if isinstance(rows, slice):
        return rows
    low, high = int(rows.min()), int(rows.max())
    return slice(low, high + 1) if high - low + 1 == len(rows) else np.sort(rows)


def share(updates: list[tuple[bytes, list[ChunkTable]]]) -> list[dict[bytes, ChunkTable]]:
    """Return the content of each manifest file: tables by node id.

    Small arrays with the same chunk files share a manifest, because a dataset has many of them, and a file
    costs a request: arrays whose chunks are all inline (coordinates, scalars), or in the same packs. So a
    later change never leaves a chunk file that nothing uses and that garbage collection cannot delete.
    """
    files: list[dict[bytes, ChunkTable]] = []
    shared: dict[bytes, tuple[dict[bytes, ChunkTable], int]] = {}
    for node_id, tables in updates:
        chunk_files = _chunk_files(tables) if len(updates) > 1 else None
        if chunk_files is None:
            files += [{node_id: table} for table in tables]
            continue
        size = _inline_bytes(tables[0]) + len(tables[0]) * _REF_BYTES
        file, room = shared.get(chunk_files, ({}, 0))
        if size > room:
            file, room = {}, _SHARED_BYTES
            files.append(file)
        file[node_id] = tables[0]
        shared[chunk_files] = file, room - size
    return files


def _chunk_files(tables: list[ChunkTable]) -> bytes | None:
    """Return the ids of the chunk files of a small array; None if it needs manifests of its own."""
    if len(tables) != 1 or len(tables[0]) > _SHARED_REFS or _inline_bytes(tables[0]) > _SHARED_BYTES:
        return None
    table = tables[0]
    is_native = table.kind == ChunkKind.NATIVE
    if not (is_native | (table.kind == ChunkKind.INLINE)).all():
        return None
    rows = np.unique(table.source[is_native])
    return b"".join(sorted(set(id_list(table.chunk_ids[rows])))) if len(rows) <= _SHARED_FILES else None


def _inline_bytes(table: ChunkTable) -> int:
    return int(table.length[table.kind == ChunkKind.INLINE].sum())


def plan_windows(
    array: ArrayData, edits: ChunkTable, counts: I64, axes: Axes, *, everything: bool = False
) -> tuple[ManifestRewrite, KeyWindows]:
    """Return which manifests of an array a commit reads, and the windows for its references and edits."""
    most = int(counts.sum()) + len(edits)
    capacity = capacity_for(min(most, math.prod(array.num_chunks)))
    is_one_window = most <= capacity and bool((edits.kind != ChunkKind.ABSENT).any())
    if everything or is_one_window or not array.manifests:
        return ManifestRewrite((), array.manifests), KeyWindows(axes, capacity)
    manifests = ManifestRefs.of(array.manifests, len(array.shape))
    extents = manifests.extents
    first, last = corners(axes, extents)
    spans, number = Spans.of(first, last, counts)
    is_read = _spans_to_read(spans, axes, edits, capacity)
    outside = (extents[:, :, 1] > np.array(array.num_chunks, np.int64)).any(axis=1)
    is_read[number[outside]] = True
    read = is_read[number]
    others = np.concatenate([first[~read], last[~read]]).tobytes()
    return ManifestRewrite(manifests.select_refs(~read), manifests.select_refs(read)), KeyWindows(
        axes, capacity, others
    )


def _spans_to_read(spans: Spans, axes: Axes, edits: ChunkTable, capacity: int) -> NDArray[np.bool_]:
    """Return the spans with an edit or in a window with one, and small neighbours of such windows."""
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
