"""How an array gets other chunks within a bounded memory: pure functions of shapes.

A *stage* reads blocks and writes them. Its blocks are whole cells of the written array (no two tasks write to
one), and cut through cells of the read array, which are read once for each block that they touch:

    read      [  |  |  |  |  ]      4 blocks touch 5 cells 8 times: 8/5 of the array is read,
    blocks    [   |   |   |   ]     its *amplification*

A block that is a multiple of both reads everything once. If it does not fit into memory there are two ways:
smaller blocks that read more, or two stages, with an intermediate array whose chunks are long where both can
be long. From slices ``(1, y, x)`` to series ``(t, 1, 1)``, the intermediate array has chunks ``(r, w, w)``:
``r`` slices fit into memory, and so do ``w * w`` series. This is the plan of the rechunker library.

`rechunk_plan` tries both, searches the best blocks of each stage, and takes the plan that moves fewer bytes.
For each axis only those lengths matter that read less than all shorter ones, so that all combinations of them
can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import I64, block_shape, split
from frazil.pipeline.transform.array_info import Shape
from frazil.remedies import argument

#: The most combinations of block lengths that are compared.
_COMBINATIONS: Final = 20_000
#: The most lengths along one axis that are compared.
_LENGTHS: Final = 4096


@dataclass(frozen=True, slots=True)
class Stage:
    """One round of tasks: read an array of cells ``read`` by blocks, write one of cells ``write``.

    >>> stage = Stage((10,), 8, read=(4,), write=(5,), block=(5,))
    >>> stage.bytes_read, round(stage.amplification, 2), stage.peak
    (112, 1.4, 112)
    """

    shape: Shape
    itemsize: int
    read: Shape
    write: Shape
    block: Shape

    @property
    def bytes_read(self) -> int:
        """Bytes that all tasks read, before compression."""
        lengths = zip(self.shape, self.block, self.read, strict=True)
        return self.itemsize * math.prod(int(covered(n, np.array([b]), r)[0]) for n, b, r in lengths)

    @property
    def amplification(self) -> float:
        """Bytes read for each byte of the array."""
        return self.bytes_read / max(self.itemsize * math.prod(self.shape), 1)

    @property
    def peak(self) -> int:
        """Bytes that a task holds: its block, one cell during decoding, and one cell during encoding."""
        return self.itemsize * (math.prod(self.block) + math.prod(self.read) + math.prod(self.write))

    def blocks(self) -> tuple[I64, I64]:
        """Return starts and stops of the blocks; see `frazil.jobs.blocks.blocks`."""
        return split(self.shape, self.block)


@dataclass(frozen=True, slots=True)
class RechunkPlan:
    """A plan of one stage, or of two stages with an array of chunks ``intermediate`` in the middle."""

    stages: tuple[Stage, ...]

    @property
    def intermediate(self) -> Shape | None:
        """The chunks of the intermediate array; None with one stage."""
        return self.stages[0].write if len(self.stages) > 1 else None

    @property
    def bytes_read(self) -> int:
        """Bytes that all stages read."""
        return sum(stage.bytes_read for stage in self.stages)

    @property
    def bytes_moved(self) -> int:
        """Bytes that all stages read and write."""
        return sum(stage.bytes_read + stage.itemsize * math.prod(stage.shape) for stage in self.stages)

    @property
    def peak(self) -> int:
        """Bytes that a task holds, in the larger stage."""
        return max(stage.peak for stage in self.stages)


def rechunk_plan(shape: Shape, read: Shape, write: Shape, itemsize: int, max_bytes: int) -> RechunkPlan:
    """Return the plan that moves the fewest bytes with at most ``max_bytes`` in each task.

    ``read`` is the shape that is decoded as one (chunks, also inside of shards), ``write`` the shape that is
    encoded as one (shards, or chunks). Raises ``InvalidInputError`` (``invalid-argument``) if one of each
    needs more.

    >>> rechunk_plan((48, 500, 1000), (4, 250, 500), (48, 50, 100), 4, 64_000_000).stages[0].block
    (48, 250, 500)
    >>> rechunk_plan((1000, 600, 600), (1, 600, 600), (1000, 6, 6), 4, 64_000_000).intermediate
    (21, 600, 12)
    """
    read, write = _inside(read, shape), _inside(write, shape)
    least = itemsize * (math.prod(read) + 2 * math.prod(write))
    if least > max_bytes:
        raise InvalidInputError(
            f"max_mem must be at least {least} bytes to read chunks of {read} and to write {write}, "
            f"got {max_bytes}",
            ErrorKind.INVALID_ARGUMENT,
        ).with_remedy("Pass {} or more", argument(max_mem=f"{-(-least // 10**6)}MB"))
    direct = RechunkPlan((_stage(shape, read, write, itemsize, max_bytes),))
    if direct.stages[0].amplification <= 2 or not math.prod(shape):
        return direct  # two stages read and write twice
    plans = [direct]
    for chunks in _intermediates(shape, read, write, itemsize, max_bytes):
        first = _stage(shape, read, chunks, itemsize, max_bytes)
        plans.append(RechunkPlan((first, _stage(shape, chunks, write, itemsize, max_bytes))))
    return min(plans, key=lambda plan: (plan.bytes_moved, -math.prod(plan.intermediate or shape)))


def covered(length: int, block: NDArray[np.int64], cell: int) -> NDArray[np.int64]:
    """Return how many elements are read along one axis, for each length of blocks.

    A block reads all cells that it touches. Borders of blocks and of cells cut the axis into pieces; each
    piece is one touch of one block and one cell.

    >>> covered(20, np.array([4, 5, 20]), 4).tolist()
    [20, 32, 20]
    """
    if not length:
        return np.zeros_like(block)
    last = (length - 1) // cell * cell  # where the last cell starts
    common = (length - 1) // np.lcm(block, cell)
    pieces = -(-length // block) + last // cell - common
    of_last = -(-length // block) - last // block
    out: NDArray[np.int64] = (pieces - of_last) * cell + of_last * (length - last)
    return out


def _stage(shape: Shape, read: Shape, write: Shape, itemsize: int, max_bytes: int) -> Stage:
    """Return the stage whose blocks read the least; of several such blocks, the smallest."""
    budget = max_bytes // itemsize - math.prod(read) - math.prod(write)
    axes = [_lengths(*axis) for axis in zip(shape, read, write, strict=True)]
    limit = max(int(_COMBINATIONS ** (1 / max(len(axes), 1))), 2)
    thin = [_thinned(axis, limit) for axis in axes]
    size, cover = np.ones((1,) * len(axes)), np.ones((1,) * len(axes))
    for number, axis in enumerate(thin):
        column = [1] * len(axes)
        column[number] = -1
        size = size * axis.reshape(column)
        cover = cover * covered(shape[number], axis, read[number]).reshape(column)
    cover = np.where(size <= budget, cover, np.inf)
    best = np.flatnonzero(cover.ravel() == cover.min())
    smallest = best[np.argmin(size.ravel()[best])]
    index = np.unravel_index(int(smallest), cover.shape)
    block = tuple(int(axis[i]) for axis, i in zip(thin, index, strict=True))
    return Stage(shape, itemsize, read, write, block)


def _lengths(length: int, read: int, write: int) -> NDArray[np.int64]:
    """Return lengths of blocks along an axis. Each of them reads less than all shorter ones."""
    count = -(-length // write)
    if count <= _LENGTHS:
        times = np.arange(1, max(count, 1) + 1)
    else:
        whole = math.lcm(read, write) // write
        spread = np.geomspace(1, count, _LENGTHS // 2).astype(np.int64)
        times = np.unique(np.concatenate([spread, spread * whole, [count]]))
        times = times[times <= count]
    options = np.minimum(times * write, max(length, 1))
    cover = covered(length, options, read)
    least = np.minimum.accumulate(cover)
    return options[np.r_[True, cover[1:] < least[:-1]]]


def _thinned(values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return at most ``count`` values, the first and the last among them."""
    if len(values) <= count:
        return values
    return values[np.unique(np.linspace(0, len(values) - 1, count).astype(np.int64))]


def _intermediates(shape: Shape, read: Shape, write: Shape, itemsize: int, max_bytes: int) -> Iterator[Shape]:
    """Yield chunks for an intermediate array, by different ways to fill the memory with cells of both arrays.

    They fill half of it, because a chunk of the intermediate array has to fit as well.
    """
    yielded = set()
    orders = tuple(_orders(read, write))
    limited = tuple(map(max, read, write))
    for of_read, of_write, limit in product(orders, orders, (limited, shape)):
        one = _filled(shape, limit, read, itemsize, (max_bytes - itemsize * math.prod(read)) // 2, of_read)
        two = _filled(
            shape, limit, write, itemsize, (max_bytes - itemsize * math.prod(write)) // 2, of_write[::-1]
        )
        chunks = tuple(map(min, one, two))
        first, second = (math.prod(read) + 2 * math.prod(chunks), math.prod(chunks) + 2 * math.prod(write))
        if itemsize * max(first, second) <= max_bytes and chunks not in yielded:
            yielded.add(chunks)
            yield chunks


def _filled(shape: Shape, limit: Shape, cell: Shape, itemsize: int, budget: int, order: Shape) -> Shape:
    """Return the largest block that fits into a budget, up to a limit that is rounded up to whole cells."""
    rounded = (min(-(-most // step) * step, n) for most, step, n in zip(limit, cell, shape, strict=True))
    return block_shape(tuple(rounded), cell, itemsize, max(budget, 1), order)


def _orders(read: Shape, write: Shape) -> Iterator[Shape]:
    """Yield orders in which axes grow: first those whose written cells are longer than the read ones."""
    axes = range(len(read))
    yield tuple(sorted(axes, key=lambda axis: (-write[axis] / max(read[axis], 1), -axis)))
    yield tuple(axes)
    yield tuple(axes[::-1])


def _inside(grid: Sequence[int], shape: Sequence[int]) -> Shape:
    """Return cells that are not longer than the array."""
    return tuple(max(min(step, length), 1) for step, length in zip(grid, shape, strict=True))
