"""FlexBuffers and MessagePack: every type of metadata values, and nothing that hangs or crashes."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import FormatError, InvalidInputError
from frazil.format import msgpack
from frazil.format.columns import Ragged
from frazil.format.flexbuffer import MAX_DEPTH, dumps, load_values, loads

# Values and bytes of metadata items, as found in files written by the reference.
GOLDEN: list[tuple[Any, str]] = [
    (None, "000001"),
    (True, "016801"),
    (0, "000801"),
    (255, "ff0801"),
    (256, "00010902"),
    (2**64 - 1, "ffffffffffffffff0b08"),
    (-1, "ff0401"),
    (-128, "800401"),
    (-129, "7fff0502"),
    (-(2**63), "00000000000000800708"),
    (1.5, "0000c03f0e04"),
    (0.1, "9a9999999999b93f0f08"),
    ("", "0000011401"),
    ("é", "02c3a900031401"),
    ("fixture", "076669787475726500081401"),
    ([], "00002801"),
    ({}, "00000100002401"),
    ([1], "0101013001"),
    ([1, 2], "0102024401"),
    ([1, 2, 3], "010203035001"),
    ([1, 2, 3, 4], "01020304045c01"),
    ([1, 2, 3, 4, 5], "050102030405053001"),
    ([1, 300, 70000, 1, 2], "05000000010000002c010000701101000100000002000000143201"),
    ([-1, -2, -3], "fffefd034c01"),
    ([0.5, 1.25], "0000003f0000a03f084a01"),
    ([0.1, 0.5, 1.0], "9a9999999999b93f000000000000e03f000000000000f03f185701"),
    ([True, False], "020100029001"),
    ([None, None], "0200000000042801"),
    ([1, -2], "0201fe0804042801"),
    ([1, 2.5], "0200000001000000000020400a0e0a2a01"),
    (["a", "b"], "0161000162000206041414042801"),
    (["x", "x"], "0178000178000206041414042801"),
    ([[1, 2], [3, 4]], "010203040205044444042801"),
    ({"is_root": True}, "69735f726f6f740001090101010168022401"),
    ({"a": "a"}, "610001610001060101010714022401"),
    ({"z": 1, "a": 2, "é": 3, "Z": 4}, "5a0061007a00c3a900040a0908070401040402010308080808082401"),
    ([1, "x", {"k": -7}], "0178006b000103010101f90403010d05081424062801"),
    ([{"a": 1}, {"a": 2}], "610001030101010108010a0101010208020a042424042801"),
    (
        {"a": {"a": {"a": [1.5, {"a": None}]}}},
        "610001030101010000000000020000000000c03f0d0000000e24011b0101010f2a0122010101072401290101010724022401",
    ),
    (
        {"a": 70000, "b": "s", "c": 0.1},
        (
            "610062000173006300030a090500000006000000000000000100000000000000030000000000000070110100000000"
            "002b000000000000009a9999999999b93f0b140f1b2701"
        ),
    ),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN, ids=lambda v: str(v)[:30])
def test_bytes_are_those_of_the_reference(value: Any, expected: str) -> None:
    assert dumps(value).hex() == expected
    assert loads(bytes.fromhex(expected)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("c0", None), ("c2", False), ("c3", True),
        ("00", 0), ("7f", 127), ("ff", -1), ("e0", -32),
        ("cc80", 128), ("cd0100", 256), ("ce00010000", 65536), ("cfffffffffffffffff", 2**64 - 1),
        ("d080", -128), ("d18000", -(2**15)), ("d280000000", -(2**31)), ("d38000000000000000", -(2**63)),
        ("ca3fc00000", 1.5), ("cb3ff8000000000000", 1.5),
        ("a0", ""), ("a2c3a9", "é"), ("d90161", "a"), ("da000161", "a"), ("db0000000161", "a"),
        ("c4020102", [1, 2]), ("c500020102", [1, 2]), ("c6000000020102", [1, 2]),
        ("90", []), ("9301a17881a16bf9", [1, "x", {"k": -7}]), ("dc000101", [1]), ("dd0000000101", [1]),
        ("80", {}), ("82a16102a17a01", {"a": 2, "z": 1}),
        ("de0001a16102", {"a": 2}), ("df00000001a16102", {"a": 2}),
    ],
)  # fmt: skip
def test_msgpack_values(data: str, value: Any) -> None:
    assert msgpack.loads(bytes.fromhex(data)) == value
    assert type(msgpack.loads(bytes.fromhex(data))) is type(value)
    assert isinstance(value, float) or len(msgpack.dumps(value)) <= len(data) // 2  # the shortest form


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "cut off"),
        ("0101", "1 bytes after"),
        ("c1", "type 0xc1"),
        ("d40000", "type 0xd4"),
        ("a36161", "length 3 in 2 bytes"),
        ("ddffffffff", "length 4294967295 in 0 bytes"),
        ("cd01", "number is cut off"),
        ("a1ff", "not UTF-8"),
        ("810102", "must be text"),
        ("91" * 200 + "c0", "at most 128 levels of nesting"),
    ],
)
def test_msgpack_damage(data: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        msgpack.loads(bytes.fromhex(data))


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=300)
)
keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
json_values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=8) | st.dictionaries(keys, v, max_size=8), max_leaves=40
)


@settings(max_examples=examples(300))
@given(json_values | st.sampled_from(["a" * size for size in (31, 32, 255, 256, 65_535, 65_536)]))
def test_round_trip(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert msgpack.loads(msgpack.dumps(value)) == value


@pytest.mark.parametrize("encode", [dumps, msgpack.dumps])
def test_numbers_of_numpy_are_numbers(encode: Any) -> None:
    given = [np.int64(-3), np.uint8(7), np.float32(0.5), np.float64(0.1), np.bool_(True), np.arange(2)]
    assert encode(given) == encode([-3, 7, 0.5, 0.1, True, [0, 1]])


UNSUPPORTED = [2**64, -(2**63) - 1, math.nan, np.float32(np.inf), {1: 2}, b"x", "\ud800", {1}, [[[object]]]]


@pytest.mark.parametrize("encode", [dumps, msgpack.dumps])
def test_unsupported_values_are_refused(encode: Any) -> None:
    for value in [*UNSUPPORTED, *([{"a\0b": 1}] if encode is dumps else [])]:
        with pytest.raises(InvalidInputError) as error:
            encode({"v": value})
        assert error.value.kind == "bad-metadata"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_limit_in_both_directions() -> None:
    deepest = nested(MAX_DEPTH)
    assert loads(dumps(deepest)) == deepest
    with pytest.raises(InvalidInputError, match="nesting"):
        dumps(nested(MAX_DEPTH + 1))
    # One vector around another, each 1 byte back and 2 bytes long, deeper than the limit.
    data = b"\x00" + b"\x01\x02\x28" * (MAX_DEPTH + 2)
    with pytest.raises(FormatError):
        loads(data + b"\x02\x28\x01")


# Types that the reference never writes.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("003e 0d 02", 1.5),  # a half float in the root
        ("6100 02 11 01", "a"),  # KEY in the root, with a width that means nothing
        ("f9 01 18 01", -7),  # INDIRECT_INT
        ("f9 01 1c 01", 249),  # INDIRECT_UINT
        ("0000c03f 04 22 01", 1.5),  # INDIRECT_FLOAT
        ("03 616263 03 64 01", b"abc"),  # BLOB
        ("6100 6200 02 0504 02 38 01", ["a", "b"]),  # VECTOR_KEY
        ("016100 016200 02 0604 02 3c 01", ["a", "b"]),  # VECTOR_STRING, deprecated
    ],
)
def test_types_of_other_writers(data: str, expected: Any) -> None:
    assert loads(bytes.fromhex(data)) == expected


def doubled(levels: int) -> bytes:
    """Each vector holds the one before twice, by the same offset: 2**levels values in 5*levels bytes."""
    out = bytearray(b"\x02\x01\x01\x08\x08")
    previous = 1
    for _ in range(levels):
        out.append(2)
        at = len(out)
        out += bytes([at - previous, at + 1 - previous, 40, 40])
        previous = at
    return bytes(out) + bytes([len(out) - previous, 40, 1])


def test_shared_offsets_do_not_explode() -> None:
    assert loads(doubled(2)) == [[[1, 1], [1, 1]], [[1, 1], [1, 1]]]
    with pytest.raises(FormatError, match="again and again"):
        loads(doubled(60))  # 2**60 values would never end


def test_overlapping_texts_do_not_explode() -> None:
    # 20,000 keys into one text of 20,000 bytes, each a byte later: 200 MB if all were decoded.
    n = 20_000
    keys_at = n + 1 + (-(n + 1) % 4) + 4
    offsets = struct.pack(f"<{n}I", *(keys_at + 4 * i - i for i in range(n)))
    data = (b"x" * n + b"\0").ljust(keys_at - 4, b"\0") + struct.pack("<I", n) + offsets
    with pytest.raises(FormatError, match="again and again"):
        loads(data + struct.pack("<I", len(data) - keys_at) + bytes([14 << 2 | 2, 4]))


# Many FlexBuffers at once: the same values and errors as one by one.

VALUES = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.just("k"), scalars)


def alone(rows: list[bytes]) -> Any:
    try:
        return [(type(value), value) for value in map(loads, rows)]
    except FormatError:
        return FormatError


def together(rows: list[bytes]) -> Any:
    try:
        return [(type(value), value) for value in load_values(Ragged.of_bytes(rows))]
    except FormatError:
        return FormatError


@given(st.lists(VALUES, max_size=40))
def test_the_values_are_those_of_each_row(values: list[Any]) -> None:
    rows = [dumps(value) for value in values]
    assert together(rows) == alone(rows) == [(type(value), value) for value in values]


@given(st.lists(scalars, min_size=16, max_size=20), st.data())
def test_damaged_rows(values: list[Any], data: st.DataObject) -> None:
    rows = [dumps(value) for value in values]
    row = data.draw(st.integers(0, len(rows) - 1))
    damaged = bytearray(rows[row])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
        st.sampled_from((0, 1, 2, 4, 8, 20, 21, 23, 104, 255)) | st.integers(0, 255)
    )
    rows[row] = bytes(damaged)
    assert repr(together(rows)) == repr(alone(rows))  # repr, because a damaged number may be NaN


TEXT = dumps("abc")


@pytest.mark.parametrize(
    "row", [b"", b"\1", b"\0\1", b"\4\1", b"\xff\x14\x01", b"a\0\xff\x14\x01", b"\x20" + TEXT[1:]]
)
def test_rows_that_lead_out_of_themselves(row: bytes) -> None:
    rows = [*[TEXT] * 20, row, *[TEXT] * 20]
    assert together(rows) == alone(rows) == FormatError
