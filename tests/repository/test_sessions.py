"""Sessions, transactions, threads and asynchronous calls: what is committed is there, what is not is not."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime as dt
import gc
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.errors import of_kind
from tests.support.faulty_storage import FaultyStorage
from tests.support.patience import patience

import frazil
from frazil.errors import ErrorKind, ReadOnlyError, SessionStateError, StorageError
from frazil.host import Host
from frazil.repository.asynchronous import SyncAsyncIterator, awaitable
from frazil.storage.memory import MemoryStorage
from frazil.threads import SIZES, Purpose


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


VALUE = 7


@pytest.fixture
def chunked() -> frazil.Repository:
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
    chunked: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chunked.writable_session("main")
    between = Between(monkeypatch, session.workspace.writer, "_append", session.discard_changes)
    write_chunk(session, 1)
    between.thread.join()
    assert committed(chunked, session) == [0, VALUE, 0, 0]


def test_writes_during_a_fork(chunked: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    session = chunked.writable_session("main")
    write_chunk(session, 0)
    between = Between(monkeypatch, session.workspace.writer, "flush", lambda: write_chunk(session, 1))
    fork = pickle.loads(pickle.dumps(session.fork()))
    between.thread.join()
    values = np.asarray(zarr.open_array(fork.store, path="t", mode="r")[:]).tolist()
    assert values == [VALUE, 0, 0, 0]
    assert committed(chunked, session) == [VALUE, VALUE, 0, 0]


def test_writes_to_a_fork_during_its_merge(
    chunked: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chunked.writable_session("main")
    fork = session.fork()
    write_chunk(fork, 0)
    between = Between(monkeypatch, fork.workspace.writer, "flush", lambda: write_chunk(fork, 1))
    session.merge(fork)
    between.thread.join()
    assert committed(chunked, session) == [VALUE, 0, 0, 0]


def test_writes_during_a_reindexing(chunked: frazil.Repository) -> None:
    session = chunked.writable_session("main")
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
    assert committed(chunked, session) in (before, after)


def _repository() -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="first") as store:
        group = zarr.create_group(store)
        group.create_array("a", shape=(50,), chunks=(1,), dtype="i4")[:] = 7
    return repo


#: These return an iterator for ``async for``, and are not awaited.
ITERATORS = {"ops_log_async"}


def test_every_twin_is_awaited_and_has_the_parameters_of_its_method() -> None:
    pairs = 0
    for cls in (frazil.Repository, frazil.Session, frazil.ForkSession, frazil.IcechunkStore):
        for name in filter(lambda name: name.endswith("_async"), dir(cls)):
            twin, method = getattr(cls, name), getattr(cls, name.removesuffix("_async"), None)
            if name in ITERATORS or method is None:
                continue
            assert inspect.iscoroutinefunction(twin), name
            assert inspect.signature(twin) == inspect.signature(method), name
            pairs += 1
    assert pairs > 40


async def test_more_waiting_calls_than_threads_are_no_deadlock() -> None:
    class Waiting:
        """Every call waits for the last one to begin on its own thread, but for those that come later."""

        def __init__(self) -> None:
            self.started = threading.Barrier(SIZES[Purpose.ASYNC_CALLS] // 2)

        def meet(self) -> None:
            self.started.wait(patience(30))

        def pass_by(self) -> int:
            return 1

        meet_async = awaitable(meet)
        pass_by_async = awaitable(pass_by)

    waiting = Waiting()
    many = [waiting.pass_by_async() for _ in range(500)]
    meeting = [asyncio.ensure_future(waiting.meet_async()) for _ in range(SIZES[Purpose.ASYNC_CALLS] // 2)]
    assert sum(await asyncio.gather(*many)) == 500
    await asyncio.gather(*meeting)


async def test_the_loops_own_threads_are_left_alone() -> None:
    blocked = threading.Event()
    loop = asyncio.get_running_loop()
    stuck = [loop.run_in_executor(None, blocked.wait) for _ in range(100)]
    try:
        assert await asyncio.wait_for(_repository().list_branches_async(), patience(10)) == {"main"}
    finally:
        blocked.set()
        await asyncio.gather(*stuck)


async def test_calls_see_the_context_of_their_caller() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    class Reads:
        def read(self) -> int:
            return variable.get()

        read_async = awaitable(read)

    variable.set(5)
    assert await Reads().read_async() == 5


class Slow(MemoryStorage):
    """Waits before each write of ``repo``."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = threading.Event()
        self.go_on = threading.Event()

    def with_settings(self, settings: frazil.StorageSettings) -> Slow:
        return self

    def put(self, key: str, data: Any, condition: Any = frazil.storage.ALWAYS) -> Any:
        if key == "repo" and not isinstance(condition, frazil.storage.IfAbsent):
            self.writing.set()
            assert self.go_on.wait(patience(30))
        return super().put(key, data, condition)


async def test_a_commit_whose_await_is_cancelled_happens_or_does_not() -> None:
    storage = Slow()
    repo = frazil.Repository.create(storage)
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="g")
    task = asyncio.ensure_future(session.commit_async("cancelled"))
    await asyncio.get_running_loop().run_in_executor(None, storage.writing.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.go_on.set()
    async with asyncio.timeout(patience(30)):
        while not session.read_only:  # it goes on
            await asyncio.sleep(0.01)
    assert repo.lookup_branch("main") == session.snapshot_id
    assert next(iter(repo.ancestry(branch="main"))).message == "cancelled"
    with pytest.raises(frazil.SessionStateError):
        await session.commit_async("again")


async def test_a_cancelled_call_in_the_queue_never_starts() -> None:
    calls: list[int] = []
    release = threading.Event()

    class Work:
        def wait(self) -> None:
            release.wait(patience(30))

        def note(self, number: int) -> None:
            calls.append(number)

        wait_async, note_async = awaitable(wait), awaitable(note)

    work = Work()
    occupied = [asyncio.ensure_future(work.wait_async()) for _ in range(SIZES[Purpose.ASYNC_CALLS])]
    late = [asyncio.ensure_future(work.note_async(n)) for n in range(20)]
    await asyncio.sleep(0.05)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    release.set()
    await asyncio.gather(*occupied)
    assert calls == []


async def test_iterators_can_be_left_and_closed() -> None:
    repo = _repository()
    session = repo.readonly_session("main")
    before = asyncio.all_tasks()
    async for _ in repo.async_ancestry(branch="main"):
        break
    async for _ in repo.ops_log_async():
        break
    coordinates_of: Any = session.chunk_coordinates("/a", batch_size=3)
    async with aclosing(coordinates_of) as coordinates:
        async for coords in coordinates:
            assert coords == (0,)
            break
    keys_of: Any = session.store.list()
    async with aclosing(keys_of) as keys:
        async for _ in keys:
            break
    log = repo.ops_log()
    await anext(log)
    await log.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(log)
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_cancelled_step_is_not_lost() -> None:
    release = threading.Event()

    def numbers() -> Iterator[Any]:
        yield 1
        release.wait(patience(30))
        yield 2
        yield 3

    iterator = SyncAsyncIterator(numbers())
    assert await anext(iterator) == 1
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(anext(iterator), 0.05)
    release.set()
    assert await anext(iterator) == 2
    assert next(iterator) == 3
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_an_error_of_a_step_is_raised_once() -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise frazil.StorageError("gone")

    iterator = SyncAsyncIterator(broken())
    assert await anext(iterator) == 1
    with pytest.raises(frazil.StorageError, match="gone"):
        await anext(iterator)
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)
