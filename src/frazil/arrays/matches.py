"""The elements of a box that meet a condition: the statistics of chunks say which chunks can have some."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frazil.arguments import checked
from frazil.arrays.array import Array
from frazil.arrays.element_statistics import statistics_of
from frazil.arrays.reduction import ElementBox
from frazil.arrays.selection import chunk_bounds
from frazil.arrays.tile_statistics import Box, Mask, TileStatistics, tiles_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import I64, U32

if TYPE_CHECKING:
    import zarr

type Compare = Callable[[Any, Any], Any]

#: For each comparison: whether an element can meet it, and whether all do, from the extremes and the number.
_COMPARISONS: Final[
    dict[str, tuple[Compare, Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]]]
] = {
    ">": (operator.gt, lambda low, high, x: high > x, lambda low, high, x: low > x),
    ">=": (operator.ge, lambda low, high, x: high >= x, lambda low, high, x: low >= x),
    "<": (operator.lt, lambda low, high, x: low < x, lambda low, high, x: high < x),
    "<=": (operator.le, lambda low, high, x: low <= x, lambda low, high, x: high <= x),
    "==": (
        operator.eq,
        lambda low, high, x: (low <= x) & (high >= x),
        lambda low, high, x: (low == x) & (high == x),
    ),
    "!=": (
        operator.ne,
        lambda low, high, x: (low != x) | (high != x),
        lambda low, high, x: (low > x) | (high < x),
    ),
}
#: A comparison, and an integer or another number.
_TERM: Final = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(?:([-+]?\d+)|(\S+))\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """Comparisons that an element must meet, all of them."""

    terms: tuple[tuple[str, int | float], ...]

    @staticmethod
    def parse(text: str) -> Condition:
        """Return the condition of a text such as ``> 40 and <= 50``. Raises ``InvalidInputError``."""
        terms = list[tuple[str, int | float]]()
        for part in re.split(r"\band\b", text):
            match = _TERM.fullmatch(part)
            name, whole, real = match.groups() if match else ("", None, "")
            try:
                terms.append((name, float(real) if whole is None else int(whole)))
            except ValueError:
                raise InvalidInputError(
                    "a condition must have comparisons with numbers, such as '> 40' or '>= 0 and < 1', got "
                    f"{text!r:.100}",
                    ErrorKind.INVALID_ARGUMENT,
                ) from None
        return Condition(tuple(terms))

    def met_by(self, values: Any) -> Mask:
        """Return which values meet the condition. NaN meets none."""
        mask: Mask = values == values
        for name, number in self.terms:
            mask = mask & _COMPARISONS[name][0](values, number)
        return mask

    def possible(self, low: Any, high: Any) -> Mask:
        """Return where values between two numbers can meet the condition."""
        return _all(_COMPARISONS[name][1](low, high, number) for name, number in self.terms)

    def certain(self, low: Any, high: Any) -> Mask:
        """Return where all values between two numbers meet the condition."""
        return _all(_COMPARISONS[name][2](low, high, number) for name, number in self.terms)


def _all(masks: Iterator[Any]) -> Mask:
    out: Any = True
    for mask in masks:
        out = out & mask
    return np.asarray(out)


class Matches:
    """The elements of a box that meet a condition. See `where`.

    Attributes:
        chunks: The coordinates of the chunks that can have such elements, uint32 of shape (n, ndim). Those of
            inner chunks for an array with shards.
        num_chunks: The number of chunks that the box meets.
    """

    def __init__(
        self, box: ElementBox, condition: Condition, index: U32, is_certain: Mask, total: int
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
        return int((high - low).prod(axis=1).sum()) + sum(map(len, self._read()))

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
        return bool(self._is_certain.any()) or any(map(len, self._read()))

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
        parts = list(self._read(everything=True))
        points = np.concatenate([np.zeros((0, len(self._box.elements)), np.int64), *parts])
        return points[np.lexsort(points.T[::-1])] if points.shape[1] else points

    def _bounds(self, index: U32) -> tuple[I64, I64]:
        """Return the first element of the part of each chunk in the box, and the end, shape (n, ndim)."""
        grid, out = self._box.grid, np.empty((2, *index.shape), np.int64)
        assert grid is not None
        for axis, (start, stop) in enumerate(self._box.elements):
            low, high = chunk_bounds(index[:, axis].astype(np.int64), grid.encoding.lengths[axis])
            out[0, :, axis], out[1, :, axis] = np.maximum(low, start), np.minimum(high, stop)
        return out[0], out[1]

    def _read(self, *, everything: bool = False) -> Iterator[I64]:
        """Yield the coordinates of elements, from chunks that are read: of those that are not certain."""
        box, grid = self._box, self._box.grid
        assert grid is not None
        index = self.chunks if everything else self.chunks[~self._is_certain]
        coding = replace(box.meaning.coding, times=None)
        for rows, elements in box.read_elements(index):
            values, missing = coding.decode(elements)
            if values.dtype.kind in "mM":
                values, missing = values.view(np.int64), np.isnat(values)
            mask = self._condition.met_by(values)
            places = np.argwhere(mask if missing is None else mask & ~missing)
            low = np.stack(
                [
                    chunk_bounds(index[rows, axis].astype(np.int64), length)[0]
                    for axis, length in enumerate(grid.encoding.lengths)
                ]
                or [np.zeros(0, np.int64)],
                axis=-1,
            )
            points = low[places[:, 0]] + places[:, 1:] if places.shape[1] > 1 else places[:, 1:]
            inside = np.ones(len(points), np.bool_)
            for axis, (start, stop) in enumerate(box.elements):
                inside &= (points[:, axis] >= start) & (points[:, axis] < stop)
            yield points[inside]


@checked
def where(array: Array | zarr.Array[Any], condition: str, index: Any = ...) -> Matches:
    """Return the chunks whose elements can meet a condition, by their statistics. It reads no chunk.

    A chunk without statistics can always have such elements. NaN, NaT and missing values meet no condition.

    Args:
        array: The array: a `frazil.Array`, or an array of zarr in a store of Frazil.
        condition: Comparisons with numbers, for example ``"> 40"`` or ``">= 0 and < 1"``. Values are compared
            after ``scale_factor`` and ``add_offset`` are applied. Times are integers, in their unit.
        index: The box to search: integers, slices with a step of 1, and ``...``. Default: the whole array.

    Returns:
        The chunks. Its methods ``count``, ``any`` and ``points`` read those that they must.

    Raises:
        InvalidInputError: ``invalid-argument`` for an array of other elements, another index, or text.

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
    box, test = ElementBox.of(array, index), Condition.parse(condition)
    if box.grid is None:
        raise InvalidInputError(
            f"`{box.array.path}` must have codecs that Frazil decodes in bulk, for example zstd, got others. "
            "Read the array, and compare its elements with numpy",
            ErrorKind.INVALID_ARGUMENT,
        )
    met, parts = box.met_tiles(), list[U32]()
    masks = list[Mask]()
    for tiles, part in tiles_of(box.session.workspace, box.grid, met) if met is not None else ():
        possible, certain = _verdicts(box, test, tiles, part)
        index = np.argwhere(possible) + np.array([low for low, _ in part], np.int64)
        parts.append(index.astype(np.uint32))
        masks.append(certain[possible])
    ndim = len(box.elements)
    coordinates = np.concatenate([np.zeros((0, ndim), np.uint32), *parts])
    is_certain = np.concatenate([np.zeros(0, np.bool_), *masks])
    total = 0 if met is None else prod(high - low for low, high in met)
    return Matches(box, test, coordinates, is_certain, total)


def _verdicts(box: ElementBox, test: Condition, tiles: TileStatistics, part: Box) -> tuple[Mask, Mask]:
    """Return the tiles that can have elements that meet the condition, and those in which all do."""
    place, coding = tiles.within(part), box.meaning.coding
    if not coding.keeps_order:
        return np.ones_like(tiles.is_known[place]), np.zeros_like(tiles.is_known[place])
    low, high = coding.unpacked_range(*(extreme[place] for extreme in tiles.extremes))
    fill = statistics_of(box.meaning, np.full((1, 1), box.fill))
    is_missing = bool(fill["nan"][0] or fill["missing"][0])
    count, known = tiles.count[place], tiles.is_known[place]
    possible = known & (count > 0) & test.possible(low, high)
    certain = possible & (count == tiles.size[place]) & test.certain(low, high)
    absent = ~tiles.is_present[place]
    if not is_missing and test.possible(*coding.unpacked_range(fill["minimum"][0], fill["maximum"][0])):
        possible |= absent
        certain |= absent
    return possible | tiles.is_unknown[place], certain
