"""Forks: pieces of one session's work, in other processes, merged and committed once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.errors import of_kind

import frazil
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError
from frazil.format.manifest import ChunkTable


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
