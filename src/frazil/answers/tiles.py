"""The statistics of the tiles of an array: columns for a box of chunks, or of the inner chunks of shards.

`frazil.where`, tables and filters of pyarrow also ask for ranges: the smallest and the largest value in boxes
of tiles. Extremes are decoded as the elements are, which keeps their order.

A tile is *known* if its reference has statistics of the elements that the array has there. A tile without a
chunk has the fill value. All other tiles are read: their chunks were written without statistics, or by
another program, or are virtual and have no checksum that would show a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.element_statistics import (
    SUM_ERROR,
    Meaning,
    chunk_rows,
    extents_of,
    limits,
    meaning_of,
    signed_digits,
)
from frazil.arrays.encoding import Encoding, encoding_of, tiles_of_chunks
from frazil.arrays.selection import chunk_bounds, chunk_numbers
from frazil.cf import Coding
from frazil.changes.diff import rows_of
from frazil.errors import FormatError, StorageError
from frazil.format.chunk_statistics import ChunkStatistics, blank_rows, row_dtype, rows_as
from frazil.format.chunk_table import ChunkKind, ChunkTable
from frazil.format.columns import I64, U32
from frazil.format.ids import NODE_ID_BYTES, STATISTICS, id_list, id_matrix
from frazil.format.snapshot import ManifestRefs, Node, NodeTable
from frazil.repository.catalog.ancestry import ancestry, second_parents
from frazil.repository.catalog.assets import MANIFEST, with_read_statistics
from frazil.threads import Purpose, map_bounded

if TYPE_CHECKING:
    from frazil.repository.session.workspace import Workspace
from collections.abc import Callable

from frazil.answers.conditions import ValueRanges
from frazil.arrays.element_statistics import statistics_of
from frazil.repository.session.workspace import Workspace

type Mask = NDArray[np.bool_]
#: A half-open box: the first number and the end along each dimension.
type Box = tuple[tuple[int, int], ...]

#: The largest number of tiles of an array whose columns are cached.
MOST_TILES: Final = 1 << 20
#: The number of tiles of larger arrays whose columns are in memory together: about 50 MB.
_SLAB: Final = 1 << 18
_DIGIT: Final = 32
_THREADS: Final = 16
#: Errors of a file of an earlier version that is lost or damaged. What it would say is unknown.
_UNREADABLE: Final = (FormatError, StorageError)
#: The number of earlier versions in which statistics are looked up.
_EARLIER: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class TileGrid:
    """The grid of the tiles of an array, and the elements in them."""

    path: str
    encoding: Encoding
    meaning: Meaning

    @staticmethod
    def of(path: str, document: bytes, coding: Coding) -> TileGrid | None:
        """Return the grid of an array, or None if its statistics say nothing about the values of a coding.

        They say something if values have the order of the elements that statistics compare. See also
        ``Meaning.hidden``.
        """
        encoding, meaning = encoding_of(document), meaning_of(document)
        if encoding is None or meaning is None or not coding.keeps_order:
            return None
        is_same = (coding.dtype, coding.unsigned) == (encoding.dtype, meaning.coding.unsigned)
        return TileGrid(path, encoding, meaning) if is_same else None

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of tiles of a chunk along each dimension: 1 without shards."""
        shards = self.encoding.shards
        return (1,) * len(self.encoding.shape) if shards is None else shards.counts

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of tiles along each dimension."""
        return tuple(
            -(-size // length) if isinstance(length, int) else int(np.searchsorted(length, size, "left"))
            for size, length in zip(self.encoding.shape, self.encoding.lengths, strict=True)
        )

    def bounds(self, axis: int, low: int, high: int) -> tuple[I64, I64]:
        """Return the first element of some tiles along a dimension, and the element after their last."""
        first, end = chunk_bounds(np.arange(low, high), self.encoding.lengths[axis])
        return first, np.minimum(end, self.encoding.shape[axis])

    def whole_tiles(self, elements: Box) -> Box:
        """Return the tiles whose elements are all in a box of elements. The result can be empty."""
        tiles = []
        for (start, stop), length, size, count in zip(
            elements, self.encoding.lengths, self.encoding.shape, self.shape, strict=True
        ):
            if isinstance(length, int):
                low, high = -(-start // length), stop // length
            else:
                low = int(np.searchsorted(length, start, "left"))
                high = int(np.searchsorted(length, stop, "right")) - 1
            tiles.append((low, max(low, count if stop >= size else high)))
        return tuple(tiles)

    def met_tiles(self, elements: Sequence[tuple[int, int]]) -> Box:
        """Return the tiles that a box of elements meets, which is not empty."""
        tiles = []
        for (start, stop), length in zip(elements, self.encoding.lengths, strict=True):
            numbers = chunk_numbers(np.array([start, stop - 1]), length)
            tiles.append((int(numbers[0]), int(numbers[1]) + 1))
        return tuple(tiles)

    def elements_of(self, tiles: Box) -> Box:
        """Return the elements of a box of tiles that is not empty."""
        out = []
        for (low, high), length, size in zip(tiles, self.encoding.lengths, self.encoding.shape, strict=True):
            first, end = chunk_bounds(np.array([low, high - 1]), length)
            out.append((int(first[0]), min(int(end[1]), size)))
        return tuple(out)


class TileStatistics:
    """The statistics of tiles: of all tiles of a box, or of a list of tiles in it.

    All columns have the shape of the box, or of the list.

    Attributes:
        box: The tiles.
        index: The coordinates of the tiles of a list, shape (n, ndim); None for all tiles of the box.
        is_known: Whether a tile has statistics.
        is_present: Whether a tile has a chunk.
        rows: The statistics of the known tiles, see ``row_dtype``.
        size: The number of elements of a tile.
    """

    def __init__(self, grid: TileGrid, box: Box, index: U32 | None = None) -> None:
        self.grid = grid
        self.box = box
        self.index = index
        shape = tuple(high - low for low, high in box) if index is None else (len(index),)
        self.is_known: Final = np.zeros(shape, np.bool_)
        self.is_present: Final = np.zeros(shape, np.bool_)
        self.rows: Final = np.zeros(shape, row_dtype(grid.meaning.kind, len(box)))

    @staticmethod
    def read(workspace: Workspace, grid: TileGrid, box: Box) -> TileStatistics:
        """Return the statistics of all tiles of a box."""
        tiles = TileStatistics(grid, box)
        is_seen = np.zeros(tiles.is_known.size, np.bool_)
        begin, shape = np.array([low for low, _ in box], np.int64), tiles.is_known.shape
        for table, _ in _tables(workspace, grid, box):
            rows, inner, index = _tiles_in(grid, box, table)
            flat = np.ravel_multi_index(tuple((index - begin).T), shape) if box else np.zeros(len(rows), int)
            is_new = ~is_seen[flat]
            flat = flat[is_new]
            is_seen[flat] = True
            tiles._set(flat, table, rows[is_new], inner[is_new], index[is_new])
        return tiles

    @staticmethod
    def read_stored(workspace: Workspace, grid: TileGrid, box: Box) -> Iterator[TileStatistics]:
        """Yield the statistics of the tiles of a box that can have a chunk, some at a time.

        The cost depends on the number of references, and not on the size of the box.
        """
        changes = list[ChunkTable]()
        for table, is_change in _tables(workspace, grid, box):
            is_newest = np.ones(len(table), np.bool_)
            for each in changes:
                is_newest &= each.find_chunks(table.index) < 0
            changes += [table] * is_change
            rows, inner, index = _tiles_in(grid, box, table)
            chosen = np.flatnonzero(is_newest[rows])
            for start in range(0, len(chosen), _SLAB):
                part = chosen[start : start + _SLAB]
                tiles = TileStatistics(grid, box, index[part])
                tiles._set(np.arange(len(part)), table, rows[part], inner[part], index[part])
                yield tiles

    def _set(self, flat: I64, table: ChunkTable, rows: I64, inner: I64, index: U32) -> None:
        """Set the columns of some tiles to what a table says: its rows, and the places in their shards."""
        self.is_present.reshape(-1)[flat] = table.kind[rows] != ChunkKind.ABSENT
        is_known = known_tiles(table, self.grid.meaning, self.grid.encoding, rows, inner, index)
        if is_known is None or table.statistics is None:
            return
        known = rows_as(table.statistics.rows[rows, inner], self.rows.dtype)
        is_known &= _is_possible(known, known["extent"].astype(np.int64).prod(axis=1), self.grid.meaning)
        self.is_known.reshape(-1)[flat] = is_known
        self.rows.reshape(-1)[flat[is_known]] = known[is_known]

    @cached_property
    def size(self) -> I64:
        """The number of elements of each tile."""
        if self.index is not None:
            return extents_of(self.grid.encoding, self.index).astype(np.int64).prod(axis=1)
        size, ndim = np.ones(self.is_known.shape, np.int64), len(self.box)
        for axis, (low, high) in enumerate(self.box):
            first, end = self.grid.bounds(axis, low, high)
            size *= (end - first).reshape([-1 if each == axis else 1 for each in range(ndim)])
        return size

    @cached_property
    def count(self) -> I64:
        """The number of elements of each known tile that are neither NaN nor missing; 0 for other tiles."""
        left_out = self.rows["nan"].astype(np.int64) + self.rows["missing"].astype(np.int64)
        return np.where(self.is_known, self.size - left_out, 0)

    @cached_property
    def is_unknown(self) -> Mask:
        """The tiles whose chunks must be read."""
        return self.is_present & ~self.is_known

    @cached_property
    def extremes(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The smallest and the largest element of each tile. A tile without any has the opposite limits."""
        dtype = self.rows.dtype["minimum"]
        top, bottom = limits(dtype)
        has_values = self.count > 0
        low = np.where(has_values, self.rows["minimum"], dtype.type(top))
        return low, np.where(has_values, self.rows["maximum"], dtype.type(bottom))

    def within(self, box: Box) -> tuple[slice, ...]:
        """Return the index of a box of tiles in the columns. A list has only its own box."""
        if self.index is not None:
            return (slice(None),)
        return tuple(
            slice(low - first, high - first) for (low, high), (first, _) in zip(box, self.box, strict=True)
        )

    def coordinates(self, mask: Mask, box: Box) -> U32:
        """Return the coordinates of the tiles of a box that a mask of its columns chooses."""
        if self.index is not None:
            return self.index[mask]
        if not mask.any():
            return np.zeros((0, len(box)), np.uint32)
        return (np.argwhere(mask) + np.array([low for low, _ in box], np.int64)).astype(np.uint32)


def _tables(workspace: Workspace, grid: TileGrid, box: Box) -> Iterator[tuple[ChunkTable, bool]]:
    """Yield the references of the chunks of a box of tiles, newest first, and whether they are changes."""
    entry = workspace.array_entry(grid.path)
    assert entry is not None
    low, high = _chunks_of(grid, box)
    for edits in entry.edits:
        with workspace.lock:
            changes = edits.table()
        yield changes, True
    numbers = entry.manifests_meeting(np.stack([low, high - 1])) if len(entry.ids) else []
    is_small = prod(grid.shape) <= MOST_TILES
    table = partial(known_table, workspace, entry.node, grid.meaning, is_cached=is_small)
    batch = len(numbers) if is_small else 1
    for start in range(0, len(numbers), max(1, batch)):
        ids = [entry.ids[number] for number in numbers[start : start + batch]]
        for each in map_bounded(Purpose.CATALOG_READS, table, ids, _THREADS):
            if each is not None:
                yield each, False


def _chunks_of(grid: TileGrid, box: Box) -> tuple[I64, I64]:
    """Return the first chunk of a box of tiles along each dimension, and the end."""
    counts, corners = np.array(grid.counts, np.int64), np.array(box, np.int64).reshape(-1, 2)
    return corners[:, 0] // counts, -(-corners[:, 1] // counts)


def _tiles_in(grid: TileGrid, box: Box, table: ChunkTable) -> tuple[I64, I64, U32]:
    """Return the tiles of a table that are in a box: their rows, their places in shards, coordinates."""
    low, high = _chunks_of(grid, box)
    rows = np.flatnonzero(((table.index >= low) & (table.index < high)).all(axis=1))
    count = prod(grid.counts)
    index = tiles_of_chunks(grid.counts, table.index[rows])
    corners = np.array(box, np.int64).reshape(-1, 2)
    inside = np.flatnonzero(((index >= corners[:, 0]) & (index < corners[:, 1])).all(axis=1))
    return rows[inside // count], inside % count, index[inside].astype(np.uint32)


def known_tiles(
    table: ChunkTable, meaning: Meaning, encoding: Encoding, rows: I64, inner: I64, index: NDArray[Any]
) -> Mask | None:
    """Return which tiles have statistics of the elements that an array has; None if no tile has any.

    ``inner`` is the place of each tile in the shard of its row, ``index`` are its coordinates. An array that
    was resized has other elements in the chunks at its edges.
    """
    statistics, counts = table.statistics, () if encoding.shards is None else encoding.shards.counts
    if statistics is None or statistics.context != meaning.context:
        return None
    if statistics.rows.shape[1] != prod(counts) or statistics.kind != meaning.kind:
        return None
    known = statistics.rows[rows, inner]
    is_known: Mask = known["known"] & may_have_statistics(table)[rows]
    is_known &= (known["extent"] == extents_of(encoding, index)).all(axis=1)
    return is_known


def has_statistics(workspace: Workspace, path: str) -> bool:
    """Return whether chunks of an array can have statistics: in a file, or in an uncommitted change."""
    entry = workspace.array_entry(path)
    try:
        files = workspace.context.assets.storage.list(STATISTICS)
        return bool(entry and entry.edits) or next(files, None) is not None
    except StorageError:  # a web server lists no files
        return True


def known_table(
    workspace: Workspace, node: Node, meaning: Meaning, id_: bytes, *, is_cached: bool = True
) -> ChunkTable | None:
    """Return the references of an array in a manifest, with all statistics that are stored for them.

    If another program has written the manifest, its references have the statistics of the same references in
    the manifests of earlier versions.
    """
    assets = workspace.context.assets

    def read_earlier(manifest_id: bytes) -> ChunkTable | None:
        with suppress(*_UNREADABLE):
            return read(manifest_id, node.id)
        return None

    def read(manifest_id: bytes, node_id: bytes) -> ChunkTable | None:
        if is_cached:
            return assets.with_statistics(assets.manifest(manifest_id)).arrays.get(node_id)
        # The references of an array with many chunks do not go through the caches.
        manifest = MANIFEST.read(assets.storage, manifest_id)
        return with_read_statistics(assets.storage, manifest).arrays.get(node_id)

    table = read(id_, node.id)
    table = None if table is None or node.array is None else table.of_rank(len(node.array.shape))
    if table is None or not len(table):
        return None
    unknown = _unknown_rows(table, meaning)
    if not len(unknown) or not _have_files(workspace):
        return table
    low, high = table.bounds().astype(np.int64).T
    current = {id_}
    for nodes in islice(_earlier_nodes(workspace), _EARLIER):
        rows = rows_of(nodes, id_matrix([node.id], NODE_ID_BYTES))
        array = nodes.node(int(rows[0])).array if rows[0] >= 0 else None
        if array is None or len(array.shape) != table.ndim:
            continue
        refs = ManifestRefs.of(array.manifests, table.ndim)
        meets = ((refs.extents[:, :, 0] < high) & (refs.extents[:, :, 1] > low)).all(axis=1)
        ids = [each for each in id_list(refs.ids[meets]) if each not in current]
        current.update(ids)
        for donor in map_bounded(Purpose.CATALOG_READS, read_earlier, ids, _THREADS):
            if donor is not None and donor.statistics is not None:
                table = _with_rows_of(table, unknown, donor)
                unknown = _unknown_rows(table, meaning)
                if not len(unknown):
                    return table
    return table


def _have_files(workspace: Workspace) -> bool:
    """Return whether the repository has files of statistics, or cannot list them."""
    assets = workspace.context.assets

    def look(_: bytes) -> int:
        with suppress(StorageError):
            return int(any(True for _ in assets.storage.list(STATISTICS)))
        return 1

    return bool(assets.derived.get_or_make(STATISTICS.encode() + workspace.snapshot_id, look))


def _unknown_rows(table: ChunkTable, meaning: Meaning) -> I64:
    """Return the rows of the references without statistics."""
    statistics = table.statistics
    if statistics is None or statistics.context != meaning.context:
        return np.arange(len(table))
    return np.flatnonzero(~statistics.rows["known"].all(axis=1))


def _earlier_nodes(workspace: Workspace) -> Iterator[NodeTable]:
    """Yield the nodes of earlier versions, newest first. Those that were merged come with the merge."""
    context = workspace.context
    info = context.catalog.repo_info()
    if info.snapshots.find_snapshot(workspace.snapshot_id) < 0:
        return
    for entry in chain.from_iterable(ancestry(info, workspace.snapshot_id)):
        ids = [*second_parents(entry), *([] if entry.id == workspace.snapshot_id else [entry.id])]
        for id_ in ids:
            with suppress(*_UNREADABLE):
                yield context.assets.snapshot(id_).nodes


def _with_rows_of(table: ChunkTable, unknown: I64, donor: ChunkTable) -> ChunkTable:
    """Return a table whose unknown rows have the statistics of the same references of another table."""
    assert donor.statistics is not None
    statistics = table.statistics
    if statistics is None or not statistics.has_shape_of(donor.statistics):
        if statistics is not None and statistics.rows["known"].any():
            return table
        blank = blank_rows((len(table), donor.statistics.rows.shape[1]), donor.statistics.rows.dtype)
        statistics = ChunkStatistics(donor.statistics.context, blank)
    places = donor.find_chunks(table.index[unknown])
    unknown, places = unknown[places >= 0], places[places >= 0]
    is_same = table.same(unknown, donor, places)
    return replace(table, statistics=statistics.put(unknown[is_same], donor.statistics.rows[places[is_same]]))


def may_have_statistics(table: ChunkTable) -> Mask:
    """Return which chunks cannot have other bytes later: all but virtual ones without a checksum."""
    foreign = table.foreign
    has_checksum = (foreign.etags.lengths > 0) | (foreign.modified > 0)
    is_virtual = table.kind == ChunkKind.VIRTUAL
    proof = np.ones(len(table), np.bool_)
    proof[is_virtual] = has_checksum[table.source[is_virtual]]
    return proof


def _is_possible(rows: NDArray[Any], size: I64, meaning: Meaning) -> Mask:
    """Return which statistics contradict neither themselves nor the size and the meaning of their chunk."""
    left_out = rows["nan"].astype(np.float64) + rows["missing"]
    count = size - left_out
    low, high = rows["minimum"].astype(np.float64), rows["maximum"].astype(np.float64)
    possible: Mask = (count >= 0) & ((count == 0) | (rows["minimum"] <= rows["maximum"]))
    if not any(fill == fill for fill in meaning.coding.fills):
        possible &= rows["missing"] == 0
    if meaning.coding.dtype.kind not in "fmM":
        possible &= rows["nan"] == 0
    sums = rows["sum"]
    if rows.dtype["minimum"].kind != "f":
        digits = signed_digits(sums)
        sums = np.ldexp((digits[:, 2] << _DIGIT) + digits[:, 1], _DIGIT) + digits[:, 0]
    with np.errstate(invalid="ignore", over="ignore"):
        room = 1e-6 * count * np.maximum(np.abs(low), np.abs(high))
        possible &= np.isfinite(sums) & (sums >= count * low - room) & (sums <= count * high + room)
        if rows.dtype["minimum"].kind == "f":
            possible &= np.isfinite(rows["squares"]) & (rows["squares"] >= 0)
    return possible


def rows_of_chunk(
    meaning: Meaning, encoding: Encoding, coords: Sequence[int], elements: NDArray[Any]
) -> NDArray[Any]:
    """Return the rows of a chunk, one for each tile, from those of its elements that the array has."""
    counts = (1,) * len(coords) if encoding.shards is None else encoding.shards.counts
    index = tiles_of_chunks(counts, np.array([coords], np.uint32)).astype(np.uint32)
    if encoding.shards is None:
        return chunk_rows(meaning, encoding, index, elements[None])
    inner = tuple(int(encoding.lengths[axis]) for axis in range(len(coords)))
    whole = np.zeros(np.multiply(inner, counts), elements.dtype)
    whole[tuple(map(slice, elements.shape))] = elements
    tiles = encoding.shards.split(whole[None], whole.shape)
    return chunk_rows(meaning, encoding, index, tiles.reshape(len(index), *inner))


def contradicted(rows: NDArray[Any], own: NDArray[Any]) -> Mask:
    """Return which known rows of statistics contradict those that the same elements have.

    Sums of floating-point numbers may differ by their errors.
    """
    wrong: Mask = np.zeros(rows.shape, np.bool_)
    count = own["extent"].astype(np.float64).prod(axis=-1)
    largest = np.maximum(np.abs(own["minimum"].astype(np.float64)), np.abs(own["maximum"].astype(np.float64)))
    powers = {"nan": 0, "missing": 0, "minimum": 0, "maximum": 0, "sum": 1, "squares": 2}
    for name, power in powers.items():
        one, two = rows[name], own[name]
        if one.dtype.kind != "f":
            is_equal = (one == two).reshape(*rows.shape, -1).all(axis=-1)
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                room = 8 * SUM_ERROR * count * largest**power if power else 0
                is_equal = (one == two) | (np.isnan(one) & np.isnan(two)) | (np.abs(one - two) <= room)
        wrong |= ~is_equal
    wrong &= rows["known"] & (rows["extent"] == own["extent"]).all(axis=-1)
    return wrong


def tiles_of(
    workspace: Workspace, grid: TileGrid, box: Box, *, is_sparse: bool = False
) -> Iterator[tuple[TileStatistics, Box]]:
    """Yield statistics that cover a box of tiles, part by part, each with its part of the box.

    The statistics of an array with up to ``MOST_TILES`` tiles are cached, with all its tiles. Of a larger
    array, ``is_sparse`` yields lists of tiles, which may leave out tiles without a chunk.
    """
    shape = grid.shape
    if prod(shape) <= MOST_TILES:
        whole = tuple((0, n) for n in shape)
        entry = workspace.array_entry(grid.path)
        assert entry is not None
        if entry.edits:
            yield TileStatistics.read(workspace, grid, box), box
            return
        parts = (
            *entry.ids,
            entry.node.id,
            grid.meaning.context,
            repr((grid.path, grid.encoding.shape)).encode(),
        )
        key = sha256(b"".join(parts)).digest()
        derived = workspace.context.assets.derived
        yield derived.get_or_make(key, lambda _: TileStatistics.read(workspace, grid, whole)), box
        return
    if is_sparse:
        yield from ((each, box) for each in TileStatistics.read_stored(workspace, grid, box))
        return
    for part in parts_of(box, _SLAB):
        yield TileStatistics.read(workspace, grid, part), part


def parts_of(box: Box, most: int) -> Iterator[Box]:
    """Yield parts of a box with at most ``most`` elements: slabs along the first dimension that is long."""
    size = prod(high - low for low, high in box)
    if size <= most or not box:
        yield box
        return
    axis = next(axis for axis, (low, high) in enumerate(box) if high - low > 1)
    low, high = box[axis]
    step = max(1, (high - low) * most // size)
    for start in range(low, high, step):
        part = (*box[:axis], (start, min(start + step, high)), *box[axis + 1 :])
        yield from parts_of(part, most)


#: Elements ``starts`` up to but not including ``stops``, in order.
type Intervals = tuple[I64, I64]
#: What decodes elements: values, and which of them are null.
type Decode = Callable[[NDArray[Any]], tuple[NDArray[Any], Mask | None]]


def tile_ranges(
    grid: TileGrid, tiles: TileStatistics, part: Box, coding: Coding, *, has_fill: bool = True
) -> ValueRanges:
    """Return the ranges of the tiles of a part of a grid, before they are decoded.

    A tile without a chunk has the fill value; without ``has_fill`` it has null.
    """
    place = tiles.within(part)
    rows, is_absent = tiles.rows[place], ~tiles.is_present[place]
    low, high = (each[place] for each in tiles.extremes)
    has_values, has_nan, has_null = tiles.count[place] > 0, rows["nan"] > 0, rows["missing"] > 0
    is_known = ~tiles.is_unknown[place]
    if coding is not grid.meaning.coding:
        is_known &= ~grid.meaning.hidden(coding, rows)
    if has_fill and is_absent.any():
        fill = np.full((1, 1), grid.encoding.fill, coding.dtype)
        one = statistics_of(replace(grid.meaning, coding=coding), fill)
        has_nan, has_null = (
            has_nan | (is_absent & one["nan"][0] > 0),
            has_null | (is_absent & one["missing"][0] > 0),
        )
        if not (one["nan"][0] or one["missing"][0]):
            low, high = (
                np.where(is_absent, one[name][0], each)
                for name, each in (("minimum", low), ("maximum", high))
            )
            has_values = has_values | is_absent
    elif not has_fill:
        has_null = has_null | is_absent
    if coding.dtype.kind in "fmM":
        nan = np.full(1, np.nan if coding.dtype.kind == "f" else "NaT", coding.dtype)
        if coding.missing(nan) is not None:
            has_null, has_nan = has_null | has_nan, np.zeros_like(has_nan)
    return ValueRanges(low, high, has_values, has_nan, has_null, is_known)


def box_ranges(
    workspace: Workspace, grid: TileGrid, coding: Coding, boxes: Sequence[Intervals], *, has_fill: bool = True
) -> ValueRanges:
    """Return the ranges of boxes of elements, before they are decoded, in the shape of their product.

    ``boxes`` are intervals of elements along each dimension of the array, at least one.
    """
    # The number of the first tile of each interval, and the number after its last one.
    spans = [
        (chunk_numbers(starts, length), chunk_numbers(stops - 1, length) + 1)
        for (starts, stops), length in zip(boxes, grid.encoding.lengths, strict=True)
    ]
    parts = tiles_of(workspace, grid, tuple((int(first.min()), int(last.max())) for first, last in spans))
    ends, flags = None, np.zeros((4, *(len(first) for first, _ in spans)), np.bool_)
    for tiles, part in parts:
        of = tile_ranges(grid, tiles, part, coding, has_fill=has_fill)
        if ends is None:
            ends = [np.full(flags.shape[1:], each, of.low.dtype) for each in limits(of.low.dtype)]
        columns = [of.low, of.high, np.stack([of.has_values, of.has_nan, of.has_null, ~of.is_known])]
        target = list[slice]()
        for axis, ((first, last), (begin, end)) in enumerate(zip(spans, part, strict=True)):
            members = np.flatnonzero((first < end) & (last > begin))
            if not len(members):
                break
            target.append(slice(int(members[0]), int(members[-1]) + 1))
            inside = np.clip(np.stack([first[target[-1]], last[target[-1]]], axis=1), begin, end) - begin
            for at, function in enumerate((np.minimum, np.maximum, np.logical_or)):
                columns[at] = _reduced(function, columns[at], inside, axis + (at == 2))
        else:
            spot = tuple(target)
            for function, out, column in zip((np.minimum, np.maximum), ends, columns[:2], strict=True):
                out[spot] = function(out[spot], column)
            flags[(slice(None), *spot)] |= columns[2]
    assert ends is not None
    return ValueRanges(ends[0], ends[1], flags[0], flags[1], flags[2], ~flags[3])


def decoded_ranges(raw: ValueRanges, coding: Coding, decode: Decode) -> ValueRanges:
    """Return the ranges of decoded values. ``decode`` keeps the order of elements, or reverses it."""
    chosen = raw.has_values & raw.is_known
    ends = []
    for each in (raw.low[chosen], raw.high[chosen]):
        if coding.unsigned is not None:
            elements = each.astype(coding.unsigned).view(coding.dtype)
        else:
            elements = each.view(coding.dtype) if coding.dtype.kind in "mM" else each.astype(coding.dtype)
        ends.append(decode(elements))
    if coding.scale is not None and coding.scale < 0:
        ends.reverse()
    is_known = np.array(raw.is_known)
    is_known[chosen] = ~(_is_nothing(*ends[0]) | _is_nothing(*ends[1]))  # values without an order
    values = np.zeros((2, *chosen.shape), ends[0][0].dtype)
    values[:, chosen] = np.stack([data for data, _ in ends])
    return replace(raw, low=values[0], high=values[1], is_known=is_known)


def _is_nothing(data: NDArray[Any], null: Mask | None) -> Mask:
    """Return which values are null, NaN or NaT."""
    nothing = np.isnat(data) if data.dtype.kind in "mM" else np.asarray(data != data)
    return nothing if null is None else nothing | null


def _reduced(function: np.ufunc, columns: NDArray[Any], ends: I64, axis: int) -> NDArray[Any]:
    """Return columns reduced along an axis over intervals, which can overlap: ``ends`` of shape (n, 2)."""
    width = [(0, int(at == axis)) for at in range(columns.ndim)]  # the end of the last interval has a place
    out: NDArray[Any] = function.reduceat(np.pad(columns, width), ends.reshape(-1), axis=axis)
    return out.take(np.arange(0, out.shape[axis], 2), axis=axis)
