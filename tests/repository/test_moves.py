"""Sessions that rearrange: their forks, what they see, what they leave alone."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.errors import of_kind

import frazil
from frazil import ErrorKind
from frazil.changes.change_set import Moves, MoveTree
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.format.nodes import Node, NodeTable
from frazil.format.repo_info import SnapshotEntry
from frazil.repository.catalog.repo_changes import new_snapshot
from frazil.repository.settings.config import MOVE_NODE


@pytest.fixture
def repo() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="planted") as store:
        root = zarr.create_group(store)
        for path in ("a", "a/b", "d", "e"):
            root.create_group(path)
        for number, path in enumerate(("a/b/x", "d/y", "z")):
            root.create_array(path, shape=(4,), chunks=(2,), dtype="i4")[:] = number
    return repo


def paths(session: frazil.Session) -> list[str]:
    return session.workspace.node_table().paths_list()


def travelled(session: frazil.Session, *moves: tuple[str, str]) -> frazil.ForkSession:
    """Moved in another process."""
    fork = pickle.loads(pickle.dumps(session.fork()))
    for move in moves:
        fork.move(*move)
    return pickle.loads(pickle.dumps(fork))  # type: ignore[no-any-return]


def test_forks_move_and_come_back(repo: frazil.Repository) -> None:
    session = repo.rearrange_session("main")
    session.move("/z", "/d/z")
    forks = [travelled(session, ("/d/z", "/e/z"), ("/d", "/e/d")), travelled(session, ("/a/b", "/b"))]
    assert [fork.mode for fork in forks] == [frazil.SessionMode.rearrange] * 2
    session.merge(*forks)
    expected = [("/a/b", "/b"), ("/a/b/x", "/b/x"), ("/d", "/e/d"), ("/d/y", "/e/d/y"), ("/z", "/e/z")]
    assert session.status().moved_nodes == expected
    assert session.has_uncommitted_changes
    before = repo.lookup_branch("main")
    after = session.commit("moved")
    assert repo.diff(from_snapshot_id=before, to_snapshot_id=after).moved_nodes == expected
    assert paths(session) == ["/", "/a", "/b", "/b/x", "/e", "/e/d", "/e/d/y", "/e/z"]
    assert np.asarray(zarr.open_array(session.store, path="e/z")[:]).tolist() == [2] * 4


CONFLICTS: dict[str, list[list[tuple[str, str]]]] = {
    "one node, two places": [[("/z", "/y")], [("/z", "/x")]],
    "a node and its parent": [[("/a", "/d/a")], [("/a/b", "/b")]],
    "two nodes, one place": [[("/z", "/new")], [("/d", "/new")]],
    "into what another moved": [[("/z", "/d/z")], [("/d", "/a/d")]],
    "into each other": [[("/d", "/e/d")], [("/e", "/d/e")]],
}


@pytest.mark.parametrize("case", CONFLICTS)
@pytest.mark.parametrize("by_session", [False, True])
def test_moves_that_do_not_go_together(repo: frazil.Repository, case: str, by_session: bool) -> None:
    """Neither of two forks, nor of a fork and the session since."""
    session = repo.rearrange_session("main")
    first, second = CONFLICTS[case]
    forks = [travelled(session, *first)]
    if by_session:
        for move in second:
            session.move(*move)
    else:
        forks.append(travelled(session, *second))
    status, before = session.status(), paths(session)
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(*forks)
    assert (session.status(), paths(session)) == (status, before)


def test_sessions_merge_forks_of_their_kind_only(repo: frazil.Repository) -> None:
    writing, moving = repo.writable_session("main"), repo.rearrange_session("main")
    for session, fork, kind in (
        (moving, writing.fork(), ErrorKind.REARRANGE_SESSION_ONLY),
        (writing, moving.fork(), ErrorKind.NON_REARRANGE_SESSION),
    ):
        with pytest.raises(frazil.SessionStateError, check=of_kind(kind)):
            session.merge(fork)


def test_a_node_that_moved_back_is_no_change(repo: frazil.Repository) -> None:
    session = repo.rearrange_session("main")
    session.move("/a", "/q")
    session.fork()
    session.move("/q", "/a")
    assert session.has_uncommitted_changes
    assert session.status().is_empty()
    before = repo.lookup_branch("main")
    assert repo.diff(from_snapshot_id=before, to_snapshot_id=session.commit("nothing")).is_empty()


def test_a_move_stores_no_chunk_and_no_manifest() -> None:
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="planted") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="i4")[:] = 1
    before = {each.key for each in storage.list("")}
    session = repo.rearrange_session("main")
    session.move("/a", "/b")
    session.commit("moved")
    new = {each.key for each in storage.list("")} - before
    assert not any(key.startswith(("chunks/", "manifests/")) for key in new)


ENDS: dict[str, Callable[[frazil.Session], Any]] = {
    "commit": lambda session: session.commit("x", allow_empty=True),
    "amend": lambda session: session.amend("x", allow_empty=True),
    "flush": lambda session: session.flush("x"),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_asks_for_the_feature_and_the_status(repo: frazil.Repository, end: str) -> None:
    session = repo.rearrange_session("main")
    session.move("/a", "/q")
    repo.set_feature_flag("move_node", False)
    before = {each.key for each in repo.storage.list("")}
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.FEATURE_FLAG_DISABLED)):
        ENDS[end](session)
    assert {each.key for each in repo.storage.list("")} == before
    repo.set_feature_flag("move_node", None)
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only))
    with pytest.raises(frazil.ReadOnlyError, check=of_kind(ErrorKind.READ_ONLY_REPOSITORY)):
        ENDS[end](session)
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    ENDS[end](session)
    assert session.read_only


def test_the_feature_is_asked_for_again_at_the_last_moment(repo: frazil.Repository) -> None:
    """Somebody may turn it off while a session writes its files."""
    repo.set_feature_flag("move_node", False)
    info = repo._info()
    tip = info.branches["main"]
    entry = SnapshotEntry(b"\1" * 12, tip, 2**50, "moved", {})
    new_snapshot(entry, "main", tip)(info, 2**50)
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.FEATURE_FLAG_DISABLED)):
        new_snapshot(entry, "main", tip, MOVE_NODE)(info, 2**50)


def test_many_moves_ask_for_little() -> None:
    """Neither the table is made again for each, nor is every moved node looked at."""
    nodes = [Node(bytes(8), path, b"", None) for path in ("/", "/a", "/b")]
    nodes += [Node(n.to_bytes(8), f"/a/{n:05}", b"", None) for n in range(1, 20_001)]
    nodes[1:3] = [Node(b"a" * 8, "/a", b"", None), Node(b"b" * 8, "/b", b"", None)]
    moves: Moves = {}
    tree = MoveTree(NodeTable.from_nodes(nodes), moves)
    tree.move("/a", "/b/a")
    for n in range(1, 2_001):
        tree.move(f"/b/a/{n:05}", f"/{n}")
    assert len(moves) == 20_001
    assert moves[(7).to_bytes(8)].target == "/7"
    assert np.array([tree.find_node(f"/b/a/{n:05}") for n in range(1, 20_001)]).min() == -1
    assert tree.find_node("/b/a/20000") > 0


@st.composite
def uneven_grids(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int]]:
    """Chunk lengths of each dimension, a shape whose last chunks may be partly outside of it, an offset."""
    lengths = draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=2))
    shape = [sum(axis) - draw(st.integers(0, axis[-1] - 1)) for axis in lengths]
    return lengths, shape, [draw(st.integers(-len(axis), len(axis))) for axis in lengths]


def blocks(values: Any, session: frazil.Session) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the coordinates and the visible elements of the chunks of ``/a``."""
    edges = chunk_lengths(session.workspace.require_node("/a").user_data)
    ends = [
        [0, *itertools.accumulate(itertools.repeat(axis, size) if isinstance(axis, int) else axis)]
        for axis, size in zip(edges, values.shape, strict=True)
    ]
    for at in itertools.product(*(range(len(axis) - 1) for axis in ends)):
        part = values[tuple(slice(axis[i], axis[i + 1]) for axis, i in zip(ends, at, strict=True))]
        if part.size:
            yield at, part


@given(uneven_grids())
@example(([[1, 3]], [3], [1]))
@example(([[3, 1, 2]], [6], [-1]))
def test_chunks_of_unequal_lengths_keep_their_elements(
    case: tuple[list[list[int]], list[int], list[int]],
) -> None:
    """All other elements have the fill value after a shift, and the shape stays the same."""
    lengths, shape, offset = case
    with zarr.config.set({"array.rectilinear_chunks": True}):
        session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
        whole = tuple(map(sum, lengths))
        array = zarr.create_array(
            session.store, name="a", shape=whole, chunks=lengths, dtype="i4", fill_value=-1
        )
        array.resize(tuple(shape))
        array[...] = values = np.arange(np.prod(shape)).reshape(shape)
        before, document = dict(blocks(values, session)), session.workspace.require_node("/a").user_data
        session.shift_array("/a", offset)
        session.commit("shifted")
        result = zarr.open_array(session.store, path="a", mode="r")
        expected = np.full(shape, -1)
        for place, part in blocks(expected, session):
            source = before.get(tuple(at - step for at, step in zip(place, offset, strict=True)))
            if source is not None:
                inside = tuple(slice(min(two)) for two in zip(part.shape, source.shape, strict=True))
                part[inside] = source[inside]
        assert np.asarray(result[...]).tolist() == np.asarray(expected).tolist()
        is_new = session.workspace.require_node("/a").user_data != document
        if tuple(shape) == whole or (
            is_new and len(shape) == 1
        ):  # no chunk is cut off by the end of the array
            moved = [tuple(at + step for at, step in zip(place, offset, strict=True)) for place in before]
            sizes = [part.size for part, at in zip(before.values(), moved, strict=True) if at in before]
            assert (np.asarray(result[...]) >= 0).sum() == sum(sizes)
