"""A few bytes that a file uses over and over do not fill the memory."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.flatbuffer_patch import Patch, patched

from frazil.errors import FormatError
from frazil.format.envelope import FileType
from frazil.format.nodes import Node, NodeTable
from frazil.format.repo_info import RepoInfo, SnapshotEntry, decode_repo_info, encode_repo_info, new_repo_info
from frazil.format.snapshot import Snapshot, decode_snapshot, encode_snapshot, initial_snapshot

NAME = "some/file"
LEAST = b"\3" * 12


def reshared(data: bytes, kind: FileType, slot: int, field: int, *, inner: int | None = None) -> bytes:
    """The file, with an offset field of every table of a vector leading to the first table's target."""

    def change(patch: Patch) -> None:
        tables = patch.tables(patch.root, slot)
        if inner is not None:
            tables = [table for parent in tables for table in patch.tables(parent, inner)]
        places = [patch.field(table, field) for table in tables]
        target = patch.follow(places[0])
        for place in places:
            if place < target:
                patch.put("<I", place, target - place)

    return patched(data, kind, change)


def peak_of(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide_snapshot() -> Snapshot:
    nodes = [Node(bytes(8), f"/{n:05d}", b"x" * (1_000_000 if n == 0 else 1), None) for n in range(20_000)]
    return dataclasses.replace(initial_snapshot(1), nodes=NodeTable.from_nodes(nodes))


def test_shared_user_data_stays_shared() -> None:
    """20,000 nodes with the same megabyte: 20 GB for whoever copies them, so nobody does."""
    data = reshared(encode_snapshot(wide_snapshot()), FileType.SNAPSHOT, 2, 2)

    def read() -> None:
        snapshot = decode_snapshot(data, NAME, [])
        last = snapshot.nodes.node(len(snapshot.nodes) - 1)
        assert len(last.user_data) == 1_000_000
        with pytest.raises(FormatError, match="a flatbuffer must have at most"):
            encode_snapshot(snapshot)

    assert peak_of(read) < 60_000_000


def wide_info() -> RepoInfo:
    info = new_repo_info(1)
    table = info.snapshots
    metadata = {f"{n:05d}": "x" * (1_000_000 if n == 0 else 1) for n in range(5_000)}
    child = SnapshotEntry(LEAST, table.id_of(0), 1, "m", metadata)
    return dataclasses.replace(info, snapshots=table.added(child), branches={}, metadata={})


def wide_refs() -> RepoInfo:
    info = new_repo_info(1)
    (id_,) = info.branches.values()
    names = {f"{n:05d}" + "x" * (1_000_000 if n == 0 else 1): id_ for n in range(5_000)}
    return dataclasses.replace(info, branches=names)


def wide_paths() -> Snapshot:
    nodes = [Node(bytes(8), f"/{n:05d}{'x' * (1_000_000 if n == 0 else 1)}", b"", None) for n in range(5_000)]
    return dataclasses.replace(initial_snapshot(1), nodes=NodeTable.from_nodes(nodes))


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("metadata", lambda: reshared(encode_repo_info(wide_info()), FileType.REPO_INFO, 4, 1, inner=4)),
        ("names of refs", lambda: reshared(encode_repo_info(wide_refs()), FileType.REPO_INFO, 2, 0)),
        ("paths", lambda: reshared(encode_snapshot(wide_paths()), FileType.SNAPSHOT, 2, 1)),
    ],
)
def test_shared_texts_are_refused(what: str, data: Callable[[], bytes]) -> None:
    content = data()

    def read() -> None:
        with pytest.raises(FormatError, match=f"{NAME}: {what} have"):
            decode_snapshot(content, NAME) if what == "paths" else decode_repo_info(
                content, NAME
            ).snapshots.entry(0)

    assert peak_of(read) < 30_000_000
