"""Change sets, moves, documents, differences and merges, each against a model of dicts."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.errors import of_kind
from tests.support.examples import examples

import frazil
from frazil.changes.change_set import (
    ChangeSet,
    ChunkChanges,
    Coords,
    Moves,
    MoveTree,
    PreparedManifests,
    composed_moves,
    moved_nodes,
    table_of,
    transaction_log,
)
from frazil.changes.diff import amended_log, compose_logs, differing
from frazil.changes.merge import Layers, merge_forks
from frazil.changes.zarr_metadata import parse_node
from frazil.errors import AlreadyExistsError, ErrorKind, IcechunkError, InvalidInputError, NodeNotFoundError
from frazil.format.ids import id_list, id_matrix
from frazil.format.manifest import ChunkRef, ChunkTable, InlineRef, NativeRef, VirtualRef
from frazil.format.nodes import ArrayData, Node, NodeTable
from frazil.format.snapshot import ManifestFiles, ManifestRef
from frazil.format.transaction_log import (
    ID_LISTS,
    Move,
    TransactionLog,
    decode_transaction_log,
    empty_log,
    encode_transaction_log,
)

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


def test_the_same_group_of_several_forks_is_one() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(3)]
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
