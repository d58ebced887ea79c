"""Encodes the references of chunks as columns of a message.

    source          difference to the previous chunk, in the order of first appearance: 0 or 1
    offset          difference to the end of the previous chunk in the same source: 0 for consecutive chunks
    order           if chunks of several arrays alternate in a source: the array of each chunk. Then the
                    previous chunk is the previous one in the source, not in the array
    length          the length itself

Rows are in the order of their kinds. After compression, a virtual reference takes the random part of its
length, a native reference to its own chunk file takes the 12 random bytes of the id, and a native reference
to a pack takes almost nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkKind, ChunkTable, ForeignObjects
from frazil.format.columns import I64, U8, U32, U64, Ragged, decode_text, distinct_rows, row_keys
from frazil.format.ids import OBJECT_ID_BYTES, id_keys
from frazil.jobs.wire_columns import ColumnReader, ColumnWriter

_SOURCES: Final = {
    ChunkKind.NATIVE: "native",
    ChunkKind.VIRTUAL: "virtual",
    ChunkKind.INLINE: "inline",
}


def put_references(out: ColumnWriter, table: ChunkTable, owner: I64) -> None:
    """Add the references of a table to a message. ``owner`` is the number of the array of each row."""
    out.raw("kinds", table.kind)
    chunk_ids, foreign, inline = table.chunk_ids, table.foreign, table.inline
    for kind, name in _SOURCES.items():
        rows = np.flatnonzero(table.kind == kind)
        if not len(rows):
            continue
        chosen: Any = slice(None) if len(rows) == len(table) else rows
        source = table.source[chosen].astype(np.int64)
        if name != "inline" and _are_several(owner[chosen]):
            source = _once(chunk_ids if name == "native" else foreign, source)
        order, source = _by_appearance(source)
        out.steps(f"{name} source", np.diff(source, prepend=0))
        if kind == ChunkKind.NATIVE:
            out.raw("chunk ids", np.ascontiguousarray(chunk_ids[order]).reshape(-1))
        elif kind == ChunkKind.VIRTUAL:
            objects = foreign.take(order)
            out.rows("locations", objects.locations)
            out.rows("etags", objects.etags)
            out.numbers("modified", objects.modified)
        else:
            out.rows("inline", inline.take(order))
            continue
        offset, length = table.offset[chosen], table.length[chosen]
        turns, gap = _gaps(owner[chosen], source, offset, length)
        out.numbers(f"{name} order", turns, least=1)
        out.steps(f"{name} offset", gap.view(np.int64))
        out.numbers(f"{name} length", length)


def _gaps(owner: I64, source: I64, offset: U64, length: U64) -> tuple[I64, U64]:
    """Return the order of arrays (empty if it is not needed), and the gaps between chunks in this order."""
    nothing, gap = np.zeros(0, np.int64), _steps_from(source, offset, length)
    if not _are_several(owner) or 8 * np.count_nonzero(gap) < len(gap):
        return nothing, gap
    order = np.lexsort((offset, source))
    turns = owner[order]
    if not np.array_equal(_taking_turns(turns, owner, source), order):
        return nothing, gap  # the chunks of an array are not in the order of its rows
    merged = _steps_from(source[order], offset[order], length[order])
    return (turns, merged) if np.count_nonzero(merged) < np.count_nonzero(gap) else (nothing, gap)


def _are_several(owner: I64) -> bool:
    return bool(owner[0] != owner[-1])  # owners ascend


def _steps_from(source: I64, offset: U64, length: U64) -> U64:
    gap = offset.copy()
    gap[1:] -= np.where(source[1:] == source[:-1], offset[:-1] + length[:-1], np.uint64(0))
    return gap


def _taking_turns(turns: I64, owner: I64, source: I64) -> I64:
    """Return an order of the rows, source by source, in which their owners are ``turns``.

    The rows of one owner in a source keep their order. Raises ``FormatError`` if there is no such order.
    """
    rows = np.argsort(source, kind="stable")  # rows of an owner are neighbours
    places = np.lexsort((turns, source[rows]))
    if not np.array_equal(turns[places], owner[rows]):
        raise FormatError("the order of the chunks of several arrays does not fit their sources")
    order = np.empty_like(rows)
    order[places] = rows
    return order


def _by_appearance(source: I64) -> tuple[Any, I64]:
    """Return the sources in the order of their first rows, and for each row the number of its source."""
    steps = np.diff(source, prepend=-1)
    if ((steps == 0) | (steps == 1)).all():
        return slice(None), source
    used, first, number = np.unique(source, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return used[order], rank[number]


def _once(sources: U8 | ForeignObjects, source: I64) -> I64:
    """Return the numbers of sources, where equal sources get the number of the first one.

    Each array has its own list of sources, so the combined list may have equal entries.
    """
    if isinstance(sources, ForeignObjects):
        texts = (distinct_rows(rows)[1] for rows in (sources.locations, sources.etags))
        keys = row_keys(np.column_stack((*texts, sources.modified)))
    else:
        keys = id_keys(sources)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    once: I64 = first[number[source]]
    return once


def read_references(
    columns: ColumnReader, kind: U8, owner: I64
) -> tuple[U32, U64, U64, tuple[U8, ForeignObjects, Ragged]]:
    """Return source, offset, length and the three lists of sources, for references of these kinds."""
    total = len(kind)
    if total and int(kind.max()) > ChunkKind.INLINE:
        raise FormatError(f"references of kind {kind.max()}")
    chunk_ids = columns.ids("chunk ids", OBJECT_ID_BYTES)
    locations, etags, inline = columns.rows("locations"), columns.rows("etags"), columns.rows("inline")
    modified = columns.numbers("modified", len(locations)).astype(np.uint32)
    if len(etags) != len(locations):
        raise FormatError(f"{len(etags)} etags for {len(locations)} locations")
    _require_text(locations)
    _require_text(etags)
    foreign = ForeignObjects(locations, etags, modified)
    source = np.zeros(total, np.uint32)
    offset, length = np.zeros((2, total), np.uint64)
    limits = (len(chunk_ids), len(foreign), len(inline))
    for (each, name), limit in zip(_SOURCES.items(), limits, strict=True):
        rows = np.flatnonzero(kind == each)
        if not len(rows):
            continue
        chosen: Any = slice(None) if len(rows) == total else rows
        mine = np.cumsum(columns.steps(f"{name} source", len(rows)))
        if int(mine.min()) < 0 or int(mine.max()) >= limit:
            raise FormatError(f"a reference to {name} source {mine.max()} of {limit}")
        source[chosen] = mine
        if each == ChunkKind.INLINE:
            length[chosen] = inline.lengths[mine]
            continue
        size = columns.numbers(f"{name} length", len(rows))
        moves = columns.steps(f"{name} offset", len(rows)).view(np.uint64)
        length[chosen] = size
        if columns.count(f"{name} order"):
            turns = columns.numbers(f"{name} order", len(rows)).view(np.int64)
            order = _taking_turns(turns, owner[chosen], mine)
            starts = np.empty_like(size)
            starts[order] = _added_up(moves, mine[order], size[order])
            offset[chosen] = starts
        else:
            offset[chosen] = _added_up(moves, mine, size)
    return source, offset, length, (chunk_ids, foreign, inline)


def _added_up(moves: U64, source: I64, size: U64) -> U64:
    """Return offsets from the gaps between chunks. Changes ``moves``."""
    # Add up the ends, and subtract them where another source begins.
    moves[1:] += size[:-1]
    new = np.flatnonzero(np.diff(source, prepend=-1))
    moves[new[1:]] -= size[new[1:] - 1]
    ends = np.cumsum(moves, dtype=np.uint64)
    before = np.concatenate((np.zeros(1, np.uint64), ends[new[1:] - 1]))
    offsets: U64 = ends - np.repeat(before, np.diff(new, append=len(size)))
    return offsets


def _require_text(rows: Ragged) -> None:
    """Raise ``FormatError`` if a row is not UTF-8."""
    if not decode_text(rows.values.tobytes()).isascii():
        rows.texts()
