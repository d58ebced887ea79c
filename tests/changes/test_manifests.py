"""Which manifests a commit reads and writes, against a dict of references."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.changes.manifest_model import Edits, ModelArray, Plan

from frazil.changes.change_set import Coords, table_of
from frazil.changes.manifests import SPLIT_REFS, UNSPLIT_REFS, auto_split, plan_rewrite, share
from frazil.format.manifest import ChunkTable, InlineRef, NativeRef

GRID = (6, 5)
coords = st.tuples(st.integers(0, GRID[0] - 1), st.integers(0, GRID[1] - 1))
values = st.one_of(st.none(), st.binary(min_size=1, max_size=2).map(InlineRef))
edits = st.dictionaries(coords, values, max_size=12)
splits = st.tuples(st.integers(1, 7), st.integers(1, 7))


class Array(ModelArray):
    def __init__(self, grid: Coords = GRID) -> None:
        super().__init__(grid)

    def plan(self, table: ChunkTable, before: Coords) -> Plan:
        return plan_rewrite(self.data, table, self.split), self.split

    def divide(self, changes: Edits, split: Coords, grid: Coords | None = None) -> Any:
        """Commit, and return the plan and the new manifests."""
        self.split = split
        rewrite, _, new = self.commit(changes, grid)
        return rewrite, new


@given(st.lists(st.tuples(edits, splits), max_size=6))
def test_any_history_of_edits_and_splits(history: list[tuple[Edits, Coords]]) -> None:
    array = Array()
    for changes, split in history:
        array.divide(changes, split)
        array.check()


@given(edits, splits, edits, coords)
def test_a_smaller_and_again_larger_grid_shows_no_old_chunks(
    first: Edits, split: Coords, second: Edits, smaller: Coords
) -> None:
    array = Array()
    array.divide(first, split)
    for grid, changes in ((tuple(n + 1 for n in smaller), dict[Coords, Any]()), (GRID, second)):
        array.divide(changes, split, grid)
        array.check()


def test_only_the_touched_box_is_read_and_rewritten() -> None:
    array = Array()
    array.divide({(i, j): InlineRef(b"x") for i in range(6) for j in range(5)}, (2, 5))
    rewrite, new = array.divide({(0, 0): InlineRef(b"y")}, (2, 5))
    assert (len(rewrite.unchanged), len(rewrite.read), len(new)) == (2, 1, 1)
    scalar = Array(())
    for changes, count in (({(): InlineRef(b"a")}, 0), ({(): InlineRef(b"b")}, 1), ({}, 0)):
        rewrite, _ = scalar.divide(changes, ())
        assert len(rewrite.read) == count
        scalar.check()


def inline(n: int, size: int = 8) -> ChunkTable:
    return table_of({(i,): InlineRef(b"x" * size) for i in range(n)}, 1)


def native(n: int) -> ChunkTable:
    return table_of({(i,): NativeRef(bytes(12), i, 1) for i in range(n)}, 1)


def test_small_inline_arrays_share_a_manifest_and_others_do_not() -> None:
    names = [bytes([i]) * 8 for i in range(6)]
    one, two, large = inline(1), inline(2), inline(1001)
    tables: list[list[ChunkTable]] = [[inline(3)], [native(2)], [one], [two, two], [large], []]
    files = share(list(zip(names, tables, strict=True)))
    assert sorted(sorted(file) for file in files) == sorted(
        [[names[0], names[2]], [names[1]], [names[3]], [names[3]], [names[4]]]
    )


def test_a_shared_manifest_does_not_grow_without_bound() -> None:
    updates = [(i.to_bytes(8, "big"), [inline(900, 500)]) for i in range(6)]
    files = share(updates)
    assert [len(file) for file in files] == [2, 2, 2]
    assert share([]) == []


def test_a_manifest_that_lies_between_the_parts_of_others_is_read_too() -> None:
    """Old boxes are columns, new ones rows: row 1 gets parts of two old manifests, around a third."""
    array = Array()
    array.divide({at: InlineRef(b"x") for at in [(0, 0), (1, 0), (1, 2), (0, 4), (1, 4)]}, (2, 1))
    assert len(array.data.manifests) == 3
    rewrite, _ = array.divide({(0, 0): InlineRef(b"y")}, (1, 5))
    assert len(rewrite.read) == 3
    array.check()


@given(
    st.lists(st.integers(1, 1 << 20), min_size=1, max_size=4).map(tuple), st.floats(0.001, 1), st.floats(1, 8)
)
def test_boxes_of_an_array_that_nobody_configured(num_chunks: Coords, filled: float, grows: float) -> None:
    whole = np.prod(np.array(num_chunks, float))
    refs = int(whole * filled)
    split = auto_split(num_chunks, refs)
    if refs <= UNSPLIT_REFS:
        assert split == ((1 << 32) - 1,) * len(num_chunks)
        return
    in_box = filled * np.prod(np.minimum(split, num_chunks).astype(float))
    assert SPLIT_REFS / 2 ** len(num_chunks) <= in_box * 1.001
    assert in_box <= SPLIT_REFS * 1.001
    # As it fills, no box reaches into two of those before.
    later = auto_split(num_chunks, int(min(refs * grows, whole)))
    for before, now, count in zip(split, later, num_chunks, strict=True):
        assert before >= count or (now <= before and before % now == 0)
