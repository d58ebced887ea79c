"""The manifests of a snapshot: the same as the whole decoder reads."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from frazil.errors import FormatError
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.joined_files import decode_manifests_of_snapshot, decode_manifests_of_snapshots
from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot, decode_snapshot, encode_snapshot


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


def columns(files: ManifestFiles) -> list[list[Any]]:
    return [files.ids.tolist(), files.size_bytes.tolist(), files.num_chunk_refs.tolist()]


def test_snapshots_that_are_read_together_are_the_same() -> None:
    lists = [ids(count) for count in (5, 1, 40, 3)]
    files = [snapshot(listed, np.random.default_rng(0).permutation(listed), 2) for listed in lists]
    together = decode_manifests_of_snapshots(files)
    assert together is not None
    for decoded, data in zip(together, files, strict=True):
        alone = decode_manifests_of_snapshot(data, "x")
        assert decoded.id == alone.id
        assert columns(decoded.files) == columns(alone.files)


@pytest.mark.parametrize("other", ["version 1", "not listed", "cut off"])
def test_other_snapshots_are_read_alone(other: str) -> None:
    listed = ids(3)
    data = {
        "version 1": snapshot(listed, listed, 1),
        "not listed": snapshot(listed[:2], listed, 2),
        "cut off": snapshot(listed, listed, 2)[:90],
    }[other]
    assert decode_manifests_of_snapshots([snapshot(listed, listed, 2), data]) is None


def test_no_snapshot_reads_the_bytes_of_another() -> None:
    """The list of the first file leads to the list of the second, which has the same layout."""
    listed = ids(20)
    payload = bytearray(open_envelope(snapshot(listed, listed, 2), FileType.SNAPSHOT)[1])
    other = bytes(payload)
    root = int.from_bytes(payload[:4], "little")
    vtable = root - int.from_bytes(payload[root : root + 4], "little", signed=True)
    at = root + int.from_bytes(payload[vtable + 18 : vtable + 20], "little")  # slot 7
    distance = int.from_bytes(payload[at : at + 4], "little") + -(-len(payload) // 8) * 8
    payload[at : at + 4] = distance.to_bytes(4, "little")
    both = [seal([bytes(each)], FileType.SNAPSHOT) for each in (payload, other)]
    assert decode_manifests_of_snapshots([both[1], both[1]]) is not None
    assert decode_manifests_of_snapshots(both) is None
