"""Digests of ids, and marks by digests: no file loses its mark."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintenance import digests
from frazil.maintenance.digests import Marks, distinct_digests, id_digests

IDS = st.lists(st.binary(min_size=12, max_size=12), max_size=40)


def matrix(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 12)


@given(IDS, IDS)
def test_marks_are_membership(old: list[bytes], alive: list[bytes]) -> None:
    marks = Marks(matrix(old))
    for part in (alive[:3], alive[3:], old[::2]):
        marks.mark(np.unique(id_digests(matrix(part))))
    marked = {*alive, *old[::2]}
    assert marks.rows().tolist() == [id_ in marked for id_ in old]


@given(IDS, st.data())
def test_equal_digests_are_marked_together(ids: list[bytes], data: st.DataObject) -> None:
    """A digest of one bit, so that most ids have the digest of another id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "_DROPPED_BITS", np.uint64(63))
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


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5)))
def test_distinct_digests(numbers: list[int]) -> None:
    assert distinct_digests(np.array(numbers, np.uint64)).tolist() == sorted(set(numbers))
