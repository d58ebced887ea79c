from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import FormatError
from frazil.format.chunk_trailer import check_file, crc32c, damaged_rows, decode_trailer, encode_trailer

ID, OTHER = bytes(range(12)), bytes(12)
CHUNKS = [b"ice", b"b", b"erg" * 20]
PAYLOAD = b"".join(CHUNKS)
FILE = PAYLOAD + encode_trailer(ID, list(map(len, CHUNKS)), list(map(crc32c, CHUNKS)))


def test_a_whole_file_has_no_damaged_chunk() -> None:
    check = check_file(ID, FILE)
    assert check.ok
    assert check.trailer is not None


@given(st.integers(0, 8 * len(PAYLOAD) - 1))
def test_a_changed_bit_is_in_one_chunk(bit: int) -> None:
    data = bytearray(FILE)
    data[bit // 8] ^= 1 << bit % 8
    check = check_file(ID, data)
    assert check.trailer is not None
    (row,) = check.rows.tolist()
    start = int(check.trailer.offsets[row])
    assert start <= bit // 8 < start + int(check.trailer.lengths[row])


def test_all_chunks_of_an_exchanged_file_are_damaged() -> None:
    check = check_file(OTHER, FILE)
    assert check.rows.tolist() == [0, 1, 2]
    assert check.trailer is not None
    assert check.trailer.id == ID


def test_files_without_a_trailer_are_not_compared() -> None:
    check = check_file(ID, PAYLOAD)
    assert check.trailer is None
    assert check.ok


def test_a_damaged_trailer_is_an_error() -> None:
    with pytest.raises(FormatError, match="the trailer"):
        check_file(ID, FILE[:-13] + b"x" + FILE[-12:])
    with pytest.raises(FormatError, match="cut off"):
        check_file(ID, FILE[:-3])


def test_a_part_of_a_file_is_compared() -> None:
    trailer = decode_trailer(ID, FILE, len(FILE))
    assert trailer is not None
    assert damaged_rows(trailer, np.array([1, 2]), PAYLOAD[3:], 3).tolist() == []
    assert damaged_rows(trailer, np.array([1, 2]), b"B" + PAYLOAD[4:], 3).tolist() == [1]
    assert damaged_rows(trailer, np.zeros(0, np.int64), b"").tolist() == []
