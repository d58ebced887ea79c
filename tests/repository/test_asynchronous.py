"""The asynchronous methods: all of them, many at once, cancelled, and iterators that are left early."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
import zarr
from tests.support.patience import patience

import frazil
from frazil.repository.asynchronous import SyncAsyncIterator, awaitable
from frazil.storage.memory import MemoryStorage
from frazil.threads import SIZES, Purpose


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
