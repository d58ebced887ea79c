"""Sums of the lengths of distinct ranges, with and without repetitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintenance import distinct_ranges
from frazil.maintenance.distinct_ranges import DistinctRanges, Ranges

DIGESTS = st.one_of(st.integers(0, 9), st.integers(2**64 - 9, 2**64 - 1), st.integers(0, 2**64 - 1))


def ranges(digests: list[int]) -> Ranges:
    column = np.array(digests, np.uint64)
    return Ranges.of(column, column % np.uint64(1000))


@given(st.lists(st.lists(DIGESTS, max_size=9), max_size=12))
def test_each_range_counts_once(parts: list[list[int]]) -> None:
    """Small blocks, so that repetitions are removed several times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct_ranges, "_BLOCK", 5)
        patch.setattr(distinct_ranges, "_GATHERED", 12)
        distinct = DistinctRanges()
        for part in parts:
            distinct.add(ranges(part))
        assert distinct.length() == sum(each % 1000 for each in set().union(*parts))


def test_ranges_of_more_than_four_gibibytes_beside_short_ranges() -> None:
    distinct = DistinctRanges()
    distinct.add(ranges([5]))
    distinct.add(Ranges.of(np.array([7], np.uint64), np.array([1 << 40], np.uint64)))
    assert distinct.length() == 5 + (1 << 40)


def test_repetitions_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct_ranges, "_BLOCK", 50)
    monkeypatch.setattr(distinct_ranges, "_GATHERED", 200)
    distinct = DistinctRanges()
    for _ in range(100):
        distinct.add(ranges(list(range(50))))
    assert distinct._held <= 250
    assert distinct.length() == sum(range(50))
