"""Digests: no file loses its mark, and each range counts once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.survey import columns
from frazil.survey.columns import DistinctRanges, Marks, Ranges, id_digests

IDS = st.lists(st.binary(min_size=12, max_size=12), max_size=40)


def matrix(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 12)


@given(IDS, IDS, st.sampled_from([2, 20]))
def test_marks_are_membership(old: list[bytes], alive: list[bytes], start_bits: int) -> None:
    """Also with more files than first bits, which are then not compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_START_BITS", start_bits)
        marks = Marks(matrix(old))
        for part in (alive[:3], alive[3:], old[::2]):
            marks.mark(np.unique(id_digests(matrix(part))))
        marked = {*alive, *old[::2]}
        assert marks.rows().tolist() == [id_ in marked for id_ in old]


@given(IDS, st.data())
def test_equal_digests_are_marked_together(ids: list[bytes], data: st.DataObject) -> None:
    """A digest of one bit, so that most ids have the digest of another id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_DROPPED_BITS", np.uint64(63))
        alive = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
        marks = Marks(matrix(ids))
        marks.mark(id_digests(matrix(sorted(alive))))
        rows = marks.rows()
        for row, id_ in enumerate(ids):
            assert rows[row] or id_ not in alive


def test_ids_in_sequence_have_different_digests() -> None:
    """Not every writer chooses its ids at random."""
    ids = np.zeros((200_000, 12), np.uint8)
    ids[:, 8:] = np.arange(len(ids), dtype=">u4").view(np.uint8).reshape(-1, 4)
    assert len(np.unique(id_digests(ids))) == len(ids)
    assert len(np.unique(id_digests(ids[:, ::-1]))) == len(ids)


DIGESTS = st.one_of(st.integers(0, 9), st.integers(2**64 - 9, 2**64 - 1), st.integers(0, 2**64 - 1))


def ranges(numbers: list[int]) -> Ranges:
    column = np.array(numbers, np.uint64)
    return Ranges.of(column, column % np.uint64(1000))


@given(st.lists(st.lists(DIGESTS, max_size=9), max_size=12))
def test_each_range_counts_once(parts: list[list[int]]) -> None:
    """Small blocks, so that repetitions are removed several times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_BLOCK", 5)
        patch.setattr(columns, "_GATHERED", 12)
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
    monkeypatch.setattr(columns, "_BLOCK", 50)
    monkeypatch.setattr(columns, "_GATHERED", 200)
    distinct = DistinctRanges()
    for _ in range(100):
        distinct.add(ranges(list(range(50))))
    assert distinct._held <= 250
    assert distinct.length() == sum(range(50))
