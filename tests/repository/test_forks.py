"""Forks: pieces of one session, merged and committed once. Sessions that rearrange, and their forks."""

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
from frazil.changes.change_set import Moves, MoveTree
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError
from frazil.format.manifest import ChunkTable
from frazil.format.nodes import Node, NodeTable
from frazil.format.repo_info import SnapshotEntry
from frazil.repository.catalog.repo_changes import new_snapshot
from frazil.repository.settings.config import MOVE_NODE


def with_array(
    repo: frazil.Repository, shape: tuple[int, ...] = (8, 6), chunks: tuple[int, ...] = (2, 3)
) -> frazil.Repository:
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=shape, chunks=chunks, dtype="i4", fill_value=-1)
    return repo


def travelled(fork: frazil.ForkSession) -> Any:
    return pickle.loads(pickle.dumps(fork))


def read(repo: frazil.Repository, path: str = "a", **ref: Any) -> Any:
    return zarr.open_array(repo.readonly_session(**(ref or {"branch": "main"})).store, path=path, mode="r")[:]


def write(session: frazil.Session, region: Any, value: int, path: str = "a") -> None:
    array = zarr.open_array(session.store, path=path, mode="r+")
    array[region] = value


def test_two_forks_may_not_write_one_shard(repo: frazil.Repository) -> None:
    """A shard is one object: inner chunks of the other fork would be lost."""
    with repo.transaction("main", message="shards") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(2,), shards=(4,), dtype="i4", fill_value=-1)
    session = repo.writable_session("main")
    write(session, slice(0, 8), 5)
    session.commit("a parent of both")
    session = repo.writable_session("main")
    one, two, other = (travelled(session.fork()) for _ in range(3))
    write(one, slice(0, 2), 1)
    write(two, slice(2, 4), 2)  # another inner chunk of the same shard
    write(other, slice(4, 8), 3)
    with pytest.raises(SessionStateError, match="more than one fork", check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(one, two)
    assert not session.has_uncommitted_changes
    session.merge(one, other)
    session.commit("different shards")
    assert read(repo).tolist() == [1, 1, 5, 5, 3, 3, 3, 3]


@pytest.mark.parametrize("at_once", [True, False])
def test_two_forks_may_not_write_one_chunk(repo: frazil.Repository, at_once: bool) -> None:
    session = with_array(repo).writable_session("main")
    one, two = session.fork(), session.fork()
    write(one, slice(0, 3), 1)  # half of the chunk row 2:4
    write(two, slice(3, 6), 2)  # the other half
    if not at_once:
        session.merge(one)
    last = (one, two) if at_once else (two,)
    with pytest.raises(SessionStateError, match="more than one fork", check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(*last)
    if at_once:
        assert not session.has_uncommitted_changes
    else:
        session.commit("one only")
        assert read(repo)[:, 0].tolist() == [1, 1, 1, -1, -1, -1, -1, -1]


@pytest.mark.parametrize("forks_again", [False, True])
def test_the_session_and_its_fork_may_not_write_one_chunk(repo: frazil.Repository, forks_again: bool) -> None:
    session = with_array(repo).writable_session("main")
    fork = session.fork()
    write(session, slice(0, 2), 1)
    if forks_again:
        session.merge(session.fork())
        session.fork()
    write(fork, slice(0, 1), 2)
    with pytest.raises(SessionStateError, match="more than one fork, or a fork and the session"):
        session.merge(fork)
    session.commit("mine")
    assert read(repo)[:3, 0].tolist() == [1, 1, -1]


def test_the_session_goes_on_while_its_forks_work(repo: frazil.Repository) -> None:
    session = with_array(repo).writable_session("main")
    early = session.fork()
    write(session, slice(0, 2), 1)
    late = travelled(session.fork())
    write(session, slice(2, 4), 2)
    assert session.status().updated_chunks == {"/a": [[0, 0], [0, 1], [1, 0], [1, 1]]}
    write(late, slice(0, 2), 3)  # it has seen the 1
    write(early, slice(6, 8), 4)
    session.merge(travelled(late))
    write(session, slice(0, 1), 5)  # and this session has seen the 3
    session.merge(travelled(early))
    session.commit("all")
    assert read(repo)[:, 0].tolist() == [5, 3, 2, 2, -1, -1, 4, 4]


def test_chunks_that_the_session_deleted_since_do_not_return(repo: frazil.Repository) -> None:
    session = with_array(repo).writable_session("main")
    fork = session.fork()
    write(fork, slice(0, 2), 1)
    del zarr.open_group(session.store)["a"]
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(fork)


def test_discarding_after_a_fork(repo: frazil.Repository) -> None:
    session = with_array(repo).writable_session("main")
    write(session, slice(0, 2), 1)
    fork = session.fork()
    write(fork, slice(2, 4), 2)
    session.discard_changes()
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.MERGE_NOT_ALLOWED)):
        session.merge(fork)
    fork.discard_changes()
    assert not session.has_uncommitted_changes
    assert (np.asarray(zarr.open_array(session.store, path="a", mode="r")[:]) == -1).all()
    assert np.asarray(zarr.open_array(fork.store, path="a", mode="r")[:3, 0]).tolist() == [1, 1, -1]


@pytest.mark.parametrize("where", ["session", "fork"])
def test_another_number_of_dimensions_after_a_fork(repo: frazil.Repository, where: str) -> None:
    session = with_array(repo).writable_session("main")
    write(session, ..., 5)
    fork = session.fork()
    target = fork if where == "fork" else session
    zarr.create_array(target.store, name="other", shape=(4,), chunks=(2,), dtype="i4", fill_value=-1)
    document = target.workspace.require_node("/other").user_data
    copied = target.store.get_sync("other/zarr.json")
    assert copied is not None
    target.store.set_sync("a/zarr.json", copied)
    assert target.workspace.require_node("/a").user_data == document
    write(target, slice(0, 2), 3)
    session.merge(travelled(fork))
    session.commit("a line")
    assert read(repo).tolist() == [3, 3, -1, -1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda g: g.create_group("x"), lambda g: g.create_group("x", attributes={"k": 1})),
        (lambda g: g.create_array("x", shape=(2,), dtype="i4"),) * 2,
        (lambda g: g["a"].update_attributes({"k": 1}), lambda g: g["a"].update_attributes({"k": 2})),
        (lambda g: g["a"].resize((10, 6)), lambda g: g["a"].resize((12, 6))),
        (lambda g: g.__delitem__("a"), lambda g: g["a"].__setitem__(slice(0, 2), 1)),
        (lambda g: g["a"].__setitem__(slice(0, 2), 1), lambda g: g.__delitem__("a")),
    ],
    ids=["create-create", "create twice", "attributes", "resize", "delete-write", "write-delete"],
)
def test_two_forks_may_not_change_one_node_differently(
    repo: frazil.Repository, first: Any, second: Any
) -> None:
    session = with_array(repo).writable_session("main")
    one, two = session.fork(), session.fork()
    first(zarr.open_group(one.store))
    second(zarr.open_group(two.store))
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(one, two)
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("by_session", [False, True], ids=["by a fork", "by the session"])
def test_a_new_node_needs_its_group(repo: frazil.Repository, by_session: bool) -> None:
    """The group of a new array must not vanish: its chunks would be lost."""
    with repo.transaction("main", message="groups") as store:
        zarr.create_group(store, path="g/h")
    session = repo.writable_session("main")
    one, two = session.fork(), session.fork()
    del zarr.open_group((session if by_session else one).store, mode="r+")["g"]
    zarr.create_array(two.store, name="g/h/new", shape=(2,), dtype="i4")[:] = 3
    forks = (two,) if by_session else (two, one)
    with pytest.raises(SessionStateError, match="/g/h", check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(*map(travelled, forks))
    assert session.has_uncommitted_changes is by_session
    if by_session:
        zarr.create_group(session.store, path="g/h")
    session.merge(travelled(two))
    session.commit("the group is there")
    assert read(repo, "g/h/new").tolist() == [3, 3]


def test_what_forks_cannot_do(repo: frazil.Repository) -> None:
    session = with_array(repo).writable_session("main")
    fork = session.fork()
    with pytest.raises(ReadOnlyError):
        repo.readonly_session("main").merge(fork)
    stranger = (
        with_array(frazil.Repository.create(frazil.in_memory_storage())).writable_session("main").fork()
    )
    write(stranger, slice(0, 2), 1)
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.MERGE_NOT_ALLOWED)):
        session.merge(stranger)


def test_a_fork_may_come_back_again_with_more(repo: frazil.Repository) -> None:
    session = with_array(repo).writable_session("main")
    fork = session.fork()
    write(fork, slice(0, 2), 1)
    zarr.open_group(fork.store).create_group("made")
    session.merge(fork, fork, travelled(fork))
    write(fork, slice(2, 4), 2)
    session.merge(travelled(fork))
    session.merge(fork, session)  # type: ignore[arg-type]  # it is not a fork
    session.commit("thrice")
    assert read(repo)[:, 0].tolist() == [1, 1, 2, 2, -1, -1, -1, -1]


def test_a_fork_that_comes_back_again_takes_nothing_back(repo: frazil.Repository) -> None:
    session = with_array(repo).writable_session("main")
    fork = session.fork()
    write(fork, slice(0, 2), 1)
    session.merge(fork)
    write(session, slice(0, 2), 2)
    with pytest.raises(SessionStateError, match=r"1 chunk\(s\)|2 chunk\(s\)") as error:
        session.merge(fork)
    assert error.value.kind == ErrorKind.MERGE_FAILED
    session.commit("twice")
    assert read(repo)[0, 0] == 2


@pytest.mark.sample(1)
def test_merging_one_by_one_costs_what_each_fork_has(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that tables are made of, all together: n log n, where merging anew each time is n * n."""
    rows = 0
    original = ChunkTable.merge_tables

    def counted(tables: Any) -> Any:
        nonlocal rows
        rows += sum(map(len, tables))
        return original(tables)

    monkeypatch.setattr(ChunkTable, "merge_tables", staticmethod(counted))
    count = 256
    with_array(repo, (count, 3), (1, 3))
    session = repo.writable_session("main")
    for n, fork in enumerate([session.fork() for _ in range(count)]):
        write(fork, n, n)
        session.merge(fork)
    assert rows < 40 * count
    session.commit("one by one")
    assert read(repo)[:, 0].tolist() == list(range(count))


@pytest.fixture
def planted() -> frazil.Repository:
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


def moved_elsewhere(session: frazil.Session, *moves: tuple[str, str]) -> frazil.ForkSession:
    """Moved in another process."""
    fork = pickle.loads(pickle.dumps(session.fork()))
    for move in moves:
        fork.move(*move)
    return pickle.loads(pickle.dumps(fork))  # type: ignore[no-any-return]


def test_forks_move_and_come_back(planted: frazil.Repository) -> None:
    session = planted.rearrange_session("main")
    session.move("/z", "/d/z")
    forks = [
        moved_elsewhere(session, ("/d/z", "/e/z"), ("/d", "/e/d")),
        moved_elsewhere(session, ("/a/b", "/b")),
    ]
    assert [fork.mode for fork in forks] == [frazil.SessionMode.rearrange] * 2
    session.merge(*forks)
    expected = [("/a/b", "/b"), ("/a/b/x", "/b/x"), ("/d", "/e/d"), ("/d/y", "/e/d/y"), ("/z", "/e/z")]
    assert session.status().moved_nodes == expected
    assert session.has_uncommitted_changes
    before = planted.lookup_branch("main")
    after = session.commit("moved")
    assert planted.diff(from_snapshot_id=before, to_snapshot_id=after).moved_nodes == expected
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
def test_moves_that_do_not_go_together(planted: frazil.Repository, case: str, by_session: bool) -> None:
    """Neither of two forks, nor of a fork and the session since."""
    session = planted.rearrange_session("main")
    first, second = CONFLICTS[case]
    forks = [moved_elsewhere(session, *first)]
    if by_session:
        for move in second:
            session.move(*move)
    else:
        forks.append(moved_elsewhere(session, *second))
    status, before = session.status(), paths(session)
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.MERGE_FAILED)):
        session.merge(*forks)
    assert (session.status(), paths(session)) == (status, before)


def test_sessions_merge_forks_of_their_kind_only(planted: frazil.Repository) -> None:
    writing, moving = planted.writable_session("main"), planted.rearrange_session("main")
    for session, fork, kind in (
        (moving, writing.fork(), ErrorKind.REARRANGE_SESSION_ONLY),
        (writing, moving.fork(), ErrorKind.NON_REARRANGE_SESSION),
    ):
        with pytest.raises(frazil.SessionStateError, check=of_kind(kind)):
            session.merge(fork)


def test_a_node_that_moved_back_is_no_change(planted: frazil.Repository) -> None:
    session = planted.rearrange_session("main")
    session.move("/a", "/q")
    session.fork()
    session.move("/q", "/a")
    assert session.has_uncommitted_changes
    assert session.status().is_empty()
    before = planted.lookup_branch("main")
    assert planted.diff(from_snapshot_id=before, to_snapshot_id=session.commit("nothing")).is_empty()


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
def test_every_end_asks_for_the_feature_and_the_status(planted: frazil.Repository, end: str) -> None:
    session = planted.rearrange_session("main")
    session.move("/a", "/q")
    planted.set_feature_flag("move_node", False)
    before = {each.key for each in planted.storage.list("")}
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.FEATURE_FLAG_DISABLED)):
        ENDS[end](session)
    assert {each.key for each in planted.storage.list("")} == before
    planted.set_feature_flag("move_node", None)
    planted.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only))
    with pytest.raises(frazil.ReadOnlyError, check=of_kind(ErrorKind.READ_ONLY_REPOSITORY)):
        ENDS[end](session)
    planted.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    ENDS[end](session)
    assert session.read_only


def test_the_feature_is_asked_for_again_at_the_last_moment(planted: frazil.Repository) -> None:
    """Somebody may turn it off while a session writes its files."""
    planted.set_feature_flag("move_node", False)
    info = planted._info()
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
