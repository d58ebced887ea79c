"""Snapshots: the columns of nodes, their look-ups, edits and files, and fields that are decoded late."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.flatbuffer_patch import Patch, patched
from tests.support.json_values import METADATA

from frazil.errors import FormatError, InternalError
from frazil.format.envelope import FileType, Violation
from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.snapshot import (
    ManifestFiles,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    initial_snapshot,
    open_snapshot,
)

SEGMENTS = st.text(
    st.one_of(st.sampled_from("ab-.0!é"), st.characters(exclude_characters="/", codec="utf-8")),
    min_size=1,
    max_size=12,
).filter(lambda segment: segment not in {".", ".."})
PATHS = st.lists(SEGMENTS, max_size=4).map(lambda parts: "/" + "/".join(parts))
U32 = st.integers(0, 2**32 - 1)


@st.composite
def arrays(draw: st.DrawFn) -> ArrayData:
    ndim = draw(st.integers(0, 3))
    fixed: dict[str, Any] = {"min_size": ndim, "max_size": ndim}
    shape = draw(st.lists(st.integers(0, 2**64 - 1), **fixed))
    grid = draw(st.lists(U32, **fixed))
    name = st.none() | st.text(st.characters(codec="utf-8"), max_size=5)
    names = draw(st.none() | st.lists(name, **fixed))
    boxes = draw(st.lists(st.lists(st.tuples(U32, U32), **fixed), max_size=3))
    refs = [
        ManifestRef(draw(st.binary(min_size=12, max_size=12)), np.array(box, np.uint32).reshape(ndim, 2))
        for box in boxes
    ]
    return ArrayData(tuple(shape), tuple(grid), None if names is None else tuple(names), tuple(refs))


@st.composite
def node_lists(draw: st.DrawFn) -> list[Node]:
    paths = draw(st.lists(PATHS, unique=True, max_size=12))
    return [
        Node(
            draw(st.binary(min_size=8, max_size=8)),
            path,
            draw(st.binary(max_size=20)),
            draw(st.none() | arrays()),
        )
        for path in paths
    ]


def nodes_of(table: NodeTable) -> list[Node]:
    return [table.node(row) for row in range(len(table))]


def in_order(nodes: list[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.path.encode())


def snapshot_of(table: NodeTable, **changes: Any) -> Snapshot:
    return dataclasses.replace(initial_snapshot(5), nodes=table, **changes)


@given(node_lists(), METADATA, st.text(st.characters(codec="utf-8")), st.integers(0, 2**64 - 1))
@settings(max_examples=examples(150))
def test_round_trip(nodes: list[Node], metadata: dict[str, Any], message: str, flushed_at: int) -> None:
    files = ManifestFiles(
        np.arange(36, dtype=np.uint8)[::-1].reshape(3, 12).copy(),
        np.array([1, 2**63, 3], np.uint64),
        np.array([1, 2**32 - 1, 0], np.uint32),
    )
    snapshot = Snapshot(b"\7" * 12, flushed_at, message, metadata, NodeTable.from_nodes(nodes), files)
    read = decode_snapshot(encode_snapshot(snapshot), "x")
    assert (read.id, read.message, read.flushed_at) == (snapshot.id, message, flushed_at)
    assert read.metadata == metadata
    assert nodes_of(read.nodes) == in_order(nodes)
    assert read.manifests.size_bytes.tolist() == [3, 2**63, 1]
    assert [read.manifests.size_of(id_.tobytes()) for id_ in files.ids] == [1, 2**63, 3]
    again = decode_snapshot(encode_snapshot(read), "x")
    assert nodes_of(again.nodes) == in_order(nodes)


@given(node_lists(), node_lists(), st.data())
@settings(max_examples=examples(150))
def test_edit_is_what_a_dictionary_does(before: list[Node], changed: list[Node], data: st.DataObject) -> None:
    table = NodeTable.from_nodes(before)
    if data.draw(st.booleans()):
        table = decode_snapshot(encode_snapshot(snapshot_of(table)), "x").nodes
    model = {node.path: node for node in before}
    gone = data.draw(st.lists(st.sampled_from(sorted(model)), unique=True)) if model else []
    for path in gone:
        del model[path]
    replaced = {node.path for node in changed} & set(model)
    model |= {node.path: node for node in changed}
    removed = [table.find_node(path) for path in [*gone, *replaced]]
    after = table.edit(np.array(removed, np.int64), NodeTable.from_nodes(changed))
    assert nodes_of(after) == in_order(list(model.values()))
    again = decode_snapshot(encode_snapshot(snapshot_of(after)), "x").nodes
    assert nodes_of(again) == in_order(list(model.values()))
    ids = {ref.id for node in model.values() if node.array for ref in node.array.manifests}
    assert [row.tobytes() for row in after.manifest_ids()] == sorted(ids)
    assert nodes_of(pickle.loads(pickle.dumps(again))) == nodes_of(again)


@given(node_lists(), node_lists(), st.data())
@settings(max_examples=examples(30))
def test_nodes_that_change_again_and_again(
    first: list[Node], others: list[Node], data: st.DataObject
) -> None:
    """A change of nodes at their paths keeps all other nodes, and few bytes of the nodes before."""
    table = NodeTable.from_nodes(first)
    model = {node.path: node for node in first}
    for each in others:
        if not model:
            return
        path = data.draw(st.sampled_from(sorted(model)))
        model[path] = dataclasses.replace(each, path=path)
        rows = np.array([table.find_node(path)], np.int64)
        table = table.edit(rows, NodeTable.from_nodes([model[path]]))
        assert nodes_of(table) == in_order(list(model.values()))
    again = decode_snapshot(encode_snapshot(snapshot_of(table)), "x").nodes
    assert nodes_of(again) == in_order(list(model.values()))


def test_values_that_no_node_has_are_left_behind() -> None:
    texts = [Node(bytes(8), path, b"x" * 50_000, None) for path in ("/a", "/b")]
    table = NodeTable.from_nodes(texts)
    for _ in range(20):
        table = table.edit(np.array([0]), NodeTable.from_nodes(texts[:1]))
    assert len(table.user_data.values) < 500_000


@given(st.lists(PATHS, unique=True, max_size=30), PATHS)
@settings(max_examples=examples(200))
def test_lookups(paths: list[str], other: str) -> None:
    nodes = [Node(bytes(8), path, b"", None) for path in paths]
    for table in (
        NodeTable.from_nodes(nodes),
        decode_snapshot(encode_snapshot(snapshot_of(NodeTable.from_nodes(nodes))), "x").nodes,
    ):
        for path in [*paths, other]:
            row = table.find_node(path)
            assert (row >= 0) == (path in paths)
            assert row < 0 or table.node(row).path == path
            prefix = path if path == "/" else path + "/"
            below = [each for each in table.paths_list() if each.startswith(prefix) and each != "/"]
            assert table.paths_list()[table.below(path)] == below
            names = [each[len(prefix) :] for each in below]
            assert table.children(path) == [name for name in names if "/" not in name]
        assert table.find_node("/\ud800") == -1
        many = table.find_nodes([*paths, other] * 600)  # with a dictionary
        assert many.tolist() == [table.find_node(path) for path in [*paths, other]] * 600


def test_two_nodes_at_one_path() -> None:
    node = Node(bytes(8), "/a", b"", None)
    with pytest.raises(InternalError, match="two nodes"):
        NodeTable.from_nodes([node, node])
    table = NodeTable.from_nodes([node])
    with pytest.raises(InternalError, match="two nodes"):
        table.edit(np.zeros(0, np.int64), table)


def v1_node(document: Any, shape: tuple[int, ...], guess: tuple[int, ...]) -> NodeTable:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    table = NodeTable.from_nodes([Node(bytes(8), "/a", text, ArrayData(shape, guess, None))])
    return dataclasses.replace(table, guessed=np.array([True]))


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"chunk_shape": [4, 10]}, (3, 2)),
        ({"chunk_shape": [4]}, (9, 9)),
        ({"chunk_shape": [0, 1]}, (9, 9)),
        ({"chunk_shape": ["4", 1]}, (9, 9)),
        ({"chunk_shapes": [[4, 5], [20]]}, (9, 9)),
        (None, (9, 9)),
        *((document, (9, 9)) for document in (b"", b"\xff", b"[" * 100_000, b"[]", b'{"chunk_grid": 3}')),
    ],
    ids=range(11),
)
def test_the_zarr_metadata_has_the_last_word_in_version_1(
    configuration: Any, expected: tuple[int, ...]
) -> None:
    document = {"chunk_grid": {"name": "regular", "configuration": configuration}}
    table = v1_node(configuration if isinstance(configuration, bytes) else document, (9, 20), (9, 9))
    for each in (table, table.exact()):
        array = each.node(0).array
        assert array is not None
        assert array.num_chunks == expected
    assert not table.exact().guessed.any()
    assert table.exact().exact().num_chunks.row(0).tolist() == list(expected)


def test_more_chunks_than_the_format_can_count() -> None:
    document = {"chunk_grid": {"configuration": {"chunk_shape": [1]}}}
    table = v1_node(document, (2**40,), (2,))
    with pytest.raises(FormatError, match="a dimension must have at most"):
        table.node(0)
    with pytest.raises(FormatError, match="a dimension must have at most"):
        encode_snapshot(snapshot_of(table))


def broken_rules(nodes: list[Node]) -> set[str]:
    broken: list[Violation] = []
    decode_snapshot(encode_snapshot(snapshot_of(NodeTable.from_nodes(nodes))), "s", broken)
    return {each.check for each in broken}


@pytest.mark.parametrize(
    "path", ["/", "/a/b", "/..a/.b", "/a/", "//a", "/./a", "/a/..", "/a/.", "/a//b", "/a\n/b", "a", "/x"]
)
def test_nodes_whose_paths_are_no_names_stay_in_the_file(path: str) -> None:
    document = b'{"node_type":"group"}'
    odd, good, new = (
        Node(bytes([row] * 8), at, document, None) for row, at in enumerate((path, "/x", "/new"))
    )
    is_name = path in {"/", "/a/b", "/..a/.b", "/a\n/b"}
    written = NodeTable.from_nodes([good])
    snapshot = snapshot_of(dataclasses.replace(written, hidden=NodeTable.from_nodes([odd])))
    broken: list[Violation] = []
    table = decode_snapshot(encode_snapshot(snapshot), "s", broken).nodes
    assert ("node-path" in {each.check for each in broken}) == (not is_name and path != "/x")
    assert "nodes-sorted" not in {each.check for each in broken} or path == "/x"
    for _ in range(2):  # also after a change
        assert (table.find_node(path) >= 0) == (is_name or path == "/x")
        assert table.node(table.find_node("/x")) == good
        assert odd in nodes_of(table.whole())
        changed = table.edit(np.zeros(0, np.int64), NodeTable.from_nodes([new]))
        removed = changed.edit(np.array([changed.find_node("/new")]), NodeTable.from_nodes([]))
        table = decode_snapshot(encode_snapshot(snapshot_of(removed)), "s").nodes


@pytest.mark.parametrize("seed", range(20))
def test_extents_that_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 6, (4, 2))
    boxes = np.stack((low, low + rng.integers(1, 3, (4, 2))), axis=2).astype(np.uint32)
    cells = [{(x, y) for x in range(*box[0].tolist()) for y in range(*box[1].tolist())} for box in boxes]
    expected = sum(map(len, cells)) > len(set().union(*cells))
    refs = tuple(ManifestRef(bytes([row] * 12), box) for row, box in enumerate(boxes))
    array = ArrayData((8, 8), (8, 8), None, refs)
    rules = broken_rules([Node(bytes(8), "/a", b'{"node_type":"array"}', array)])
    assert ("extents-overlap" in rules) == expected


# Fields that are decoded when they are read

NAME = "snapshots/X"


def file() -> bytes:
    group = Node(b"node-000", "/", b"{}", None)
    array = Node(b"node-001", "/t", b"{}", ArrayData((8,), (2,), ("time",)))
    snapshot = dataclasses.replace(initial_snapshot(7), nodes=NodeTable.from_nodes([group, array]))
    return encode_snapshot(dataclasses.replace(snapshot, message="first", metadata={"by": "me"}))


def damaged_message(patch: Patch) -> None:
    patch.text(patch.root, 4, b"\xff\xff")


def damaged_manifests(patch: Patch) -> None:
    patch.put("<I", patch.field(patch.root, 7), 1 << 30)


def damaged_names(patch: Patch) -> None:
    array = patch.follow(patch.field(patch.tables(patch.root, 2)[1], 4))
    patch.put("<I", patch.field(array, 1), 1 << 30)


def test_an_opened_snapshot_has_the_fields_of_a_decoded_one() -> None:
    opened, decoded = open_snapshot(file(), NAME), decode_snapshot(file(), NAME)
    for snapshot in (opened, pickle.loads(pickle.dumps(open_snapshot(file(), NAME)))):
        assert (snapshot.id, snapshot.spec_version, snapshot.flushed_at) == (decoded.id, 2, 7)
        assert (snapshot.message, snapshot.metadata) == ("first", {"by": "me"})
        assert (snapshot.parent_id, len(snapshot.manifests)) == (None, 0)
        assert list(map(snapshot.nodes.node, range(2))) == list(map(decoded.nodes.node, range(2)))


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (damaged_message, lambda snapshot: snapshot.message),
        (damaged_manifests, lambda snapshot: snapshot.manifests),
        (damaged_names, lambda snapshot: snapshot.nodes.node(1)),
    ],
)
def test_damage_is_reported_when_the_field_is_read(
    change: Callable[[Patch], None], read: Callable[[Snapshot], Any]
) -> None:
    data = patched(file(), FileType.SNAPSHOT, change)
    snapshot = open_snapshot(data, NAME)
    assert snapshot.nodes.paths_list() == ["/", "/t"]
    with pytest.raises(FormatError, match=f"^{NAME}: "):
        read(snapshot)
    with pytest.raises(FormatError, match=f"^{NAME}: "):
        decode_snapshot(data, NAME)
