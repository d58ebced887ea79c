"""The functions `frazil.reduce` and `frazil.where`, for the elements of a box of an array.

The statistics of chunks say what whole chunks contribute, and which chunks can have elements that meet a
condition. Only the other chunks are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.answers.conditions import Moment, Predicate, comparable, parse
from frazil.answers.kernels import STATISTICS, Kernel, Partial, Tiles, combine_partials, empty_partial
from frazil.answers.plan import BATCH, ElementBox
from frazil.answers.tiles import Mask, decoded_ranges, tile_ranges, tiles_of
from frazil.arguments import checked
from frazil.arrays.array import Array
from frazil.arrays.element_statistics import SUM_ERROR
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


#: The statistics whose partial results are computed. Those of the mean and the sum are equal, for example.
_PARTIALS: Final = ("sum", "var", "min", "max", "any", "all")
_GROUP: Final = np.zeros(1, np.int64)


@lru_cache
def _kernels(is_exact: bool) -> dict[str, Kernel]:
    """Return the kernels of one group: with integers of Python, or with floating-point numbers."""
    dtype = np.dtype(object if is_exact else np.float64)
    return {name: row.kernel(dtype, False, 0, None) for name, row in STATISTICS.items()}


@dataclass(frozen=True, slots=True)
class Reduction:
    """The statistics of the elements of a box, and how they were computed. See `reduce`.

    Elements that are NaN, NaT or missing are left out, except with ``skipna=False``: then one of them makes
    all values NaN.

    Attributes:
        size: The number of elements of the box.
        count: The number of elements that are neither NaN (or NaT) nor missing.
        nan: The number of elements that are NaN or NaT.
        missing: The number of other elements that mean a missing value (``_FillValue``, ``missing_value``).
        min: The smallest value; NaN if there is none.
        max: The largest value; NaN if there is none.
        sum: The sum: an integer for integers, and exact; otherwise see ``error``.
        mean: The mean; NaN if there is no value.
        var: The variance, divided by ``count``.
        std: The standard deviation.
        any: Whether a value is not zero. NaN and missing values are not, as in numpy.
        all: Whether no value is zero. None if the extremes of a chunk leave this open: then ask `where` for
            ``== 0``.
        error: The largest error of ``sum``, in the unit of the values; 0 for integers.
        chunks: The number of chunks that the box meets. The inner chunks of shards count one by one.
        chunks_read: How many of them were read: they have no statistics, or are only partly in the box.
    """

    size: int
    count: int
    nan: int
    missing: int
    min: Any
    max: Any
    sum: Any
    mean: float
    var: float
    std: float
    any: bool
    all: bool | None
    error: float
    chunks: int
    chunks_read: int


@checked
def reduce(
    array: Array | zarr.Array[Any], index: Any = ..., *, skipna: bool = True, decoded: bool = True
) -> Reduction:
    """Return the mean, the sum, the extremes and the count of the elements of a box.

    Chunks with statistics that are whole in the box are not read. All other chunks that the box meets are:
    those at its edges, those that were written without statistics or by another program, and virtual chunks
    without a checksum. So the result is complete, whoever wrote the chunks.

    Sums of integers are exact. Those of floating-point numbers are computed with 64 bits.

    Args:
        array: The array: a `frazil.Array`, or an array of zarr in a store of Frazil. Its elements are
            numbers, booleans, times or durations. Times are integers here, in their unit.
        index: The box: integers, slices with a step of 1, and ``...``. Default: the whole array.
        skipna: Whether to leave out NaN and missing values. Default: True.
        decoded: Whether to apply ``scale_factor`` and ``add_offset``. Default: True.

    Returns:
        The statistics, and how many chunks were read.

    Raises:
        InvalidInputError: ``invalid-argument`` for an array of other elements, or another index.
        InvalidIndexError: ``invalid-argument`` for an index outside of the array.
        StorageError: A chunk cannot be read.
        FormatError: A chunk is damaged.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
        >>> repo = frazil.Repository.create(frazil.in_memory_storage(), config=config)
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", data=np.arange(100.0), chunks=(10,))
        >>> t = frazil.Array(repo.readonly_session("main"), "/t")
        >>> summary = frazil.reduce(t)
        >>> summary.mean, summary.max, summary.chunks_read
        (49.5, 99.0, 0)
        >>> frazil.reduce(t, slice(15, 80)).chunks_read
        1
    """
    box = ElementBox.of(array, index, decoded=decoded)
    coding, met = box.coding, box.met_tiles()
    is_exact = box.meaning.kind != "f" and coding.floating is None
    kernels = _kernels(is_exact)
    totals = dict[str, Partial]()
    nan = missing = chunks_read = 0
    has_open = False
    with np.errstate(invalid="ignore", over="ignore"):
        for columns, is_used, reads in box.columns():
            if not decoded and not any(coding.fills):  # elements that mean a missing value are zero
                columns["gaps"] = columns["nan"]
            tiles = settled = Tiles.of(columns, is_used, coding.packing)
            is_open = kernels["all"].is_open(columns) & is_used
            if is_open.any():
                has_open, settled = True, Tiles.of(columns, is_used & ~is_open)
            for name in _PARTIALS:
                part = kernels[name].partial_of_tiles(settled if name == "all" else tiles)
                state = totals.get(name)
                totals[name] = part if state is None else combine_partials(kernels[name], state, part)
            nan += int(columns["nan"].sum(where=is_used))
            missing += int(columns["missing"].sum(where=is_used))
            chunks_read += reads
        totals = totals or {name: empty_partial(kernels[name], _GROUP, ()) for name in _PARTIALS}
        values = {
            name: kernels[name].finish_fields(totals[state].fields).tolist()[0]
            for name, state in (*zip(_PARTIALS, _PARTIALS, strict=True), ("mean", "sum"))
        }
    low, high, total, mean, var = (values[name] for name in ("min", "max", "sum", "mean", "var"))
    count, left_out = int(totals["sum"].fields[0][0]), nan + missing
    error = 0.0
    if count and not is_exact:
        error = SUM_ERROR * count * (max(abs(low), abs(high)) + abs(coding.packing[1]))
    if count and math.isnan(var) and math.isfinite(low) and math.isfinite(high):
        var = math.inf  # of the squares, as in numpy
    if left_out and not skipna:
        low = high = total = mean = var = math.nan
    return Reduction(
        size=count + left_out,
        count=count,
        nan=nan,
        missing=missing,
        min=low,
        max=high,
        sum=total,
        mean=mean,
        var=var,
        std=math.sqrt(var) if var >= 0 else math.nan,
        any=values["any"],
        all=None if has_open and values["all"] else values["all"],
        error=error,
        chunks=0 if met is None else prod(high - low for low, high in met),
        chunks_read=chunks_read,
    )
