"""Ranges of chunk files in new packs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.chunks.packs import FileRanges, PackOptions, copy_to_packs
from frazil.errors import FormatError, StorageError
from frazil.format.chunk_trailer import check_file, crc32c, encode_trailer
from frazil.format.ids import chunk_key, id_matrix
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


def new_ids() -> Iterator[int]:
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
        storage, wanted, PackOptions(pack_size, checksums=False), lambda: next(numbers).to_bytes(12, "big")
    )
    for row, (source, offset, length) in enumerate(rows):
        pack = storage.get(chunk_key(copies.ids[copies.source[row]].tobytes()))
        start = int(copies.offset[row])
        assert bytes(pack)[start : start + length] == files[source][offset : offset + length]
    sizes = [len(bytes(storage.get(chunk_key(id_.tobytes())))) for id_ in copies.ids]
    assert sum(sizes) == sum(length for _, _, length in rows)
    assert all(size <= max(pack_size, *(length for _, _, length in rows)) for size in sizes)


def test_small_packs_may_be_left_out() -> None:
    storage, ids = stored([b"0123456789"])
    numbers = new_ids()
    wanted = ranges_of(ids, [(0, 0, 3), (0, 3, 3), (0, 6, 4)])
    copies = copy_to_packs(
        storage, wanted, PackOptions(6, least=2), lambda: next(numbers).to_bytes(12, "big")
    )
    assert (copies.source.tolist(), len(copies.ids)) == ([0, 0, -1], 1)
    assert len(list(storage.list("chunks"))) == 2


@pytest.mark.parametrize(
    ("row", "kind"), [((0, 8, 5), "invalid-object-size"), ((1, 0, 1), "object-not-found")]
)
def test_bytes_that_are_not_there(row: tuple[int, int, int], kind: str) -> None:
    storage, ids = stored([b"0123456789"])
    with pytest.raises(StorageError) as caught:
        copy_to_packs(storage, ranges_of([*ids, bytes(12)], [row]), PackOptions(9), lambda: bytes([9] * 12))
    assert caught.value.kind == kind


def with_trailers(chunks: list[bytes], count: int = 2) -> tuple[MemoryStorage, FileRanges]:
    """``count`` files with the same chunks and trailers, and the ranges of all chunks."""
    storage = MemoryStorage()
    ids = [number.to_bytes(12, "big") for number in range(1, 1 + count)]
    lengths = [len(each) for each in chunks]
    sizes = []
    for id_ in ids:
        file = b"".join(chunks) + encode_trailer(id_, lengths, list(map(crc32c, chunks)))
        storage.put(chunk_key(id_), file)
        sizes.append(len(file))
    ends = np.cumsum(lengths)
    source = np.repeat(np.arange(count), len(chunks))
    offset, length = np.tile(ends - lengths, count), np.tile(lengths, count)
    return storage, FileRanges(id_matrix(ids), source, offset, length, np.array(sizes))


@pytest.mark.parametrize("chunks", [[b"ice", b"berg"], [bytes([n % 256, n // 256]) for n in range(2000)]])
def test_new_packs_have_checksums_and_damaged_chunks_are_not_copied(chunks: list[bytes]) -> None:
    storage, ranges = with_trailers(chunks)
    copies = copy_to_packs(storage, ranges, PackOptions(1 << 20), lambda: b"n" * 12)
    check = check_file(b"n" * 12, storage.get(chunk_key(b"n" * 12)))
    assert check.ok
    assert check.trailer is not None
    assert check.trailer.lengths.tolist() == copies.length.tolist()
    storage, ranges = with_trailers(chunks)
    key = chunk_key(ranges.ids[1].tobytes())
    data = bytearray(bytes(storage.get(key)))
    data[4] ^= 1
    storage.put(key, data)
    with pytest.raises(FormatError, match=f"{key}: the bytes . to . must have the checksum"):
        copy_to_packs(storage, ranges, PackOptions(1 << 20), lambda: b"n" * 12)
    assert len(list(storage.list("chunks"))) == 2


def test_exchanged_files_are_not_copied() -> None:
    storage, ranges = with_trailers([b"ice", b"berg"])
    one, other = (chunk_key(id_.tobytes()) for id_ in ranges.ids)
    storage.put(one, storage.get(other))
    with pytest.raises(FormatError, match=f"{one}: the file must have its own chunks, got those of {other}"):
        copy_to_packs(storage, ranges, PackOptions(1 << 20), lambda: b"n" * 12)
