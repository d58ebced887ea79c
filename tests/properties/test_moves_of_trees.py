"""Moves of nodes: a session and a model of it agree, for hierarchies of nodes with similar names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import pytest
import zarr
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import MemoryStore

import frazil
from frazil.errors import ErrorKind
from frazil.zarr_store import IcechunkStore

FEW = settings(max_examples=examples(15))
#: Source and target. A refused move also has the kind of its error.
type Move = tuple[str, str]
type MixedMove = tuple[str, str, ErrorKind | None]


class ModelStore(MemoryStore):
    """zarr's memory store, with operations of a session: move nodes, shift chunks, copy."""

    async def move(self, source: str, dest: str) -> None:
        """Rename all nodes at and below the absolute path ``source``."""
        old, new = source.strip("/"), dest.strip("/")
        inside = f"{old}/" if old else ""
        for key in [key for key in self._store_dict if key.startswith(inside)]:
            tail = key[len(inside) :]
            self._store_dict[f"{new}/{tail}" if new else tail] = self._store_dict.pop(key)


@dataclass
class ArrayNode:
    """An array: its shape and type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass
class GroupNode:
    """A group, with its children by name.

    Examples:
        >>> tree = GroupNode.from_dict({"a": {"x": ArrayNode((2,), np.dtype("i4"))}, "b": {}})
        >>> tree.nodes(), tree.groups(), tree.arrays()
        (['a', 'a/x', 'b'], ['a', 'b'], ['a/x'])
    """

    children: dict[str, Node] = field(default_factory=dict)

    def walk(self, prefix: str | PurePosixPath = "") -> Iterator[tuple[PurePosixPath, Node]]:
        """Yield path and node of all nodes below, depth first."""
        for name, child in self.children.items():
            path = PurePosixPath(prefix) / name
            yield path, child
            if isinstance(child, GroupNode):
                yield from child.walk(path)

    def _paths(self, prefix: str, kinds: tuple[type, ...], include_root: bool) -> list[str]:
        paths = [str(path) for path, child in self.walk(prefix) if isinstance(child, kinds)]
        return [prefix, *paths] if include_root else paths

    def nodes(self, prefix: str = "", *, include_root: bool = False) -> list[str]:
        """Return the paths of all nodes below."""
        return self._paths(prefix, (ArrayNode, GroupNode), include_root)

    def groups(self, prefix: str = "", *, include_root: bool = False) -> list[str]:
        """Return the paths of all groups below."""
        return self._paths(prefix, (GroupNode,), include_root)

    def arrays(self, prefix: str = "") -> list[str]:
        """Return the paths of all arrays below."""
        return self._paths(prefix, (ArrayNode,), False)

    def materialize(self, store: Store) -> zarr.Group:
        """Write the hierarchy with empty arrays to a store, and return its root group."""
        root = zarr.group(store)
        for path, child in self.walk():
            if isinstance(child, GroupNode):
                root.create_group(str(path))
            else:
                root.create_array(str(path), shape=child.shape, dtype=child.dtype)
        return root

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> GroupNode:
        """Return a hierarchy from nested dictionaries that contain array nodes."""
        return cls(
            {name: cls.from_dict(child) if isinstance(child, dict) else child for name, child in d.items()}
        )

    @classmethod
    async def from_store_async(cls, store: Store) -> GroupNode:
        """Return the hierarchy in a store."""
        root = await zarr.api.asynchronous.open_group(store, mode="r")
        children: dict[str, Any] = {}
        async for path, node in root.members(max_depth=None):
            *above, name = path.split("/")
            level = children
            for part in above:
                level = level.setdefault(part, {})
            if isinstance(node, zarr.AsyncArray):
                level[name] = ArrayNode(node.shape, node.dtype)
            else:
                level.setdefault(name, {})
        return cls.from_dict(children)

    @classmethod
    def from_store(cls, store: Store) -> GroupNode:
        """Do the same as ``from_store_async``, without an event loop."""
        return sync(cls.from_store_async(store))


Node = ArrayNode | GroupNode


node_names: Final = st.text("abcxyz012_", min_size=1, max_size=4)
_AFFIXES: Final = ("-", "_", ".", "0", "_0", "-bar", "a")
_TYPES: Final = ("i4", "f8", "u1")


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
    """Return hierarchies with similar names.

    Examples:
        >>> isinstance(trees(), st.SearchStrategy)
        True
    """
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


def child_names_at(parent: str, all_paths: set[str]) -> set[str]:
    """Return the names of the nodes directly below a path.

    Examples:
        >>> sorted(child_names_at("foo", {"foo/a", "foo/b/c", "bar"})), child_names_at("bar", {"bar"})
        (['a', 'b'], set())
    """
    inside = f"{parent}/" if parent else ""
    return {path[len(inside) :].split("/")[0] for path in all_paths if path.startswith(inside) and path}


def is_descendant(path: str, ancestor: str) -> bool:
    """Return whether one path is below the other, and not the same."""
    return path.startswith(f"{ancestor}/") if ancestor else bool(path)


def moved(path: str, source: str, target: str) -> str:
    """Return a path after a node was moved."""
    inside = path == source or is_descendant(path, source)
    return target + path[len(source) :] if inside else path


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
) -> MixedMove:
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
            source = a_node(
                lambda node: (node != parent and not is_descendant(parent, node)) or node == parent
            )
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
    n_moves: st.SearchStrategy[int] = st.integers(min_value=1, max_value=10),  # noqa: B008
    p_invalid: st.SearchStrategy[float] = st.floats(min_value=0.0, max_value=1.0),  # noqa: B008
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

        nodes, arrays = ({moved(path, source, target) for path in paths} for paths in (nodes, arrays))
        moves.append((source, target, None))
    return moves


async def require_same_listings(model: ModelStore, store: IcechunkStore, paths: list[str]) -> None:
    for path in paths:
        inside = path.strip("/")
        expected = {name async for name in model.list_dir(inside)} - {"c"}
        listed = [name async for name in store.list_dir(inside)]
        assert set(listed) - {"c"} == expected
        assert len(listed) == len(set(listed))


def model_and_session(tree: GroupNode) -> tuple[ModelStore, frazil.Session, frazil.Repository]:
    note(f"tree: {tree}")
    model = ModelStore()
    tree.materialize(model)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    tree.materialize(session.store)
    return model, session, repo


@FEW
@given(st.data(), trees(max_leaves=st.integers(1, 10)))
def test_moves_of_a_model_and_of_a_session_agree(data: st.DataObject, tree: GroupNode) -> None:
    moves = data.draw(valid_and_invalid_moves(tree))
    model, session, repo = model_and_session(tree)
    session.commit("tree")
    arrays, groups = set(tree.arrays()), set(tree.groups())
    moving = repo.rearrange_session("main")
    for source, target, refused in moves:
        if refused is not None:
            with pytest.raises(frazil.IcechunkError) as raised:
                moving.move(f"/{source}", f"/{target}")
            assert raised.value.kind == refused
            continue
        moving.move(f"/{source}", f"/{target}")
        asyncio.run(model.move(f"/{source}", f"/{target}"))
        arrays, groups = ({moved(path, source, target) for path in paths} for paths in (arrays, groups))
    read = GroupNode.from_store(moving.store)
    assert (set(read.arrays()), set(read.groups())) == (arrays, groups)
    asyncio.run(require_same_listings(model, moving.store, ["", *groups]))
    targets = [target.split("/") for _, target in moving.status().moved_nodes]
    assert targets == sorted(targets)


@FEW
@given(trees(max_leaves=st.integers(1, 8)))
def test_a_hierarchy_is_the_same_in_every_phase(tree: GroupNode) -> None:
    model, session, repo = model_and_session(tree)
    stores = [session.store]
    session.commit("a commit")
    for store in (*stores, session.store, repo.readonly_session("main").store):
        assert sorted(GroupNode.from_store(store).nodes()) == sorted(tree.nodes())
        asyncio.run(require_same_listings(model, store, tree.groups(include_root=True)))
