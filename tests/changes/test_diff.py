"""Differences and merges: amended and composed logs, references, and layers of forks."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.change_set import ChunkChanges, table_of
from frazil.changes.diff import amended_log, compose_logs, differing
from frazil.changes.merge import Layers
from frazil.format.ids import id_list, id_matrix
from frazil.format.manifest import ChunkRef, ChunkTable, InlineRef, NativeRef, VirtualRef
from frazil.format.nodes import ArrayData, Node, NodeTable
from frazil.format.transaction_log import (
    ID_LISTS,
    Move,
    TransactionLog,
    decode_transaction_log,
    empty_log,
    encode_transaction_log,
)

A = b"\0" * 7 + b"a"
EMPTY = empty_log(bytes(12))
COORDS = np.array([[1, 2]], np.uint32)


def log(*chosen: str, id_: bytes = A, **others: Any) -> TransactionLog:
    """A log with one node in these lists."""
    ids: Any = np.frombuffer(id_, np.uint8).reshape(1, 8)
    return replace(EMPTY, **dict.fromkeys(chosen, ids), **others)


def lists(log: TransactionLog) -> list[str]:
    return [name for name in ID_LISTS if len(getattr(log, name))]


@pytest.mark.parametrize("kind", ["groups", "arrays"])
@pytest.mark.parametrize(
    ("first", "then", "left"),
    [
        ("new", "updated", ["new"]),
        ("new", "deleted", []),
        ("updated", "deleted", ["deleted"]),
        ("updated", "updated", ["updated"]),
        ("deleted", "new", ["updated"]),
        ("new", None, ["new"]),
        (None, "deleted", ["deleted"]),
    ],
)
def test_a_node_is_in_one_list(kind: str, first: str | None, then: str | None, left: list[str]) -> None:
    logs = [log() if name is None else log(f"{name}_{kind}") for name in (first, then)]
    assert lists(amended_log(*logs)) == [f"{name}_{kind}" for name in left]


def test_a_log_that_holds_a_node_twice_already() -> None:
    """As the reference writes it when it amends."""
    assert lists(amended_log(log("new_groups", "updated_groups"), log())) == ["new_groups"]
    assert lists(amended_log(log("new_arrays", "deleted_arrays", updated_chunks={A: COORDS}), log())) == []
    assert lists(amended_log(log("new_arrays", "updated_arrays"), log("deleted_arrays"))) == []


def test_composed_logs_name_nodes_by_their_paths() -> None:
    """As the reference shows it: a node can be new and updated, and one that came and went has no name."""
    came, gone = A[1:] + b"c", A[1:] + b"d"
    logs = [log(f"{name}_arrays", id_=id_) for name, id_ in (("new", A), ("new", came), ("updated", A))]
    logs += [log("updated_arrays", id_=gone, updated_chunks={gone: COORDS})]
    logs += [log("deleted_arrays", id_=id_) for id_ in (came, gone)]
    array = ArrayData((4,), (4,), None)
    before, after = (
        NodeTable.from_nodes([Node(id_, path, b"{}", array)]) for id_, path in ((gone, "/d"), (A, "/a"))
    )
    changes = compose_logs(logs, before, after)
    assert [*changes.new_arrays, *changes.deleted_arrays] == ["/a", "/d"]
    assert changes.updated_arrays == {"/a", "/d"}
    assert {path: at.tolist() for path, at in changes.updated_chunks.items()} == {"/d": COORDS.tolist()}


NODES = st.sampled_from([bytes([n]) + bytes(7) for n in range(6)])
IDS = st.sets(NODES)


@st.composite
def logs(draw: st.DrawFn) -> TransactionLog:
    columns: dict[str, Any] = {name: id_matrix(sorted(draw(IDS)), 8) for name in ID_LISTS}
    moves = tuple([Move(f"/{id_[0]}", f"/m{id_[0]}", id_, True) for id_ in sorted(draw(IDS))])
    return replace(EMPTY, **columns, updated_chunks=dict.fromkeys(draw(IDS), COORDS), moves=moves)


@given(logs(), logs())
def test_no_node_is_in_two_lists(first: TransactionLog, then: TransactionLog) -> None:
    left = decode_transaction_log(encode_transaction_log(amended_log(first, then)), "log")
    sets = {name: set(id_list(getattr(left, name))) for name in ID_LISTS}
    for kind in ("groups", "arrays"):
        own = [ids for name, ids in sets.items() if name.endswith(kind)]
        assert all(one.isdisjoint(other) for one, other in combinations(own, 2))
    # What was deleted has no chunks, and what is new was not moved.
    gone = sets["deleted_groups"] | sets["deleted_arrays"]
    created = sets["new_groups"] | sets["new_arrays"]
    assert gone.isdisjoint(left.updated_chunks)
    assert (gone | created).isdisjoint(move.node_id for move in left.moves)
    everywhere = {id_ for log in (first, then) for name in ID_LISTS for id_ in id_list(getattr(log, name))}
    stays = {*first.updated_chunks, *then.updated_chunks} - everywhere
    assert stays <= left.updated_chunks.keys()


ids = st.sampled_from([bytes(12), b"\1" * 12])
small = st.integers(0, 1)
refs = (
    st.builds(NativeRef, ids, small, small)
    | st.builds(InlineRef, st.sampled_from([b"a", b"b"]))
    | st.builds(VirtualRef, st.sampled_from(["x:a", "x:b"]), small, small, st.sampled_from([None, "e", "f"]))
    | st.builds(VirtualRef, st.just("x:a"), small, small, st.none(), st.sampled_from([None, 1, 2]))
)


@pytest.mark.parametrize("ndim", [0, 1, 2])
@given(data=st.data())
def test_what_differs(ndim: int, data: Any) -> None:
    tables = st.dictionaries(st.tuples(*[st.integers(0, 2)] * ndim), refs, max_size=6)
    one, other = data.draw(tables), data.draw(tables)
    wanted = sorted(at for at in one.keys() | other.keys() if one.get(at) != other.get(at))
    coords = differing(table_of(one, ndim), table_of(other, ndim))
    assert list(map(tuple, coords.tolist())) == wanted


def test_another_number_of_dimensions() -> None:
    one, other = ChunkTable.from_inline([[0]], [b"a"]), ChunkTable.from_inline([[0, 0], [0, 1]], [b"a", b"b"])
    assert differing(one, other).tolist() == [[0, 0], [0, 1]]


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
