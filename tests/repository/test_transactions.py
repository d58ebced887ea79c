"""Writers at work on one repository: they do not know each other, or they are threads of one session."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.errors import of_kind
from tests.support.patience import patience

import frazil
from frazil.errors import ErrorKind, SessionStateError
from frazil.host import Host
from frazil.testing import FaultyStorage

PATIENT = frazil.RepositoryConfig(fast_forward_timeout=dt.timedelta(seconds=patience(60)))


def with_array(
    storage: frazil.Storage, config: frazil.RepositoryConfig | None = PATIENT
) -> frazil.Repository:
    """A repository with an array of 30 elements in chunks of 10."""
    repo = frazil.Repository.create(storage, config)
    with repo.transaction("main", message="C1") as store:
        zarr.create_array(store, name="a", shape=(30,), chunks=(10,), dtype="i4", fill_value=0)
    return repo


def write(session: frazil.Session, start: int, stop: int, value: int) -> None:
    zarr.open_array(session.store, path="a", mode="r+")[start:stop] = value


def read(repo: frazil.Repository) -> Any:
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[::5]).tolist()


def history(repo: frazil.Repository) -> list[Any]:
    return [commit.message for commit in repo.ancestry(branch="main")][-3::-1]


# ------------------------------------------------------------------- writers that do not know each other


class Race:
    """Rivals that commit while we do: before our snapshot is written, each time it is."""

    def __init__(self, storage: frazil.Storage, config: frazil.RepositoryConfig | None = PATIENT) -> None:
        self.rivals: list[Callable[[], None]] = []
        self.lost = 0
        self.repo = with_array(FaultyStorage(storage, self.choose), config)
        self.plain = frazil.Repository.open(storage)

    def choose(self, key: str, condition: object) -> None:
        if key.startswith("snapshots/") and self.rivals:
            self.lost += 1
            self.rivals.pop(0)()

    def rival(self, number: int, start: int = 0, stop: int = 10) -> Callable[[], None]:
        def act() -> None:
            session = self.plain.writable_session("main")
            write(session, start, stop, 7)
            session.commit(f"rival {number}")

        return act


def test_it_goes_on_until_it_succeeds(storage: frazil.Storage) -> None:
    race = Race(storage)
    session = race.repo.writable_session("main")
    write(session, 10, 30, 2)
    race.rivals = [race.rival(number) for number in range(8)]
    session.commit("mine")
    assert race.lost == 8
    assert history(race.repo) == [*(f"rival {number}" for number in range(8)), "mine"]
    assert read(race.repo) == [7, 7, 2, 2, 2, 2]


def test_changes_continue_until_a_conflict(storage: frazil.Storage) -> None:
    race = Race(storage)
    session = race.repo.writable_session("main")
    write(session, 10, 30, 2)
    race.rivals = [race.rival(0), race.rival(1), race.rival(2, 20, 30), race.rival(3)]
    with pytest.raises(frazil.RebaseFailedError):
        session.commit("mine")
    assert race.lost == 3
    assert read(race.repo) == [7, 7, 0, 0, 7, 7]
    assert session.has_uncommitted_changes
    session.rebase(frazil.BasicConflictSolver())
    race.rivals.clear()
    session.commit("mine after all")
    assert read(race.repo) == [7, 7, 2, 2, 2, 2]


def test_it_goes_on_until_the_time_is_up(storage: frazil.Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    race = Race(storage, frazil.RepositoryConfig(fast_forward_timeout=dt.timedelta(seconds=5)))
    clock = [100.0]

    class Slow(Host):
        def monotonic_us(self) -> int:
            return int(clock[0] * 1e6)

        def pause(self, seconds: float) -> None:
            clock.append(seconds)

    monkeypatch.setattr("frazil.host._host", Slow())
    session = race.repo.writable_session("main")
    write(session, 10, 30, 2)

    def later(number: int) -> Any:
        def act() -> None:
            race.rival(number)()
            clock[0] += 1.3

        return act

    race.rivals = [later(number) for number in range(9)]
    with pytest.raises(frazil.ConflictError, match=r"4 attempts failed within .* 5 seconds") as error:
        session.commit("mine")
    assert error.value.kind == ErrorKind.COMMIT_CONFLICT
    assert error.value.actual_parent == race.repo.lookup_branch("main")
    assert race.lost == 4
    race.rivals.clear()
    session.commit("mine")  # nothing is lost
    assert read(race.repo) == [7, 7, 2, 2, 2, 2]


def test_a_session_that_ends_meanwhile_does_not_commit(
    storage: frazil.Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = Race(storage)
    session = race.repo.writable_session("main")
    write(session, 10, 30, 2)
    end = round(session.expires_at.timestamp() * 1e6)

    def act() -> None:
        race.rival(0)()
        monkeypatch.setattr("frazil.repository.session.commit.now_us", lambda: end)

    race.rivals = [act]
    with pytest.raises(SessionStateError, check=of_kind(ErrorKind.SESSION_EXPIRED)):
        session.commit("mine")
    assert history(race.repo) == ["rival 0"]


@pytest.mark.sample(1)
def test_many_threads_that_know_nothing_of_each_other(storage: frazil.Storage) -> None:
    repo = frazil.Repository.create(storage, PATIENT)
    with repo.transaction("main", message="C1") as store:
        zarr.create_array(store, name="a", shape=(8, 3), chunks=(1, 1), dtype="i4", fill_value=0)
    begin = threading.Barrier(8)

    def work(row: int) -> None:
        begin.wait(patience(20))
        for column in range(3):
            session = repo.writable_session("main")
            zarr.open_array(session.store, path="a", mode="r+")[row, column] = 10 * row + column + 1
            session.commit(f"{row}/{column}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    assert np.asarray(array).tolist() == [[10 * row + column + 1 for column in range(3)] for row in range(8)]
    assert sorted(history(repo)) == sorted(f"{row}/{column}" for row in range(8) for column in range(3))


# ------------------------------------------------------------------------------- writers that cooperate


VALUE = 7


@pytest.fixture
def repo() -> frazil.Repository:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="base") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(1,), dtype="i8", fill_value=0)
    return repo


def write_chunk(session: frazil.Session, at: int, value: int = VALUE) -> None:
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
    write_chunk(session, 1)
    between.thread.join()
    assert committed(repo, session) == [0, VALUE, 0, 0]


def test_writes_during_a_fork(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    session = repo.writable_session("main")
    write_chunk(session, 0)
    between = Between(monkeypatch, session.workspace.writer, "flush", lambda: write_chunk(session, 1))
    fork = pickle.loads(pickle.dumps(session.fork()))
    between.thread.join()
    values = np.asarray(zarr.open_array(fork.store, path="t", mode="r")[:]).tolist()
    assert values == [VALUE, 0, 0, 0]
    assert committed(repo, session) == [VALUE, VALUE, 0, 0]


def test_writes_to_a_fork_during_its_merge(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    write_chunk(fork, 0)
    between = Between(monkeypatch, fork.workspace.writer, "flush", lambda: write_chunk(fork, 1))
    session.merge(fork)
    between.thread.join()
    assert committed(repo, session) == [VALUE, 0, 0, 0]


def test_writes_during_a_reindexing(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    write_chunk(session, 0)
    thread = threading.Thread(target=write_chunk, args=(session, 1, 9))

    def forward(at: list[int]) -> list[int]:
        if not thread.ident:
            thread.start()
            thread.join(0.3)
        return [at[0] + 1]

    session.reindex_array("/t", forward)
    thread.join()
    before, after = [VALUE, VALUE, 9, 0], [VALUE, 9, 0, 0]
    assert committed(repo, session) in (before, after)
