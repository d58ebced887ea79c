"""Bytes of chunk files as spans of one line, on which all files lie one after the other.

So a question about the bytes of all files, such as which of them no reference uses, is a few operations on
columns. Spans that touch become one, so a pack whose chunks are all in use is one span.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.format.chunk_table import ChunkKind
from frazil.format.chunk_trailer import (
    END_BYTES,
    SINGLE_TRAILER_BYTES,
    crc32c,
    decode_trailer,
    encode_trailer,
    is_marked,
    trailer_size,
)
from frazil.format.columns import I64, U8, ranges
from frazil.format.ids import chunk_key, id_keys, id_list
from frazil.storage.base import IfVersion, Storage, Stored
from frazil.survey.columns import ObjectListing, among, joined_columns
from frazil.threads import Purpose, map_bounded

type Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans (from, to) that do not touch, sorted, int64 (n,)."""

    starts: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    stops: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def length(self) -> int:
        """The number of bytes."""
        return int((self.stops - self.starts).sum())

    @staticmethod
    def union(parts: Iterable[Spans]) -> Spans:
        """Return all spans of parts, which may overlap and have any order."""
        starts, stops = joined_columns([Spans(), *parts], "starts", "stops")
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(stops[order])
        new = np.append(True, starts[1:] > ends[:-1])[: len(starts)]
        return Spans(starts[new], ends[np.append(new[1:], True)[: len(starts)]])

    def common(self, other: Spans) -> Spans:
        """Return the bytes that both have."""
        first = np.searchsorted(other.stops, self.starts, "right")
        counts = np.maximum(np.searchsorted(other.starts, self.stops, "left") - first, 0)
        mine, theirs = np.repeat(np.arange(len(self.starts)), counts), ranges(first, counts)
        starts = np.maximum(self.starts[mine], other.starts[theirs])
        return Spans(starts, np.minimum(self.stops[mine], other.stops[theirs]))

    def without(self, other: Spans) -> Spans:
        """Return the bytes that the other one does not have."""
        low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        return self.common(Spans(np.append(low, other.stops), np.append(other.starts, high)))

    def contains(self, starts: I64, stops: I64) -> Mask:
        """Return which ranges lie in one of the spans."""
        at = np.searchsorted(self.starts, starts, "right") - 1
        ends: Mask = np.append(self.stops, -1)[at] >= stops
        return ends

    def select(self, rows: Mask) -> Spans:
        """Return some of the spans."""
        return Spans(self.starts[rows], self.stops[rows])


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFiles:
    """Chunk files on the line. A byte of no file is between two files, so their spans never touch."""

    listing: ObjectListing
    bases: I64

    @staticmethod
    def of(listing: ObjectListing) -> ChunkFiles:
        """Return the files of a listing."""
        return ChunkFiles(listing.part(0, 0), np.zeros(0, np.int64)).extended(listing)

    def extended(self, listing: ObjectListing) -> ChunkFiles:
        """Return these files and the others of a later listing, which come behind them on the line."""
        old = self.listing
        new = listing.select_files(~among(listing.ids, old.ids))
        end = int((self.bases + old.sizes + 1).max(initial=0))
        ids, sizes, modified = joined_columns([old, new], "ids", "sizes", "modified")
        bases = np.append(self.bases, end + np.cumsum(new.sizes + 1) - new.sizes - 1)
        order = np.argsort(id_keys(ids), kind="stable")
        files = ObjectListing(listing.folder, ids[order], sizes[order], modified[order])
        return ChunkFiles(files, bases[order])

    def rows_of(self, ids: U8) -> I64:
        """Return the rows of files. The row of a file that is not listed has no meaning."""
        return id_keys(self.listing.ids).searchsorted(id_keys(ids))

    def places(self, table: Any, chosen: Mask) -> tuple[I64, I64, I64]:
        """Return the native references among chosen rows, and the first byte and the end of each.

        References to missing files are left out.
        """
        rows = np.flatnonzero(chosen & (table.kind == ChunkKind.NATIVE) & (table.length > 0))
        is_listed = among(table.chunk_ids, self.listing.ids)
        rows = rows[is_listed[table.source[rows]]]
        files = self.rows_of(table.chunk_ids)[table.source[rows]]
        sizes = self.listing.sizes[files].astype(np.uint64)
        starts = np.minimum(table.offset[rows], sizes)
        stops = starts + np.minimum(table.length[rows], sizes - starts)
        base = self.bases[files]
        return rows, base + starts.astype(np.int64), base + stops.astype(np.int64)

    def spans(self, table: Any, chosen: Mask) -> Spans:
        """Return the spans of native references among chosen rows."""
        return Spans.union([Spans(*self.places(table, chosen)[1:])])

    def placed(self, ids: U8, spans: NDArray[np.int64]) -> Spans:
        """Return the spans of files, (n, 2), on the line. Files that are not listed have none."""
        rows = among(ids, self.listing.ids)
        base = self.bases[self.rows_of(ids[rows])]
        return Spans.union([Spans(base + spans[rows, 0], base + spans[rows, 1])])

    def in_files(self, spans: Spans) -> tuple[U8, NDArray[np.int64]]:
        """Return the file of each span, and the spans as positions in the files, (n, 2)."""
        owners = self.owners(spans)
        positions = np.stack([spans.starts, spans.stops], axis=1) - self.bases[owners, None]
        return self.listing.ids[owners], positions

    def owners(self, spans: Spans) -> I64:
        """Return the row of the file of each span."""
        order = np.argsort(self.bases, kind="stable")
        rows: I64 = order[np.searchsorted(self.bases[order], spans.starts, "right") - 1]
        return rows

    def lengths(self, spans: Spans) -> I64:
        """Return the number of bytes of the spans in each file."""
        sums = np.zeros(len(self.listing), np.int64)
        np.add.at(sums, self.owners(spans), spans.stops - spans.starts)
        return sums

    def unused(self, storage: Storage, live: Spans) -> Spans:
        """Return the bytes that no reference uses, of files that references use, without trailers."""
        used, sizes = self.lengths(live), self.listing.sizes
        last, owners = np.zeros(len(sizes), np.int64), self.owners(live)
        last[owners] = live.stops - self.bases[owners]
        rows, ends = np.flatnonzero((used > 0) & ((used < last) | (sizes > last))), last.copy()
        # Most files have one chunk, and the trailer that their name promises.
        one = (sizes - last)[rows] == SINGLE_TRAILER_BYTES
        one[one] = np.fromiter(map(is_marked, id_list(self.listing.ids[rows[one]])), np.bool_)
        others = rows[~one & (sizes > last)[rows]]

        def end_of(row: int) -> int:
            """Return where the trailer of a file begins."""
            id_, size = self.listing.ids[row].tobytes(), int(sizes[row])
            return size - trailer_size(id_, storage.get(chunk_key(id_), max(0, size - END_BYTES), size), size)

        payloads = np.array(map_bounded(Purpose.RANGE_READS, end_of, others.tolist()), np.int64)
        ends[others] = np.maximum(ends[others], payloads)
        return Spans.union([Spans(self.bases[rows], self.bases[rows] + ends[rows])]).without(live)

    def by_file(self, spans: Spans) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
        """Yield the files of spans, and the spans as positions in each file."""
        owners = self.owners(spans)
        bounds = np.flatnonzero(np.diff(owners, prepend=-1, append=-1)).tolist()
        for low, high in pairwise(bounds):
            base, part = self.bases[owners[low]], slice(low, high)
            places = (spans.starts[part] - base).tolist(), (spans.stops[part] - base).tolist()
            yield self.listing.ids[owners[low]].tobytes(), list(zip(*places, strict=True))


def erase(storage: Storage, id_: bytes, spans: Iterable[tuple[int, int]]) -> None:
    """Write a chunk file again with zeros in some spans. References to its other chunks stay right."""
    while True:
        stored, version = storage.get_versioned(chunk_key(id_))
        data = np.frombuffer(stored, np.uint8)
        clean = _with_zeros(id_, data, spans)
        if np.array_equal(clean, data):
            return
        # Otherwise, two withdrawals could bring back what the other one has erased.
        if isinstance(storage.put(chunk_key(id_), clean.data, IfVersion(version)), Stored):
            return


def _with_zeros(id_: bytes, data: U8, spans: Iterable[tuple[int, int]]) -> U8:
    """Return the bytes of a chunk file with zeros in some spans, and with new checksums of changed chunks."""
    clean = data.copy()
    for start, stop in spans:
        clean[start:stop] = 0
    trailer = decode_trailer(id_, data, len(data))
    if trailer is not None and len(trailer.crcs):
        crcs, lengths = trailer.crcs.copy(), trailer.lengths.astype(np.int64)
        payload = slice(trailer.size)
        changed, filled = (
            np.logical_or.reduceat(each, trailer.offsets)
            for each in (clean[payload] != data[payload], clean[payload] != 0)
        )
        sizes, number = np.unique(lengths, return_inverse=True)
        zeros = np.array([crc32c(bytes(size)) for size in sizes.tolist()], np.uint32)
        crcs[changed & ~filled] = zeros[number][changed & ~filled]
        for row in np.flatnonzero(changed & filled).tolist():  # a range that was a part of a chunk
            crcs[row] = crc32c(clean[trailer.offsets[row] : trailer.offsets[row] + lengths[row]])
        end = encode_trailer(trailer.id, lengths.tolist(), crcs.tolist())
        clean[len(data) - len(end) :] = np.frombuffer(end, np.uint8)
    return clean


def has_bytes(storage: Storage, id_: bytes, spans: Iterable[tuple[int, int]]) -> bool:
    """Return whether a span of a chunk file has a byte that is not zero."""
    parts = (storage.get(chunk_key(id_), start, stop) for start, stop in spans)
    return any(np.frombuffer(part, np.uint8).any() for part in parts)
