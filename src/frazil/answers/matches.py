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
from numpy.typing import NDArray

from frazil.answers.reduction import BATCH, ElementBox
from frazil.answers.tiles import Box, Mask, TileStatistics, tiles_of
from frazil.arguments import checked
from frazil.arrays.array import Array
from frazil.arrays.selection import chunk_bounds
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
#: The most bytes of elements that are read together from a local storage: so few that the allocator returns
#: the memory of the last ones.
_LOCAL_BATCH: Final = 8 << 20
#: A comparison, and an integer or another number.
_TERM: Final = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(?:([-+]?\d+)|(\S+))\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """Comparisons that an element must meet, all of them."""

    terms: tuple[tuple[str, Any], ...]

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

    def typed(self, dtype: np.dtype[Any]) -> Condition:
        """Return the condition with numbers in the type of values, as numpy compares them.

        So 0.1 is the element that float32 has for it. A number beyond a type has 64 bits.
        """
        return Condition(tuple((name, _in_type(number, dtype)) for name, number in self.terms))

    def met_by(self, values: Any) -> Mask:
        """Return which values meet the condition. NaN meets only ``!=``, as in numpy."""
        return _all(_COMPARISONS[name][0](values, number) for name, number in self.terms)

    def possible(self, low: Any, high: Any) -> Mask:
        """Return where values between two numbers can meet the condition."""
        return _all(_COMPARISONS[name][1](low, high, number) for name, number in self.terms)

    def certain(self, low: Any, high: Any) -> Mask:
        """Return where all values between two numbers meet the condition."""
        return _all(_COMPARISONS[name][2](low, high, number) for name, number in self.terms)


def _all(masks: Iterator[Any]) -> Mask:
    out = np.asarray(next(masks))
    for mask in masks:
        out = np.asarray(out & mask)
    return out


def _in_type(number: float, dtype: np.dtype[Any]) -> Any:
    """Return a number in a floating-point type, or with 64 bits if the type has no such number."""
    if dtype.kind != "f":
        return number
    with np.errstate(over="ignore"):
        try:
            exact = np.float64(number)
        except OverflowError:  # an integer
            exact = np.float64(np.inf if number > 0 else -np.inf)
        typed = exact.astype(dtype.newbyteorder("="))
    return exact if np.isinf(typed) else typed


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
            mask = _meets(box, self._condition, elements)
            first = np.empty((len(rows), index.shape[1]), np.int64)
            for axis, (start, stop) in enumerate(box.elements):
                first[:, axis] = chunk_bounds(
                    index[rows, axis].astype(np.int64), grid.encoding.lengths[axis]
                )[0]
                place = first[:, axis, None] + np.arange(mask.shape[axis + 1])
                inside = (place >= start) & (place < stop)
                if not inside.all():
                    shape = (len(rows), *(n if at == axis else 1 for at, n in enumerate(mask.shape[1:])))
                    mask &= inside.reshape(shape)
            yield first, mask


def _meets(box: ElementBox, test: Condition, elements: NDArray[Any]) -> Mask:
    """Return which elements have values that meet a condition. Missing values meet none."""
    coding = box.meaning.coding
    values, missing = replace(coding, times=None).decode(elements)[0], coding.missing(elements)
    mask = test.met_by(values.view(np.int64) if values.dtype.kind in "mM" else values)
    return mask if missing is None else mask & ~missing


@checked
def where(array: Array | zarr.Array[Any], condition: str, index: Any = ...) -> Matches:
    """Return the chunks whose elements can meet a condition, by their statistics. It reads no chunk.

    A chunk without statistics can always have such elements. NaN meets only ``!=``, as in numpy. Missing
    values and NaT meet no condition. Numbers are compared in the type of the values, as in numpy: 0.1 is the
    number that float32 has for it.

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
    coding = box.meaning.coding
    test = test.typed(coding.floating or coding.packed_dtype)
    is_fill = bool(_meets(box, test, np.full(1, box.fill, coding.dtype))[0])
    met, parts = box.met_tiles(), [np.zeros((0, len(box.elements)), np.uint32)]
    masks = [np.zeros(0, np.bool_)]
    workspace = box.session.workspace
    for tiles, part in tiles_of(workspace, box.grid, met, is_sparse=not is_fill) if met is not None else ():
        possible, certain = _verdicts(box, test, tiles, part, is_fill=is_fill)
        parts.append(tiles.coordinates(possible, part))
        masks.append(certain[possible])
    coordinates, is_certain = np.concatenate(parts), np.concatenate(masks)
    if len(parts) > 2:  # lists of tiles are not in order
        order = np.lexsort(coordinates.T[::-1])
        coordinates, is_certain = coordinates[order], is_certain[order]
    total = 0 if met is None else prod(high - low for low, high in met)
    return Matches(box, test, coordinates, is_certain, total)


def _verdicts(
    box: ElementBox, test: Condition, tiles: TileStatistics, part: Box, *, is_fill: bool
) -> tuple[Mask, Mask]:
    """Return the tiles that can have elements that meet the condition, and those in which all do.

    ``is_fill``: whether the fill value meets it, which tiles without a chunk have.
    """
    place, coding = tiles.within(part), box.meaning.coding
    if not coding.keeps_order:
        return np.ones_like(tiles.is_known[place]), np.zeros_like(tiles.is_known[place])
    low, high = coding.unpacked_range(*(extreme[place] for extreme in tiles.extremes))
    nan, count = tiles.rows["nan"][place], tiles.count[place]
    meets_nan = coding.dtype.kind == "f" and bool(_meets(box, test, np.full(1, np.nan, coding.dtype))[0])
    absent = ~tiles.is_present[place] & is_fill
    possible = (count > 0) & test.possible(low, high)
    certain = (count == 0) | test.certain(low, high)
    if meets_nan:
        possible |= nan > 0
        count = count + nan.astype(np.int64)
    possible &= tiles.is_known[place]
    certain &= possible & (count == tiles.size[place])
    return possible | absent | tiles.is_unknown[place], certain | absent
