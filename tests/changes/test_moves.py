"""Moves beside a dictionary of paths."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.changes.change_set import Moves, MoveTree, composed_moves, moved_nodes
from frazil.errors import IcechunkError
from frazil.format.nodes import Node, NodeTable

BASE = ("/", "/a", "/a-b", "/a/b", "/a/b/c", "/d", "/d/e", "/f")
PLACES = (*BASE, "/g", "/a/g", "/d/g", "/d/f", "/d/a", "/f/a", "/f/d", "/a/b/f")
pairs = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES)), min_size=1, max_size=14)


def nodes() -> NodeTable:
    return NodeTable.from_nodes([Node(path.encode().ljust(8), path, b"{}", None) for path in BASE])


def paths_of(table: NodeTable) -> dict[str, bytes]:
    return dict(zip(table.paths_list(), map(bytes, table.ids), strict=True))


@settings(max_examples=examples(300))
@given(steps=pairs, cut=st.integers(0, 14))
@example([("/f", "/d/f"), ("/d/f", "/g"), ("/d", "/a/g")], 14)
def test_subtrees_go_together(steps: list[tuple[str, str]], cut: int) -> None:
    base = nodes()
    model = paths_of(base)
    moves, first = Moves(), Moves()
    tree = MoveTree(base, moves)
    for number, (source, target) in enumerate(steps):
        if number == cut:  # somebody else goes on from here
            first, moves = moves, Moves()
            base_then = moved_nodes(base, first)
            tree = MoveTree(base_then, moves)
        try:
            tree.move(source, target)
        except IcechunkError:
            parent = target.rpartition("/")[0] or "/"
            below = source == "/" or f"{target}/".startswith(f"{source}/")
            assert source not in model or target in model or parent not in model or below
            continue
        below_source = [path for path in model if f"{path}/".startswith(f"{source}/")]
        model.update({target + path[len(source) :]: model.pop(path) for path in below_source})
        assert all((tree.find_node(path) >= 0) == (path in model) for path in PLACES)
    whole = composed_moves(first, moves)
    assert paths_of(moved_nodes(base, whole)) == model
    assert paths_of(moved_nodes(moved_nodes(base, first), moves)) == model
    assert {move.source for move in whole.values()} <= set(BASE)
    assert {path for path, id_ in model.items() if bytes(id_).rstrip().decode() != path} == {
        move.target for move in whole.values() if move.source != move.target
    }
