"""Hierarchies with similar names, and moves of nodes, for Hypothesis. Paths are relative."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
from hypothesis import strategies as st

from frazil.errors import ErrorKind
from frazil.testing.models import ArrayNode, GroupNode, Node

#: Source and target. An invalid move also has the kind of its error.
type Move = tuple[str, str]
type InvalidMove = tuple[str, str, ErrorKind]
type MixedMove = tuple[str, str, ErrorKind | None]

node_names: Final = st.text("abcxyz012_", min_size=1, max_size=4)
_AFFIXES: Final = ("-", "_", ".", "0", "_0", "-bar", "a")
_TYPES: Final = ("i4", "f8", "u1")
_FEW: Final = st.integers(min_value=1, max_value=10)
_SHARE: Final = st.floats(min_value=0.0, max_value=1.0)


# Names


def similar_name(non_sibling_names: set[str], sibling_names: set[str]) -> st.SearchStrategy[str]:
    """Return a name that is similar to another one.

    It is a sibling's name with a prefix or suffix, or the same name as a node on another level.
    """
    ways: list[st.SearchStrategy[str]] = []
    if sibling_names:
        names, affixes = st.sampled_from(sorted(sibling_names)), st.sampled_from(_AFFIXES)
        ways.append(st.builds(lambda name, affix: name + affix, names, affixes))
        ways.append(st.builds(lambda name, affix: "p" + affix + name, names, affixes))
    if non_sibling_names:
        ways.append(st.sampled_from(sorted(non_sibling_names)))
    return st.one_of(ways) if ways else node_names


def fresh_name(pool: set[str], exclude: set[str]) -> st.SearchStrategy[str]:
    """Return a name that is not in ``exclude``, and that is probably similar to a name in ``pool``."""
    alike = similar_name(pool - exclude, exclude) if pool or exclude else node_names
    return (alike | node_names).filter(lambda name: name not in exclude)


@st.composite
def fresh_names(draw: st.DrawFn, pool: set[str], exclude: set[str], n: int) -> list[str]:
    """Return ``n`` different names that are not in ``exclude``. They may be similar to each other."""
    names: list[str] = []
    for _ in range(n):
        names.append(draw(fresh_name(pool, exclude | set(names))))
    return names


# Hierarchies


def skeletons(*, max_leaves: int = 50, max_children: int = 4) -> st.SearchStrategy[GroupNode]:
    """Return hierarchies whose names are numbers. The root is a group."""
    shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
    arrays = st.builds(ArrayNode, shapes, st.sampled_from(_TYPES).map(np.dtype))
    leaves = arrays | st.builds(GroupNode)

    def group(children: st.SearchStrategy[Node]) -> st.SearchStrategy[GroupNode]:
        lists = st.lists(children, min_size=1, max_size=max_children)
        return lists.map(lambda nodes: GroupNode({str(i): node for i, node in enumerate(nodes)}))

    return group(st.recursive(leaves, group, max_leaves=max_leaves))


@st.composite
def trees(
    draw: st.DrawFn,
    *,
    max_leaves: st.SearchStrategy[int] = st.integers(min_value=5, max_value=50),  # noqa: B008
    max_children: st.SearchStrategy[int] = st.integers(min_value=1, max_value=4),  # noqa: B008
) -> GroupNode:
    """Return hierarchies with similar names."""
    skeleton = draw(skeletons(max_leaves=draw(max_leaves), max_children=draw(max_children)))
    pool: set[str] = set()

    def named(group: GroupNode) -> GroupNode:
        names = draw(fresh_names(set(pool), set(), len(group.children)))
        pool.update(names)
        children = zip(names, group.children.values(), strict=True)
        return GroupNode(
            {name: named(child) if isinstance(child, GroupNode) else child for name, child in children}
        )

    return named(skeleton)


# Paths


def child_names_at(parent: str, all_paths: set[str]) -> set[str]:
    """Return the names of the nodes directly below a path."""
    inside = f"{parent}/" if parent else ""
    return {path[len(inside) :].split("/")[0] for path in all_paths if path.startswith(inside) and path}


def is_descendant(path: str, ancestor: str) -> bool:
    """Return whether one path is below the other, and not the same."""
    return path.startswith(f"{ancestor}/") if ancestor else bool(path)


def moved_paths(source: str, target: str, paths: set[str]) -> set[str]:
    """Return the paths after a node and all nodes below it were moved."""
    inside = {path for path in paths if path == source or is_descendant(path, source)}
    return (paths - inside) | {target + path[len(source) :] for path in inside}


def absolute(path: str) -> str:
    """Return the path in the form of a session."""
    return f"/{path}"


def wrap_tolerant(pattern: str) -> str:
    """Return a pattern that also matches a text with line breaks and a bar before each new line."""
    return re.sub(r" +", lambda _: r"(?: +|\n *\| *)", pattern)


# Moves


def _eligible(all_nodes: set[str], all_arrays: set[str]) -> list[ErrorKind]:
    groups = all_nodes - all_arrays - {""}
    possibilities = {
        ErrorKind.NODE_NOT_FOUND: True,
        ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT: bool(groups),
        ErrorKind.MOVE_WONT_OVERWRITE: len(all_nodes - {""}) > 1,
        ErrorKind.MOVE_DESTINATION_PARENT_MISSING: bool(all_nodes - {""}),
        ErrorKind.MOVE_DESTINATION_PARENT_NOT_GROUP: bool(all_arrays) and len(all_nodes - {""}) > 1,
    }
    return [kind for kind, possible in possibilities.items() if possible]


def _joined(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name


@st.composite
def invalid_move(
    draw: st.DrawFn,
    all_nodes: set[str],
    all_arrays: set[str],
    name_pool: set[str],
    *,
    eligible: list[ErrorKind] | None = None,
) -> InvalidMove:
    """Return one move that is refused, with the kind of its error."""
    nodes = sorted(all_nodes - {""})
    kind = draw(st.sampled_from(_eligible(all_nodes, all_arrays) if eligible is None else eligible))
    new = draw(fresh_name(name_pool, child_names_at("", all_nodes)))

    def a_node(fits: Callable[[str], bool] = lambda _: True) -> str:
        return draw(st.sampled_from([node for node in nodes if fits(node)]))

    match kind:
        case ErrorKind.NODE_NOT_FOUND:
            source, target = new, _joined("", new + "_there")
        case ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT:
            source = a_node(lambda node: node not in all_arrays)
            target = _joined(source, new)
        case ErrorKind.MOVE_WONT_OVERWRITE:
            source = a_node()
            free = [n for n in nodes if n != source and not is_descendant(n, source)]
            target = draw(st.sampled_from(free)) if free else source
        case ErrorKind.MOVE_DESTINATION_PARENT_MISSING:
            source, target = a_node(), f"{new}/{new}"
        case _:
            parent = draw(st.sampled_from(sorted(all_arrays)))
            source = a_node(lambda node: not is_descendant(parent, node))
            if source == parent:
                return source, _joined(parent, new), ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT
            target = _joined(parent, new)
    # This error comes before all other errors of a move.
    if target == source or is_descendant(target, source):
        kind = ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT
    return source, target, kind


@st.composite
def valid_move(draw: st.DrawFn, all_nodes: set[str], all_groups: set[str], name_pool: set[str]) -> Move:
    """Return one move that takes effect."""
    source = draw(st.sampled_from(sorted(all_nodes - {""})))
    parents = {""} | all_groups
    fitting = [p for p in sorted(parents) if p != source and not is_descendant(p, source)]
    parent = draw(st.sampled_from(fitting))
    return source, _joined(parent, draw(fresh_name(name_pool, child_names_at(parent, all_nodes))))


@st.composite
def valid_and_invalid_moves(
    draw: st.DrawFn,
    tree: GroupNode,
    n_moves: st.SearchStrategy[int] = _FEW,
    p_invalid: st.SearchStrategy[float] = _SHARE,
) -> list[MixedMove]:
    """Return moves in order. The third part is None for a move that takes effect."""
    nodes, arrays = set(tree.nodes()), set(tree.arrays())
    pool = {part for node in nodes for part in node.split("/")}
    share = draw(p_invalid)
    moves: list[MixedMove] = []
    for _ in range(draw(n_moves) if nodes else 0):
        if share and draw(st.floats(0, 1)) < share:
            moves.append(draw(invalid_move(nodes, arrays, pool)))
            continue
        source, target = draw(valid_move(nodes, nodes - arrays, pool))
        nodes, arrays = (moved_paths(source, target, paths) for paths in (nodes, arrays))
        moves.append((source, target, None))
    return moves


def valid_moves(tree: GroupNode, n_moves: st.SearchStrategy[int] = _FEW) -> st.SearchStrategy[list[Move]]:
    """Return moves that all take effect, in order."""
    mixed = valid_and_invalid_moves(tree, n_moves, st.just(0.0))
    return mixed.map(lambda moves: [(source, target) for source, target, _ in moves])


def invalid_moves(
    tree: GroupNode, n_moves: st.SearchStrategy[int] = _FEW
) -> st.SearchStrategy[list[InvalidMove]]:
    """Return moves that are all refused, each with the kind of its error."""
    nodes, arrays = set(tree.nodes()), set(tree.arrays())
    pool = {part for node in nodes for part in node.split("/")}
    return n_moves.flatmap(
        lambda n: st.lists(invalid_move(nodes, arrays, pool), min_size=n if nodes else 0, max_size=n)
    )


def _tree_and[T](
    max_leaves: st.SearchStrategy[int] | None,
    max_children: st.SearchStrategy[int] | None,
    moves: Callable[[GroupNode], st.SearchStrategy[T]],
) -> st.SearchStrategy[tuple[GroupNode, T]]:
    chosen = trees(
        max_leaves=max_leaves or st.integers(1, 10), max_children=max_children or st.integers(1, 4)
    )
    return chosen.flatmap(lambda tree: st.tuples(st.just(tree), moves(tree)))


def tree_and_valid_moves(
    max_leaves: st.SearchStrategy[int] | None = None,
    max_children: st.SearchStrategy[int] | None = None,
    n_moves: st.SearchStrategy[int] = _FEW,
) -> st.SearchStrategy[tuple[GroupNode, list[Move]]]:
    """Return a hierarchy, and moves in it that all take effect."""
    return _tree_and(max_leaves, max_children, lambda tree: valid_moves(tree, n_moves))


def tree_and_invalid_moves(
    max_leaves: st.SearchStrategy[int] | None = None,
    max_children: st.SearchStrategy[int] | None = None,
    n_moves: st.SearchStrategy[int] = _FEW,
) -> st.SearchStrategy[tuple[GroupNode, list[InvalidMove]]]:
    """Return a hierarchy, and moves in it that are all refused."""
    return _tree_and(max_leaves, max_children, lambda tree: invalid_moves(tree, n_moves))


def tree_and_mixed_moves(
    max_leaves: st.SearchStrategy[int] | None = None,
    max_children: st.SearchStrategy[int] | None = None,
    n_moves: st.SearchStrategy[int] = _FEW,
    p_invalid: st.SearchStrategy[float] = _SHARE,
) -> st.SearchStrategy[tuple[GroupNode, list[MixedMove]]]:
    """Return a hierarchy, and moves in it of both kinds."""
    return _tree_and(max_leaves, max_children, lambda tree: valid_and_invalid_moves(tree, n_moves, p_invalid))
