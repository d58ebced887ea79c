"""The manifests of a snapshot: the same as the whole decoder reads."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from frazil.errors import FormatError
from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot, decode_snapshot, encode_snapshot
from frazil.format.snapshot_manifests import decode_manifests_of_snapshot


def ids(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(os.urandom(12 * count), np.uint8).reshape(-1, 12)


def snapshot(listed: Any, used: Any, spec_version: int) -> bytes:
    box = np.array([[0, 1]], np.uint32)
    refs = tuple(ManifestRef(id_.tobytes(), box) for id_ in used)
    nodes = NodeTable.from_nodes(
        [
            Node(b"node-000", "/", b"{}", None),
            Node(b"node-001", "/a", b"{}", ArrayData((4,), (4,), None, refs)),
            Node(b"node-002", "/b", b"{}", ArrayData((4,), (4,), None, refs[:1])),
            Node(b"node-003", "/empty", b"{}", ArrayData((4,), (4,), None)),
        ]
    )
    count = len(listed)
    files = ManifestFiles(listed, np.arange(count, dtype="u8"), np.arange(count, dtype="u4")).sorted()
    parent = bytes(12) if spec_version == 1 else None
    return encode_snapshot(Snapshot(b"s" * 12, 5, "m", {}, nodes, files, parent, spec_version))


@pytest.mark.parametrize("spec_version", [1, 2])
@pytest.mark.parametrize("unlisted", [0, 2])
def test_the_manifests_are_those_of_the_snapshot(spec_version: int, unlisted: int) -> None:
    listed, others = ids(5), ids(unlisted)
    data = snapshot(listed, [*listed[:3], *others], spec_version)
    decoded = decode_manifests_of_snapshot(data, "x")
    whole = decode_snapshot(data, "x")
    assert decoded.id == whole.id
    expected = {*map(bytes, whole.manifests.ids), *map(bytes, whole.nodes.manifest_ids())}
    assert list(map(bytes, decoded.files.ids)) == sorted(expected)
    assert len(decoded.files) == 5 + unlisted
    for id_ in map(bytes, listed):
        assert decoded.files.size_of(id_) == whole.manifests.size_of(id_)


@pytest.mark.parametrize("cut", [0, 20, 60, 100])
def test_damage(cut: int) -> None:
    with pytest.raises(FormatError, match="name"):
        decode_manifests_of_snapshot(snapshot(ids(3), ids(1), 2)[:cut], "name")
