"""Which manifests a commit reads and writes, by boxes and by windows, against a dict of references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.changes import manifests as windows
from frazil.changes.change_set import Coords, table_of
from frazil.changes.manifests import (
    SPLIT_REFS,
    UNSPLIT_REFS,
    KeyWindows,
    ManifestRewrite,
    Spans,
    auto_split,
    axes_of,
    distribute,
    plan_rewrite,
    plan_windows,
    share,
)
from frazil.format.columns import I64
from frazil.format.manifest import ChunkRef, ChunkTable, InlineRef, NativeRef
from frazil.format.snapshot import ArrayData, ManifestRef

type Edits = Mapping[Any, ChunkRef | None]  # by coordinates
type Plan = tuple[ManifestRewrite, Coords | KeyWindows]


class ModelArray:
    """An array of a grid. ``plan`` returns which manifests a commit reads, and how it divides."""

    def __init__(self, grid: Coords) -> None:
        self.files: dict[bytes, ChunkTable] = {}
        self.data = ArrayData(grid, grid, None)
        self.model: dict[Coords, ChunkRef | None] = {}

    def plan(self, table: ChunkTable, before: Coords) -> Plan:
        raise NotImplementedError

    def commit(self, changes: Edits, grid: Coords | None = None) -> Any:
        """Commit, and return the plan, the tables that were read, and the new manifests."""
        grid, before = grid or self.data.num_chunks, self.data
        self.data = ArrayData(grid, grid, None, before.manifests)
        table = table_of(dict(changes), len(grid))
        rewrite, split = self.plan(table, before.num_chunks)
        old = [self.files[ref.id] for ref in rewrite.read]
        new = distribute(self.data, old, table, split)
        refs = [*rewrite.unchanged, *map(self.store, new)]
        self.data = ArrayData(grid, grid, None, tuple(refs))
        self.model.update(changes)
        self.model = {
            at: ref
            for at, ref in self.model.items()
            if ref and all(a < n for a, n in zip(at, grid, strict=True))
        }
        return rewrite, old, new

    def store(self, table: ChunkTable) -> ManifestRef:
        ref = ManifestRef(len(self.files).to_bytes(12, "big"), table.bounds())
        self.files[ref.id] = table
        return ref

    def check(self) -> None:
        out: dict[Coords, ChunkRef | None] = {}
        for ref in self.data.manifests:
            table = self.files[ref.id]
            for row, at in enumerate(map(tuple, table.index.tolist())):
                assert (ref.extents[:, 0] <= at).all()
                assert (at < ref.extents[:, 1]).all()
                assert at not in out
                out[at] = table.ref(row)
        assert out == self.model
        boxes = [ref.extents.astype(int) for ref in self.data.manifests]
        for i, one in enumerate(boxes):
            for other in boxes[:i]:
                meet = (one[:, 0] < other[:, 1]) & (other[:, 0] < one[:, 1])
                assert not meet.all(), "extents of two manifests overlap"


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


#: Old boxes are columns, new ones rows: row 1 gets parts of two old manifests, around a third.
COLUMNS = dict.fromkeys([(0, 0), (1, 0), (1, 2), (0, 4), (1, 4)], InlineRef(b"x"))


@given(st.lists(st.tuples(edits, splits), max_size=6))
@example([(COLUMNS, (2, 1)), ({(0, 0): InlineRef(b"y")}, (1, 5))])
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


def native(n: int, *packs: int) -> ChunkTable:
    """References into one or several packs."""
    return table_of({(i,): NativeRef(bytes([packs[i % len(packs)]]) * 12, i, 1) for i in range(n)}, 1)


def test_small_arrays_with_the_same_chunk_files_share_a_manifest() -> None:
    names = [bytes([i]) * 8 for i in range(11)]
    virtual = ChunkTable.from_virtual(np.zeros((1, 1), "u4"), ["s3://b/f"], [0], [1])
    tables: list[list[ChunkTable]] = [
        [inline(3)],
        [native(2, 1)],
        [inline(1)],
        [inline(2), inline(2)],
        [inline(1001)],
        [],
        [native(1, 1)],
        [native(4, 1, 2)],
        [native(2, 2, 1)],
        [native(2, 3)],
        [virtual],
    ]
    files = share(list(zip(names, tables, strict=True)))
    numbers = sorted(sorted(name[0] for name in file) for file in files)
    assert numbers == [[0, 2], [1, 6], [3], [3], [4], [7, 8], [9], [10]]


def test_a_shared_manifest_does_not_grow_without_bound() -> None:
    updates = [(i.to_bytes(8, "big"), [inline(900, 500)]) for i in range(6)]
    files = share(updates)
    assert [len(file) for file in files] == [2, 2, 2]
    assert share([]) == []


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


CAPACITY = 8


@pytest.fixture(autouse=True)
def _small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CAPACITY", CAPACITY)
        patch.setattr(windows, "_ENTRY_BYTES", 0.0)  # the capacity does not grow
        yield


class WindowArray(ModelArray):
    def add(self, table: ChunkTable) -> None:
        manifests = (*self.data.manifests, self.store(table))
        self.data = ArrayData(self.data.shape, self.data.num_chunks, None, manifests)
        at = map(tuple, table.index.tolist())
        self.model.update(zip(at, map(table.ref, range(len(table))), strict=True))

    def counts(self) -> I64:
        return np.array([len(self.files[ref.id]) for ref in self.data.manifests], np.int64)

    def plan(self, table: ChunkTable, before: Coords) -> Plan:
        return plan_windows(self.data, table, self.counts(), axes_of(self.data, before))

    def commit(self, changes: Edits, grid: Coords | None = None) -> Any:
        """Commit, and return the number of references that were read, and the new manifests."""
        _, old, new = super().commit(changes, grid)
        return sum(map(len, old)), new


sizes = st.integers(1, 12)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Coords, list[tuple[Edits, Coords]]]:
    """A grid, and commits: edits, and the grid after each commit."""
    ndim = draw(st.integers(1, 3))
    grids = draw(st.lists(st.tuples(*[sizes] * ndim), min_size=1, max_size=7))
    commits: list[tuple[Edits, Coords]] = []
    for grid in grids:
        coords = st.tuples(*(st.integers(0, size - 1) for size in grid))
        commits.append((draw(st.dictionaries(coords, values, max_size=30)), grid))
    return grids[0], commits


@given(histories())
@settings(max_examples=examples(60))
def test_any_history_of_edits_and_grids(history: tuple[Coords, list[tuple[Edits, Coords]]]) -> None:
    first, commits = history
    array = WindowArray(first)
    for changes, grid in commits:
        shrinks = any(a < b for a, b in zip(grid, array.data.num_chunks, strict=True))
        _, new = array.commit(changes, grid)
        array.check()
        assert max(map(len, new), default=0) <= CAPACITY
        assert array.counts().max(initial=0) <= CAPACITY
        assert shrinks or len(new) <= 1 + 4 * len(changes)


@settings(max_examples=examples(15))
@given(
    st.lists(st.lists(st.integers(0, 63), min_size=1, max_size=3), min_size=20, max_size=30),
    st.sampled_from([(64,), (8, 8), (2, 32)]),
)
def test_a_commit_reads_few_references(commits: list[list[int]], grid: Coords) -> None:
    array = WindowArray(grid)
    for numbers in commits:
        at = np.unravel_index(numbers, grid)
        changes = {tuple(map(int, each)): InlineRef(b"a") for each in zip(*at, strict=True)}
        read, _ = array.commit(changes)
        # the window of an edit, and a small neighbour
        assert read <= 2 * CAPACITY * len(changes)
        array.check()


@settings(max_examples=examples(10))
@given(st.permutations(range(64)), st.sampled_from([(64,), (16, 4), (4, 16)]))
def test_chunks_in_any_order_end_in_windows_that_are_full_enough(order: list[int], grid: Coords) -> None:
    array = WindowArray(grid)
    for number in order:
        at = tuple(map(int, np.unravel_index(number, grid)))
        array.commit({at: InlineRef(b"a")})
    array.check()
    assert array.counts().sum() == 64
    assert (array.counts() >= CAPACITY // 4)[:-1].all()
    assert len(array.counts()) <= 24


@pytest.mark.parametrize("axis", [0, 1])
def test_an_append_writes_one_window_and_reads_no_full_one(axis: int) -> None:
    array = WindowArray((1, 1))
    width = 3
    for step in range(40):
        grid = (step + 1, width) if axis == 0 else (width, step + 1)
        at = [(step, other) if axis == 0 else (other, step) for other in range(width)]
        before = array.counts()
        read, new = array.commit(dict.fromkeys(at, InlineRef(b"a")), grid)
        assert len(new) == 1
        assert read <= CAPACITY - width
        assert len(array.counts()) - len(before) in (0, 1)
    array.check()
    assert (np.sort(array.counts())[1:] == 6).all()  # two steps of three chunks


def test_an_old_manifest_is_cut_when_a_commit_changes_it() -> None:
    array = WindowArray((100, 2))
    index = np.stack(np.unravel_index(np.arange(200), (100, 2)), 1).astype("u4")
    array.add(ChunkTable.from_inline(index[:160], [b"a"] * 160))
    read, new = array.commit({(80, 0): InlineRef(b"b")})  # after it
    assert (read, len(new)) == (0, 1)
    read, new = array.commit({(3, 1): InlineRef(b"b")})
    assert read == 160
    assert {len(table) for table in new} == {8}
    read, new = array.commit({(3, 0): InlineRef(b"b")})
    assert (read, len(new)) == (8, 1)
    array.check()


def test_small_neighbours_become_one_window() -> None:
    array = WindowArray((64,))
    array.commit({(at,): InlineRef(b"a") for at in range(64)})
    assert array.counts().tolist() == [8] * 8
    array.commit({(at,): None for at in range(8, 16) if at % 8})
    assert sorted(array.counts().tolist()) == [1] + [8] * 7
    array.commit({(at,): None for at in range(16, 24) if at % 8})
    assert sorted(array.counts().tolist()) == [2] + [8] * 6
    array.check()


def test_a_small_array_is_one_window() -> None:
    array = WindowArray((8,))
    for place in (5, 1, 7):
        array.commit({(place,): InlineRef(b"x")})
        assert len(array.data.manifests) == 1
    assert array.commit({(3,): None})[0] == 3  # a deletion between the first and last chunk
    assert array.commit({(0,): InlineRef(b"y")})[0] == 3


def test_the_capacity_grows_with_the_root_of_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(windows, "CAPACITY", 8192)
    monkeypatch.setattr(windows, "_ENTRY_BYTES", 1.5)
    capacities = [windows.capacity_for(4**power) for power in range(6, 25)]
    assert capacities == sorted(capacities)
    assert capacities[-1] == 2 * capacities[-2] == 4 * capacities[-3]
    assert set(capacities[:6]) == {8192}


def test_a_million_edits_find_their_windows_in_a_few_passes() -> None:
    keys = np.arange(1 << 20, dtype=np.int64) * 3
    spans, _ = Spans.of(*[np.zeros(0, np.int64)] * 3)
    first, bits = windows.windows_of(keys, spans, keys, 1 << 12)
    assert set(bits.tolist()) == {13}
    assert len(first) == 3 << 7
