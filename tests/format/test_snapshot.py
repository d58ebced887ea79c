"""Snapshots whose description, manifests and names of dimensions are decoded when they are read."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.flatbuffer_patch import Patch, patched

from frazil.errors import FormatError
from frazil.format.envelope import FileType
from frazil.format.nodes import ArrayData, Node, NodeTable
from frazil.format.snapshot import Snapshot, decode_snapshot, encode_snapshot, initial_snapshot, open_snapshot

NAME = "snapshots/X"


def file() -> bytes:
    group = Node(b"node-000", "/", b"{}", None)
    array = Node(b"node-001", "/t", b"{}", ArrayData((8,), (2,), ("time",)))
    snapshot = replace(initial_snapshot(7), nodes=NodeTable.from_nodes([group, array]))
    return encode_snapshot(replace(snapshot, message="first", metadata={"by": "me"}))


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
