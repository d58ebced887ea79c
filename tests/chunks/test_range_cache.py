"""The cache of ranges of objects, and the budget of bytes in memory."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.patience import patience

from frazil.chunks.ranges import ByteBudget, ByteRange, RangeCache, StoredObject
from frazil.storage.memory import MemoryStorage

STORAGE = MemoryStorage()
DATA = {name: np.random.default_rng(ord(name)).bytes(100) for name in "ab"}
ranges = st.tuples(st.sampled_from("ab"), st.integers(0, 80), st.integers(1, 20))


def range_of(name: str, start: int, length: int) -> ByteRange:
    return ByteRange(StoredObject(name, STORAGE), start, start + length)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.booleans(), ranges), max_size=60), st.integers(0, 150))
def test_the_bytes_and_the_limit(steps: list[tuple[bool, tuple[str, int, int]]], limit: int) -> None:
    cache = RangeCache(limit)
    for is_read, (name, start, length) in steps:
        place = range_of(name, start, length)
        expected = DATA[name][start : start + length]
        if not is_read:
            cache.add(place, expected)
            assert (cache.get(place) is not None) == (length <= limit)
        data = cache.get(place)
        assert data is None or bytes(data) == expected
        first = np.arange(start, start + length)
        rows: list[int] = []
        for cached, value, some in cache.find(place.where, first, first + 1):
            at = first[some] - cached.start
            assert bytes(np.frombuffer(value, np.uint8)[at]) == bytes(DATA[name][i] for i in first[some])
            rows += some.tolist()
        singles = [cache.get(range_of(name, at, 1)) is not None for at in first.tolist()]
        assert sorted(rows) == np.flatnonzero(singles).tolist()
    held = [cache.get(range_of(each, at, 1)) is not None for each in "ab" for at in range(100)]
    assert sum(held) <= limit


def test_what_was_not_used_for_longest_is_dropped() -> None:
    cache = RangeCache(40)
    for start in (0, 20):
        cache.add(range_of("a", start, 20), DATA["a"][start : start + 20])
    assert cache.get(range_of("a", 5, 3)) is not None
    cache.add(range_of("b", 0, 20), DATA["b"][:20])
    assert cache.get(range_of("a", 0, 20)) is not None
    assert cache.get(range_of("a", 20, 20)) is None


def test_fewer_bytes_than_a_range_are_not_cached() -> None:
    cache = RangeCache(40)
    cache.add(range_of("a", 90, 20), DATA["a"][90:])
    assert cache.get(range_of("a", 90, 5)) is None


def test_a_pickled_cache_is_empty() -> None:
    cache = RangeCache(40, only_virtual=True)
    cache.add(range_of("a", 0, 20), DATA["a"][:20])
    again = pickle.loads(pickle.dumps(cache))
    assert (again.limit, again.only_virtual, again.get(range_of("a", 0, 20))) == (40, True, None)


@pytest.mark.parametrize("size", [41, 300])
def test_a_request_waits_for_room_in_memory(size: int) -> None:
    """Also one that is larger than the bound. A small one does not wait."""
    budget, events = ByteBudget(100), list[str]()

    def work() -> None:
        with budget.spend(size):
            events.append("large")

    thread = threading.Thread(target=work)
    with budget.spend(60):
        thread.start()
        thread.join(0.2)  # with a wrong budget, the thread ends in this time
        with budget.spend(40):
            events.append("small")
    thread.join(patience(30))
    assert events == ["small", "large"]
    with budget.spend(100):
        pass
