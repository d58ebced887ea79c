"""The trailer of a chunk file: what it says, and that damaged or hostile bytes raise FormatError only."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import frazil
from frazil.errors import FormatError
from frazil.format.chunk_trailer import (
    END_BYTES,
    SINGLE_TRAILER_BYTES,
    ChunkTrailer,
    check_file,
    crc32c,
    damaged_rows,
    decode_trailer,
    encode_trailer,
    find_remains,
    is_marked,
    single_trailer,
    trailer_size,
)
from frazil.format.ids import id_from_text
from frazil.repository.ids import new_bare_chunk_id, new_chunk_id

ID = bytes(range(12))
chunks = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8)


def trailer_of(parts: list[bytes]) -> bytes:
    return encode_trailer(ID, list(map(len, parts)), list(map(crc32c, parts)))


def decoded(data: bytes) -> ChunkTrailer:
    trailer = decode_trailer(ID, data, len(data))
    assert trailer is not None
    return trailer


def sealed(head: bytes, version: int = 1, length: int | None = None) -> bytes:
    """Bytes with a right end, whatever they say."""
    start = head + struct.pack("<QI", len(head) + END_BYTES if length is None else length, version)
    return start + struct.pack("<I", crc32c(start)) + b"]:FRAZIL"


def test_crc32c_of_known_values(monkeypatch: pytest.MonkeyPatch) -> None:
    # From RFC 3720, appendix B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(memoryview(bytearray(range(32)))) == 0x46DD794E
    monkeypatch.setattr("frazil.format.chunk_trailer._PART", 10)
    assert crc32c(bytes(range(32))) == 0x46DD794E  # part by part


@given(chunks)
def test_what_is_written_is_read(parts: list[bytes]) -> None:
    data = b"".join(parts) + trailer_of(parts)
    trailer = decoded(data)
    assert trailer.id == ID
    assert trailer.size == sum(map(len, parts))
    spans = zip(trailer.offsets.tolist(), trailer.lengths.tolist(), trailer.crcs.tolist(), strict=True)
    assert [(data[at : at + length], crc) for at, length, crc in spans] == [(p, crc32c(p)) for p in parts]
    offsets = trailer.offsets.astype(np.uint64)
    assert trailer.find_ranges(offsets, trailer.lengths).tolist() == list(range(len(parts)))
    assert (trailer.find_ranges(offsets, trailer.lengths + np.uint64(1)) == -1).all()
    assert (trailer.find_ranges(offsets + np.uint64(1 << 63), trailer.lengths) == -1).all()


def test_the_layout_is_the_documented_one() -> None:
    expected = b"FRAZIL:[" + ID + struct.pack("<QI", 3, crc32c(b"ice")) + struct.pack("<QI", 56, 1)
    expected += struct.pack("<I", crc32c(expected)) + b"]:FRAZIL"
    assert single_trailer(ID, b"ice") == expected
    assert len(expected) == SINGLE_TRAILER_BYTES


@given(chunks, st.data())
def test_every_changed_bit_is_seen(parts: list[bytes], data: st.DataObject) -> None:
    payload, trailer = b"".join(parts), bytearray(trailer_of(parts))
    bit = data.draw(st.integers(0, 8 * len(trailer) - 1))
    trailer[bit // 8] ^= 1 << bit % 8
    whole = payload + trailer
    try:
        decoded_trailer = decode_trailer(ID, whole, len(whole))
    except FormatError:
        return
    assert decoded_trailer is None
    assert find_remains(ID, whole)


@given(chunks, st.data())
def test_a_cut_trailer_leaves_remains(parts: list[bytes], data: st.DataObject) -> None:
    payload, trailer = b"".join(parts), trailer_of(parts)
    left = data.draw(st.integers(20, len(trailer) - 1))
    whole = payload + trailer[:left]
    assert decode_trailer(ID, whole, len(whole)) is None
    assert find_remains(ID, whole[len(payload) :])


@pytest.mark.parametrize(
    "lengths", [[4], [2], [3, 0], [2**64 - 1, 4], [2**63, 2**63, 3], []], ids=lambda each: str(each)
)
def test_lengths_that_do_not_fit_are_damage(lengths: list[int]) -> None:
    data = b"ice" + encode_trailer(ID, lengths, [0] * len(lengths))
    with pytest.raises(FormatError, match="must describe the 3 bytes before it"):
        decode_trailer(ID, data, len(data))


def test_a_sum_of_lengths_that_does_not_fit_into_64_bits_is_damage() -> None:
    end = encode_trailer(ID, [1 << 62] * 5, [0] * 5)
    with pytest.raises(FormatError, match="must describe"):
        decode_trailer(ID, end, (1 << 62) + len(end))


def test_a_length_beyond_the_file_is_refused_before_anything_is_read() -> None:
    end = sealed(b"", 1, 44 + 12 * (1 << 40))
    with pytest.raises(FormatError, match="in 1000 bytes, got"):
        trailer_size(ID, end, 1000)
    with pytest.raises(FormatError, match="at most"):
        trailer_size(ID, end, 1 << 62)


def test_a_trailer_of_a_later_version_is_not_damage() -> None:
    data = b"ice" + sealed(b"another layout", 2)
    assert decode_trailer(ID, data, len(data)) is None
    assert trailer_size(ID, data, len(data)) == len(data) - 3


def test_only_the_end_of_a_file_is_needed() -> None:
    end = trailer_of([b"ice"])
    size = 3 + len(end)
    assert trailer_size(ID, end[-END_BYTES:], size) == len(end)
    trailer = decode_trailer(ID, end, size)
    assert trailer is not None
    assert trailer.size == 3
    with pytest.raises(FormatError, match="must have 56 bytes, got 24"):
        decode_trailer(ID, end[-END_BYTES:], size)


def test_ids_say_whether_a_file_has_a_trailer() -> None:
    assert all(is_marked(new_chunk_id()) for _ in range(100))
    assert not any(is_marked(new_bare_chunk_id()) for _ in range(100))
    assert len({new_chunk_id() for _ in range(1000)}) == 1000


def test_writers_use_such_ids() -> None:
    for checksums in (True, False):
        config = frazil.RepositoryConfig(
            inline_chunk_threshold_bytes=0,
            packing=frazil.PackingConfig(threshold_bytes=100),
            chunks=frazil.ChunksConfig(checksums=checksums),
        )
        repo = frazil.Repository.create(frazil.in_memory_storage(), config)
        with repo.transaction("main", message="a") as store:
            for name, size in (("packed", 2), ("single", 200)):
                zarr.create_array(
                    store, name=name, shape=(600,), chunks=(size,), dtype="i8", compressors=None
                )[:] = np.arange(600)
        names = [each.key.partition("/")[2] for each in repo.storage.list("chunks")]
        assert len(names) == 4
        assert {is_marked(id_from_text(name)) for name in names} == {checksums}


# The comparison of a file with its trailer

CHUNKS = [b"ice", b"b", b"erg" * 20]
PAYLOAD = b"".join(CHUNKS)
FILE = PAYLOAD + trailer_of(CHUNKS)


@given(st.integers(0, 8 * len(PAYLOAD) - 1))
def test_a_changed_bit_is_in_one_chunk(bit: int) -> None:
    data = bytearray(FILE)
    data[bit // 8] ^= 1 << bit % 8
    check = check_file(ID, data)
    assert check.trailer is not None
    (row,) = check.rows.tolist()
    start = int(check.trailer.offsets[row])
    assert start <= bit // 8 < start + int(check.trailer.lengths[row])


def test_whole_files_and_parts_of_files_are_compared() -> None:
    check, exchanged, plain = check_file(ID, FILE), check_file(bytes(12), FILE), check_file(ID, PAYLOAD)
    assert (check.ok, plain.ok, plain.trailer) == (True, True, None)
    assert exchanged.rows.tolist() == [0, 1, 2]
    assert check.trailer is not None
    for rows, data, damaged in (([1, 2], PAYLOAD[3:], []), ([1, 2], b"B" + PAYLOAD[4:], [1]), ([], b"", [])):
        part = damaged_rows(check.trailer, np.array(rows, np.int64), data, 3)
        assert part.tolist() == damaged
    for data, words in ((FILE[:-13] + b"x" + FILE[-12:], "the trailer"), (FILE[:-3], "cut off")):
        with pytest.raises(FormatError, match=words):
            check_file(ID, data)
