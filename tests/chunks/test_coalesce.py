from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.chunks.ranges import MergeLimits, ReadPlan, StoredObject, plan_objects, plan_reads

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


def test_strided_chunks_of_a_file_are_one_request() -> None:
    """The chunks of one place in 24 steps, where each step has four chunks."""
    starts = np.arange(24) * 4 * 30 * KIB
    reads = plan_reads(np.zeros(24, int), starts, starts + 30 * KIB, FAR)
    assert len(reads) == 1
    assert len(plan_reads(np.zeros(24, int), starts * 2, starts * 2 + 30 * KIB, FAR)) == 24
