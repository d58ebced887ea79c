"""Ranges of chunk files in new packs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.chunks.pack_copies import FileRanges, copy_to_packs
from frazil.errors import StorageError
from frazil.format.ids import id_matrix
from frazil.format.keys import chunk_key
from frazil.storage.memory import MemoryStorage


def stored(files: list[bytes]) -> tuple[MemoryStorage, list[bytes]]:
    storage = MemoryStorage()
    ids = [number.to_bytes(12, "big") for number in range(1, 1 + len(files))]
    for id_, data in zip(ids, files, strict=True):
        storage.put(chunk_key(id_), data)
    return storage, ids


def ranges_of(ids: list[bytes], rows: list[tuple[int, int, int]]) -> FileRanges:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return FileRanges(id_matrix(ids), *columns)


def new_ids() -> itertools.count:
    return itertools.count(1000)


@given(st.data())
def test_every_range_has_the_same_bytes(data: st.DataObject) -> None:
    files = data.draw(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=5))
    rows = []
    for _ in range(data.draw(st.integers(0, 12))):
        source = data.draw(st.integers(0, len(files) - 1))
        offset = data.draw(st.integers(0, len(files[source]) - 1))
        rows.append((source, offset, data.draw(st.integers(1, len(files[source]) - offset))))
    pack_size = data.draw(st.integers(1, 100))
    storage, ids = stored(files)
    numbers = new_ids()
    wanted = ranges_of(ids, rows)
    copies = copy_to_packs(
        storage, wanted, pack_size=pack_size, new_id=lambda: next(numbers).to_bytes(12, "big")
    )
    for row, (source, offset, length) in enumerate(rows):
        pack = storage.get(chunk_key(copies.ids[copies.source[row]].tobytes()))
        start = int(copies.offset[row])
        assert bytes(pack)[start : start + length] == files[source][offset : offset + length]
    sizes = [len(bytes(storage.get(chunk_key(id_.tobytes())))) for id_ in copies.ids]
    assert sum(sizes) == sum(length for _, _, length in rows)
    assert all(size <= max(pack_size, *(length for _, _, length in rows)) for size in sizes)


def test_distinct_ranges_stay_in_order() -> None:
    _, ids = stored([b"0123456789"] * 2)
    rows = [(1, 4, 2), (0, 0, 3), (1, 4, 2), (1, 4, 3), (0, 0, 3)]
    ranges, number = ranges_of(ids, rows).distinct()
    assert list(zip(ranges.source, ranges.offset, ranges.length, strict=True)) == [
        (1, 4, 2),
        (0, 0, 3),
        (1, 4, 3),
    ]
    assert number.tolist() == [0, 1, 0, 2, 1]


def test_small_packs_may_be_left_out() -> None:
    storage, ids = stored([b"0123456789"])
    numbers = new_ids()
    wanted = ranges_of(ids, [(0, 0, 3), (0, 3, 3), (0, 6, 4)])
    copies = copy_to_packs(
        storage, wanted, pack_size=6, new_id=lambda: next(numbers).to_bytes(12, "big"), least=2
    )
    assert (copies.source.tolist(), len(copies.ids)) == ([0, 0, -1], 1)
    assert len(list(storage.list("chunks"))) == 2


@pytest.mark.parametrize(
    ("row", "kind"), [((0, 8, 5), "invalid-object-size"), ((1, 0, 1), "object-not-found")]
)
def test_bytes_that_are_not_there(row: tuple[int, int, int], kind: str) -> None:
    storage, ids = stored([b"0123456789"])
    with pytest.raises(StorageError) as caught:
        copy_to_packs(
            storage, ranges_of([*ids, bytes(12)], [row]), pack_size=9, new_id=lambda: bytes([9] * 12)
        )
    assert caught.value.kind == kind
