"""MessagePack: every type that JSON-like values use, and nothing that harms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import FormatError
from frazil.format.msgpack import dumps, loads


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
def test_values(data: str, value: Any) -> None:
    assert loads(bytes.fromhex(data)) == value
    assert type(loads(bytes.fromhex(data))) is type(value)
    assert isinstance(value, float) or len(dumps(value)) <= len(data) // 2  # the shortest form


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
def test_damage(data: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        loads(bytes.fromhex(data))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
)


@given(json_values | st.sampled_from(["a" * size for size in (31, 32, 255, 256, 65_535, 65_536)]))
def test_round_trip(value: Any) -> None:
    assert loads(dumps(value)) == value
