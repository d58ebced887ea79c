"""Cells of views: which chunks of an array of a view are references, and which ones the box cuts.

Along each dimension, a chunk of the source has its elements in one cell, in two, or in none. All is columns:
the maps from chunks to cells are arrays, which the coordinates of all references are looked up in.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.format.chunk_table import ChunkTable, VirtualObjects, within
from frazil.format.columns import I64, U32, Ragged
from frazil.format.ids import OBJECT_ID_BYTES, id_characters
from frazil.format.manifest import ChunkKind
from frazil.jobs.blocks import block_shape, mask_boxes, split_boxes
from frazil.pipeline.transform.arrays import SHARDING, ArrayInfo

#: The bytes of the values of one block.
_BLOCK: Final = 64_000_000
#: What the bytes of a chunk depend on, except its shape.
_ENCODING: Final = ("data_type", "codecs", "fill_value", "storage_transformers")

type Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One dimension of an array of a view: the positions in the source, and how chunks become cells.

    Cell j has the elements ``edges[j]`` to ``edges[j + 1]`` of the view. ``lengths`` are the lengths of
    chunks in the metadata. For each chunk of the source, ``cell`` is the cell with just its elements, or -1;
    ``first`` and ``last`` are the cells with elements of it, ``first`` > ``last`` if there are none.
    """

    positions: range
    edges: I64
    lengths: int | list[int]
    cell: I64
    first: I64
    last: I64

    @property
    def whole(self) -> Mask:
        """Which cells have the elements of exactly one chunk."""
        whole = np.zeros(len(self.edges) - 1, np.bool_)
        whole[self.cell[self.cell >= 0]] = True
        return whole

    @staticmethod
    def of(length: int, lengths: int | list[int], positions: range, *, unequal: bool, clips: bool) -> Axis:
        """Return the axis of a dimension of ``length`` elements with these lengths of chunks.

        ``unequal``: the cells may have unequal lengths. ``clips``: a single cell may be as short as the box.
        """
        count, borders = len(positions), edges_of(length, lengths)
        # the number of positions before each border
        cuts = np.clip(-(-(borders - positions.start) // positions.step), 0, count)
        has_all = np.diff(cuts) == np.diff(borders)
        nominal = (
            np.broadcast_to(np.array(lengths), (len(has_all),))
            if isinstance(lengths, int)
            else np.array(lengths[: len(has_all)])
        )
        out: int | list[int] = lengths
        is_even = isinstance(lengths, int) and (positions.start % lengths == 0 or not count)
        if isinstance(lengths, list) or (unequal and not (is_even and positions.step == 1)):
            used = np.flatnonzero(np.diff(cuts))
            edges = np.append(cuts[used], count)
            out = np.where(has_all, nominal, np.diff(cuts))[used].tolist() or lengths
        else:
            edges = edges_of(count, lengths)
            if clips and len(edges) == 2 and not (has_all & (np.diff(cuts) == count)).any():
                out = count
        first = np.searchsorted(edges, cuts[:-1], "right") - 1
        last = np.searchsorted(edges, cuts[1:], "left") - 1
        last = np.where(np.diff(cuts) > 0, last, first - 1)
        fits = has_all & (first == last) & (np.isin(cuts[:-1], edges) & np.isin(cuts[1:], edges))
        return Axis(positions, edges, out, np.where(fits, first, -1), first, last)


def bounds_of(positions: range) -> list[int]:
    """Return the start, the stop and the step."""
    return [positions.start, positions.stop, positions.step]


def edges_of(length: int, lengths: int | list[int]) -> I64:
    """Return the borders of the chunks of a dimension: of k chunks k + 1 numbers, from 0 to ``length``."""
    if isinstance(lengths, int):
        return np.minimum(np.arange(-(-length // lengths) + 1, dtype=np.int64) * lengths, length)
    ends = np.cumsum(np.array(lengths, np.int64))
    return np.append(0, np.minimum(ends[: np.searchsorted(ends, length) + 1], length))[
        : None if length else 1
    ]


# Arrays


@dataclass(frozen=True, slots=True, eq=False)
class ViewGrid:
    """The cells of one array of a view."""

    array: ArrayInfo
    axes: tuple[Axis, ...]

    @staticmethod
    def of(array: ArrayInfo, box: Sequence[range], *, rectilinear: bool) -> ViewGrid:
        """Return the cells of the part of an array. Shards have whole inner chunks, so few can be unequal."""
        first = array.document["codecs"][0]
        inner = first["configuration"]["chunk_shape"] if first["name"] == SHARDING else [1] * array.ndim
        axes = []
        columns: Any = zip(array.shape, chunk_lengths(array.encoded()), box, inner, strict=True)
        for *each, n in columns:
            axis = Axis.of(*each, unequal=rectilinear, clips=first["name"] != SHARDING)
            if isinstance(axis.lengths, list) and (np.array(axis.lengths) % n).any():
                axis = Axis.of(*each, unequal=False, clips=False)
            axes.append(axis)
        return ViewGrid(array, tuple(axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each dimension."""
        return tuple(len(axis.edges) - 1 for axis in self.axes)

    def document(self) -> bytes:
        """Return the metadata of the part."""
        shapes = [axis.lengths for axis in self.axes]
        grid: dict[str, Any] = {"name": "regular", "configuration": {"chunk_shape": shapes}}
        if any(isinstance(each, list) for each in shapes):
            full = [
                [each] * max(count, 1) if isinstance(each, int) else each
                for each, count in zip(shapes, self.shape, strict=True)
            ]
            # the reference refuses a single number for all chunks of a dimension
            runs = [[[length, len(list(run))] for length, run in itertools.groupby(each)] for each in full]
            grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": runs}}
        shape = [int(axis.edges[-1]) for axis in self.axes]
        return json.dumps({**self.array.document, "shape": shape, "chunk_grid": grid}).encode()

    def has_cells_of(self, earlier: ArrayInfo, box: Sequence[Sequence[int]] | None) -> bool:
        """Return whether the cells of an earlier view with this box have the same elements and encoding.

        The last cells may differ.
        """
        if any(self.array.document.get(name) != earlier.document.get(name) for name in _ENCODING):
            return False
        if [each[::2] for each in box or ()] != [bounds_of(axis.positions)[::2] for axis in self.axes]:
            return False
        for axis, length, lengths in zip(
            self.axes, earlier.shape, chunk_lengths(earlier.encoded()), strict=True
        ):
            edges = edges_of(length, lengths)
            count = min(len(edges), len(axis.edges)) - 1
            is_list = isinstance(lengths, list) and isinstance(axis.lengths, list)
            if not (is_list or lengths == axis.lengths) or (edges[:count] != axis.edges[:count]).any():
                return False
        return True

    def is_cut(self, cells: U32 | I64) -> Mask:
        """Return which cells are cut by the box."""
        cut = np.zeros(len(cells), np.bool_)
        for number, axis in enumerate(self.axes):
            cut |= ~axis.whole[cells[:, number]]
        return cut

    def is_short(self, cells: U32 | I64) -> Mask:
        """Return which cells are longer than the rest of the array, so that they have elements behind it."""
        short = np.zeros(len(cells), np.bool_)
        for number, axis in enumerate(self.axes):
            length = axis.lengths[-1] if isinstance(axis.lengths, list) else axis.lengths
            if len(axis.edges) > 1 and axis.edges[-1] - axis.edges[-2] < length:
                short |= cells[:, number] == len(axis.edges) - 2
        return short

    def whole_chunks(self, table: ChunkTable) -> ChunkTable:
        """Return the references of whole cells, from those of the source."""
        index, whole = np.empty(table.index.shape, np.int64), np.ones(len(table), np.bool_)
        for number, axis in enumerate(self.axes):
            index[:, number] = axis.cell[table.index[:, number]]
            whole &= index[:, number] >= 0
        if whole.all():
            return replace(table, index=index.astype(np.uint32))
        return replace(table.select_chunks(whole), index=index[whole].astype(np.uint32)).prune()

    def cut_cells(self, table: ChunkTable, before: ChunkTable | None, earlier: ArrayInfo | None) -> I64:
        """Return the cells to compute: cut by the box, with elements of chunks that have changed.

        ``before`` are the chunks of the source that the ``earlier`` array was made of; None: all cells.
        """
        if all(axis.whole.all() for axis in self.axes):
            return np.zeros((0, len(self.axes)), np.int64)
        index = table.index
        if before is not None and earlier is not None:
            rows = changed(table, before)
            lengths = chunk_lengths(earlier.encoded())
            for number, (axis, length) in enumerate(zip(self.axes, earlier.shape, strict=True)):
                end = min(length, len(axis.positions))
                cell, own = int(np.searchsorted(axis.edges, end)) - 1, index[:, number]
                if end not in axis.edges or end not in edges_of(
                    length, lengths[number]
                ):  # it gets, or had, other elements
                    rows |= (axis.first[own] <= cell) & (cell <= axis.last[own])
            gone = before.index[table.find_chunks(before.index) < 0]
            gone = gone[within(gone, [len(axis.cell) for axis in self.axes])]
            index = np.concatenate([index[rows], gone])
        ends = [(axis.first[own], axis.last[own]) for axis, own in zip(self.axes, index.T, strict=True)]
        has = np.logical_and.reduce([first <= last for first, last in ends])
        corners = [np.stack(each, axis=1)[has] for each in itertools.product(*ends)]
        cells = np.unique(np.concatenate(corners), axis=0)
        return cells[self.is_cut(cells)]

    def blocks(self, cells: I64, itemsize: int) -> tuple[I64, I64]:
        """Return blocks of elements of the view that cover cells: starts and stops."""
        if not len(cells):
            return cells, cells
        corner = cells.min(axis=0)
        mask = np.zeros(cells.max(axis=0) - corner + 1, np.bool_)
        mask[tuple((cells - corner).T)] = True
        low, high = (each + corner for each in mask_boxes(mask))
        largest = itemsize * math.prod(int(np.diff(axis.edges).max()) for axis in self.axes)
        low, high = split_boxes(low, high, block_shape(self.shape, (1,) * len(self.axes), largest, _BLOCK))
        for each in (low, high):
            for number, axis in enumerate(self.axes):
                each[:, number] = axis.edges[each[:, number]]
        return low, high


def changed(table: ChunkTable, before: ChunkTable) -> Mask:
    """Return which references of a table an earlier table does not have."""
    rows = before.find_chunks(table.index)
    is_new = rows < 0
    both = np.flatnonzero(~is_new)
    is_new[both] = ~table.same(both, before, rows[both])
    return is_new


def as_virtual(table: ChunkTable, folder: str, urls: list[str]) -> ChunkTable:
    """Return native references as virtual ones: ranges of the chunk files in a folder with this URL.

    ``urls`` are the URLs of the virtual chunks of the table.
    """
    foreign = replace(table.foreign, locations=Ragged.of_text(urls))
    is_native = table.kind == ChunkKind.NATIVE
    if not is_native.any():
        return replace(table, foreign=foreign)
    names, prefix = id_characters(table.chunk_ids), np.frombuffer(folder.encode(), np.uint8)
    rows = np.concatenate([np.broadcast_to(prefix, (len(names), len(prefix))), names], axis=1)
    texts = Ragged.from_lengths(rows.reshape(-1), np.full(len(rows), rows.shape[1]))
    own = VirtualObjects(texts, Ragged.empty(len(rows)), np.zeros(len(rows), np.uint32))
    return replace(
        table,
        kind=np.where(is_native, np.uint8(ChunkKind.VIRTUAL), table.kind),
        source=np.where(is_native, table.source + np.uint32(len(foreign)), table.source),
        chunk_ids=np.zeros((0, OBJECT_ID_BYTES), np.uint8),
        foreign=VirtualObjects.concat([foreign, own]),
    )
