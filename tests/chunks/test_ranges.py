"""Ranges of objects: the plan of requests, the cache, and the budget of bytes in memory."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.patience import patience

from frazil.chunks.ranges import (
    ByteBudget,
    ByteRange,
    MergeLimits,
    RangeCache,
    ReadPlan,
    StoredObject,
    plan_objects,
    plan_reads,
)
from frazil.storage.memory import MemoryStorage

ranges = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(1, 80)), max_size=40)


def plan(wanted: list[tuple[int, int, int]], *, gap: int, waste: int, size: int) -> ReadPlan:
    keys = [key for key, _, _ in wanted]
    starts = [start for _, start, _ in wanted]
    stops = [stop for _, _, stop in wanted]
    return plan_reads(keys, starts, stops, MergeLimits(gap, waste, size))


def not_asked_for(start: int, stop: int, spans: list[tuple[int, int]]) -> list[int]:
    """Lengths of the gaps between spans that cover ``start <= i < stop`` at both ends."""
    gaps, reached = [], start
    for first, last in sorted(spans):
        gaps.append(max(0, first - reached))
        reached = max(reached, last)
    assert reached == stop
    return gaps


@settings(max_examples=examples(400))
@given(ranges, st.integers(0, 40), st.integers(0, 100), st.integers(1, 300))
def test_every_wanted_byte_is_fetched_and_the_bounds_hold(
    wanted: list[tuple[int, int, int]], gap: int, waste: int, size: int
) -> None:
    wanted = [(key, start, start + length) for key, start, length in wanted]
    reads = plan(wanted, gap=gap, waste=waste, size=size)
    for (key, start, stop), part, offset in zip(wanted, reads.part, reads.offset, strict=True):
        assert reads.key[part] == key
        assert reads.start[part] + offset == start
        assert stop <= reads.stop[part]
    for part in range(len(reads)):
        spans = [wanted[i][1:] for i in np.flatnonzero(reads.part == part)]
        start, stop = int(reads.start[part]), int(reads.stop[part])
        gaps = not_asked_for(start, stop, spans)
        assert max(gaps) <= gap
        assert sum(gaps) <= waste
        assert stop - start <= max(size, max(last - first for first, last in spans))


@settings(max_examples=examples(200))
@given(ranges)
def test_what_touches_is_one_request_where_nothing_forbids_it(wanted: list[tuple[int, int, int]]) -> None:
    wanted = [(key, start, start + length) for key, start, length in wanted]
    reads = plan(wanted, gap=0, waste=0, size=1 << 40)
    touched = {(key, byte) for key, start, stop in wanted for byte in range(start, stop)}
    assert len(reads) == len({(key, byte) for key, byte in touched if (key, byte - 1) not in touched})
    assert (reads.stop - reads.start).sum() == len(touched)


def test_the_chunks_of_a_pack_are_few_requests() -> None:
    starts = np.random.default_rng(1).permutation(4096) * 16384
    reads = plan_reads(np.zeros(4096, int), starts, starts + 16384, MergeLimits(65536, 1 << 20, 4 << 20))
    assert len(reads) == 16
    assert (reads.stop - reads.start == 4 << 20).all()


def test_sparse_ranges_are_bounded_by_their_waste() -> None:
    starts = np.arange(1000) * 60_000
    reads = plan_reads(np.zeros(1000, int), starts, starts + 1000, MergeLimits(65536, 1 << 20, 1 << 30))
    fetched = int((reads.stop - reads.start).sum())
    assert len(reads) == 56  # 18 to a request: 17 gaps of 59,000 bytes are just below 1 MiB
    assert fetched - 1000 * 1000 <= len(reads) << 20


def test_offsets_near_the_largest_do_not_overflow() -> None:
    top = (1 << 63) - 1
    reads = plan(
        [(0, top - 10, top), (0, 0, 10), (1, top - 5, top), (0, top - 20, top - 15)], gap=8, waste=8, size=99
    )
    assert reads.start.tolist() == [0, top - 20, top - 5]
    assert reads.part.tolist() == [1, 0, 2, 1]


KIB = 1 << 10
FAR = MergeLimits(max_gap=1024 * KIB, max_waste=3072 * KIB)


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 80), st.integers(0, 2)), min_size=1, max_size=60),
    st.integers(0, 3),
)
def test_long_gaps_are_a_share_of_what_is_wanted(places: list[tuple[int, int, int]], mask: int) -> None:
    """Two objects, each with its own limits, in one plan: as if each was planned alone."""
    key, start = np.array([k % 2 for _, _, k in places]), np.array([a for a, _, _ in places]) * 40 * KIB
    stop = start + np.array([n for _, n, _ in places]) * KIB
    objects = [StoredObject(str(number), None) for number in range(2)]  # type: ignore[arg-type]
    limits = [FAR if mask >> number & 1 else MergeLimits() for number in range(2)]
    reads = plan_objects(objects, key, start, stop, lambda each: limits[int(each.name)])
    assert (reads.key[reads.part] == key).all()
    assert (reads.start[reads.part] + reads.offset == start).all()
    assert (stop <= reads.stop[reads.part]).all()
    for part in range(len(reads)):
        rows = np.flatnonzero(reads.part == part)
        own = limits[int(reads.key[part])]
        spans = list(zip(start[rows].tolist(), stop[rows].tolist(), strict=True))
        gaps = not_asked_for(int(reads.start[part]), int(reads.stop[part]), spans)
        assert max(gaps) <= own.max_gap
        assert sum(gaps) <= own.max_waste
        long = sum(gap for gap in gaps if gap > 64 * KIB)
        assert long <= own.max_share * sum(last - first for first, last in spans)
    alone = [
        len(plan_reads(key[key == number], start[key == number], stop[key == number], limits[number]))
        for number in range(2)
    ]
    assert len(reads) == sum(alone)


# The cache and the budget

STORAGE = MemoryStorage()
DATA = {name: np.random.default_rng(ord(name)).bytes(100) for name in "ab"}
parts = st.tuples(st.sampled_from("ab"), st.integers(0, 80), st.integers(1, 20))


def range_of(name: str, start: int, length: int) -> ByteRange:
    return ByteRange(StoredObject(name, STORAGE), start, start + length)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.booleans(), parts), max_size=60), st.integers(0, 150))
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


def test_a_pickled_cache_is_empty() -> None:
    cache = RangeCache(40, only_virtual=True)
    cache.add(range_of("a", 0, 20), DATA["a"][:20])
    cache.add(range_of("a", 90, 20), DATA["a"][90:])
    assert cache.get(range_of("a", 90, 5)) is None  # fewer bytes than the range has
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
