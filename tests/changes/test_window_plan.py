"""Windows by the number of references, against a dict of references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.changes.manifest_model import Edits, ModelArray, Plan
from tests.support.examples import examples

from frazil.changes import manifests as windows
from frazil.changes.change_set import Coords
from frazil.changes.manifests import Spans, axes_of, plan_windows
from frazil.format.columns import I64
from frazil.format.manifest import ChunkTable, InlineRef
from frazil.format.snapshot import ArrayData

CAPACITY = 8


@pytest.fixture(autouse=True)
def _small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CAPACITY", CAPACITY)
        patch.setattr(windows, "_ENTRY_BYTES", 0.0)  # the capacity does not grow
        yield


class Array(ModelArray):
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
values = st.one_of(st.none(), st.binary(min_size=1, max_size=2).map(InlineRef))


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
    array = Array(first)
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
    array = Array(grid)
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
    array = Array(grid)
    for number in order:
        at = tuple(map(int, np.unravel_index(number, grid)))
        array.commit({at: InlineRef(b"a")})
    array.check()
    assert array.counts().sum() == 64
    assert (array.counts() >= CAPACITY // 4)[:-1].all()
    assert len(array.counts()) <= 24


@pytest.mark.parametrize("axis", [0, 1])
def test_an_append_writes_one_window_and_reads_no_full_one(axis: int) -> None:
    array = Array((1, 1))
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
    array = Array((100, 2))
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
    array = Array((64,))
    array.commit({(at,): InlineRef(b"a") for at in range(64)})
    assert array.counts().tolist() == [8] * 8
    array.commit({(at,): None for at in range(8, 16) if at % 8})
    assert sorted(array.counts().tolist()) == [1] + [8] * 7
    array.commit({(at,): None for at in range(16, 24) if at % 8})
    assert sorted(array.counts().tolist()) == [2] + [8] * 6
    array.check()


def test_a_small_array_is_one_window() -> None:
    array = Array((8,))
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
