"""What forks have not seen: references in layers, against a dictionary."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.change_set import ChunkChanges, table_of
from frazil.changes.merge import Layers
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef

REFS: list[ChunkRef | None] = [
    None,
    InlineRef(b"a"),
    InlineRef(b"bc"),
    NativeRef(b"A" * 12, 0, 5),
    NativeRef(b"A" * 12, 5, 5),
    NativeRef(b"B" * 12, 0, 5),
    VirtualRef("s3://b/1", 0, 5),
    VirtualRef("s3://b/2", 0, 5),
    VirtualRef("s3://b/1", 0, 5, etag="x"),
    VirtualRef("s3://b/1", 0, 5, modified=7),
]

Edits = dict[tuple[int, ...], ChunkRef | None]
EDITS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 5)), st.sampled_from(REFS), min_size=1, max_size=12
)


@given(st.lists(EDITS, max_size=8), EDITS, st.integers(0, 8))
def test_layers_know_what_was_set_last_and_when(steps: list[Edits], asked: Edits, since: int) -> None:
    layers, last = Layers(), dict[tuple[int, ...], tuple[int, ChunkRef | None]]()
    for generation, edits in enumerate(steps):
        layers.add(table_of(edits, 2), generation)
        last.update((at, (generation, ref)) for at, ref in edits.items())
        if generation % 3 == 0:
            layers.differing(table_of(edits, 2), 0)  # someone asks in between
    coords = layers.differing(table_of(asked, 2), since)
    assert sorted(map(tuple, coords.tolist())) == sorted(
        at for at, ref in asked.items() if at in last and last[at][0] >= since and last[at][1] != ref
    )
    sizes = [len(table) for table, _ in layers.parts]
    assert all(later * 2 < earlier for earlier, later in pairwise(sizes))


@given(st.lists(EDITS, min_size=1, max_size=8))
def test_edits_added_one_by_one_are_those_of_all(steps: list[Edits]) -> None:
    edits, model = ChunkChanges("/a", 2), Edits()
    for step in steps:
        edits.add_table(table_of(step, 2))
        model |= step
    assert {at: edits.find_change(at) for at in model} == {at: (True, ref) for at, ref in model.items()}
    table = edits.table()
    assert {tuple(at): table.ref(row) for row, at in enumerate(table.index.tolist())} == model
