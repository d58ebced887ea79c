"""References side by side, compared with two dictionaries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.changes.change_set import table_of
from frazil.changes.diff import differing
from frazil.format.manifest import ChunkTable, InlineRef, NativeRef, VirtualRef

ids = st.sampled_from([bytes(12), b"\1" * 12])
small = st.integers(0, 1)
refs = (
    st.builds(NativeRef, ids, small, small)
    | st.builds(InlineRef, st.sampled_from([b"a", b"b"]))
    | st.builds(VirtualRef, st.sampled_from(["x:a", "x:b"]), small, small, st.sampled_from([None, "e", "f"]))
    | st.builds(VirtualRef, st.just("x:a"), small, small, st.none(), st.sampled_from([None, 1, 2]))
)


@pytest.mark.parametrize("ndim", [0, 1, 2])
@given(data=st.data())
def test_what_differs(ndim: int, data: Any) -> None:
    tables = st.dictionaries(st.tuples(*[st.integers(0, 2)] * ndim), refs, max_size=6)
    one, other = data.draw(tables), data.draw(tables)
    wanted = sorted(at for at in one.keys() | other.keys() if one.get(at) != other.get(at))
    coords = differing(table_of(one, ndim), table_of(other, ndim))
    assert list(map(tuple, coords.tolist())) == wanted


def test_another_number_of_dimensions() -> None:
    one, other = ChunkTable.from_inline([[0]], [b"a"]), ChunkTable.from_inline([[0, 0], [0, 1]], [b"a", b"b"])
    assert differing(one, other).tolist() == [[0, 0], [0, 1]]
