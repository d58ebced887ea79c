"""Sessions and commits: what is committed is there, what is not is not."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.errors import of_kind
from tests.support.patience import patience

import frazil
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError, StorageError


def fill(
    store: frazil.IcechunkStore,
    name: str = "a",
    value: int = 1,
    shape: tuple[int, ...] = (4,),
    chunks: tuple[int, ...] = (2,),
) -> Any:
    array = zarr.create_array(
        store, name=name, shape=shape, chunks=chunks, dtype="i4", compressors=None, overwrite=True
    )
    array[:] = value
    return array


def values(session: frazil.Session, path: str = "a") -> Any:
    return np.asarray(zarr.open_array(session.store, path=path, mode="r")[:]).tolist()


def test_after_its_commit_a_session_reads_the_new_snapshot(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    fill(session.store)
    id_ = session.commit("first")
    assert (session.read_only, session.snapshot_id, session.has_uncommitted_changes) == (True, id_, False)
    assert session.branch is None
    assert values(session) == [1, 1, 1, 1]


def test_a_transaction_that_raises_commits_nothing(repo: frazil.Repository) -> None:
    def work() -> None:
        with repo.transaction("main", message="no") as store:
            fill(store)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        work()
    assert len(list(repo.ancestry(branch="main"))) == 1


def test_status_and_discard(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="first") as store:
        fill(store)
    session = repo.writable_session("main")
    assert session.status().is_empty()
    zarr.open_array(session.store, path="a", mode="r+")[0] = 5
    fill(session.store, "b")
    zarr.open_array(session.store, path="a", mode="r+").update_attributes({"k": 1})
    status = session.status()
    assert (status.new_arrays, status.updated_arrays) == ({"/b"}, {"/a"})
    assert status.updated_chunks == {"/a": [[0]], "/b": [[0], [1]]}
    session.discard_changes()
    assert session.status().is_empty()
    assert values(session) == [1, 1, 1, 1]
    assert not session.has_uncommitted_changes


@pytest.mark.parametrize("own", [None, dt.timedelta(days=3)])
def test_a_session_ends(
    storage: frazil.Storage, monkeypatch: pytest.MonkeyPatch, own: timedelta | None
) -> None:
    config = frazil.RepositoryConfig(session_lifetime=dt.timedelta(days=7 if own is None else 1))
    repo = frazil.Repository.create(storage, config)
    session = repo.writable_session("main", lifetime=own)
    left = session.expires_at - dt.datetime.now(dt.UTC) - (own or dt.timedelta(days=7))
    assert abs(left) < dt.timedelta(minutes=1)
    fill(session.store)
    fork = session.fork()
    fill(fork.store, value=9)
    other = repo.writable_session("main", lifetime=own)
    assert session.session_id == fork.session_id != other.session_id
    assert session.expires_at == fork.expires_at <= other.expires_at
    end = round(session.expires_at.timestamp() * 1e6)
    monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end - 1)
    fill(session.store, value=2)
    monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end)
    for write in (
        lambda: session.commit("late"),
        lambda: fill(session.store),
        lambda: fill(fork.store),
        lambda: session.merge(fork),
    ):
        with pytest.raises(SessionStateError, match=r"this session expired at .* a new session") as error:
            write()
        assert error.value.kind == ErrorKind.SESSION_EXPIRED
    assert repo.lookup_branch("main") == session.snapshot_id
    assert zarr.open_array(session.store, path="a", mode="r")[0] == 2  # reading goes on
    session.discard_changes()
    usual = frazil.Repository.open(storage, frazil.RepositoryConfig(session_lifetime=dt.timedelta(hours=24)))
    left = usual.writable_session("main").expires_at - dt.datetime.now(dt.UTC)
    assert dt.timedelta(hours=23) < left <= dt.timedelta(hours=24)


@pytest.mark.parametrize(
    "lifetime", [dt.timedelta(0), dt.timedelta(days=-1), dt.timedelta(days=7, seconds=1)]
)
def test_the_lifetime_of_a_session_has_bounds(repo: frazil.Repository, lifetime: timedelta) -> None:
    with pytest.raises(frazil.InvalidInputError, match=r"lifetime must be .* at most 7 days") as error:
        repo.writable_session("main", lifetime=lifetime)
    assert error.value.kind == ErrorKind.INVALID_COMMIT_CONFIGURATION
    with pytest.raises(TypeError):
        repo.writable_session("main", lifetime=3600)  # type: ignore[arg-type]  # what is tested


def test_a_lost_snapshot_is_an_error_and_no_empty_repository(storage: frazil.Storage) -> None:
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="first") as store:
        fill(store)
    storage.delete([f"snapshots/{repo.lookup_branch('main')}"])
    again = frazil.Repository.open(storage)
    modes: list[tuple[frazil.Session, Any]] = [
        (again.readonly_session("main"), "r"),
        (again.writable_session("main"), "a"),
    ]
    for session, mode in modes:
        with pytest.raises(StorageError, match=session.snapshot_id) as error:
            zarr.open_group(session.store, mode=mode)
        assert error.value.kind == ErrorKind.OBJECT_NOT_FOUND


def test_writes_during_a_commit_are_in_it_or_refused(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, shape=(2000,), chunks=(1,), dtype="i4")
    stored_rows, started, committed = [], threading.Event(), threading.Event()

    def write(first: bool) -> None:
        with contextlib.suppress(ReadOnlyError):
            for i in range(first, 2000, 2):
                if i >= 1998:
                    committed.wait(patience(60))
                array[i] = 1
                stored_rows.append(i)
                if len(stored_rows) > 50:
                    started.set()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    started.wait(patience(10))
    session.commit("meanwhile")
    committed.set()
    for thread in threads:
        thread.join()
    assert len(stored_rows) < 2000
    after = zarr.open_array(repo.readonly_session("main").store, mode="r")[:]
    assert np.flatnonzero(after).tolist() == sorted(stored_rows)


def test_of_two_commits_of_one_session_one_is_refused(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    fill(session.store)
    with ThreadPoolExecutor(3) as threads:
        commits = [threads.submit(session.commit, "once") for _ in range(3)]
    errors = [error for commit in commits if (error := commit.exception())]
    assert [getattr(error, "kind", None) for error in errors] == [ErrorKind.COMMIT_NOT_ALLOWED] * 2


def test_a_merge_after_the_commit_is_refused(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    fill(session.store)
    workspace, fork = session.workspace, session.fork()
    zarr.open_array(fork.store, path="a")[0] = 7
    session.commit("first")
    for place in (workspace, session.workspace):
        with pytest.raises(ReadOnlyError):
            place.seal_changes(fork.workspace.own_changes())


# ---- sessions without a handle ----------------------------------------------------------------------


def test_a_session_can_be_opened_without_a_handle(storage: frazil.Storage, repo: frazil.Repository) -> None:
    empty = repo.lookup_branch("main")
    with repo.transaction("main", message="one") as store:
        fill(store, value=1)
    repo.create_tag("v1", repo.lookup_branch("main"))
    one = next(repo.ancestry(branch="main")).written_at
    with repo.transaction("main", message="two") as store:
        fill(store, value=2)
    opened = frazil.Repository.open_session
    assert values(opened(storage)) == values(opened(storage, "main")) == [2] * 4
    assert values(opened(storage, tag="v1")) == values(opened(storage, "main", as_of=one)) == [1] * 4
    assert opened(storage, snapshot_id=empty).snapshot_id == empty
    assert opened(storage).read_only
    with pytest.raises(ValueError, match="expected exactly one of branch, tag and snapshot_id"):
        opened(storage, "main", tag="v1")
    with pytest.raises(frazil.RefNotFoundError):
        opened(storage, "dev")
    with pytest.raises(frazil.RepositoryNotFoundError):
        opened(frazil.in_memory_storage())


def test_only_arrays_have_chunks() -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    zarr.create_group(session.store, path="g")
    with pytest.raises(frazil.InvalidInputError, check=of_kind(frazil.ErrorKind.NOT_AN_ARRAY)):
        session.chunk_type("/g", [0])
    with pytest.raises(frazil.NodeNotFoundError):
        session.chunk_type("/none", [0])
