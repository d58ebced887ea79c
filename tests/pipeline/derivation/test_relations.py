"""Digests are equal where all that a chunk is computed from is equal, and only there."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.chunk_table import ChunkTable
from frazil.jobs.blocks import cells
from frazil.pipeline.derivation import relations
from frazil.pipeline.derivation.relations import (
    ElementTable,
    Read,
    Relation,
    StoredChunks,
    Whole,
    Window,
    chunk_digests,
    json_hash,
    reference_hashes,
)

type Axis = tuple[int | None, Relation]


@st.composite
def axes(draw: st.DrawFn, number: int, length: int) -> tuple[Axis, int]:
    """Return an axis of an input, and the length of the axis of the result."""
    few = st.integers(0, 3)
    kind = draw(st.sampled_from(["same", "window", "halo", "positions", "groups", "whole"]))
    match kind:
        case "same":
            return (number, Window()), length
        case "window":
            factor = draw(st.integers(1, 3))
            return (number, Window(factor)), max(length // factor, 1)
        case "halo":
            window = Window(before=draw(few), after=draw(few), periodic=draw(st.booleans()))
            return (number, window), length
        case "positions":
            positions = draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=6))
            return (number, ElementTable.of_positions(positions)), len(positions)
        case "groups":
            groups = draw(st.integers(1, 3))
            codes = draw(st.lists(st.integers(-1, groups - 1), min_size=length, max_size=length))
            return (number, ElementTable.of_groups(np.array(codes, np.int64), groups)), groups
    return (number, Whole()), draw(st.integers(1, 3))


def inputs_of(
    at: Sequence[int], shape: Sequence[int], grid: Sequence[int], read: Read, chunks: StoredChunks
) -> Any:
    """Return all that the chunk ``at`` of a result is computed from, chunk by chunk."""
    hashes = dict(zip(map(tuple, chunks.index.tolist()), chunks.hashes[0].tolist(), strict=True))
    sides, extents = [], []
    for start, step, length in zip(at, grid, shape, strict=True):
        low, high = start * step, min((start + 1) * step, length)
        extents.append(high - low)
    for number, (axis, relation) in enumerate(read.axes):
        assert axis is not None
        low = at[axis] * grid[axis]
        spans = relation.reads(np.array([low]), np.array([low + extents[axis]]), chunks.shape[number])
        sides.append(list(zip(spans.low.tolist(), spans.high.tolist(), strict=True)))
    parts = []
    for box in itertools.product(*sides):
        places = [
            range(low // step, -(-high // step) if high > low else low // step)
            for (low, high), step in zip(box, chunks.grid, strict=True)
        ]
        corner = [(low % step, high - low) for (low, high), step in zip(box, chunks.grid, strict=True)]
        parts.append((tuple(corner), tuple(map(hashes.get, itertools.product(*places)))))
    return tuple(extents), tuple(parts)


@given(st.data())
def test_digests_are_equal_for_equal_inputs_and_only_for_them(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    lengths = tuple(data.draw(st.lists(st.integers(1, 12), min_size=ndim, max_size=ndim)))
    grid = tuple(data.draw(st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim)))
    index = np.array(list(np.ndindex(*cells(lengths, grid))), np.uint32)
    stored = np.array(data.draw(st.lists(st.booleans(), min_size=len(index), max_size=len(index))), np.bool_)
    index = index[stored]
    # Many chunks share a reference, so that equal digests occur.
    numbers = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(index), max_size=len(index))), int)
    ids = np.arange(36, dtype=np.uint8).reshape(3, 12)
    table = ChunkTable.from_native(index, ids, numbers, 0, 8)
    chunks = StoredChunks(lengths, grid, table.index, reference_hashes(table), table.length)
    pairs = [data.draw(axes(number, length)) for number, length in enumerate(lengths)]
    read = Read("a", tuple(axis for axis, _ in pairs))
    shape = tuple(length for _, length in pairs)
    chunk = tuple(data.draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim)))
    digests = chunk_digests(json_hash("key"), shape, chunk, [read], {"a": chunks})
    by_digest: dict[Any, Any] = {}
    for at in np.ndindex(*cells(shape, chunk)):
        inputs = inputs_of(at, shape, chunk, read, chunks)
        assert by_digest.setdefault(tuple(digests[at].tolist()), inputs) == inputs
    again = chunk_digests(json_hash("key"), shape, chunk, [read], {"a": chunks})
    other = chunk_digests(json_hash("another key"), shape, chunk, [read], {"a": chunks})
    assert np.array_equal(digests, again)
    assert not (digests == other).all(axis=-1).any()


def test_a_chunk_whose_inputs_have_moved_has_its_digest_at_the_new_place() -> None:
    def digests(index: Sequence[int]) -> list[Any]:
        ids = np.arange(12 * len(index), dtype=np.uint8).reshape(-1, 12)
        table = ChunkTable.from_native(np.arange(len(index))[:, None], ids, list(index), 0, 8)
        chunks = StoredChunks((len(index),), (1,), table.index, reference_hashes(table), table.length)
        window = Read("a", ((0, Window()),))
        return [
            tuple(each) for each in chunk_digests(json_hash(0), chunks.shape, (1,), [window], {"a": chunks})
        ]

    before, after = digests([0, 1, 2, 3]), digests([0, 3, 1, 2])
    assert after == [before[0], before[3], before[1], before[2]]


@pytest.mark.parametrize(
    "change",
    [
        lambda: ChunkTable.from_native([[0]], np.full((1, 12), 1, np.uint8), 0, 0, 8),
        lambda: ChunkTable.from_native([[0]], np.full((1, 12), 2, np.uint8), 0, 0, 8),
        lambda: ChunkTable.from_native([[0]], np.full((1, 12), 1, np.uint8), 0, 8, 8),
        lambda: ChunkTable.from_native([[0]], np.full((1, 12), 1, np.uint8), 0, 0, 9),
        lambda: ChunkTable.from_inline([[0]], [b"\0"]),
        lambda: ChunkTable.from_inline([[0]], [b"\0\0"]),
        lambda: ChunkTable.from_inline([[0]], [b"\1"]),
        lambda: ChunkTable.from_virtual([[0]], ["file:///a"], 0, 8),
        lambda: ChunkTable.from_virtual([[0]], ["file:///b"], 0, 8),
        lambda: ChunkTable.from_virtual([[0]], ["file:///a"], 0, 8, etag="1"),
        lambda: ChunkTable.from_virtual([[0]], ["file:///a"], 0, 8, modified=7),
        lambda: ChunkTable.empty(1),
    ],
)
def test_all_parts_of_a_reference_change_its_hash(change: Any) -> None:
    plain = ChunkTable.from_native([[0]], np.full((1, 12), 9, np.uint8), 0, 0, 8)
    one, other = reference_hashes(plain), reference_hashes(change())
    assert one.shape == (2, 1)
    assert not np.array_equal(one, other)


def few_references() -> ChunkTable:
    """Return references of all kinds, with a gap in the second column."""
    index = np.stack([np.arange(4), np.zeros(4, int)], 1)
    ids = np.arange(24, dtype=np.uint8).reshape(2, 12)
    return ChunkTable.merge_tables(
        [
            ChunkTable.from_inline([[6, 0]], [b"abc"]),
            ChunkTable.from_native(index, ids, [0, 1, 1, 0], [0, 0, 9, 7], 5),
            ChunkTable.from_virtual(index[:2] + 4, ["s3://b/a", "s3://b/c"], [0, 3], 5, etag="e"),
        ]
    )


def test_digests_are_those_of_tables_that_were_stored_before() -> None:
    table = few_references()
    hashes = reference_hashes(table)
    chunks = StoredChunks((7, 6), (1, 6), table.index, hashes, table.length)
    key = np.array([3, 5], np.uint64)
    halves = Read("a", ((0, Window(2)), (1, Window(2))))
    rows = Read("a", ((0, Window()), (1, Whole())))
    found = (
        hashes,
        chunk_digests(key, (4, 3), (1, 3), [halves], {"a": chunks}),
        chunk_digests(key, (7, 6), (1, 6), [rows], {"a": chunks}),
    )
    texts = [hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest()[:16] for each in found]
    assert texts == ["6411dba567e30e22", "42765ef7b3ef4934", "ae291be0078100c0"]


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("relation", [Window(), Window(2), Window(before=1, after=1), Whole()])
def test_blocks_of_intervals_do_not_change_digests(
    relation: Relation, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40
    index = np.arange(count)[:: 1 if is_full else 3, None]
    table = ChunkTable.from_inline(index, [str(each).encode() for each in index.ravel()])

    def digests() -> Any:
        chunks = StoredChunks((2 * count,), (2,), table.index, reference_hashes(table), table.length)
        reads = [Read("a", ((0, relation),))]
        return chunk_digests(json_hash(0), (2 * count,), (2,), reads, {"a": chunks})

    whole = digests()
    monkeypatch.setattr(relations, "ROWS", 7)
    monkeypatch.setattr(relations, "_AT_ONCE", 5)
    np.testing.assert_array_equal(digests(), whole)
