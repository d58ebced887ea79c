"""Divides arrays into blocks: rectangles of whole chunks that fit into the memory of a task, as columns.

A *grid* is the shape of the unit of reads or writes: chunks, shards, or a multiple of the chunks of two
arrays. Blocks never share a cell of the grid, so tasks that write one block each need no lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.arguments import misfit, parse_bytes
from frazil.errors import InvalidInputError

if TYPE_CHECKING:
    import zarr

type I64 = NDArray[np.int64]


def block_shape(
    shape: Sequence[int],
    grid: Sequence[int],
    itemsize: int,
    max_bytes: int | str,
    order: Literal["C", "F"] | Sequence[int] = "C",
) -> tuple[int, ...]:
    """Return the shape of a block: whole cells of the grid, at most ``max_bytes``, but at least one cell.

    Axes grow one after the other, each as far as possible: with ``order="C"`` from the last axis to the first
    (chunks that are neighbours in an array), with ``"F"`` from the first to the last, or in the order of the
    axes in ``order``. The last axis that grows is divided evenly: if 6 of 10 cells fit, blocks have 5 and 5.
    """
    budget = parse_bytes(max_bytes) // max(itemsize, 1)
    counts = cells(shape, grid)
    out = [min(step, length) for step, length in zip(grid, shape, strict=True)]
    axes = range(len(out))
    growth = {"C": axes[::-1], "F": axes}.get(order, axes) if isinstance(order, str) else map(int, order)
    for axis in growth:
        if math.prod(out[:axis] + out[axis + 1 :]) * shape[axis] <= budget:
            out[axis] = shape[axis]  # fits also where two whole cells do not: the last one may be shorter
            continue
        room = budget // max(math.prod(out), 1)
        if room < 2:
            continue
        pieces = -(-counts[axis] // room)
        out[axis] = -(-counts[axis] // pieces) * grid[axis]
    return tuple(out)


def halved(block: Sequence[int], unit: Sequence[int], shape: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the shape of a block that is halved until an array has ``count`` of them, or it is one unit."""
    out = list(block)
    while out and math.prod(cells(shape, out)) < count:
        units = cells(out, unit)
        axis = units.index(max(units))
        if units[axis] < 2:
            break
        out[axis] = -(-units[axis] // 2) * unit[axis]
    return tuple(out)


def blocks(
    shape: Sequence[int],
    grid: Sequence[int],
    itemsize: int,
    max_bytes: int | str,
    order: Literal["C", "F"] | Sequence[int] = "C",
) -> tuple[I64, I64]:
    """Return starts and stops of all blocks of an array, two arrays (blocks, dimensions) of int64.

    The blocks cover each element once, in C order. See `block_shape` for their size. An array without
    elements has no blocks, an array without dimensions has one block.
    """
    return split(shape, block_shape(shape, grid, itemsize, max_bytes, order))


def split(shape: Sequence[int], block: Sequence[int]) -> tuple[I64, I64]:
    """Return starts and stops of all blocks of the shape ``block``, as `blocks` does."""
    whole = np.array([shape], np.int64)
    return split_boxes(np.zeros_like(whole), whole, block)


def split_boxes(low: I64, high: I64, block: Sequence[int], unit: Sequence[int] = ()) -> tuple[I64, I64]:
    """Return starts and stops of the blocks of boxes, one box after the other, each in C order.

    ``low`` and ``high`` have the shape (boxes, dimensions). The blocks of a box begin at its corner. With
    ``unit``, the blocks along an axis have about one length, a multiple of the unit if ``block`` is one.
    """
    step = np.maximum(np.array(block, np.int64), 1)
    grid = np.maximum(np.array(unit or step, np.int64), 1)
    grid = np.where(step % grid == 0, grid, step)
    counts, units = -(-(high - low) // step), -(-(high - low) // grid)
    totals = counts.prod(axis=1)
    offsets = np.concatenate([[0], np.cumsum(totals)])
    boxes = np.repeat(np.arange(len(low)), totals)
    rank = np.arange(offsets[-1]) - offsets[boxes]
    starts, stops = low[boxes], low[boxes]
    for axis in reversed(range(len(step))):
        rank, place = np.divmod(rank, counts[boxes, axis])
        of_box, length = counts[boxes, axis], units[boxes, axis]
        starts[:, axis] += place * length // of_box * grid[axis]
        stops[:, axis] += (place + 1) * length // of_box * grid[axis]
    return starts, np.minimum(stops, high[boxes])


def mask_boxes(mask: NDArray[np.bool_]) -> tuple[I64, I64]:
    """Return boxes that cover the True elements of a mask, each once: starts and stops."""
    low = np.argwhere(mask).astype(np.int64)
    high = low + 1
    for axis in range(mask.ndim)[::-1]:
        others = [other for other in range(mask.ndim) if other != axis]
        columns = [low[:, axis], *(each[:, other] for other in others for each in (low, high))]
        order = np.lexsort(columns)
        low, high = low[order], high[order]
        follows = (high[:-1, axis] == low[1:, axis]) & (low[1:, others] == low[:-1, others]).all(axis=1)
        follows &= (high[1:, others] == high[:-1, others]).all(axis=1)
        first = np.flatnonzero(np.concatenate([[True], ~follows]))[: len(low)]
        last = np.concatenate([first[1:] - 1, [len(low) - 1]])[: len(first)]
        ends = high[last, axis]
        low, high = low[first], high[first]
        high[:, axis] = ends
    return low, high


def groups(sizes: ArrayLike, max_bytes: int | str) -> I64:
    """Combine neighbours. Returns offsets, so that group ``i`` is ``[offsets[i], offsets[i + 1])``.

    Each group has at most ``max_bytes``, or is a single member that is larger.
    """
    ends = np.cumsum(np.asarray(sizes, np.int64))
    most = parse_bytes(max_bytes)
    offsets = [0]
    while (at := offsets[-1]) < len(ends):  # once for each group
        before = int(ends[at - 1]) if at else 0
        offsets.append(max(at + 1, int(np.searchsorted(ends, before + most, "right"))))
    return np.array(offsets, np.int64)


def even_groups(sizes: ArrayLike, count: int) -> I64:
    """Combine neighbours to at most ``count`` groups of about one size. Returns offsets as `groups` does."""
    ends = np.cumsum(np.asarray(sizes, np.int64))
    middles = ends - np.diff(ends, prepend=0) / 2
    marks = np.arange(1, count) * (ends[-1:].sum() / count)
    return np.unique(np.concatenate([[0], np.searchsorted(middles, marks), [len(ends)]]))


def cells(shape: Sequence[int], grid: Sequence[int]) -> tuple[int, ...]:
    """Return the number of cells of the grid along each axis."""
    return tuple(-(-length // max(step, 1)) for length, step in zip(shape, grid, strict=True))


def regular_grid(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Return the shape of the shards or chunks of an array."""
    try:
        return tuple(array.shards or array.chunks)
    except NotImplementedError as error:  # zarr raises this for a rectilinear grid
        raise misfit(f"`{array.path}` must have chunks of one shape, got a rectilinear grid") from error


def sizes(starts: I64, stops: I64) -> I64:
    """Return the number of elements of each block."""
    out: I64 = np.prod(stops - starts, axis=1, dtype=np.int64)
    return out


#: The bytes of a slab, in the dtype of the stored values.
SLAB: Final = 4_000_000
#: The default bytes for the values of one task. A task needs more if one chunk is larger.
DEFAULT: Final = 256_000_000

MB: Final = 1_000_000

type MaxMem = int | str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a reduction or a validation, in bytes.

    Args:
        task: The most values that one task reads. Default: 128 MB. A task reads less if that gives an engine
            enough tasks, and at least 8 MB.
        block: The values that a task reads at once, before decoding. Default: 32 MB.
        state: The partial results that one task holds. Default: 256 MB.
        chunk: The chunks of the result, if several small chunks are combined. Default: 4 MB.

    >>> from frazil.pipeline import Limits
    >>> Limits(task=1_000_000).task
    1000000
    """

    task: int = 128 * MB
    block: int = 32 * MB
    state: int = 256 * MB
    chunk: int = 4 * MB


@dataclass(frozen=True, slots=True)
class Budget:
    """The bytes for the values of one task. ``is_given``: a limit of the caller, which no task may exceed."""

    size: int
    is_given: bool

    @staticmethod
    def of(max_mem: MaxMem) -> Budget:
        """Return the budget for an argument ``max_mem``: a number of bytes, a text such as "1GB", or None."""
        return Budget(DEFAULT, False) if max_mem is None else Budget(parse_bytes(max_mem), True)

    def require(self, needed: int, purpose: str) -> None:
        """Raise ``InvalidInputError`` (``invalid-argument``) if the limit is below ``needed`` bytes."""
        if self.is_given and needed > self.size:
            raise InvalidInputError(
                f"max_mem must be at least {needed} bytes, {purpose}, got {self.size}. Increase max_mem, or "
                "rechunk the array to smaller chunks first"
            )


def slabs(shape: Sequence[int], itemsize: int, grid: Sequence[int] = ()) -> Iterator[tuple[slice, ...]]:
    """Yield the regions of a block in memory, each of at most `SLAB` bytes or one cell of ``grid``."""
    cell = tuple(grid) or (1,) * len(shape)
    starts, stops = split(shape, block_shape(shape, cell, itemsize, SLAB))
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        yield tuple(map(slice, low, high))
