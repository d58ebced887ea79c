"""A change set against a dict of documents: what is there, and what the transaction log contains."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.change_set import ChangeSet, Coords, PreparedManifests, table_of, transaction_log
from frazil.changes.merge import merge_forks
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.ids import id_list
from frazil.format.manifest import InlineRef
from frazil.format.snapshot import ManifestFiles, ManifestRef, Node, NodeTable
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
