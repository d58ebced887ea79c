"""Threads that write while their session is discarded, forked, merged or pickled: what is committed is there.

Each test puts one write right where it could be lost.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
import zarr

import frazil

VALUE = 7


@pytest.fixture
def repo() -> frazil.Repository:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="base") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(1,), dtype="i8", fill_value=0)
    return repo


def write(session: frazil.Session, at: int, value: int = VALUE) -> None:
    zarr.open_array(session.store, path="t")[at] = value


def committed(repo: frazil.Repository, session: frazil.Session) -> Any:
    session.commit("x", allow_empty=True)
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")[:]).tolist()


class Between:
    """Runs ``work`` on a thread right after the first call of a method, and gives it a moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, work: Any) -> None:
        self.thread = threading.Thread(target=work)
        method = getattr(owner, name)

        def called(*args: Any) -> Any:
            answer = method(*args)
            if not self.thread.ident:
                self.thread.start()
                self.thread.join(0.3)
            return answer

        monkeypatch.setattr(owner, name, called)


def test_discarded_between_a_chunk_and_its_reference(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = repo.writable_session("main")
    between = Between(monkeypatch, session.workspace.writer, "_append", session.discard_changes)
    write(session, 1)
    between.thread.join()
    assert committed(repo, session) == [0, VALUE, 0, 0]


def test_writes_during_a_fork(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    session = repo.writable_session("main")
    write(session, 0)
    between = Between(monkeypatch, session.workspace.writer, "flush", lambda: write(session, 1))
    fork = pickle.loads(pickle.dumps(session.fork()))
    between.thread.join()
    values = np.asarray(zarr.open_array(fork.store, path="t", mode="r")[:]).tolist()
    assert values == [VALUE, 0, 0, 0]
    assert committed(repo, session) == [VALUE, VALUE, 0, 0]


def test_writes_to_a_fork_during_its_merge(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    write(fork, 0)
    between = Between(monkeypatch, fork.workspace.writer, "flush", lambda: write(fork, 1))
    session.merge(fork)
    between.thread.join()
    assert committed(repo, session) == [VALUE, 0, 0, 0]


def test_writes_during_a_reindexing(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    write(session, 0)
    thread = threading.Thread(target=write, args=(session, 1, 9))

    def forward(at: list[int]) -> list[int]:
        if not thread.ident:
            thread.start()
            thread.join(0.3)
        return [at[0] + 1]

    session.reindex_array("/t", forward)
    thread.join()
    before, after = [VALUE, VALUE, 9, 0], [VALUE, 9, 0, 0]
    assert committed(repo, session) in (before, after)
