"""Chunk references of one array, as columns sorted by coordinates, and the order of chunk coordinates.

The coordinates of n chunks are uint32 of shape (n, ndim), sorted by the first coordinate, then the second,
and so on. They are looked up by *keys*: the number of the chunk in the box up to the largest coordinates
(int64), or the row's bytes, big-endian, if this number needs more than 62 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from operator import attrgetter, eq, itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.chunk_statistics import ChunkStatistics
from frazil.format.columns import I64, U8, U32, U64, Ragged, intern, number, row_keys
from frazil.format.flatbuffer import NO_TEXTS, GroupTexts, TableColumns, Tables, TableWriter


def ascending(index: U32) -> bool:
    """Return whether the rows are strictly ascending."""
    if len(index) < 2:
        return True
    # From the last dimension to the first, because later dimensions decide ties of earlier ones.
    verdict = np.zeros(len(index) - 1, np.bool_)
    for column in index.T[::-1]:
        before, after = column[:-1], column[1:]
        verdict &= before == after
        verdict |= before < after
    return bool(verdict.all())


def box(index: U32) -> list[int]:
    """Return the largest coordinate plus one, for each dimension."""
    # numpy is much slower along the rows of a narrow matrix than along a column.
    return [int(column.max()) + 1 for column in index.T] if len(index) else [0] * index.shape[1]


def lowest(index: U32) -> list[int]:
    """Return the smallest coordinate, for each dimension of at least one chunk."""
    return [int(column.min()) for column in index.T]


def within(index: U32, limits: Sequence[int]) -> NDArray[np.bool_]:
    """Return which rows have only coordinates below ``limits``, one for each dimension.

    >>> within(np.array([[1, 2], [0, 4]], np.uint32), [2, 4]).tolist()
    [True, False]
    """
    inside = np.ones(len(index), np.bool_)
    for column, limit in zip(index.T, limits, strict=True):
        inside &= column < limit
    return inside


def keys(index: U32, limits: Sequence[int]) -> NDArray[Any]:
    """Return search keys that order the rows within ``limits`` like their coordinates.

    A key is an int64, the number of the chunk in the box of these limits. If such numbers need more than 62
    bits, the keys are byte strings.
    """
    room = 1
    for limit in limits:
        room *= limit
    if room > 1 << 62:
        return row_keys(index)
    numbers = np.zeros(len(index), np.int64)
    for column, limit in zip(index.T, limits, strict=True):
        numbers *= limit
        numbers += column
    return numbers


def by_rank(arrays: Sequence[U32]) -> Iterator[tuple[list[int], I64 | slice, U32]]:
    """Yield the arrays of each rank, their rows among the rows of all arrays, and their coordinates."""
    ndims = np.fromiter(map(itemgetter(1), map(attrgetter("shape"), arrays)), np.int64, len(arrays))
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    for ndim in sorted(set(ndims.tolist())):
        chosen = ndims == ndim
        members = np.flatnonzero(chosen).tolist()
        parts = list(map(arrays.__getitem__, members))
        rows = slice(None) if chosen.all() else np.flatnonzero(np.repeat(chosen, counts))
        yield members, rows, parts[0] if len(parts) == 1 else np.concatenate(parts)


def write_coordinates(
    writer: TableWriter,
    fields: tuple[tuple[int, str], ...],
    slot: int,
    index: U32,
    texts: Mapping[int, GroupTexts] = NO_TEXTS,
) -> TableColumns:
    """Reserve tables with other ``fields``, and with coordinates for ``slot`` in their tails."""
    tables = TableColumns(writer, (*fields, (slot, "u4")), len(index), index.shape[1], texts)
    for place, column in enumerate(index.T):
        tables.fill("tail", column, place)
    return tables


@dataclass(frozen=True, slots=True, eq=False)
class ChunkCoordinates:
    """The coordinates of the chunks of many arrays in parts, each with one rank.

    An array has one part. With coordinates of several ranks, it has a part for each, the largest one first.
    """

    numbers: U32
    starts: I64  # the first number of each part
    counts: I64  # the number of chunks of each part
    ndims: I64  # the rank of each part
    firsts: I64  # the first part of each array, and the number of parts
    order: I64 | None  # the chunks in the order of the parts, None if this is their own order

    def parts(self) -> list[U32]:
        """Return the coordinates of each part."""
        return cut(self.numbers, self.starts, self.counts, self.ndims)

    def odd_arrays(self) -> list[int]:
        """Return the numbers of the arrays with several ranks."""
        rows: list[int] = np.flatnonzero(np.diff(self.firsts) > 1).tolist()
        return rows


def read_coordinates(tables: Tables, slot: int, counts: I64) -> ChunkCoordinates:
    """Read the coordinates of many arrays, each with ``counts`` consecutive tables."""
    filled = counts > 0
    ndims = np.zeros(len(counts), np.int64)
    order: I64 | None = None
    firsts = np.arange(len(counts) + 1)
    matrix = tables.even_numbers(slot, "<u4")
    if matrix is not None:
        ndims[filled] = matrix.shape[1]
        numbers = matrix.reshape(-1)
    else:
        index = tables.numbers(slot, "<u4")
        ndims[filled] = index.lengths[(np.cumsum(counts) - counts)[filled]]
        if not np.array_equal(np.repeat(ndims, counts), index.lengths):
            order, firsts, counts, ndims = _parts_by_rank(index.lengths, counts)
            index = index.take(order).compact()
        numbers = index.values
    sizes = ndims * counts
    return ChunkCoordinates(numbers, np.cumsum(sizes) - sizes, counts, ndims, firsts, order)


def _parts_by_rank(ndims: I64, counts: I64) -> tuple[I64, I64, I64, I64]:
    """Return the order of chunks, the first part of each array, and the counts and ranks of the parts."""
    arrays = np.arange(len(counts))
    pairs = np.stack((np.repeat(arrays, counts), ndims))
    (owners, ranks), part_of, sizes = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    nothing = arrays[counts == 0]
    owners, ranks = np.append(owners, nothing), np.append(ranks, nothing * 0)
    sizes = np.append(sizes, nothing * 0)
    by_size = np.lexsort((-sizes, owners))
    order = np.argsort(np.argsort(by_size)[part_of.reshape(-1)], kind="stable")
    firsts = np.append(owners[by_size].searchsorted(arrays), len(owners))
    return order, firsts, sizes[by_size], ranks[by_size]


def cut(numbers: U32, starts: I64, counts: I64, ndims: I64) -> list[U32]:
    """Return the coordinates of each array, shape (n, ndim), from the numbers of all arrays."""
    stops = starts + counts * ndims
    parts = map(numbers.__getitem__, map(slice, starts.tolist(), stops.tolist()))
    return list(map(np.ndarray.reshape, parts, zip(counts.tolist(), ndims.tolist(), strict=True)))


def unsorted_arrays(arrays: Sequence[U32]) -> Iterator[int]:
    """Yield the numbers of the arrays whose coordinates are not strictly ascending."""
    for members, _, coords in by_rank(arrays):
        if not ascending(_with_owners(arrays, members, coords)):
            yield from (each for each in members if not ascending(arrays[each]))


def _with_owners(arrays: Sequence[U32], members: list[int], coords: U32) -> U32:
    """Return coordinates with the array's number first: one comparison covers all arrays of a rank."""
    sizes = list(map(len, map(arrays.__getitem__, members)))
    return np.column_stack((np.repeat(np.arange(len(members), dtype=np.uint32), sizes), coords))


def in_order(arrays: Sequence[U32]) -> list[U32]:
    """Return the coordinates of each array sorted, without a Python loop over sorted arrays."""
    out = list(arrays)
    if len(out) == 1 and ascending(out[0]):
        return out
    for members, _, coords in by_rank(arrays):
        owned = _with_owners(arrays, members, coords)
        if not ascending(owned):
            order = keys(owned, box(owned)).argsort(kind="stable")
            sizes = np.fromiter(map(len, map(arrays.__getitem__, members)), np.int64, len(members))
            ndim = coords.shape[1]
            starts = (np.cumsum(sizes) - sizes) * ndim
            parts = cut(owned[order, 1:].reshape(-1), starts, sizes, np.full(len(members), ndim))
            out = list((dict(enumerate(out)) | dict(zip(members, parts, strict=True))).values())
    return out


class ChunkKind(IntEnum):
    """The kind of a chunk reference, with the numbers of the public ``ChunkType``.

    ``ABSENT`` marks a deletion in a change set.
    """

    ABSENT = 0
    NATIVE = 1
    VIRTUAL = 2
    INLINE = 3


@dataclass(frozen=True, slots=True)
class NativeRef:
    """A reference to a range of a chunk file of the repository."""

    chunk_id: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class VirtualRef:
    """A reference to a range of an object of another program.

    ``etag`` or ``modified`` (seconds since 1970) describe the expected state of the object.
    """

    location: str
    offset: int
    length: int
    etag: str | None = None
    modified: int | None = None


@dataclass(frozen=True, slots=True)
class InlineRef:
    """A reference that contains the bytes of the chunk."""

    data: bytes


type ChunkRef = NativeRef | VirtualRef | InlineRef


@dataclass(frozen=True, slots=True, eq=False)
class VirtualObjects:
    """The distinct objects that virtual references point to, with their expected state.

    A location that is used with two different checksums has two rows.
    """

    locations: Ragged  # The chunk locations as text
    etags: Ragged  # The etags as text; an empty row if there is none
    modified: U32  # uint32 (n,), the modification time in seconds since 1970; 0 if unknown

    def __len__(self) -> int:
        return len(self.modified)

    def take(self, rows: NDArray[Any]) -> VirtualObjects:
        """Return some of the rows."""
        return VirtualObjects(self.locations.take(rows), self.etags.take(rows), self.modified[rows])

    @staticmethod
    def combined(
        locations: Ragged, location_of: U32, etags: Ragged, etag_of: U32, modified: I64
    ) -> tuple[VirtualObjects, U32]:
        """Return the distinct objects of references, and the number of each reference's object."""
        times, time_of = number(modified)
        pairs, pair_of = number(location_of.astype(np.int64) * max(1, len(etags)) + etag_of)
        triples, source = number(pair_of.astype(np.int64) * max(1, len(times)) + time_of)
        pair_rows, time_rows = np.divmod(triples, max(1, len(times)))
        location_rows, etag_rows = np.divmod(pairs[pair_rows], max(1, len(etags)))
        rows = locations.take(location_rows), etags.take(etag_rows)
        return VirtualObjects(*rows, times.astype(np.uint32)[time_rows]), source

    @staticmethod
    def concat(parts: Sequence[VirtualObjects]) -> VirtualObjects:
        """Return the rows of all parts, one part after the other."""
        return VirtualObjects(
            Ragged.concat([part.locations for part in parts]),
            Ragged.concat([part.etags for part in parts]),
            np.concatenate([part.modified for part in parts]),
        )


#: If one table is this many times longer, looking up each row of the other is cheaper than sorting both.
_MANY_TIMES = 16


_NO_SOURCES: Final[dict[str, Any]] = {
    "chunk_ids": np.zeros((0, 12), np.uint8),
    "foreign": VirtualObjects(Ragged.empty(), Ragged.empty(), np.zeros(0, np.uint32)),
    "inline": Ragged.empty(),
}


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """Chunk references of one array, n rows, strictly ascending by ``index``.

    A table never changes. It computes its search keys at the first look-up. Values that many references share
    are stored once. Tables cut from one manifest have all sources of that manifest, used or not.
    """

    index: U32  # uint32 (n, ndim), the chunk coordinates; (n, 0) for a scalar array
    kind: U8  # uint8 (n,), ``ChunkKind``
    source: U32  # uint32 (n,), row of chunk_ids, foreign or inline, by kind (0 for ABSENT)
    offset: U64  # uint64 (n,), first byte in the source; 0 for inline chunks and deletions
    length: U64  # uint64 (n,), number of bytes
    chunk_ids: U8  # uint8 (m, 12), the chunk files
    foreign: VirtualObjects  # The objects of virtual references
    inline: Ragged  # The bytes of inline chunks
    statistics: ChunkStatistics | None = None  # of the rows, None if no row has any
    #: Of a table that is read from a manifest: the references with other numbers of coordinates
    others: tuple[ChunkTable, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        table = self.prune().compact()
        columns = table.index, table.kind, table.source, table.offset, table.length
        return ChunkTable, (*columns, table.chunk_ids, table.foreign, table.inline, table.statistics)

    @property
    def ndim(self) -> int:
        """The number of dimensions of the array."""
        ndim: int = self.index.shape[1]
        return ndim

    def of_rank(self, ndim: int) -> ChunkTable:
        """Return the references with ``ndim`` coordinates. An array has no chunks at other references."""
        fitting = (each for each in (self, *self.others) if each.ndim == ndim)
        return next(fitting, None) or ChunkTable.empty(ndim)

    @classmethod
    def empty(cls, ndim: int) -> ChunkTable:
        """Create a table without rows."""
        return cls.from_absent(np.zeros((0, ndim), np.uint32))

    @classmethod
    def from_native(
        cls, index: ArrayLike, chunk_ids: U8, source: ArrayLike, offset: ArrayLike, length: ArrayLike
    ) -> ChunkTable:
        """Create references to chunk files: ``source`` contains row numbers of ``chunk_ids``, shape (m, 12).

        In this and the following constructors, ``index`` has shape (n, ndim) in any order. Of equal
        coordinates, the last ones count. A single number stands for n equal numbers.
        """
        return cls._of(ChunkKind.NATIVE, index, source, offset, length, chunk_ids=chunk_ids)

    @classmethod
    def from_virtual(
        cls,
        index: ArrayLike,
        locations: Sequence[str],
        offset: ArrayLike,
        length: ArrayLike,
        etag: str | None = None,
        modified: int | None = None,
    ) -> ChunkTable:
        """Create references to virtual objects with one checksum: an etag, a time in seconds, or none."""
        if etag and modified:
            raise InvalidInputError(
                "a virtual reference must have an etag or a modification time, got both",
                ErrorKind.INVALID_VIRTUAL_REF,
            )
        distinct, source = intern(locations)
        count = len(distinct)
        foreign = VirtualObjects(
            Ragged.of_text(distinct),
            Ragged.of_bytes([(etag or "").encode()]).take(np.zeros(count, np.int64)),
            np.full(count, modified or 0, np.uint32),
        )
        return cls._of(ChunkKind.VIRTUAL, index, source, offset, length, foreign=foreign)

    @classmethod
    def from_inline(cls, index: ArrayLike, blobs: Sequence[bytes]) -> ChunkTable:
        """Create references that contain the bytes of the chunks."""
        inline = Ragged.of_bytes(blobs)
        return cls._of(ChunkKind.INLINE, index, np.arange(len(inline)), 0, inline.lengths, inline=inline)

    @classmethod
    def from_absent(cls, index: ArrayLike) -> ChunkTable:
        """Create deletions."""
        return cls._of(ChunkKind.ABSENT, index, 0, 0, 0)

    @classmethod
    def _of(
        cls,
        kind: ChunkKind,
        index: ArrayLike,
        source: ArrayLike,
        offset: ArrayLike,
        length: ArrayLike,
        **sources: Any,
    ) -> ChunkTable:
        coords = np.asarray(index)
        whole = not coords.size or coords.dtype.kind in "iu"
        if coords.ndim != 2 or not whole or (coords.size and not 0 <= coords.min() <= coords.max() < 1 << 32):
            raise InvalidInputError(
                f"chunk coordinates must be 32-bit numbers of shape (n, ndim), got shape {coords.shape}",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        n, columns = len(coords), dict[str, Any]()
        for name, values, dtype in (
            ("source", source, np.uint32),
            ("offset", offset, np.uint64),
            ("length", length, np.uint64),
        ):
            array = np.asarray(values)
            is_whole = not array.size or (array.dtype.kind in "iu" and array.min() >= 0)
            if array.shape not in ((), (n,)) or not is_whole:
                raise InvalidInputError(
                    f"{name} must be {n} whole numbers from 0, got shape {array.shape} of type {array.dtype}",
                    ErrorKind.INVALID_CHUNK_INDEX,
                )
            columns[name] = np.ascontiguousarray(np.broadcast_to(array, n), dtype)
        kinds = np.full(n, kind, np.uint8)
        return cls(coords.astype(np.uint32), kinds, **columns, **_NO_SOURCES | sources).sorted()

    def sorted(self, *, takes_first: bool = False) -> ChunkTable:
        """Return the rows in the order of their coordinates; of equal coordinates, the last or first row."""
        if ascending(self.index):
            return self
        unordered = self._search[1]
        order = unordered.argsort(kind="stable")
        ordered = unordered[order]
        chosen = np.ones(len(order), np.bool_)
        np.not_equal(ordered[:-1], ordered[1:], out=chosen[1:] if takes_first else chosen[:-1])
        return self.select_chunks(order[chosen])

    def ref(self, row: int) -> ChunkRef | None:
        """Return one row as a value, None for a deletion."""
        kind, source = int(self.kind[row]), int(self.source[row])
        span = int(self.offset[row]), int(self.length[row])
        if kind == ChunkKind.NATIVE:
            return NativeRef(self.chunk_ids[source].tobytes(), *span)
        if kind == ChunkKind.VIRTUAL:
            foreign = self.foreign
            etag, modified = foreign.etags.text(source), int(foreign.modified[source])
            return VirtualRef(foreign.locations.text(source), *span, etag or None, modified or None)
        return InlineRef(self.inline.bytes(source)) if kind == ChunkKind.INLINE else None

    @cached_property
    def _search(self) -> tuple[list[int], NDArray[Any]]:
        """The largest coordinate plus one for each dimension, and the keys of the rows."""
        limits = box(self.index)
        return limits, keys(self.index, limits)

    def find_chunk(self, coords: tuple[int, ...]) -> int:
        """Return the row of the reference at ``coords``, -1 if there is none. Binary search."""
        limits, row_keys = self._search
        if len(coords) != len(limits) or not len(row_keys):
            return -1
        if row_keys.dtype.kind == "S":
            fits = all(0 <= at <= 0xFFFF_FFFF for at in coords)
            return int(self.find_chunks(np.array([coords], np.uint32))[0]) if fits else -1
        key = 0
        for at, limit in zip(coords, limits, strict=True):
            if not 0 <= at < limit:
                return -1
            key = key * limit + at
        row = int(row_keys.searchsorted(key))
        return row if row < len(row_keys) and row_keys[row] == key else -1

    def find_chunks(self, coords: U32) -> I64:
        """Return the rows of many references, for coordinates of shape (k, ndim); -1 where there is none."""
        limits, row_keys = self._search
        rows = np.full(len(coords), -1, np.int64)
        if coords.shape[1] != self.ndim or not len(row_keys):
            return rows
        inside = np.flatnonzero(within(coords, limits))
        chunk_keys = keys(coords[inside], limits)
        rank = np.minimum(row_keys.searchsorted(chunk_keys), len(row_keys) - 1)
        is_match = row_keys[rank] == chunk_keys
        rows[inside[is_match]] = rank[is_match]
        return rows

    def same(self, rows: I64, other: ChunkTable, others: I64) -> NDArray[np.bool_]:
        """Return whether each of ``rows`` is the same reference as the row in ``others`` of another table."""
        one, two = self.select_chunks(rows), other.select_chunks(others)
        equal: NDArray[np.bool_] = (
            (one.kind == two.kind) & (one.offset == two.offset) & (one.length == two.length)
        )
        native, virtual, inline = (
            np.flatnonzero(equal & (one.kind == kind))
            for kind in (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
        )
        mine, theirs = self.chunk_ids[one.source[native]], other.chunk_ids[two.source[native]]
        equal[native] = (mine == theirs).all(axis=1)
        # Many references share an object. Each pair of objects is compared once.
        count = max(1, len(other.foreign))
        pairs, codes = number(one.source[virtual].astype(np.int64) * count + two.source[virtual])
        objects = self.foreign.take(pairs // count), other.foreign.take(pairs % count)
        columns = (
            zip(own.locations.blobs(), own.etags.blobs(), own.modified.tolist(), strict=True)
            for own in objects
        )
        equal[virtual] = np.fromiter(map(eq, *columns), np.bool_, len(pairs))[codes]
        blobs = self.inline.take(one.source[inline]).blobs(), other.inline.take(two.source[inline]).blobs()
        equal[inline] = list(map(eq, *blobs))
        return equal

    def select_chunks(self, rows: NDArray[Any] | slice) -> ChunkTable:
        """Return some of the rows (ascending, or a mask). All sources stay, used or not."""
        return replace(
            self,
            index=self.index[rows],
            kind=self.kind[rows],
            source=self.source[rows],
            offset=self.offset[rows],
            length=self.length[rows],
            statistics=None if self.statistics is None else self.statistics.take(rows),
        )

    def prune(self) -> ChunkTable:
        """Return the same references without unused sources."""
        source = self.source.copy()
        pruned: dict[str, Any] = {}
        is_one_kind = bool(len(self)) and bool((self.kind == self.kind[0]).all())
        for kind, name, values in (
            (ChunkKind.NATIVE, "chunk_ids", self.chunk_ids),
            (ChunkKind.VIRTUAL, "foreign", self.foreign),
            (ChunkKind.INLINE, "inline", self.inline),
        ):
            is_used = np.zeros(len(values), np.bool_)
            rows = slice(None) if is_one_kind and self.kind[0] == kind else self.kind == kind
            is_used[self.source[rows]] = True
            if not is_used.all():
                used = np.flatnonzero(is_used)
                pruned[name] = values[used] if isinstance(values, np.ndarray) else values.take(used)
                source[rows] = (np.cumsum(is_used) - 1)[self.source[rows]]
        return replace(self, source=source, **pruned) if pruned else self

    def compact(self) -> ChunkTable:
        """Return the same references without the unused bytes of texts and inline chunks."""
        foreign = replace(
            self.foreign, locations=self.foreign.locations.compact(), etags=self.foreign.etags.compact()
        )
        return replace(self, foreign=foreign, inline=self.inline.compact())

    @staticmethod
    def merge_tables(tables: Sequence[ChunkTable]) -> ChunkTable:
        """Return the union by coordinates of tables of one rank. The row of the later table overrides."""
        filled = [table for table in tables if len(table)]
        if len(filled) < 2:
            return filled[0] if filled else tables[0]
        ordered = sorted(filled, key=lambda table: table.index[0].tolist())
        if all(one.index[-1].tolist() < other.index[0].tolist() for one, other in pairwise(ordered)):
            return stack(ordered, np.concatenate([table.index for table in ordered]))
        index = np.concatenate([table.index for table in filled])
        first, last = filled[0], filled[-1]
        if len(filled) == 2 and _MANY_TIMES * len(last) <= len(first):
            rows = first.find_chunks(last.index)
            if (rows >= 0).all():
                whole = stack(filled, index)  # its columns are not shared
                columns: list[NDArray[Any]] = [whole.kind, whole.source, whole.offset, whole.length]
                if whole.statistics is not None:
                    columns.append(whole.statistics.rows)
                for column in columns:
                    column[rows] = column[len(first) :]
                return whole.select_chunks(slice(len(first)))
        return stack(filled, index).sorted()

    @staticmethod
    def duplicates(tables: Sequence[ChunkTable]) -> U32:
        """Return the coordinates (k, ndim), sorted, that more than one of the tables contains."""
        index = np.concatenate([table.index for table in tables])
        unordered = keys(index, box(index))
        order = unordered.argsort(kind="stable")
        ordered = unordered[order]
        again = ordered[1:] == ordered[:-1]
        # Three tables may have the same coordinates. Only the first repetition counts.
        again[1:] &= ~again[:-1]
        twice: U32 = index[order[1:][again]]
        return twice

    def stored(self) -> ChunkTable:
        """Return the rows that are not deletions."""
        present = self.kind != ChunkKind.ABSENT
        return self if present.all() else self.select_chunks(present)

    def equals(self, other: ChunkTable) -> bool:
        """Return whether both tables have equal columns.

        Equal references with different source rows do not count as equal.
        """
        names = ("kind", "source", "offset", "length", "index", "chunk_ids")
        columns: list[list[Any]] = []
        for table in (self, other):
            rows = (table.foreign.locations, table.foreign.etags, table.inline)
            texts = [each for part in rows for each in (part.values, part.starts, part.lengths)]
            columns.append([*(getattr(table, name) for name in names), table.foreign.modified, *texts])
        return self is other or all(map(np.array_equal, *columns))

    def bounds(self) -> U32:
        """Return the tight half-open box around all coordinates, shape (ndim, 2).

        The table must not be empty.
        """
        columns = np.array([lowest(self.index), box(self.index)], np.int64)
        return np.ascontiguousarray(columns.T, np.uint32)


def stack(tables: Sequence[ChunkTable], index: U32) -> ChunkTable:
    """Return all rows of all tables, one table after the other, with ``index`` as their coordinates.

    Sources that several tables share are taken once. The result may be unsorted.
    """
    if len(tables) == 1:
        return tables[0]
    kind = np.concatenate([table.kind for table in tables])
    source = np.concatenate([table.source for table in tables])
    counts = np.fromiter(map(len, tables), np.int64, len(tables))
    ids, id_bases = _joined([table.chunk_ids for table in tables])
    foreign, foreign_bases = _joined([table.foreign for table in tables])
    inline, inline_bases = _joined([table.inline for table in tables])
    bases = np.stack((np.zeros_like(id_bases), id_bases, foreign_bases, inline_bases))
    if bases.any():
        ends = np.cumsum(counts)
        for first, end, own in zip((ends - counts).tolist(), ends.tolist(), bases.T, strict=True):
            if own.any():
                source[first:end] += own.take(kind[first:end])
    return ChunkTable(
        index,
        kind,
        source,
        np.concatenate([table.offset for table in tables]),
        np.concatenate([table.length for table in tables]),
        ids[0] if len(ids) == 1 else np.concatenate(ids),
        foreign[0] if len(foreign) == 1 else VirtualObjects.concat(foreign),
        inline[0] if len(inline) == 1 else Ragged.concat(inline),
        ChunkStatistics.concat([table.statistics for table in tables], counts.tolist()),
    )


def _joined(sources: list[Any]) -> tuple[list[Any], U32]:
    """Return the distinct sources of many tables, and for each table the number of its source's first row."""
    different = {id(source): source for source in sources}
    parts = list(different.values())
    sizes = list(map(len, parts))
    firsts = np.cumsum([0, *sizes], dtype=np.uint32)
    place = dict(zip(different, range(len(parts)), strict=True))
    which = np.fromiter(map(place.__getitem__, map(id, sources)), np.int64, len(sources))
    filled = [part for part, size in zip(parts, sizes, strict=True) if size]
    return filled or parts[:1], firsts[which]
