"""Composing transaction logs: what the reference shows for the same story."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from frazil.changes.diff import compose_logs
from frazil.format.columns import U8
from frazil.format.nodes import ArrayData, Node, NodeTable
from frazil.format.transaction_log import Move, empty_log

A, B, C = b"a" * 8, b"b" * 8, b"c" * 8
EMPTY = empty_log(bytes(12))


def ids(*ids: bytes) -> U8:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 8)


def table(**paths: bytes) -> NodeTable:
    array = ArrayData((4,), (4,), None)
    return NodeTable.from_nodes([Node(id_, f"/{path}", b"{}", array) for path, id_ in paths.items()])


def test_a_node_can_be_new_and_updated() -> None:
    logs = [replace(EMPTY, new_arrays=ids(A)), replace(EMPTY, updated_arrays=ids(A))]
    changes = compose_logs(logs, table(), table(a=A))
    assert (changes.new_arrays, changes.updated_arrays) == ({"/a"}, {"/a"})


def test_what_came_and_went_is_not_named() -> None:
    logs = [replace(EMPTY, new_arrays=ids(A, B)), replace(EMPTY, deleted_arrays=ids(A))]
    changes = compose_logs(logs, table(), table(b=B))
    assert (changes.new_arrays, changes.deleted_arrays) == ({"/b"}, set())


def test_what_was_changed_and_then_deleted_has_its_old_name() -> None:
    chunks = {A: np.array([[1]], np.uint32)}
    logs = [
        replace(EMPTY, updated_arrays=ids(A), updated_chunks=chunks),
        replace(EMPTY, deleted_arrays=ids(A)),
    ]
    changes = compose_logs(logs, table(a=A), table())
    assert (changes.updated_arrays, changes.deleted_arrays) == ({"/a"}, {"/a"})
    assert changes.updated_chunks["/a"].tolist() == [[1]]


def test_moves_are_sorted_by_target_segment_by_segment() -> None:
    moves = [Move("/a", "/m-", A, True), Move("/m-", "/m/x", A, True)]
    logs = [replace(EMPTY, moves=(move,)) for move in moves]
    assert compose_logs(logs, table(a=A), table(b=B)).moved == (("/m-", "/m/x"), ("/a", "/m-"))
