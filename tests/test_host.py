"""`frazil.host`: the real host, and its replacement by a test."""

from __future__ import annotations

import threading
import time

from frazil import host
from frazil.host import Host, replace_host
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.storage.memory import MemoryStorage


class Fixed(Host):
    """A host at whose clock it is always the same time."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def time_us(self) -> int:
        return 5_000_000

    def monotonic_us(self) -> int:
        return 7_000_000

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def random_between(self, low: float, high: float) -> float:
        return high


def test_the_real_host() -> None:
    before = time.time_ns() // 1000
    assert before <= host.time_us() <= time.time_ns() // 1000
    assert host.monotonic_us() <= host.monotonic_us()
    assert host.random_bytes(12) != host.random_bytes(12)
    assert 2 <= host.random_between(2, 3) <= 3


def test_all_threads_use_the_replacement_until_the_block_ends() -> None:
    fixed = Fixed()
    seen: list[int] = []
    with replace_host(fixed):
        thread = threading.Thread(target=lambda: seen.append(now_us()))
        thread.start()
        thread.join()
        host.pause(1_000)
        assert host.monotonic_seconds() == 7
        assert host.random_between(2, 3) == 3
        assert new_object_id() == bytes(12)
        storage = MemoryStorage()
        storage.put("a", b"1")
        info = storage.head("a")
    assert seen == [5_000_000]
    assert fixed.pauses == [1_000]
    assert info is not None
    assert info.modified.timestamp() == 5
    assert now_us() != 5_000_000
