"""Writers at work on one repository: cooperating in one session, or not knowing of each other."""

from __future__ import annotations

import datetime as dt
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
