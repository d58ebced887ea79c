"""Turns of commits: a host without real pauses, and other writers that act during a pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, override

import numpy as np
import pytest
import zarr
from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil import ConflictSolver, host
from frazil.errors import ErrorKind, StorageError
from frazil.repository.retries import TURNS, commit_queue
from frazil.storage.base import Storage
from frazil.storage.memory import MemoryStorage

START_US = 1_800_000_000_000_000


@dataclass
class Clock(host.Host):
    """A clock that pauses move. ``during`` runs in each pause."""

    during: Callable[[], None] = lambda: None
    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    @override
    def time_us(self) -> int:
        return START_US + int(self.now * 1e6)

    @override
    def monotonic_us(self) -> int:
        self.now += 0.01  # a request takes time
        return int(self.now * 1e6)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += max(seconds, 0.5)
        self.during()


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    with host.replace_host(clock):
        yield clock


def tickets(storage: Storage) -> list[str]:
    return sorted(info.key for info in storage.list(TURNS))


def folder_of(storage: Storage, branch: str) -> str:
    with commit_queue(storage, branch):
        return tickets(storage)[0].rpartition("/")[0]


def test_the_oldest_ticket_is_first(clock: Clock) -> None:
    """The second writer waits until the first one ends."""
    storage = MemoryStorage()
    with commit_queue(storage, "main"):
        [first] = tickets(storage)
        clock.now += 1
        clock.during = lambda: storage.delete([first]) if len(clock.pauses) == 3 else None
        with commit_queue(storage, "main") as waited:
            assert waited
            assert len(clock.pauses) == 3


def test_a_writer_that_does_not_end_loses_its_turn(clock: Clock) -> None:
    storage = MemoryStorage()
    with commit_queue(storage, "main"):
        clock.now += 1
        with commit_queue(storage, "main") as waited:
            assert waited
            assert 30 < clock.now < 40
            assert len(tickets(storage)) == 1


def test_tickets_of_dead_writers_are_deleted_at_once(clock: Clock) -> None:
    storage = MemoryStorage()
    folder = folder_of(storage, "main")
    for number in range(3):
        storage.put(f"{folder}/{number:014d}-A", b"{}")
    clock.now += 61
    with commit_queue(storage, "main") as waited:
        assert not waited
        assert len(tickets(storage)) == 1


def test_a_waiting_writer_renews_its_ticket(clock: Clock) -> None:
    """It waits for two writers, of which each is first for 25 seconds. Nobody thinks it dead."""
    storage = MemoryStorage()
    folder = folder_of(storage, "main")
    keys = [f"{folder}/{number:014d}-A" for number in range(4)]

    def others() -> None:
        for key in keys:
            storage.put(key, b"{}")
        if clock.now > 25 * (5 - len(keys)):
            storage.delete([keys.pop(0)])
        modified = [info.modified for info in storage.list(folder)]
        assert (max(modified) - min(modified)).total_seconds() < 40

    clock.during = others
    others()
    with commit_queue(storage, "main") as waited:
        assert waited
        assert clock.now > 100


def test_a_writer_waits_only_for_the_tickets_of_its_first_listing(clock: Clock) -> None:
    """Its clock is ahead of all others, who come again and again."""
    storage = MemoryStorage()
    folder = folder_of(storage, "main")
    storage.put(f"{folder}/{1:014d}-A", b"{}")

    def others() -> None:
        storage.delete(tickets(storage)[:1])
        storage.put(f"{folder}/{2 + len(clock.pauses):014d}-B", b"{}")

    clock.during = others
    with commit_queue(storage, "main") as waited:
        assert waited
        assert len(clock.pauses) == 1


def test_a_collection_deletes_the_tickets_of_dead_writers(clock: Clock) -> None:
    repo, storage = repository(1)
    folder = folder_of(storage, "main")
    storage.put(f"{folder}/{1:014d}-DEAD", b"{}")
    clock.now += 40
    storage.put(f"{folder}/{2:014d}-LIVE", b"{}")
    clock.now += 40
    repo.garbage_collect(datetime(2020, 1, 1, tzinfo=UTC))
    assert [key[-4:] for key in tickets(storage)] == ["LIVE"]


def test_the_wait_has_an_end(clock: Clock) -> None:
    storage = MemoryStorage()
    with commit_queue(storage, "main"):
        clock.now += 1
        before = clock.now
        with commit_queue(storage, "main", longest_s=2):
            assert clock.now - before < 3


def test_a_storage_that_refuses_tickets_is_no_reason_to_fail(clock: Clock) -> None:
    class Refusing(MemoryStorage):
        @override
        def put(self, key: str, *arguments: Any) -> Any:
            raise StorageError("no permission", ErrorKind.OBJECT_STORE)

    with commit_queue(Refusing(), "main") as waited:
        assert not waited


def session_with(repo: frazil.Repository, arrays: int, at: int) -> frazil.Session:
    session = repo.writable_session("main")
    root: Any = zarr.open_group(session.store)
    for number in range(arrays):
        root[f"a{number}"][at] = at + 1
    return session


def repository(arrays: int) -> tuple[frazil.Repository, FaultyStorage]:
    """Return a repository with some arrays, and its storage, which records the writes."""
    storage = FaultyStorage(MemoryStorage(), lambda key, condition: None)
    storage.is_local = False
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="arrays") as store:
        root = zarr.create_group(store)
        for number in range(arrays):
            root.create_array(f"a{number}", shape=(4,), chunks=(1,), dtype="i4")
    storage.puts.clear()
    return repo, storage


def puts_by_folder(storage: FaultyStorage) -> Counter[str]:
    """Return the number of writes by folder."""
    return Counter(key.partition("/")[0] for key in storage.puts)


def test_a_commit_of_many_arrays_waits_and_writes_its_files_once(clock: Clock) -> None:
    repo, storage = repository(8)
    with commit_queue(storage, "main"):
        [ticket] = tickets(storage)
        late, early = session_with(repo, 8, 1), session_with(repo, 8, 0)

        def commit_first() -> None:
            clock.during = lambda: None
            early.commit("first")
            storage.delete([ticket])
            storage.puts.clear()

        clock.during = commit_first
        id_ = late.commit("second", rebase_with=frazil.ConflictDetector())
    files = puts_by_folder(storage)
    assert files["snapshots"] == files["transactions"] == files["repo"] == 1
    assert repo.lookup_snapshot(id_).metadata == {"__icechunk": {"rebase_attempts": 1}}
    assert [entry.message for entry in repo.ancestry(branch="main")][:2] == ["second", "first"]
    array = zarr.open_array(repo.readonly_session("main").store, path="a7", mode="r")
    assert np.asarray(array[:]).tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "solver", "is_local"),
    [
        (1, frazil.ConflictDetector(), False),
        (8, None, False),
        (8, frazil.ConflictDetector(), False),
        (8, frazil.ConflictDetector(), True),
    ],
)
def test_which_commits_take_a_turn(clock: Clock, arrays: int, solver: ConflictSolver, is_local: bool) -> None:
    repo, storage = repository(arrays)
    storage.is_local = is_local
    session_with(repo, arrays, 0).commit("alone", rebase_with=solver)
    assert puts_by_folder(storage)["turns"] == (arrays == 8 and solver is not None and not is_local)


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_a_commit_that_has_lost_twice_takes_its_turn(clock: Clock, losses: int) -> None:
    repo, storage = repository(1)
    late = session_with(repo, 1, 3)
    others = list(range(losses))

    def commit_another(key: str, condition: object) -> None:
        if key.startswith("snapshots/") and others:
            at = others.pop()
            storage.choose = lambda key, condition: None
            session_with(repo, 1, at).commit("another")
            storage.choose = commit_another

    storage.choose = commit_another
    late.commit("late", rebase_with=frazil.ConflictDetector())
    assert repo.lookup_snapshot(repo.lookup_branch("main")).message == "late"
    assert bool(puts_by_folder(storage)["turns"]) == (losses >= 2)
    assert not tickets(storage)
