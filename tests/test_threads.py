"""Thread pools: bounded, ended with their block, and started again in a forked child."""

from __future__ import annotations

import os
import threading
import time
from functools import partial

import pytest
from tests.support.forks import in_child
from tests.support.patience import patience

from frazil.threads import SIZES, Purpose, ThreadPool, map_bounded, shared_pool, thread_pool


def threads_of(purpose: Purpose) -> int:
    return sum(thread.name.startswith(purpose.value) for thread in threading.enumerate())


def test_every_purpose_has_a_size_and_a_name_of_its_own() -> None:
    assert set(SIZES) == set(Purpose)
    assert all(1 <= size <= 64 for purpose, size in SIZES.items() if purpose is not Purpose.LOCAL_TASKS)
    names = [each.value for each in Purpose]
    assert len(set(names)) == len(names)


def test_a_map_has_no_more_threads_than_its_size() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work(number: int, size: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if number < size:
            together.wait(patience(30))  # until as many threads as allowed run
        time.sleep(0.002)  # time for one more
        with lock:
            running -= 1
        return number

    together = threading.Barrier(3)
    assert map_bounded(Purpose.CATALOG_READS, partial(work, size=3), range(50), 3) == list(range(50))
    assert most == 3
    together = threading.Barrier(size := SIZES[Purpose.OBJECT_DELETES])
    assert map_bounded(Purpose.OBJECT_DELETES, partial(work, size=size), range(200)) == list(range(200))
    assert most == size
    assert threads_of(Purpose.OBJECT_DELETES) == 0
    here = threading.get_ident()
    assert map_bounded(Purpose.CATALOG_READS, lambda _: threading.get_ident(), [0]) == [here]
    assert map_bounded(Purpose.CATALOG_READS, len, ["a", "bc"], 0) == [1, 2]  # at least one thread


def test_the_first_error_is_raised_and_the_rest_is_cancelled() -> None:
    calls: list[int] = []

    def work(number: int) -> None:
        calls.append(number)
        if number == 3:
            raise ValueError(number)
        time.sleep(0.01)

    with pytest.raises(ValueError, match="3"):
        map_bounded(Purpose.CATALOG_READS, work, range(1000), 2)
    assert len(calls) < 1000


def test_a_block_that_raises_cancels_what_has_not_started() -> None:
    calls: list[int] = []

    def work(number: int) -> None:
        calls.append(number)
        time.sleep(0.05)

    def block() -> None:
        with thread_pool(Purpose.FILE_COPIES, 1) as pool:
            for number in range(100):
                pool.submit(work, number)
            raise KeyError

    with pytest.raises(KeyError):
        block()
    assert len(calls) < 100


def test_pools_start_again_in_a_forked_child() -> None:
    own, shared = ThreadPool(Purpose.CHUNK_READS, 2), shared_pool(Purpose.ASYNC_CALLS)
    assert shared_pool(Purpose.ASYNC_CALLS) is shared
    used = [own.executor, shared.executor]
    limit = patience(5)
    assert [own.submit(os.getpid).result(), shared.submit(os.getpid).result()] == [os.getpid()] * 2

    def child() -> bool:
        results = [own.submit(os.getpid).result(limit), *shared.map(len, ["ice"])]
        return results == [os.getpid(), 3] and in_child(lambda: own.submit(len, "ice").result(limit) == 3)

    assert in_child(child)
    assert [own.executor, shared.executor] == used


def test_a_lock_that_another_thread_held_at_the_fork_does_not_stop_the_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = threading.Lock()
    held.acquire()
    monkeypatch.setattr("frazil.threads._lock", held)
    assert in_child(lambda: ThreadPool(Purpose.CHUNK_READS).submit(len, "ice").result(patience(5)) == 3)


def test_many_threads_start_a_pool_once() -> None:
    pool = ThreadPool(Purpose.CHUNK_READS)
    barrier = threading.Barrier(16)

    def executor(_: int) -> int:
        barrier.wait()
        return id(pool.executor)

    assert len(set(map_bounded(Purpose.CATALOG_READS, executor, range(16), 16))) == 1
