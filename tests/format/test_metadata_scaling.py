"""Ten times the nodes, snapshots or updates cost about ten times as much, never a hundred times."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.repo_info import (
    OpsEntry,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
    new_repo_info,
)
from frazil.format.snapshot import decode_snapshot, encode_snapshot, initial_snapshot

FEW, MANY = 3_000, 30_000
LIMIT = 12
#: What does not grow with the rows (per call of numpy) counts in neither time.
FLOOR = 0.002


def ids(count: int) -> list[bytes]:
    noise = np.random.default_rng(3).bytes(12 * count)
    return [noise[at : at + 12] for at in range(0, 12 * count, 12)]


def nodes(count: int) -> NodeTable:
    document = b'{"zarr_format":3,"node_type":"array","chunk_grid":{"configuration":{"chunk_shape":[4,2]}}}'
    refs = [(ManifestRef(id_, np.array([[0, 3], [0, 1]], np.uint32)),) for id_ in ids(count)]
    return NodeTable.from_nodes(
        [
            Node(
                b"%08d" % n,
                f"/group{n // 50:06d}/array{n:02d}",
                document,
                ArrayData((9, 2), (3, 1), ("t", "x"), ref),
            )
            for n, ref in enumerate(refs)
        ]
    )


def snapshot_file(count: int) -> bytes:
    return encode_snapshot(dataclasses.replace(initial_snapshot(5), nodes=nodes(count)))


def repo_info(count: int) -> RepoInfo:
    history = ids(count)
    entries = [
        SnapshotEntry(id_, history[n - 1] if n else None, n, f"commit {n}", {"n": n} if n % 5 else {})
        for n, id_ in enumerate(history)
    ]
    log = [
        OpsEntry(UpdateKind.NEW_COMMIT, count - n, f"repo.{n}", "main", new_snapshot=id_)
        for n, id_ in enumerate(history)
    ]
    return dataclasses.replace(
        new_repo_info(0),
        branches={"main": history[-1]},
        snapshots=SnapshotTable.of(entries),
        ops=OpsLog.of(log),
    )


def repo_file(count: int) -> bytes:
    return encode_repo_info(repo_info(count))


def commit(data: bytes) -> bytes:
    """Read the repo info, add a snapshot, write it."""
    info = decode_repo_info(data, "repo")
    entry = SnapshotEntry(b"\7" * 12, info.branches["main"], 10**9, "one more", {"by": "me"})
    info = dataclasses.replace(info, snapshots=info.snapshots.added(entry), branches={"main": entry.id})
    update = OpsEntry(UpdateKind.NEW_COMMIT, 10**9, name="main", new_snapshot=entry.id)
    return encode_repo_info(info.recorded(update, backup="repo.x", keep=10**6))


def change_one(data: bytes) -> bytes:
    """Read the snapshot, change a node, write it."""
    snapshot = decode_snapshot(data, "x")
    row = snapshot.nodes.find("/group000001/array51")
    node = dataclasses.replace(snapshot.nodes.node(row), user_data=b"{}")
    table = snapshot.nodes.edit(np.array([row]), NodeTable.from_nodes([node]))
    return encode_snapshot(dataclasses.replace(snapshot, nodes=table))


def find_all(data: bytes) -> None:
    table = decode_snapshot(data, "x").nodes
    assert min(map(table.find, table.paths_list())) == 0
    assert sum(map(len, map(table.children, map("/group{:06d}".format, range(len(table) // 50))))) == len(
        table
    )


def walk(data: bytes) -> None:
    info = decode_repo_info(data, "repo")
    assert len(info.snapshots.chain(info.snapshots.find(info.branches["main"]))) == len(info.snapshots)


def seconds(call: Callable[[Any], Any], argument: Any) -> float:
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        call(argument)
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize(
    ("make", "call"),
    [
        pytest.param(snapshot_file, lambda data: decode_snapshot(data, "x"), id="open-snapshot"),
        pytest.param(snapshot_file, change_one, id="change-one-node"),
        pytest.param(snapshot_file, find_all, id="find-all-nodes"),
        pytest.param(repo_file, lambda data: decode_repo_info(data, "repo"), id="open-repo-info"),
        pytest.param(repo_file, commit, id="add-a-snapshot"),
        pytest.param(repo_file, walk, id="walk-the-history"),
    ],
)
def test_cost_grows_with_the_rows(make: Callable[[int], bytes], call: Callable[[Any], Any]) -> None:
    few, many = seconds(call, make(FEW)), seconds(call, make(MANY))
    assert many <= LIMIT * max(few, FLOOR), f"{FEW} rows: {few:.4f} s, {MANY} rows: {many:.4f} s"
