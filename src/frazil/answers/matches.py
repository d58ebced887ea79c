"""The elements of a box that meet a condition: the statistics of chunks say which chunks can have some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.answers.conditions import Moment, Predicate, comparable, parse
from frazil.answers.plan import BATCH, ElementBox
from frazil.answers.ranges import decoded_ranges, tile_ranges
from frazil.answers.tiles import Mask, tiles_of
from frazil.arguments import checked
from frazil.arrays.array import Array
from frazil.arrays.selection import chunk_bounds
from frazil.cf import Coding
from frazil.errors import InvalidInputError
from frazil.format.columns import I64, U32

#: The most bytes of elements that are read together from a local storage: so few that the allocator returns
#: the memory of the last ones.
_LOCAL_BATCH: Final = 8 << 20


class ElementCondition:
    """A condition on the elements of an array.

    Attributes:
        coding: How elements become values.
        predicate: The condition on the values.
    """

    def __init__(self, condition: Predicate, coding: Coding, name: str) -> None:
        # Times are integers in their unit, unless the condition has a time or a text.
        self._has_times = any(
            isinstance(literal, str | Moment) for each in condition.comparisons() for literal in each.literals
        )
        self._numbers = replace(coding, times=None)
        self.coding = coding
        dtype = (coding if self._has_times else self._numbers).decode(np.zeros(1, coding.dtype))[0].dtype
        if dtype.kind in "mM" and not self._has_times:
            dtype = np.dtype(np.int64)
        calendar = coding.calendar if self._has_times else None
        self.predicate = condition.typed(dtype, calendar, name=name)

    def values(self, elements: NDArray[Any]) -> tuple[NDArray[Any], Mask | None]:
        """Return the values of elements as they are compared, and which are null."""
        if self._has_times:
            data, null = self.coding.decode(elements)
            return comparable(data, null), null
        data, null = self._numbers.decode(elements)
        if data.dtype.kind in "mM":
            data = data.view(f"{data.dtype.str[0]}i8")
        return data, self.coding.missing(elements) if self.coding.is_time else null

    def holds(self, elements: NDArray[Any]) -> Mask:
        """Return which elements meet the condition."""
        return self.predicate.holds(*self.values(elements))


class Matches:
    """The elements of a box that meet a condition. See `where`.

    Attributes:
        chunks: The coordinates of the chunks that can have such elements, uint32 of shape (n, ndim). Those of
            inner chunks for an array with shards.
        num_chunks: The number of chunks that the box meets.
    """

    def __init__(
        self, box: ElementBox, condition: ElementCondition, index: U32, is_certain: Mask, total: int
    ) -> None:
        self._box = box
        self._condition = condition
        self._is_certain = is_certain
        self.chunks = index
        self.num_chunks = total

    def __repr__(self) -> str:
        return f"<frazil.Matches in up to {len(self.chunks)} of {self.num_chunks} chunks>"

    @property
    def boxes(self) -> list[tuple[slice, ...]]:
        """The elements of these chunks, as an index for each run of neighbours along the last dimension."""
        low, high = self._bounds(self.chunks)
        if not len(low) or not low.shape[1]:
            return [()] * len(low)
        follows = (self.chunks[1:, :-1] == self.chunks[:-1, :-1]).all(axis=1) & (low[1:, -1] == high[:-1, -1])
        cuts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(low)]
        ends = np.array([(first, end - 1) for first, end in pairwise(cuts)], np.int64)
        starts, stops = low[ends[:, 0]].tolist(), high[ends[:, 1]].tolist()
        return [tuple(map(slice, start, stop)) for start, stop in zip(starts, stops, strict=True)]

    def count(self) -> int:
        """Return the number of elements that meet the condition. It reads chunks in which only some can.

        Returns:
            The number.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", data=np.arange(6).reshape(2, 3))
            >>> t = frazil.Array(repo.readonly_session("main"), "/t")
            >>> frazil.where(t, ">= 4").count()
            2
        """
        low, high = self._bounds(self.chunks[self._is_certain])
        uncertain = (int(np.count_nonzero(mask)) for _, mask in self._masks(self.chunks[~self._is_certain]))
        return int((high - low).prod(axis=1).sum()) + sum(uncertain)

    def any(self) -> bool:
        """Return whether an element meets the condition. It reads chunks up to the first that has one.

        Returns:
            Whether there is one.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", data=np.arange(6).reshape(2, 3))
            >>> t = frazil.Array(repo.readonly_session("main"), "/t")
            >>> frazil.where(t, "> 5").any()
            False
        """
        uncertain = (bool(mask.any()) for _, mask in self._masks(self.chunks[~self._is_certain]))
        return bool(self._is_certain.any()) or any(uncertain)

    def points(self) -> I64:
        """Return the coordinates of the elements that meet the condition.

        Returns:
            The coordinates, int64 of shape (n, ndim), in C order.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", data=np.arange(6).reshape(2, 3))
            >>> t = frazil.Array(repo.readonly_session("main"), "/t")
            >>> frazil.where(t, ">= 4").points().tolist()
            [[1, 1], [1, 2]]
        """
        parts = [np.zeros((0, len(self._box.elements)), np.int64)]
        for first, mask in self._masks(self.chunks):
            places = np.argwhere(mask)
            parts.append(first[places[:, 0]] + places[:, 1:])
        points = np.concatenate(parts)
        return points[np.lexsort(points.T[::-1])] if points.shape[1] else points

    def _bounds(self, index: U32) -> tuple[I64, I64]:
        """Return the first element of the part of each chunk in the box, and the end, shape (n, ndim)."""
        grid, out = self._box.grid, np.empty((2, *index.shape), np.int64)
        assert grid is not None
        for axis, (start, stop) in enumerate(self._box.elements):
            low, high = chunk_bounds(index[:, axis].astype(np.int64), grid.encoding.lengths[axis])
            out[0, :, axis], out[1, :, axis] = np.maximum(low, start), np.minimum(high, stop)
        return out[0], out[1]

    def _masks(self, index: U32) -> Iterator[tuple[I64, Mask]]:
        """Yield the first elements of some chunks, and which elements of the box meet the condition."""
        box, grid = self._box, self._box.grid
        assert grid is not None
        batch = _LOCAL_BATCH if box.session.workspace.context.is_local else BATCH
        for rows, elements in box.read_elements(index, batch):
            mask = self._condition.holds(elements)
            first = np.empty((len(rows), index.shape[1]), np.int64)
            for axis, (start, stop) in enumerate(box.elements):
                low, _ = chunk_bounds(index[rows, axis].astype(np.int64), grid.encoding.lengths[axis])
                first[:, axis], length = low, mask.shape[axis + 1]
                is_cut = np.flatnonzero((low < start) | (low + length > stop))
                if len(is_cut):
                    place = low[is_cut, None] + np.arange(length)
                    inside = (place >= start) & (place < stop)
                    shape = (len(is_cut), *(n if at == axis else 1 for at, n in enumerate(mask.shape[1:])))
                    mask[is_cut] &= inside.reshape(shape)
            yield first, mask


@checked
def where(array: Array | zarr.Array[Any], condition: str, index: Any = ...) -> Matches:
    """Return the chunks whose elements can meet a condition, by their statistics. It reads no chunk.

    A chunk without statistics can always have such elements. NaN is a value: it meets only ``!=``, ``not in``
    and other negations, as in numpy. A missing value and NaT are null: they meet only ``is null``. Numbers
    are compared in the type of the values, as in numpy: 0.1 is the number that float32 has for it. Integers
    and times are compared exactly.

    Args:
        array: The array: a `frazil.Array`, or an array of zarr in a store of Frazil.
        condition: A condition, for example ``"> 40 and <= 50"``, ``"in (1, 2) or is null"``,
            ``"not between 0 and 1"`` or, for times, ``">= '2024-01-01'"``. Values are compared after
            ``scale_factor`` and ``add_offset`` are applied. Times are compared with ISO texts in their
            calendar, or with integers in their unit.
        index: The box to search: integers, slices with a step of 1, and ``...``. Default: the whole array.

    Returns:
        The chunks. Its methods ``count``, ``any`` and ``points`` read those that they must.

    Raises:
        InvalidInputError: ``invalid-argument`` for an array of other elements, another index, or text. The
            text of the error says at which character another word was expected.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
        >>> repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", data=np.arange(100.0), chunks=(10,))
        >>> matches = frazil.where(frazil.Array(repo.readonly_session("main"), "/t"), "> 95")
        >>> matches.boxes, matches.count()
        ([(slice(90, 100, None),)], 4)
    """
    box, predicate = ElementBox.of(array, index), parse(condition)
    if box.grid is None:
        raise InvalidInputError(
            f"`{box.array.path}` must have codecs that Frazil decodes in bulk, for example zstd, got others. "
            "Read the array, and compare its elements with numpy"
        )
    test = ElementCondition(predicate, box.meaning.coding, f"`{box.array.path}`")
    is_fill = bool(test.holds(np.full(1, box.fill, test.coding.dtype))[0])
    met, parts = box.met_tiles(), [np.zeros((0, len(box.elements)), np.uint32)]
    masks = [np.zeros(0, np.bool_)]
    workspace = box.session.workspace
    for tiles, part in tiles_of(workspace, box.grid, met, is_sparse=not is_fill) if met is not None else ():
        ranges = tile_ranges(box.grid, tiles, part, test.coding)
        if test.coding.keeps_order:
            ranges = decoded_ranges(ranges, test.coding, test.values)
        else:
            ranges = replace(ranges, is_known=np.zeros_like(ranges.is_known))
        possible = test.predicate.may_hold(ranges)
        parts.append(tiles.coordinates(possible, part))
        masks.append(test.predicate.must_hold(ranges)[possible])
    coordinates, is_certain = np.concatenate(parts), np.concatenate(masks)
    if len(parts) > 2:  # lists of tiles are not in order
        order = np.lexsort(coordinates.T[::-1])
        coordinates, is_certain = coordinates[order], is_certain[order]
    total = 0 if met is None else prod(high - low for low, high in met)
    return Matches(box, test, coordinates, is_certain, total)
