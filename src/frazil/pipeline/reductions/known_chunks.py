"""The chunks of a region whose statistics stand for their elements, as decoded values.

A chunk is known only if its decoded values follow from its statistics without a doubt. All others are read:
chunks that are partly in the region, those of which a part is outside of ``valid_range``, and, where NaN is
not skipped, those with NaN. The chunks of an array with shards are their inner chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.answers.tiles import Box, TileGrid, tiles_of
from frazil.arrays.element_statistics import Meaning, signed_digits, statistics_of
from frazil.arrays.selection import chunk_numbers
from frazil.cf import coding_of
from frazil.pipeline.reductions.fields import Field
from frazil.repository.session.session import Session

type Mask = NDArray[np.bool_]

#: The most boxes of chunks that are read one after the other. More of them are read as one.
_MOST_BOXES: Final = 8


@dataclass(slots=True, eq=False)
class KnownChunks:
    """The chunks that a region meets. All columns have the shape of their grid.

    Attributes:
        bounds: For each axis, the first element of each chunk and the end, within the region.
        is_known: Whether the statistics stand for the elements. The other columns count only where they do.
        count: The number of values that are not NaN.
        nan: The number of the others.
        low: The smallest value, in the type of the decoded values.
        high: The largest value.
        sum: The sum before unpacking: a floating-point number, or signed digits along one axis more.
        squares: The squares, as ``sum``. See `frazil.arrays.element_statistics`.
        scale: The factor from sums before unpacking to sums of values.
        offset: What unpacking adds to each value.
    """

    bounds: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]
    is_known: Mask
    count: NDArray[np.int64]
    nan: NDArray[np.int64]
    low: NDArray[Any]
    high: NDArray[Any]
    sum: NDArray[Any]
    squares: NDArray[Any]
    scale: float
    offset: float

    def boxes_to_read(self, unread: Mask, region: Sequence[tuple[int, int]]) -> list[Box]:
        """Return boxes of elements that cover the chunks of a part of the region that are to be read.

        ``unread`` says which chunks are. Chunks that are read beside them become so too.
        """
        place = tuple(
            slice(int(np.searchsorted(ends, low, "right")), int(np.searchsorted(starts, high, "left")))
            for (starts, ends), (low, high) in zip(self.bounds, region, strict=True)
        )
        mask = unread[place]
        boxes = _boxes_of(mask)
        if len(boxes) > _MOST_BOXES:
            corners = np.array(boxes)
            boxes = [tuple(zip(corners[..., 0].min(axis=0), corners[..., 1].max(axis=0), strict=True))]
            mask[tuple(slice(*side) for side in boxes[0])] = True
        return [
            tuple(
                (int(starts[part.start + low]), int(ends[part.start + high - 1]))
                for (starts, ends), part, (low, high) in zip(self.bounds, place, box, strict=True)
            )
            for box in boxes
        ]


def _boxes_of(mask: Mask) -> list[Box]:
    """Return boxes of positions that cover a mask: runs of equal slices along one axis after the other."""
    if not mask.any():
        return []
    if mask.all():
        return [tuple((0, n) for n in mask.shape)]
    flat = mask.reshape(len(mask), -1)
    cuts = [0, *(np.flatnonzero((flat[1:] != flat[:-1]).any(axis=1)) + 1).tolist(), len(mask)]
    return [((low, high), *box) for low, high in pairwise(cuts) for box in _boxes_of(mask[low])]


def known_chunks(
    session: Session, field: Field, region: Sequence[tuple[int, int]], *, skipna: bool = True
) -> KnownChunks | None:
    """Return the chunks that a region meets, or None if statistics cannot help."""
    node = session.workspace.node(field.path)
    document = b"" if node is None or node.array is None else node.user_data
    if not document or not region or any(low >= high for low, high in region):
        return None
    coding = coding_of(field.attributes if field.decode else {}, field.raw, times=False)
    grid = TileGrid.of(field.path, document, coding)
    if grid is None:
        return None
    encoding, meaning = grid.encoding, grid.meaning
    box = tuple(
        (int(first), int(last) + 1)
        for first, last in (
            chunk_numbers(np.array([low, high - 1]), encoding.lengths[axis])
            for axis, (low, high) in enumerate(region)
        )
    )
    parts = list(tiles_of(session.workspace, grid, box))
    if len(parts) > 1:  # the chunks are so small that their references cost more than their elements
        return None
    tiles = parts[0][0]
    place = tiles.within(box)
    rows, size, is_known = tiles.rows[place].copy(), tiles.size[place], tiles.is_known[place].copy()
    is_known |= _absent(meaning, encoding.fill, rows, size, ~tiles.is_present[place])
    is_known &= ~meaning.hidden(coding, rows)
    nan = rows["nan"].astype(np.int64) + rows["missing"].astype(np.int64)
    if not skipna:
        is_known &= nan == 0
    extremes = coding.unpacked_range(rows["minimum"], rows["maximum"])
    low, high = (each.astype(field.dtype) for each in extremes)
    if low.dtype.kind == "f":
        is_known &= np.isfinite(low) & np.isfinite(high)
    count = size - nan
    if field.valid_range and (limits := field.valid_limits):
        is_known &= (count == 0) | ((low >= limits[0]) & (high <= limits[1]))
    bounds = []
    for axis, (first, end) in enumerate(region):
        starts, ends = grid.bounds(axis, *box[axis])
        is_whole = (starts >= first) & (ends <= end)
        is_known &= is_whole.reshape([-1 if each == axis else 1 for each in range(len(region))])
        bounds.append((np.maximum(starts, first), np.minimum(ends, end)))
    sums, squares = (
        rows[name] if meaning.kind == "f" else signed_digits(rows[name]) for name in ("sum", "squares")
    )
    return KnownChunks(tuple(bounds), is_known, count, nan, low, high, sums, squares, *coding.packing)


def _absent(
    meaning: Meaning, fill: Any, rows: NDArray[Any], size: NDArray[np.int64], is_absent: Mask
) -> Mask:
    """Return which chunks without a reference are known. Their rows say so already if the fill value is 0."""
    one = statistics_of(meaning, np.full((1, 1), fill))
    for name in ("nan", "missing"):
        rows[name][is_absent] = one[name][0] * size[is_absent]
    is_zero = not one["minimum"][0]  # also if it is no value
    return is_absent & is_zero
