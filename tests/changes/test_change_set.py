"""A change set against a dict of documents, moves against a dict of paths, and what documents mean."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.errors import of_kind
from tests.support.examples import examples

from frazil.changes.change_set import (
    ChangeSet,
    Coords,
    Moves,
    MoveTree,
    PreparedManifests,
    composed_moves,
    moved_nodes,
    table_of,
    transaction_log,
)
from frazil.changes.merge import merge_forks
from frazil.changes.zarr_metadata import parse_node
from frazil.errors import AlreadyExistsError, ErrorKind, IcechunkError, InvalidInputError, NodeNotFoundError
from frazil.format.ids import id_list
from frazil.format.manifest import InlineRef
from frazil.format.nodes import Node, NodeTable
from frazil.format.snapshot import ManifestFiles, ManifestRef
from frazil.format.transaction_log import TransactionLog

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()


def array(length: int = 4, chunk: int = 2, **attributes: Any) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
    node = {"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "uint8"}
    return json.dumps({**node, "chunk_grid": grid, "attributes": attributes}).encode()


NUMBERS = itertools.count(100)


class Session:
    """A change set with its base, and ids that count."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.base = NodeTable.from_nodes(list(nodes))
        self.changes = ChangeSet()
        self.new_id = lambda: next(NUMBERS).to_bytes(8, "big")

    def set(self, path: str, document: bytes) -> None:
        self.changes.set_node(self.base, path, document, self.new_id)

    def delete(self, path: str) -> None:
        self.changes.delete_node(self.base, path)

    def documents(self) -> dict[str, bytes]:
        nodes = self.changes.apply(self.base)
        return {path: nodes.node(row).user_data for row, path in enumerate(nodes.paths_list())}

    def log(self) -> TransactionLog:
        return transaction_log(self.changes, bytes(12))

    def committed(self) -> list[Node]:
        nodes = self.changes.apply(self.base)
        return [nodes.node(row) for row in range(len(nodes))]


PATHS = ["/", "/a", "/a/b", "/a/b/c", "/a-b", "/d"]
operations = st.lists(
    st.tuples(st.sampled_from(["group", "array", "delete", "commit"]), st.sampled_from(PATHS)), max_size=25
)


@given(operations)
def test_any_history_of_nodes(history: list[tuple[str, str]]) -> None:
    session, model = Session(), dict[str, bytes]()
    start = dict[str, bytes]()
    for number, (what, path) in enumerate(history):
        document = GROUP if what == "group" else array(n=number)
        if what == "commit":
            session = Session(session.committed())
            start = dict(model)
        elif what == "delete":
            session.delete(path)
            prefix = path.rstrip("/") + "/"
            if path in model:
                model = {k: node for k, node in model.items() if k != path and not k.startswith(prefix)}
        elif path in model and (model[path] == GROUP) != (document == GROUP):
            with pytest.raises(AlreadyExistsError):
                session.set(path, document)
        else:
            session.set(path, document)
            model[path] = document
        assert session.documents() == model
    log, names = session.log(), {node.id: node.path for node in session.committed()}
    old = {node.id: node.path for node in (session.base.node(row) for row in range(len(session.base)))}
    new = [names[id_] for id_ in id_list(log.new_groups) + id_list(log.new_arrays)]
    gone = [old[id_] for id_ in id_list(log.deleted_groups) + id_list(log.deleted_arrays)]
    changed = [names[id_] for id_ in id_list(log.updated_groups) + id_list(log.updated_arrays)]
    # A path that was deleted and made again is in both: another node.
    assert {path for path in new if path not in gone} == model.keys() - start.keys()
    assert {path for path in gone if path not in new} == start.keys() - model.keys()
    assert set(changed).isdisjoint(new)
    same = [path for path in model.keys() & start.keys() if path not in {*new, *changed}]
    assert all(model[path] == start[path] for path in same)
    assert session.changes.updated <= {id_ for id_ in old if id_ in names}


@pytest.mark.parametrize(
    ("path", "coords", "error", "kind"),
    [
        ("/a", (2,), InvalidInputError, ErrorKind.INVALID_CHUNK_INDEX),
        ("/a", (0, 0), InvalidInputError, ErrorKind.INVALID_CHUNK_INDEX),
        ("/g", (0,), InvalidInputError, ErrorKind.NOT_AN_ARRAY),
        ("/x", (0,), NodeNotFoundError, ErrorKind.NODE_NOT_FOUND),
    ],
)
def test_references_that_cannot_be_set(
    path: str, coords: Coords, error: type[Exception], kind: ErrorKind
) -> None:
    session = Session()
    session.set("/a", array())
    session.set("/g", GROUP)
    with pytest.raises(error) as raised:
        session.changes.set_chunks(session.base, path, table_of({coords: InlineRef(b"x")}, len(coords)))
    assert getattr(raised.value, "kind", None) == kind
    assert not session.changes.chunks


def test_deleting_impossible_references_is_no_change() -> None:
    session = Session()
    session.set("/a", array())
    for path, coords in (("/a", (5,)), ("/a", (0, 0)), ("/x", (0,)), ("/a", (0,))):
        session.changes.delete_chunk(session.base, path, coords)
    assert not any(session.changes.chunks.values())


def manifests_of(node: Node | None) -> Any:
    return node and node.array and node.array.manifests


def test_manifests_of_other_writers() -> None:
    session = Session()
    session.set("/", GROUP)
    session.set("/a", array())
    base = NodeTable.from_nodes(session.committed())
    node = base.node(base.find_node("/a"))
    refs = (ManifestRef(bytes(12), np.array([[0, 2]], np.uint32)),)
    ready = {node.id: PreparedManifests("/a", refs, ManifestFiles.empty(), np.array([[1]], np.uint32))}
    changes = merge_forks(base, ChangeSet(), [ChangeSet(ready=ready)])
    assert changes
    assert manifests_of(changes.copy().node(base, "/a")) == refs
    after = changes.apply(base)
    assert manifests_of(after.node(after.find_node("/a"))) == refs
    assert transaction_log(changes, bytes(12)).updated_chunks[node.id].tolist() == [[1]]
    assert pickle.loads(pickle.dumps(changes)).ready[node.id].manifests == refs
    changes.set_node(base, "/a", array(8), session.new_id)
    assert manifests_of(changes.node(base, "/a")) == refs
    changes.delete_node(base, "/a")
    assert not changes.ready


def test_the_same_document_is_no_change() -> None:
    """Writing the document that is there already."""
    changes = ChangeSet()
    changes.set_node(NodeTable.from_nodes([]), "/g", GROUP, lambda: b"12345678")
    base = changes.apply(NodeTable.from_nodes([]))
    again = ChangeSet()
    again.set_node(base, "/g", GROUP, lambda: b"abcdefgh")
    assert not again
    again.set_node(base, "/g", GROUP + b" ", lambda: b"abcdefgh")
    assert again.updated == {b"12345678"}
    again.delete_node(base, "/g")
    assert (again.updated, again.deleted) == (set(), {b"12345678": False})


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


def document(shape: Any = (10, 6), grid: dict[str, Any] | None = None, **more: Any) -> bytes:
    node = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": "int32"}
    return json.dumps({**node, "chunk_grid": grid or regular(4, 6), **more}).encode()


def rectilinear(*axes: Any) -> dict[str, Any]:
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(axes)}}


def regular(*shape: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


@pytest.mark.parametrize(
    ("shape", "grid", "counts"),
    [
        ((10, 6), regular(4, 6), (3, 1)),
        ((0, 6), regular(4, 4), (0, 2)),
        ((), regular(), ()),
        ((10, 6), rectilinear([2, 3, 5], [4, 2]), (3, 2)),
        ((10, 6), rectilinear(1, [1, 5]), (10, 2)),
        ((3, 1, 1), rectilinear([[1, 3]], 1, 1), (3, 1, 1)),
        ((4,), rectilinear([2, 3, 5]), (2,)),
        ((0,), rectilinear([2]), (0,)),
        ((2**32 - 1,), regular(1), (2**32 - 1,)),
    ],
)
def test_number_of_chunks(shape: Any, grid: dict[str, Any], counts: tuple[int, ...]) -> None:
    array = parse_node(document(shape, grid))
    assert array is not None
    assert array.num_chunks == counts


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"zarr_format": 2, "node_type": "group"}',
        b'{"zarr_format": 3, "node_type": "table"}',
        document(shape=(-1, 6)),
        document(shape=(1.5, 6)),
        document(shape=(10,)),
        document(grid={"name": "hexagonal", "configuration": {}}),
        document(grid=regular(0, 1)),
        document(grid=rectilinear([2, 3], 6)),
        document(grid=rectilinear([], 6)),
        document(grid=rectilinear([[1, 2, 3]], 6)),
        document(dimension_names=["y"]),
        document((2**33,), regular(1)),
    ],
)
def test_other_documents_are_refused(bad: bytes) -> None:
    with pytest.raises(InvalidInputError, check=of_kind(ErrorKind.BAD_METADATA)):
        parse_node(bad)
