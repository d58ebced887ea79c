"""Which part of its inputs each part of a result reads, along one axis, and digests of these parts.

An axis of an input is related to at most one axis of the result. The *reads* of an interval of the result are
spans of the input, each with the coordinates ``low <= i < high``. So the reads of a block are boxes: one span
along each axis of the input.

A *digest* is a hash of all that a chunk of the result is computed from: the references to the chunks of the
inputs in its boxes, their places in the boxes, and the metadata of the operation. It does not depend on the
place of the boxes in the array if a relation `moves`. So a chunk whose inputs all have moved by whole chunks
has the same digest at another place.

Hashes of references are summed with weights: the weight of chunk ``i`` of a span that begins in chunk ``low``
is ``r ** (i - low)`` modulo 2**64, for an odd number ``r``. Prefix sums have the digests of all chunks of a
result at once, axis by axis, at a cost that follows the stored chunks and the chunks of the result.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from frazil.format.chunk_table import ChunkTable, ascending
from frazil.format.columns import Ragged
from frazil.format.manifest import ChunkKind
from frazil.jobs.blocks import I64, cells

type U64 = NDArray[np.uint64]
type Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadSpans:
    """The reads of intervals: those of interval ``i`` are rows ``offsets[i]`` to ``offsets[i + 1]``.

    An empty span is from 0 to 0.
    """

    offsets: I64
    low: I64
    high: I64

    @staticmethod
    def several(low: I64, high: I64) -> ReadSpans:
        """Return the spans of each interval, shape (intervals, spans). A span is empty if ``high <= low``."""
        is_empty = high <= low
        offsets = np.arange(len(low) + 1) * low.shape[1]
        return ReadSpans(offsets, np.where(is_empty, 0, low).ravel(), np.where(is_empty, 0, high).ravel())

    @staticmethod
    def single(low: I64, high: I64) -> ReadSpans:
        """Return one span for each interval."""
        return ReadSpans.several(low[:, None], high[:, None])


class Relation(Protocol):
    """How intervals of an axis of the result read an axis of an input.

    ``moves``: the same elements at other positions give the same result.
    """

    @property
    def moves(self) -> bool:
        """Whether the position along the axis has no influence on the values."""

    def reads(self, starts: I64, stops: I64, length: int) -> ReadSpans:
        """Return the spans of an input axis of this length that intervals of the result read."""


@dataclass(frozen=True, slots=True)
class Window:
    """Element ``i`` reads ``factor`` elements from ``i * factor + shift``, and a margin around them.

    Beyond the borders, the margins of a ``periodic`` axis go on at its other end; those of other axes repeat
    elements near the border.
    """

    factor: int = 1
    shift: int = 0
    before: int = 0
    after: int = 0
    periodic: bool = False
    moves: bool = True

    def reads(self, starts: I64, stops: I64, length: int) -> ReadSpans:
        """Return one span, or at the borders of a periodic axis several."""
        low = starts * self.factor + self.shift - self.before
        high = stops * self.factor + self.shift + self.after
        if not self.periodic:
            inside = np.clip(low, 0, length), np.clip(high, 0, length)
            if not (self.before or self.after):
                return ReadSpans.single(*inside)
            # An element that is reflected at a border is as far inside of the border.
            return ReadSpans.single(
                np.minimum(inside[0], np.clip(2 * length - high, 0, length)),
                np.maximum(inside[1], np.clip(-low, 0, length)),
            )
        whole = high - low >= length
        low, high = np.where(whole, 0, low), np.where(whole, length, high)
        turns = [np.clip(low + turn, 0, length) for turn in (0, length, -length)]
        ends = [np.clip(high + turn, 0, length) for turn in (0, length, -length)]
        return ReadSpans.several(np.stack(turns, 1), np.stack(ends, 1))

    def count_before(self, end: int) -> int:
        """Return how many of the first elements read nothing from ``end`` on, if the axis is not periodic."""
        return (
            max((end - self.after - self.shift) // self.factor, 0) if end >= self.before - self.shift else 0
        )


@dataclass(frozen=True, slots=True, eq=False)
class ElementTable:
    """Element ``i`` of the result reads the elements ``numbers[offsets[i]:offsets[i + 1]]`` of the input.

    ``moves`` says whether other elements at the same places of the lists give the same values.
    """

    offsets: I64
    numbers: I64
    moves: bool = True

    @staticmethod
    def of_positions(numbers: Sequence[int]) -> ElementTable:
        """Return the relation of a selection: element ``i`` is the element ``numbers[i]`` of the input."""
        return ElementTable(np.arange(len(numbers) + 1), np.asarray(numbers, np.int64))

    @staticmethod
    def of_groups(codes: I64, groups: int) -> ElementTable:
        """Return the relation of groups: element ``g`` reads all elements whose code is ``g``."""
        order = np.argsort(codes, kind="stable").astype(np.int64)
        return ElementTable(
            np.searchsorted(codes, np.arange(groups + 1), sorter=order).astype(np.int64), order
        )

    def reads(self, starts: I64, stops: I64, length: int) -> ReadSpans:
        """Return one span for each run of neighbours."""
        begins, ends = self.offsets[starts], self.offsets[stops]
        is_first = np.ones(len(self.numbers) + 1, np.bool_)
        is_first[1:-1] = np.diff(self.numbers) != 1
        is_first[begins] = True  # a run ends with its interval
        firsts = np.flatnonzero(is_first)
        where, until = np.searchsorted(firsts, begins), np.searchsorted(firsts, ends)
        counts = np.maximum(until - where, 0)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        runs = np.repeat(where - offsets[:-1], counts) + np.arange(offsets[-1])
        lows = firsts[runs]
        highs = np.minimum(firsts[runs + 1], np.repeat(ends, counts))
        return ReadSpans(offsets, self.numbers[lows], self.numbers[lows] + highs - lows)


@dataclass(frozen=True, slots=True, eq=False)
class SpanTable:
    """The relation of rows to spans: row ``i`` reads the spans ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: I64
    low: I64
    high: I64
    moves: bool = True

    def reads(self, starts: I64, stops: I64, length: int) -> ReadSpans:
        """Return the spans of all rows of each interval."""
        begins, counts = self.offsets[starts], self.offsets[stops] - self.offsets[starts]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(begins - offsets[:-1], counts) + np.arange(offsets[-1])
        return ReadSpans(offsets, self.low[rows], self.high[rows])

    @staticmethod
    def of_rows(low: I64, high: I64) -> SpanTable:
        """Return the relation of each row to one span."""
        return SpanTable(np.arange(len(low) + 1), low, high)


@dataclass(frozen=True, slots=True)
class Whole:
    """All intervals read the whole axis. ``moves`` False: they read it in another way at each position."""

    moves: bool = True

    def reads(self, starts: I64, stops: I64, length: int) -> ReadSpans:
        """Return the whole axis for each interval."""
        return ReadSpans.single(np.zeros_like(starts), np.full_like(starts, length))


@dataclass(frozen=True, slots=True)
class Read:
    """One input of a result: its path, and for each of its axes an axis of the result and the relation.

    An axis that no axis of the result is related to (None) is read as the relation says, for all blocks.
    """

    path: str
    axes: tuple[tuple[int | None, Relation], ...]

    @staticmethod
    def same(path: str, ndim: int) -> Read:
        """Return the read of an input on the grid of the result, element by element."""
        return Read(path, tuple((axis, Window()) for axis in range(ndim)))


# Hashes

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(32)
#: The number of hashes that are changed together: they fit into the cache of a processor.
_AT_ONCE: Final = 1 << 14
#: The number of references, and of intervals, whose intermediate results are in memory.
ROWS: Final = 1 << 16
#: For each axis, the base of its weights: congruent to 3 modulo 8, so that weights differ in their low bits.
_BASES: Final = tuple(
    (int.from_bytes(hashlib.sha256(f"axis {axis}".encode()).digest()[:8], "little") & ~7) | 3
    for axis in range(64)
)


def extend_hash(state: U64, words: Any) -> U64:
    """Return hashes after more words, element by element: two rounds of multiplication and shift."""
    words = np.asarray(words)
    shape = np.broadcast_shapes(state.shape, words.shape)
    if math.prod(shape) <= _AT_ONCE:
        return _mixed(np.asarray(state ^ words.astype(np.uint64)))
    out = np.empty(shape, np.uint64)
    access: Any = [["writeonly"], ["readonly"], ["readonly"]]
    with np.nditer(
        (out, state, words),
        ["external_loop", "buffered"],
        access,
        [np.uint64] * 3,
        casting="unsafe",
        buffersize=_AT_ONCE,
    ) as parts:
        for target, before, more in parts:
            _mixed(np.bitwise_xor(before, more, out=target))
    return out


def _mixed(state: U64) -> U64:
    """Change hashes in place. Return them."""
    state *= _ODD
    state ^= state >> _SHIFT
    state *= np.uint64(0xD6E8FEB86659FD93)
    state ^= state >> _SHIFT
    return state


def _powers(base: int, exponents: NDArray[Any]) -> U64:
    """Return powers modulo 2**64."""
    end = int(exponents.max(initial=0)) + 1
    if end > _AT_ONCE + 4 * len(exponents):
        return np.power(np.full(len(exponents), base, np.uint64), exponents.astype(np.uint64))
    powers = np.full(end, base, np.uint64)
    powers[0] = 1
    return np.asarray(np.multiply.accumulate(powers)[exponents])


def _rows_hash(rows: Ragged, seed: int) -> U64:
    """Return a hash of each row of bytes: of its length, and a sum of its bytes with weights."""
    if len(rows) > _AT_ONCE:
        parts = (rows.take(np.arange(len(rows))[at : at + _AT_ONCE]) for at in range(0, len(rows), _AT_ONCE))
        return np.concatenate([_rows_hash(each, seed) for each in parts])
    rows = rows.compact()
    ends = np.cumsum(rows.lengths)
    places = np.arange(len(rows.values)) - np.repeat(ends - rows.lengths, rows.lengths)
    weights = _powers(_BASES[40 + seed], places)
    total = np.zeros(len(places) + 1, np.uint64)
    np.cumsum((rows.values.astype(np.uint64) + np.uint64(1)) * weights, out=total[1:])
    return extend_hash(
        extend_hash(np.zeros(len(ends), np.uint64), rows.lengths), total[ends] - total[ends - rows.lengths]
    )


def _source_hashes(table: ChunkTable, kind: ChunkKind, lane: int) -> U64:
    """Return a hash of each chunk file, object or inline chunk of a table."""
    if kind == ChunkKind.VIRTUAL:
        locations, etags = (_rows_hash(each, lane) for each in (table.foreign.locations, table.foreign.etags))
        return extend_hash(extend_hash(locations, etags), table.foreign.modified)
    if kind == ChunkKind.INLINE:
        return _rows_hash(table.inline, lane)
    padded = np.zeros((len(table.chunk_ids), 16), np.uint8)
    padded[:, :12] = table.chunk_ids
    words = padded.view(np.uint64)
    return extend_hash(extend_hash(np.full(len(words), lane + 1, np.uint64), words[:, 0]), words[:, 1])


def reference_hashes(table: ChunkTable, lanes: int = 2) -> U64:
    """Return hashes of each reference, shape (lanes, n): of its kind, file, bytes and checksum."""
    out = np.empty((lanes, len(table)), np.uint64)
    used = table.prune()
    present = [kind for kind in ChunkKind if kind != ChunkKind.ABSENT and (used.kind == kind).any()]
    for lane, hashes in enumerate(out):
        sources = [(kind, extend_hash(_source_hashes(used, kind, lane), int(kind))) for kind in present]
        for begin in range(0, len(hashes), ROWS):
            part = slice(begin, begin + ROWS)
            kinds, source = used.kind[part], used.source[part]
            state = np.zeros(len(kinds), np.uint64)
            for kind, of_sources in sources:
                rows = kinds == kind
                if rows.any():
                    state[rows] = of_sources[source[rows]]
            hashes[part] = extend_hash(extend_hash(state, used.offset[part]), used.length[part])
    return out


def span_hashes(spans: ReadSpans) -> U64:
    """Return a hash of the spans of each interval."""
    rank = np.arange(len(spans.low)) - np.repeat(spans.offsets[:-1], np.diff(spans.offsets))
    parts = extend_hash(np.zeros(len(rank), np.uint64), rank)
    parts = extend_hash(extend_hash(parts, spans.low), spans.high)
    return np.asarray(_interval_sums(parts[None], spans.offsets)[0])


def json_hash(value: Any) -> U64:
    """Return two hashes of a value of JSON, shape (2,)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=True, default=str)
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], np.uint64).copy()


def relation_fields(relation: object) -> list[Any] | None:
    """Return the fields of a relation, arrays as their hashes; None if it is no dataclass."""
    if not is_dataclass(relation):
        return None
    values = [getattr(relation, each.name) for each in fields(relation)]
    return [
        hashlib.sha256(np.ascontiguousarray(value)).hexdigest() if isinstance(value, np.ndarray) else value
        for value in values
    ]


def prefix_hashes(rows: U64) -> U64:
    """Return hashes of the first 0, 1, ... and all n rows. ``rows`` has hashes of them, shape (lanes, n)."""
    out = np.zeros((rows.shape[1] + 1, len(rows)), np.uint64)
    np.cumsum(rows.T * _powers(_BASES[0], np.arange(rows.shape[1]))[:, None], axis=0, out=out[1:])
    return out


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunks:
    """The chunks of an input: shape, grid, and coordinates, hashes (2, n) and bytes of the stored chunks."""

    shape: Shape
    grid: Shape
    index: NDArray[np.uint32]
    hashes: U64
    lengths: U64


def chunk_digests(
    key: U64,
    shape: Shape,
    grid: Shape,
    reads: Sequence[Read],
    chunks: Mapping[str, StoredChunks],
    begin: int = 0,
) -> U64:
    """Return the digests of all chunks of a result, shape (*chunks of the grid, 2).

    ``key`` are the hashes of all that has an influence on the values besides the inputs: the operation, its
    arguments and the metadata. With ``begin``, the result has only the chunks from this coordinate of the
    first dimension on, and ``chunks`` need only what they read.
    """
    begins = [begin, *(0 for _ in shape[1:])][: len(shape)]
    counts = tuple(np.subtract(cells(shape, grid), begins).tolist())
    out = key.reshape(2, *(1 for _ in counts))
    for axis, (count, step, length) in enumerate(zip(counts, grid, shape, strict=True)):
        sizes = np.full(count, step)
        sizes[-1:] = length - (begins[axis] + count - 1) * step  # a chunk at the end is shorter
        out = extend_hash(out, _along(axis, sizes, len(counts)))
    for read in reads:
        edges = list(zip(shape, grid, begins, strict=True))
        total, geometry = _read_digest(read, chunks[read.path], edges, counts)
        out = extend_hash(out, total)
        del total  # as large as the result
        out = extend_hash(out, geometry)
    return np.moveaxis(np.broadcast_to(out, (2, *counts)), 0, -1)


def _along(axis: int | None, column: NDArray[Any], ndim: int) -> NDArray[Any]:
    """Return a column as an array of ``ndim`` dimensions; None: it has one row."""
    return column.reshape([-1 if number == axis else 1 for number in range(ndim)])


def _places(column: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the distinct coordinates, sorted, and the row of each chunk's coordinate among them."""
    is_present = np.zeros(int(column.max(initial=0)) + 1, np.bool_)
    is_present[column] = True
    places = np.flatnonzero(is_present)
    return places, column if len(places) == len(is_present) else (np.cumsum(is_present) - 1)[column]


def _read_digest(
    read: Read, chunk: StoredChunks, edges: Sequence[tuple[int, int, int]], counts: Shape
) -> tuple[U64, U64]:
    """Return the weighted sums of the hashes in the boxes of one input, and hashes of the boxes.

    Both broadcast to the chunks of the result. The sums have the two lanes first.
    """
    axes = [_places(column) for column in chunk.index.T]
    lengths = [len(places) for places, _ in axes]
    if math.prod(lengths) == len(chunk.index) and ascending(chunk.index):
        values = chunk.hashes.reshape(2, *lengths)
    else:
        values = np.zeros((2, *lengths), np.uint64)
        spots: Any = (slice(None), *(where for _, where in axes))
        values[spots] = chunk.hashes if axes else 0
    geometry = np.zeros((1,) * len(counts), np.uint64)
    for number, (axis, relation) in enumerate(read.axes):
        length, step, begin = (1, 1, 0) if axis is None else edges[axis]
        intervals = Intervals(relation, length, step, chunk.shape[number], begin)
        values, parts = _axis_sums(values, number, axes[number][0], intervals, chunk.grid[number])
        geometry = extend_hash(geometry, _along(axis, parts, len(counts)))
    # The axes of the input that no axis of the result is related to have one place now.
    present = [axis for axis, _ in read.axes if axis is not None]
    pairs = zip(values.shape[1:], read.axes, strict=True)
    values = values.reshape([2, *(n for n, (axis, _) in pairs if axis is not None)])
    values = values.transpose([0, *(np.argsort(present) + 1).tolist()])
    return values.reshape(2, *(n if axis in present else 1 for axis, n in enumerate(counts))), geometry


@dataclass(frozen=True, slots=True)
class Intervals:
    """The chunks of an axis of the result, and what they read of an axis of ``of`` elements of an input.

    ``first`` is the number of the first chunk.
    """

    relation: Relation
    length: int
    step: int
    of: int
    first: int = 0

    @property
    def count(self) -> int:
        """The number of intervals."""
        return -(-self.length // self.step) - self.first

    def spans(self, begin: int, end: int) -> ReadSpans:
        """Return the reads of some of the intervals."""
        starts = (self.first + np.arange(begin, min(end, self.count))) * self.step
        return self.relation.reads(starts, np.minimum(starts + self.step, self.length), self.of)


def _axis_sums(
    values: U64, axis: int, places: NDArray[Any], intervals: Intervals, step: int
) -> tuple[U64, U64]:
    """Return the sums of each interval along one axis, and a hash of the spans of each."""
    count, moves = intervals.count, intervals.relation.moves
    rows, base = np.moveaxis(values, axis + 1, 1), _BASES[axis]
    sums = np.empty((2, count, *rows.shape[2:]), np.uint64)
    hashes, prefix = np.empty(count, np.uint64), None
    for begin in range(0, count, ROWS):
        part = slice(begin, begin + ROWS)
        spans = intervals.spans(begin, begin + ROWS)
        first, last = spans.low // step, -(-spans.high // step)
        low, high = np.searchsorted(places, first), np.searchsorted(places, np.maximum(first, last))
        numbers = np.diff(spans.offsets)
        rank = np.arange(len(first)) - np.repeat(spans.offsets[:-1], numbers)
        is_single = bool((numbers == 1).all())
        if is_single and (high - low == 1).all() and (last - first == 1).all():
            # An interval reads one chunk, whose weight is 1.
            is_run = bool((np.diff(low) == 1).all())
            sums_of = rows[:, low[0] : low[-1] + 1] if is_run else rows[:, low]
        else:
            if prefix is None:
                prefix = np.zeros((2, len(places) + 1, *rows.shape[2:]), np.uint64)
                np.multiply(rows, _along(1, _powers(base, places), rows.ndim), out=prefix[:, 1:])
                np.cumsum(prefix, axis=1, out=prefix)
            sums_of = prefix[:, high] - prefix[:, low]
            inverse = _powers(pow(base, -1, 1 << 64), first)
            sums_of *= _along(1, inverse * _powers(_BASES[axis + 32], rank), rows.ndim)
        parts = extend_hash(np.zeros(len(first), np.uint64), spans.low % step if moves else spans.low)
        parts = extend_hash(extend_hash(parts, spans.high - spans.low), rank)[None]
        if not is_single:
            sums_of, parts = (_interval_sums(each, spans.offsets) for each in (sums_of, parts))
        if count <= ROWS:
            return np.moveaxis(sums_of, 1, axis + 1), parts[0]
        sums[:, part], hashes[part] = sums_of, parts[0]
    return np.moveaxis(sums, 1, axis + 1), hashes


def _interval_sums(spans: U64, offsets: I64) -> U64:
    """Return the sums of the spans of each interval, along the second axis."""
    total = np.zeros((spans.shape[0], spans.shape[1] + 1, *spans.shape[2:]), np.uint64)
    np.cumsum(spans, axis=1, out=total[:, 1:])
    return np.asarray(total[:, offsets[1:]] - total[:, offsets[:-1]])
