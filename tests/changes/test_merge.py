"""Merges of forks: the layers of references that they have not seen, and groups that several forks made."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import frazil
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


def _forked() -> tuple[frazil.Repository, frazil.Session, list[frazil.ForkSession]]:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    return repo, session, [session.fork() for _ in range(3)]


def test_the_same_group_of_several_forks_is_one() -> None:
    repo, session, forks = _forked()
    for number, fork in enumerate(forks):
        zarr.create_array(fork.store, name=f"made/by {number}", shape=(2,), chunks=(1,), dtype="i4")[:] = (
            number
        )
    session.merge(*forks[:2])
    session.merge(forks[2])
    diff = session.status()
    assert diff.new_groups == {"/", "/made"}
    before = repo.lookup_branch("main")
    after = session.commit("merged")
    log = repo._context.assets.transaction_log(session.workspace.snapshot_id)
    assert len(log.new_groups) == 2
    assert repo.diff(from_snapshot_id=before, to_snapshot_id=after) == diff
    root = zarr.open_group(session.store, mode="r")
    assert [np.asarray(root[f"made/by {number}"]).tolist() for number in range(3)] == [[0, 0], [1, 1], [2, 2]]


def test_arrays_created_twice_are_a_conflict() -> None:
    _, session, forks = _forked()
    for fork in forks:
        zarr.create_array(fork.store, name="a", shape=(2,), chunks=(1,), dtype="i4")
    with pytest.raises(frazil.SessionStateError):
        session.merge(*forks)
