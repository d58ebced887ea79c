"""Which tiles of a box are known from statistics, which are read, and their columns for the kernels.

A tile is used only if its values follow from its statistics without a doubt. `ElementBox` is for boxes of
elements that one process reads tile by tile. `RegionPlan` is for regions that tasks read as boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.answers.tiles import Box, Mask, TileGrid, parts_of, tiles_of
from frazil.arguments import wrong_type
from frazil.arrays.array import Array
from frazil.arrays.box_reading import read_whole_chunks
from frazil.arrays.element_statistics import (
    KINDS,
    Meaning,
    chunk_rows,
    meaning_of,
    signed_digits,
    statistics_of,
)
from frazil.arrays.encoding import encoding_of, is_extension
from frazil.arrays.selection import BoxSelection, selection_of
from frazil.cf import Coding, coding_of, without_packing
from frazil.errors import InvalidInputError
from frazil.format.columns import I64, U32
from frazil.repository.session.session import Session
from frazil.zarr_store.store import IcechunkStore

#: Columns of tiles, by name: see `frazil.answers.kernels.Tiles`.
type Columns = dict[str, NDArray[Any]]

#: The most bytes of elements that are read together.
BATCH: Final = 64 << 20
#: The most boxes of tiles that are read one after the other. More of them are read as one.
_MOST_BOXES: Final = 8
#: The number of elements up to which the digits of a sum, times this number, have 64 bits.
_MOST_REPEATED: Final = 1 << 31
_EXTREMES: Final = ("minimum", "maximum", "low", "high")


def tile_columns(coding: Coding, rows: Mapping[str, NDArray[Any]], size: NDArray[Any]) -> Columns:
    """Return the columns of tiles for the kernels, from rows of statistics and the numbers of elements.

    ``coding`` says how numbers become values. Rows without values have any number in ``low`` and ``high``.
    """
    columns = {
        name: signed_digits(column) if column.ndim > size.ndim else column
        for name, column in rows.items()
        if name not in ("known", "extent")
    }
    gaps = columns["nan"].astype(np.int64) + columns["missing"].astype(np.int64)
    low, high = coding.unpacked_range(columns["minimum"], columns["maximum"])
    return columns | {"count": size - gaps, "gaps": gaps, "low": low, "high": high}


def _columns_of(rows: NDArray[Any]) -> Columns:
    """Return the columns of rows as arrays of their own, which numpy adds pairwise and without buffers."""
    return {name: rows[name].copy() for name in rows.dtype.names or ()}


def fill_columns(meaning: Meaning, coding: Coding, fill: Any, times: NDArray[np.int64]) -> Columns:
    """Return the columns of tiles without a chunk: ``times`` fill values each, shape (n,)."""
    one = tile_columns(coding, statistics_of(meaning, np.full((1, 1), fill)), np.ones(1, np.int64))
    is_large = int(times.max(initial=0)) >= _MOST_REPEATED

    def repeated(name: str) -> NDArray[Any]:
        column = one[name]
        if name in _EXTREMES:
            return np.broadcast_to(column, times.shape)
        if column.ndim > 1:
            return np.asarray(column.astype(object if is_large else np.int64) * times[:, None])
        return np.asarray(column * times.astype(np.float64 if column.dtype.kind == "f" else np.int64))

    return {name: repeated(name) for name in one}


@dataclass(frozen=True, slots=True, eq=False)
class ElementBox:
    """A box of the elements of an array, and what they mean.

    ``meaning`` is that of the elements, ``coding`` says how they become values.
    """

    array: Array
    session: Session
    meaning: Meaning
    coding: Coding
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
                f"`{path}` must have real numbers, booleans or times for statistics, got elements of {dtype}"
            )
        selection = selection_of(index, array.shape)
        if not isinstance(selection, BoxSelection) or any(
            side.step != 1 and side.count > 1 for side in selection.slices
        ):
            raise InvalidInputError(
                f"the index must have integers and slices with a step of 1, got {index!r:.100}. Read the "
                "elements with the index instead, and reduce them with numpy"
            )
        encoding, meaning = encoding_of(node.user_data), meaning_of(node.user_data)
        grid = None
        if meaning is None or encoding is None:  # zarr decodes the chunks
            attributes = array.attrs if decoded else without_packing(array.attrs)
            meaning = Meaning(b"", KINDS[dtype.kind], coding_of(attributes, dtype), None)
            fill = None
        else:
            grid, fill = TileGrid(path, encoding, meaning), encoding.fill
        elements = tuple((side.start, side.start + side.count) for side in selection.slices)
        coding = meaning.coding
        if not decoded:
            coding = replace(coding, floating=None, scale=None, offset=None, misfit="")
        return ElementBox(array, session, meaning, coding, grid, elements, fill)

    def met_tiles(self) -> Box | None:
        """Return the tiles that the box meets, or None if it is empty."""
        if self.grid is None or any(low == high for low, high in self.elements):
            return None
        return self.grid.met_tiles(self.elements)

    def columns(self) -> Iterator[tuple[Columns, Mask, int]]:
        """Yield the columns of all elements, part by part: which rows count, and how many chunks were read.

        Elements outside of whole tiles have one row for each part that is read.
        """
        grid, one = self.grid, np.ones(1, np.bool_)
        whole = () if grid is None else grid.whole_tiles(self.elements)
        has_whole = grid is not None and all(low < high for low, high in whole)
        if grid is not None and has_whole:
            absent = prod(high - low for low, high in grid.elements_of(whole))
            for tiles, part in tiles_of(self.session.workspace, grid, whole, is_sparse=True):
                place = tiles.within(part)
                size, unknown = tiles.size[place], tiles.coordinates(tiles.is_unknown[place], part)
                absent -= int(size.sum(where=tiles.is_present[place]))
                rows = tiles.rows[place]
                yield tile_columns(self.coding, _columns_of(rows), size), tiles.is_known[place], 0
                for at, elements in self.read_elements(unknown) if len(unknown) else ():
                    rows = chunk_rows(self.meaning, grid.encoding, unknown[at], elements)
                    size = rows["extent"].astype(np.int64).prod(axis=1)
                    is_used = np.ones(len(rows), np.bool_)
                    yield tile_columns(self.coding, _columns_of(rows), size), is_used, len(rows)
            if absent:
                yield fill_columns(self.meaning, self.coding, self.fill, np.array([absent])), one, 0
        for box, met in self._partial_boxes(whole if has_whole else None):
            values = np.asarray(self.array[tuple(slice(*side) for side in box)])
            statistics = statistics_of(self.meaning, values.reshape(1, -1))
            yield tile_columns(self.coding, statistics, np.array([values.size])), one, met

    def _partial_boxes(self, whole: Box | None) -> Iterator[tuple[Box, int]]:
        """Yield the elements outside of whole tiles, box by box, and the number of tiles that a box meets."""
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
        grid = self.grid
        assert grid is not None
        met = grid.met_tiles(elements)
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

    def read_elements(self, index: U32, batch: int = BATCH) -> Iterator[tuple[I64, NDArray[Any]]]:
        """Yield rows of ``index``, and the elements of these tiles. Raises the error of a damaged chunk."""
        grid = self.grid
        assert grid is not None
        workspace = self.session.workspace
        for rows, elements, failures in read_whole_chunks(workspace, grid.path, grid.encoding, index, batch):
            if len(failures):  # zarr raises the error
                tile = tuple((int(number), int(number) + 1) for number in index[rows[failures[0]]])
                self.array[tuple(slice(*side) for side in grid.elements_of(tile))]
            yield rows, elements


def array_of(array: zarr.Array[Any]) -> Array:
    """Return the handle of an array of zarr. Raises ``InvalidInputError`` for an array of another store."""
    if not isinstance(array, zarr.Array):
        raise wrong_type("array", array, "frazil.Array", "zarr.Array")
    if not isinstance(array.store, IcechunkStore):
        raise InvalidInputError(
            f"the array must be in a store of Frazil, got one in {type(array.store).__name__}"
        )
    return Array(array.store.session, "/" + array.path.strip("/"))


@dataclass(slots=True, eq=False)
class RegionPlan:
    """The tiles that a region meets. The mask and the columns have the shape of their grid.

    Attributes:
        bounds: For each axis, the first element of each tile and the end, within the region.
        is_known: Whether the statistics stand for the elements. The columns count only where they do.
        columns: The columns of the tiles, with ``low`` and ``high`` in the type of the decoded values.
        packing: The scale and the offset of the values.
    """

    bounds: tuple[tuple[I64, I64], ...]
    is_known: Mask
    columns: Columns
    packing: tuple[float, float]

    @staticmethod
    def of(
        session: Session,
        path: str,
        region: Sequence[tuple[int, int]],
        coding: Coding,
        dtype: np.dtype[Any],
        *,
        limits: tuple[float, float] | None = None,
        skipna: bool = True,
    ) -> RegionPlan | None:
        """Return the plan of a region, or None if statistics cannot help.

        Tiles that are partly in the region are read, and those with values outside of ``limits``; without
        ``skipna`` also those with NaN. ``dtype`` is the type of the values.
        """
        node = session.workspace.node(path)
        document = b"" if node is None or node.array is None else node.user_data
        if not document or not region or any(low >= high for low, high in region):
            return None
        grid = TileGrid.of(path, document, coding)
        if grid is None:
            return None
        box = grid.met_tiles(region)
        parts = list(tiles_of(session.workspace, grid, box))
        if len(parts) > 1:  # the tiles are so small that their references cost more than their elements
            return None
        tiles = parts[0][0]
        place = tiles.within(box)
        size = tiles.size[place]
        columns = tile_columns(coding, _columns_of(tiles.rows[place]), size)
        is_known = tiles.is_known[place]
        is_absent = ~tiles.is_present[place] & (size < _MOST_REPEATED)
        if is_absent.any():
            fill = fill_columns(grid.meaning, coding, grid.encoding.fill, size[is_absent])
            for name, column in columns.items():
                column[is_absent] = fill[name]
            is_known = is_known | is_absent
        is_known = is_known & ~grid.meaning.hidden(coding, columns)
        columns |= {name: columns[name].astype(dtype) for name in ("low", "high")}
        low, high = columns["low"], columns["high"]
        if not skipna:
            is_known &= columns["gaps"] == 0
        if dtype.kind == "f":
            is_known &= np.isfinite(low) & np.isfinite(high)
        if limits is not None:
            is_known &= (columns["count"] == 0) | ((low >= limits[0]) & (high <= limits[1]))
        bounds = []
        for axis, (first, end) in enumerate(region):
            starts, ends = grid.bounds(axis, *box[axis])
            is_whole = (starts >= first) & (ends <= end)
            is_known &= is_whole.reshape([-1 if other == axis else 1 for other in range(len(region))])
            bounds.append((np.maximum(starts, first), np.minimum(ends, end)))
        return RegionPlan(tuple(bounds), is_known, columns, coding.packing)

    def boxes_to_read(self, unread: Mask, region: Sequence[tuple[int, int]]) -> list[Box]:
        """Return boxes of elements that cover the tiles of a part of the region that are to be read.

        ``unread`` says which tiles are. It also becomes true for tiles that are read together with them.
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
