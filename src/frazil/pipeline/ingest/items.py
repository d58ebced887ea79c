"""The items of work: the chunks that a task writes, and the files that it reads.

A task writes only whole chunks, and no two tasks write the same chunk. If a chunk needs several files, its
task reads all of them. If a chunk has steps that the repository already has, its task reads those too. Arrays
whose chunks are multiples of each other along the axis share tasks, so a file is opened once for all its
variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.axis import Axis, Pieces, old_pieces
from frazil.pipeline.ingest.encodings import Conversion
from frazil.pipeline.ingest.planned_array import ArrayGroup, FixedArrays, PlannedArray

#: The bytes that a task writes, unless it would read fewer files than `FILES`.
TASK: Final = 128 << 20
FILES: Final = 50
FILES_OF_A_CHUNK: Final = 500
#: An array with chunks this large along the axis gets tasks of its own, for parts of its other dimensions.
LARGE: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an array, on chunk borders. ``array`` is the number of the array in the plan."""

    array: int
    start: tuple[int, ...]
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """The work of one task: it copies values, or sets references to files (``virtual``).

    The sources of ``pieces`` are indices of ``urls``. ``old`` are steps of the group. For each file there are
    ``conversions`` of its times (None: times stay), ``checks`` (the etag or time that its virtual references
    store), and ``fingerprints`` (uint8, (files, 16)) of the inspection.
    """

    boxes: tuple[Box, ...]
    pieces: Pieces
    old: Pieces
    urls: tuple[str, ...]
    conversions: tuple[Mapping[str, Conversion] | None, ...]
    checks: tuple[Any, ...]
    fingerprints: NDArray[np.uint8]
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class FileTable:
    """The columns of all files, by number. An item gets the rows of its files."""

    urls: Sequence[str]
    encodings: NDArray[np.int64]
    conversions: Mapping[int, Mapping[str, Conversion]]
    checks: Sequence[Any]
    fingerprints: NDArray[np.uint8]

    def item(self, boxes: Sequence[Box], pieces: Pieces, old: Pieces, *, virtual: bool) -> Item:
        """Return an item with the rows of the files of its pieces."""
        numbers, codes = np.unique(pieces.source, return_inverse=True)
        chosen = numbers.tolist()
        return Item(
            tuple(boxes),
            Pieces(codes.astype(np.int64), pieces.start, pieces.at, pieces.count),
            old,
            tuple(map(self.urls.__getitem__, chosen)),
            tuple(map(self.conversions.get, self.encodings[numbers].tolist())),
            tuple(map(self.checks.__getitem__, chosen)),
            self.fingerprints[numbers],
            virtual,
        )


def longest_chunk(lengths: NDArray[np.int64]) -> int:
    """Return the largest number of steps of a chunk: one task has to open all files of a chunk."""
    return max(int(FILES_OF_A_CHUNK * lengths.mean()), 1)


def small_chunk(row: int, data_row: int, chunk: int, length: int, most: int) -> int:
    """Return the number of steps in a chunk of a small array beside data, such as bounds.

    The chunk has as many steps as one task writes. A chunk of the usual size in bytes would be so long that
    one task would have to open all files.
    """
    span = max(min(TASK // max(data_row * chunk, 1), most // chunk), 1)
    return chunk * max(1, min(span, -(-max(length, (1 << 20) // max(row, 1)) // chunk)))


def items(arrays: Sequence[PlannedArray], group: ArrayGroup, axis: Axis, table: FileTable) -> Iterator[Item]:
    """Yield the items of arrays along the axis."""
    for numbers in _task_groups([(number, arrays[number].target) for number in group.arrays]):
        chosen = [arrays[number].target for number in numbers]
        steps = [array.grid[array.axis or 0] for array in chosen]
        row = sum(array.row for array in chosen)
        unit = math.lcm(*steps)
        files = len(np.unique(group.pieces.source)) / max(int(group.pieces.count.sum()), 1)
        by_size = TASK // max(unit * row, 1)
        by_files = math.ceil(FILES / max(unit * files, 1e-9))
        span = unit * max(1, min(by_size, by_files))
        boxes: dict[tuple[int, int], list[Box]] = {}
        for number, array, step in zip(numbers, chosen, steps, strict=True):
            stays = arrays[number].shifted or not arrays[number].existed
            moved = len(axis.old) if stays else axis.first_moved
            for start, stop in _changed_spans(group.pieces, axis, step, moved, span):
                for part, box in enumerate(_boxes(number, array, start, stop)):
                    boxes.setdefault((start // span, part), []).append(box)
        for (where, _), mine in sorted(boxes.items()):
            low, high = where * span, min((where + 1) * span, axis.length)
            existed = any(arrays[box.array].existed for box in mine)
            old = old_pieces(axis, low, high) if existed else NO_PIECES
            yield table.item(mine, group.pieces.within(low, high), old, virtual=group.virtual)


_NO_STEPS: Final = np.zeros(0, np.int64)
NO_PIECES: Final = Pieces(_NO_STEPS, _NO_STEPS, _NO_STEPS, _NO_STEPS)


def _changed_spans(pieces: Pieces, axis: Axis, step: int, moved: int, span: int) -> Iterator[tuple[int, int]]:
    """Yield spans of chunks with new or moved steps, cut on the borders of tasks."""
    low, high = pieces.at // step, -(-(pieces.at + pieces.count) // step)
    counts = high - low
    chunks = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    if moved < len(axis.old):
        chunks = np.concatenate([chunks, np.arange(moved // step, -(-axis.length // step))])
    chunks = np.unique(chunks)
    if not len(chunks):
        return
    breaks = (np.diff(chunks) != 1) | (np.diff(chunks * step // span) != 0)
    first = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    last = np.append(first[1:], len(chunks)) - 1
    for start, stop in zip(
        (chunks[first] * step).tolist(), ((chunks[last] + 1) * step).tolist(), strict=True
    ):
        yield start, min(stop, axis.length)


def _task_groups(chosen: list[tuple[int, TargetArray]]) -> list[list[int]]:
    """Return the groups of arrays that share tasks: small arrays whose chunks are multiples of each other."""
    groups: list[tuple[int, list[int]]] = []
    alone = [number for number, array in chosen if _is_large(array)]
    rest = [(array.grid[array.axis or 0], number) for number, array in chosen if not _is_large(array)]
    for step, number in sorted(rest, reverse=True):
        for at, (unit, numbers) in enumerate(groups):
            both = math.lcm(unit, step)
            if both <= 4 * max(unit, step):
                groups[at] = (both, [*numbers, number])
                break
        else:
            groups.append((step, [number]))
    return [*([number] for number in alone), *(sorted(numbers) for _, numbers in groups)]


def _is_large(array: TargetArray) -> bool:
    return array.grid[array.axis or 0] * array.row > LARGE and len(array.shape) > 1


def _boxes(number: int, array: TargetArray, start: int, stop: int) -> Iterator[Box]:
    """Yield a span of the axis as one box, or as several along another dimension of a large array."""
    low, high = [first for first, _ in array.bounds], [last for _, last in array.bounds]
    axis = array.axis or 0
    low[axis], high[axis] = start, stop
    cut = next((i for i, step in enumerate(array.grid) if i != axis and high[i] - low[i] > step), None)
    if not _is_large(array) or cut is None:
        yield Box(number, tuple(low), tuple(high))
        return
    chunks = -(-array.shape[cut] // array.grid[cut])
    per_chunk = max(array.grid[axis] * array.row // chunks, 1)
    step = array.grid[cut] * max(TASK // per_chunk, 1)
    last = high[cut]
    for at in range(low[cut], last, step):
        low[cut], high[cut] = at, min(at + step, last)
        yield Box(number, tuple(low), tuple(high))


def fixed_items(arrays: Sequence[PlannedArray], fixed: FixedArrays, table: FileTable) -> Iterator[Item]:
    """Yield the items of arrays without the axis."""
    one = np.zeros(1, np.int64)
    piece = Pieces(np.array([fixed.file], np.int64), one, one, one)
    small: list[Box] = []
    for number in fixed.arrays:
        array = arrays[number].target
        whole = Box(number, (0,) * len(array.shape), array.shape)
        if not array.shape or int(np.prod(array.shape, dtype=object)) * array.itemsize <= LARGE:
            small.append(whole)
            continue
        per_chunk = max(int(np.prod(array.shape[1:], dtype=object)) * array.itemsize * array.grid[0], 1)
        step = array.grid[0] * max(TASK // per_chunk, 1)
        for at in range(0, array.shape[0], step):
            stop = (min(at + step, array.shape[0]), *array.shape[1:])
            box = Box(number, (at, *whole.start[1:]), stop)
            yield table.item([box], piece, NO_PIECES, virtual=fixed.virtual)
    if small:
        yield table.item(small, piece, NO_PIECES, virtual=fixed.virtual)
