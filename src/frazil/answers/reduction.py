"""Reductions of a box of an array: from the statistics of its chunks, and from the chunks that have none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.answers.tiles import Box, TileGrid, TileStatistics, parts_of, tiles_of
from frazil.arguments import checked, wrong_type
from frazil.arrays.array import Array
from frazil.arrays.box_reading import read_whole_chunks
from frazil.arrays.element_statistics import (
    KINDS,
    SUM_ERROR,
    Meaning,
    chunk_rows,
    meaning_of,
    signed_digits,
    statistics_of,
    to_integer,
)
from frazil.arrays.encoding import encoding_of, is_extension
from frazil.arrays.selection import BoxSelection, chunk_numbers, selection_of
from frazil.cf import coding_of, without_packing
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import I64, U32
from frazil.zarr_store.store import IcechunkStore

if TYPE_CHECKING:
    from frazil.repository.session.session import Session

#: The most bytes of elements that are read together.
BATCH: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """The statistics of some elements: of those that are neither NaN nor missing.

    ``squares``: the sum of the squares of integers, or of the distances of floating-point numbers from their
    mean.
    """

    count: int
    nan: int
    missing: int
    minimum: Any = None
    maximum: Any = None
    sum: int | float = 0
    squares: int | float = 0

    @staticmethod
    def of(columns: Mapping[str, NDArray[Any]], count: NDArray[Any]) -> Part:
        """Return the statistics of all rows of columns."""
        has_values = np.flatnonzero(count > 0)
        nan, missing = int(columns["nan"].sum()), int(columns["missing"].sum())
        if not len(has_values):
            return Part(0, nan, missing)
        count, low, high, sums, squares = (
            each.reshape(-1, *each.shape[count.ndim :])[has_values]
            for each in (count, *(columns[name] for name in ("minimum", "maximum", "sum", "squares")))
        )
        elements = int(count.sum())
        extremes = low.min().item(), high.max().item()
        if low.dtype.kind != "f":
            exact = (to_integer(signed_digits(each).sum(axis=0).tolist()) for each in (sums, squares))
            return Part(elements, nan, missing, *extremes, *exact)
        total = _float_sum(sums)
        with np.errstate(invalid="ignore", over="ignore"):
            distances = count * (sums / count - total / elements) ** 2
            squares = squares.sum() + distances.sum()
        return Part(elements, nan, missing, *extremes, total, float(squares))

    @staticmethod
    def union(parts: Sequence[Part], *, is_float: bool) -> Part:
        """Return the statistics of the elements of all parts."""
        nan, missing = sum(part.nan for part in parts), sum(part.missing for part in parts)
        filled = [part for part in parts if part.count]
        if not filled:
            return Part(0, nan, missing)
        count = sum(part.count for part in filled)
        low, high = min(part.minimum for part in filled), max(part.maximum for part in filled)
        if not is_float:
            sums = sum(part.sum for part in filled), sum(part.squares for part in filled)
            return Part(count, nan, missing, low, high, *sums)
        columns = {
            column.name: np.array([getattr(part, column.name) for part in filled]) for column in fields(Part)
        }
        return replace(Part.of(columns, columns["count"]), nan=nan, missing=missing)


def _float_sum(numbers: NDArray[np.float64]) -> float:
    """Return the sum, exact before it is rounded. One that is no number of 64 bits is that of numpy."""
    try:
        return math.fsum(numbers.tolist())
    except (OverflowError, ValueError):
        with np.errstate(invalid="ignore", over="ignore"):
            return float(numbers.sum())


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
        all: Whether no value is zero. None if the extremes leave this open: then ask `where` for ``== 0``.
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
    parts, is_float = list[Part](), box.meaning.kind == "f"
    reads, (chunks, absent) = 0, box.whole_size()
    for tiles, whole in box.tiles():
        known, unknown, present = _of_tiles(tiles, whole)
        parts.append(known)
        reads += len(unknown)
        absent -= present
        parts += [Part.of(each, _count(each, n)) for n, each in box.read_tiles(unknown)]
    if absent:
        fill = statistics_of(box.meaning, np.full((1, 1), box.fill))
        parts.append(_repeated(Part.of(fill, _count(fill, 1)), absent))
    for elements, met in box.rest():
        values = box.array[tuple(slice(*each) for each in elements)]
        columns = statistics_of(box.meaning, np.asarray(values).reshape(1, -1))
        parts.append(Part.of(columns, _count(columns, np.size(values))))
        chunks, reads = chunks + met, reads + met
    return _reduction(
        box, Part.union(parts, is_float=is_float), chunks, reads, skipna=skipna, decoded=decoded
    )


def _count(columns: Mapping[str, NDArray[Any]], size: int | I64) -> NDArray[Any]:
    return size - columns["nan"].astype(np.int64) - columns["missing"].astype(np.int64)


def _repeated(one: Part, times: int) -> Part:
    """Return the statistics of equal elements."""
    squares = one.squares * times  # of floating-point numbers, whose distances are 0
    return Part(
        one.count * times,
        one.nan * times,
        one.missing * times,
        one.minimum,
        one.maximum,
        one.sum * times,
        squares,
    )


def _of_tiles(tiles: TileStatistics, box: Box) -> tuple[Part, U32, int]:
    """Return the statistics of known tiles, the tiles to read, and the number of elements with a chunk."""
    place, (low, high) = tiles.within(box), tiles.extremes
    columns = {name: tiles.rows[name][place] for name in ("nan", "missing", "sum", "squares")}
    columns |= {"minimum": low[place], "maximum": high[place]}
    unknown = tiles.coordinates(tiles.is_unknown[place], box)
    present = int(tiles.size[place].sum(where=tiles.is_present[place]))
    return Part.of(columns, tiles.count[place]), unknown, present


def _reduction(
    box: ElementBox, part: Part, chunks: int, reads: int, *, skipna: bool, decoded: bool
) -> Reduction:
    coding, count = box.meaning.coding, part.count
    is_scaled = decoded and coding.floating is not None
    nothing = math.nan
    left_out = part.nan + part.missing
    mean = part.sum / count if count else nothing
    var = part.squares / count if count else nothing
    if count and box.meaning.kind != "f":
        var = (part.squares * count - part.sum**2) / count**2
    low, high, total = part.minimum, part.maximum, part.sum
    largest = max(abs(low), abs(high)) if count else 0
    error = SUM_ERROR * count * largest if box.meaning.kind == "f" else 0.0
    if is_scaled and count:
        scale, offset = coding.packing
        low, high = (each.item() for each in coding.unpacked_range(low, high))
        total, mean, var = total * scale + count * offset, mean * scale + offset, var * scale * scale
        error = error * abs(scale) + 2.0**-50 * abs(total)
    if count and math.isnan(var) and math.isfinite(low) and math.isfinite(high):
        var = math.inf  # of the squares, as in numpy
    # NaN is not zero, and a missing value is NaN after it is decoded.
    has_gaps = part.nan or (part.missing and (decoded or any(coding.fills)))
    has_others = bool(has_gaps or (count and (low or high)))
    has_no_zero = _has_no_zero(count, low, high)
    is_undefined = not count or (left_out > 0 and not skipna)
    if is_undefined:
        low = high = mean = var = nothing
        total = nothing if left_out and not skipna else total
    return Reduction(
        size=count + left_out,
        count=count,
        nan=part.nan,
        missing=part.missing,
        min=low,
        max=high,
        sum=total,
        mean=mean,
        var=var,
        std=math.sqrt(var) if var >= 0 else nothing,
        any=has_others,
        all=has_no_zero,
        error=error,
        chunks=chunks,
        chunks_read=reads,
    )


def _has_no_zero(count: int, low: Any, high: Any) -> bool | None:
    """Return whether no value is zero, or None if the extremes leave this open."""
    if not count or low > 0 or high < 0:
        return True
    return None if low and high else False


@dataclass(frozen=True, slots=True, eq=False)
class ElementBox:
    """A box of the elements of an array, and what they mean."""

    array: Array
    session: Session
    meaning: Meaning
    grid: TileGrid | None
    elements: Box
    fill: Any

    @staticmethod
    def of(source: Array | zarr.Array[Any], index: Any, *, decoded: bool = True) -> ElementBox:
        """Return the box that an index selects. Raises ``InvalidInputError`` if it selects no box."""
        array = source if isinstance(source, Array) else array_of(source)
        session, path = array.session, array.path
        node = session.workspace.require_array(path)
        session.workspace.note_tree(path)
        dtype = array.dtype
        if dtype.kind not in KINDS or is_extension(dtype):
            raise InvalidInputError(
                f"`{path}` must have real numbers, booleans or times for statistics, got elements of {dtype}",
                ErrorKind.INVALID_ARGUMENT,
            )
        selection = selection_of(index, array.shape)
        if not isinstance(selection, BoxSelection) or any(
            each.step != 1 and each.count > 1 for each in selection.slices
        ):
            raise InvalidInputError(
                f"the index must have integers and slices with a step of 1, got {index!r:.100}. Read the "
                "elements with the index instead, and reduce them with numpy",
                ErrorKind.INVALID_ARGUMENT,
            )
        encoding, meaning = encoding_of(node.user_data), meaning_of(node.user_data)
        grid = None
        if meaning is None or encoding is None:  # zarr decodes the chunks
            attributes = array.attrs if decoded else without_packing(array.attrs)
            meaning = Meaning(b"", KINDS[dtype.kind], coding_of(attributes, dtype), None)
            fill = None
        else:
            grid, fill = TileGrid(path, encoding, meaning), encoding.fill
        elements = tuple((each.start, each.start + each.count) for each in selection.slices)
        return ElementBox(array, session, meaning, grid, elements, fill)

    def whole_tiles(self) -> Box | None:
        """Return the tiles that are whole in the box, or None if there is none."""
        if self.grid is None or any(low == high for low, high in self.elements):
            return None
        tiles = self.grid.whole_tiles(self.elements)
        return tiles if all(low < high for low, high in tiles) else None

    def met_tiles(self) -> Box | None:
        """Return the tiles that the box meets, or None if it is empty."""
        if self.grid is None or any(low == high for low, high in self.elements):
            return None
        tiles = []
        for axis, (start, stop) in enumerate(self.elements):
            numbers = chunk_numbers(np.array([start, stop - 1]), self.grid.encoding.lengths[axis])
            tiles.append((int(numbers[0]), int(numbers[1]) + 1))
        return tuple(tiles)

    def tiles(self) -> Iterator[tuple[TileStatistics, Box]]:
        """Yield the statistics of the tiles that are whole in the box and have chunks, part by part."""
        whole = self.whole_tiles()
        if whole is not None and self.grid is not None:
            yield from tiles_of(self.session.workspace, self.grid, whole, is_sparse=True)

    def whole_size(self) -> tuple[int, int]:
        """Return the number of the tiles that are whole in the box, and of their elements."""
        whole = self.whole_tiles()
        if whole is None or self.grid is None:
            return 0, 0
        elements = self.grid.elements_of(whole)
        tiles, size = (prod(high - low for low, high in each) for each in (whole, elements))
        return tiles, size

    def rest(self) -> Iterator[tuple[Box, int]]:
        """Yield the elements outside of whole tiles, box by box, and the number of tiles that a box meets."""
        whole = self.whole_tiles()
        if any(low == high for low, high in self.elements):
            return
        if self.grid is None:
            for part in parts_of(self.elements, BATCH // self.array.dtype.itemsize):
                yield part, 0
            return
        if whole is None:
            yield from self._batches(self.elements)
            return
        left = list(self.elements)
        for axis, (low, high) in enumerate(self.grid.elements_of(whole)):
            for edge in ((left[axis][0], low), (high, left[axis][1])):
                if edge[0] < edge[1]:
                    yield from self._batches((*left[:axis], edge, *left[axis + 1 :]))
            left[axis] = (low, high)

    def _batches(self, elements: Box) -> Iterator[tuple[Box, int]]:
        """Yield parts of a box of elements, along the bounds of tiles, with the number of tiles they meet."""
        grid, met = self.grid, replace(self, elements=elements).met_tiles()
        assert grid is not None
        assert met is not None
        largest = prod(
            int((high - low).max()) for low, high in (grid.bounds(a, *m) for a, m in enumerate(met))
        )
        most = max(1, BATCH // (largest * grid.encoding.dtype.itemsize))
        for tiles in parts_of(met, most):
            bounds = grid.elements_of(tiles)
            part = tuple(
                (max(low, start), min(high, stop))
                for (low, high), (start, stop) in zip(bounds, elements, strict=True)
            )
            yield part, prod(high - low for low, high in tiles)

    def read_tiles(self, index: NDArray[Any]) -> Iterator[tuple[I64, dict[str, NDArray[Any]]]]:
        """Yield the sizes and the statistics of tiles that are read, some at a time."""
        grid = self.grid
        if not len(index) or grid is None:
            return
        for rows, elements in self.read_elements(index):
            part = chunk_rows(self.meaning, grid.encoding, index[rows], elements)
            yield (
                part["extent"].astype(np.int64).prod(axis=1),
                {name: part[name] for name in part.dtype.names or ()},
            )

    def read_elements(self, index: U32, batch: int = BATCH) -> Iterator[tuple[I64, NDArray[Any]]]:
        """Yield rows of ``index``, and the elements of these tiles. Raises the error of a damaged chunk."""
        grid = self.grid
        assert grid is not None
        workspace = self.session.workspace
        for rows, elements, failures in read_whole_chunks(workspace, grid.path, grid.encoding, index, batch):
            if len(failures):  # zarr raises the error
                tile = tuple((int(each), int(each) + 1) for each in index[rows[failures[0]]])
                self.array[tuple(slice(*each) for each in grid.elements_of(tile))]
            yield rows, elements


def array_of(array: zarr.Array[Any]) -> Array:
    """Return the handle of an array of zarr. Raises ``InvalidInputError`` for an array of another store."""
    if not isinstance(array, zarr.Array):
        raise wrong_type("array", array, "frazil.Array", "zarr.Array")
    if not isinstance(array.store, IcechunkStore):
        raise InvalidInputError(
            f"the array must be in a store of Frazil, got one in {type(array.store).__name__}",
            ErrorKind.INVALID_ARGUMENT,
        )
    return Array(array.store.session, "/" + array.path.strip("/"))
