"""Many FlexBuffers at once: the same values and errors as one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import FormatError
from frazil.format import flexbuffer
from frazil.format.columns import Ragged
from frazil.format.flexbuffer import load_values

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=300),
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.just("k"), SCALARS)


def alone(rows: list[bytes]) -> Any:
    try:
        return [(type(value), value) for value in map(flexbuffer.loads, rows)]
    except FormatError:
        return FormatError


def together(rows: list[bytes]) -> Any:
    try:
        return [(type(value), value) for value in load_values(Ragged.of_bytes(rows))]
    except FormatError:
        return FormatError


@given(st.lists(VALUES, max_size=40))
def test_the_values_are_those_of_each_row(values: list[Any]) -> None:
    rows = [flexbuffer.dumps(value) for value in values]
    assert together(rows) == alone(rows) == [(type(value), value) for value in values]


@given(st.lists(SCALARS, min_size=16, max_size=20), st.data())
def test_damaged_rows(values: list[Any], data: st.DataObject) -> None:
    rows = [flexbuffer.dumps(value) for value in values]
    row = data.draw(st.integers(0, len(rows) - 1))
    damaged = bytearray(rows[row])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
        st.sampled_from((0, 1, 2, 4, 8, 20, 21, 23, 104, 255)) | st.integers(0, 255)
    )
    rows[row] = bytes(damaged)
    assert repr(together(rows)) == repr(alone(rows))  # repr, because a damaged number may be NaN


TEXT = flexbuffer.dumps("abc")


@pytest.mark.parametrize(
    "row", [b"", b"\1", b"\0\1", b"\4\1", b"\xff\x14\x01", b"a\0\xff\x14\x01", b"\x20" + TEXT[1:]]
)
def test_rows_that_lead_out_of_themselves(row: bytes) -> None:
    rows = [*[TEXT] * 20, row, *[TEXT] * 20]
    assert together(rows) == alone(rows) == FormatError
