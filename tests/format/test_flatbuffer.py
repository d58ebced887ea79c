"""Flatbuffers by columns: the reader finds what the writer lays out, and never leaves the buffer."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import settings
from tests.support.examples import examples

from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import Ragged
from frazil.format.flatbuffer import (
    MAX_BYTES,
    NUL,
    Buffer,
    Grid,
    GroupTexts,
    TableColumns,
    TableLayout,
    Tables,
    TableWriter,
)

cases = settings(max_examples=examples(100))

ROOT = TableLayout({0: "u4", 1: "u4", 2: "u4", 3: "u8", 5: "u4"}, 7)
CHILD = TableLayout({0: "u8", 1: "V8", 2: "u4", 4: "u1"}, 5)


def finished(writer: TableWriter, fields: dict[int, int | bytes] | None = None) -> Buffer:
    return Buffer(b"".join(part.tobytes() for part in writer.finish(fields or {})))


@pytest.mark.parametrize("kind", ["<u2", "<u4", "<u8", "V12", "V8"])
def test_gather_at_any_position(kind: str) -> None:
    data = bytes(range(64))
    width = np.dtype(kind).itemsize
    for positions in ([0, 8, 16], [1, 2, 3], [64 - width, 0], [5], []):
        gathered = Buffer(data).gather(np.array(positions, np.int64), kind)
        assert gathered.tobytes() == b"".join(data[at : at + width] for at in positions)
    for positions in ([-1], [65 - width], [0, 65 - width], [0, -8], [2**62]):
        with pytest.raises(FormatError, match="outside of 64 bytes"):
            Buffer(data).gather(np.array(positions, np.int64), kind)


def test_tables_of_one_shape_share_their_vtable() -> None:
    writer = TableWriter(ROOT)
    for count in (3, 2):
        writer.tables(TableLayout({0: "u8", 1: "V8", 2: "u4", 4: "u1"}, 5), count)
    assert finished(writer).bytes.tobytes().count(CHILD.vtable) == 1


def test_no_buffer_beyond_two_gigabytes() -> None:
    writer = TableWriter(ROOT)
    with pytest.raises(FormatError, match="at most 2147483648") as caught:
        writer.tables(CHILD, MAX_BYTES // CHILD.dtype.itemsize)
    assert caught.value.kind == ErrorKind.SERIALIZATION


def test_sharing_has_limits() -> None:
    """A vector that many tables share is not copied out to any size."""
    count, tables = 1 << 20, 64
    raw = struct.pack("<I", 8) + bytes(4) + struct.pack("<HHHxx", 6, 8, 4)
    start = len(raw)
    vector = start + 8 * tables
    for i in range(tables):
        at = start + 8 * i
        raw += struct.pack("<iI", at - 8, vector - at - 4)
    raw += struct.pack("<I", count) + bytes(4 * count)
    sharing = Tables(Buffer(raw), start + 8 * np.arange(tables))
    assert len(sharing.take(slice(0, 2)).numbers(0, "<u4").values) == 2 * count
    for read in (
        lambda: sharing.numbers(0, "<u4"),
        lambda: sharing.children(0),
        lambda: sharing.string_vectors(0),
    ):
        with pytest.raises(FormatError, match="vectors have 67108864 elements"):
            read()


@pytest.mark.parametrize("moved", [0, 4])
def test_reservedat_even_and_uneven_distances(moved: int) -> None:
    """Evenly spaced tables are copied, others are gathered. Both have the same fields."""
    writer = TableWriter(ROOT)
    first = writer.tables(CHILD, 40)
    if moved:
        writer.reserve(moved)
    last = writer.tables(CHILD, 40)
    first.fields["f0"], last.fields["f0"] = np.arange(40), np.arange(40, 80)
    buffer = finished(writer)
    for order in (np.arange(80), np.arange(80)[::-1]):
        tables = Tables(buffer, np.concatenate([first.positions, last.positions])[order])
        assert tables.scalars(0, "<u8").tolist() == order.tolist()
        assert tables.all_have(0)
        assert not tables.all_have(3)


def test_spaced_values_stay_inside_of_the_buffer() -> None:
    buffer = Buffer(bytes(range(16)))
    for places in ([1, 6, 11], [1, 2, 9, 10], [0, 2, 7, 9, 14], [12, 9], [8, 10, 0, 2]):
        grid = Grid.of(np.array(places))
        assert grid is not None
        assert grid.positions().tolist() == places
        # Also where the last group has fewer positions, and a whole group would end outside.
        kind = "<u2" if 14 in places else "<u4"
        assert buffer.gather(grid, kind).tolist() == buffer.gather(np.array(places), kind).tolist()
    for places in ([1, 7, 13], [-1, 4, 9], [8, 3, -2], [0, 2, 12, 14], [4, 6, -4]):
        grid = Grid.of(np.array(places))
        assert grid is not None
        with pytest.raises(FormatError, match="outside"):
            buffer.gather(grid, "<u4")
    for places in ([0, 0], [0, 1, 3, 4, 7], [0, 1, 3, 5]):
        assert Grid.of(np.array(places)) is None


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1000])
def test_tables_by_columns(count: int) -> None:
    """Groups of tables read like others. Texts are in each group that uses them, if that takes few bytes."""
    texts = Ragged.of_text(["one", "the second", "third"])
    codes = np.arange(count) * 3 // count
    writer = TableWriter(ROOT)
    grouped = GroupTexts.of(texts, codes, NUL)
    assert grouped is not None
    fields = ((0, "u8"), (2, "V12"), (3, "u4"), (5, "u4"))
    columns = TableColumns(writer, fields, count, 2, {3: grouped})
    columns.fill("f0", np.arange(count) * 2**33)
    columns.fill("f2", np.frombuffer(np.arange(count).astype("<u4").repeat(3).tobytes(), "V12"))
    columns.fill("tail", np.arange(count), 0)
    columns.fill("tail", 7, 1)
    tables = Tables(finished(writer), columns.positions)
    assert tables.scalars(0, "<u8").tolist() == (np.arange(count) * 2**33).tolist()
    assert tables.structs(2, 12).view("<u4")[:, 0].tolist() == list(range(count))
    assert tables.vectors(3).texts() == [["one", "the second", "third"][code] for code in codes]
    rows = tables.numbers(5, "<u4")
    assert rows.values.reshape(-1, 2).tolist() == [[at, 7] for at in range(count)]
    assert not tables.present(1).any()
    assert tables.take(np.arange(count)[::-7]).scalars(0, "<u8").tolist() == [
        each * 2**33 for each in range(count)[::-7]
    ]
    in_turns = np.arange(1000) % 2
    assert GroupTexts.of(texts, in_turns, NUL) is None  # they would be there 500 times


@pytest.mark.parametrize("row", [0, 1, 255, 256, 700, 999])
@pytest.mark.parametrize("change", ["a field is absent", "another field", "another vtable", "in all groups"])
def test_a_group_with_other_vtables(row: int, change: str) -> None:
    """Groups are only read together if their vtables have the same content."""
    writer = TableWriter(ROOT)
    columns = TableColumns(writer, ((0, "u8"), (1, "u8"), (2, "u4")), 1000, 1)
    columns.fill("f0", np.arange(1000))
    columns.fill("f1", np.arange(1000) + 5000)
    columns.fill("tail", np.arange(1000) + 9000)
    data = bytearray(finished(writer).bytes.tobytes())
    tables = columns.positions.tolist()
    vtables = [table - int.from_bytes(data[table : table + 4], "little", signed=True) for table in tables]
    changed = range(row % 250, 1000, 250) if change == "in all groups" else [row]
    for each in changed:
        if change == "a field is absent":
            data[vtables[each] + 4 : vtables[each] + 6] = bytes(2)
        elif change == "another vtable":  # of the neighbour, whose field 0 is 4 bytes further
            other = vtables[each + 1 if each % 250 < 249 else each - 1]
            data[tables[each] : tables[each] + 4] = (tables[each] - other).to_bytes(4, "little", signed=True)
        else:
            data[vtables[each] + 4 : vtables[each] + 6] = data[vtables[each] + 6 : vtables[each] + 8]
    read = Tables(Buffer(bytes(data)), columns.positions)
    values, expected = read.scalars(0, "<u8").tolist(), list(range(1000))
    for each in changed:
        expected[each] = {"a field is absent": 0, "another vtable": values[each]}.get(change, each + 5000)
        if change == "another vtable":
            table, slot = tables[each], int.from_bytes(data[other + 4 : other + 6], "little")
            expected[each] = int.from_bytes(data[table + slot : table + slot + 8], "little")
    assert values == expected
    assert np.flatnonzero(~read.present(0)).tolist() == ([row] if change == "a field is absent" else [])
    index = read.even_numbers(2, "<u4")
    index = read.numbers(2, "<u4").values if index is None else index
    if change != "another vtable":
        assert index.reshape(-1).tolist() == list(range(9000, 10000))


@pytest.mark.parametrize("change", ["nothing", "the place of one", "the length of one", "all outside"])
def test_vectors_of_numbers_at_even_distances(change: str) -> None:
    """Vectors that are stored in the same way are read as a matrix. ``numbers`` reads all of them."""
    kind = np.dtype([("vtable", "<i4"), ("f0", "<u4"), ("count", "<u4"), ("at", "<u4", (2,))])
    writer = TableWriter(ROOT)
    vtable, first = writer.reserve(8)
    vtable.view("<u2")[:3] = 6, 8, 4
    part, start = writer.reserve(20 * kind.itemsize)
    positions, records = start + np.arange(20) * kind.itemsize, part.view(kind)
    records["vtable"] = positions - first
    records["f0"], records["count"] = 4, 2
    records["at"] = np.arange(40).reshape(20, 2)
    if change == "the place of one":
        records["f0"][7] += kind.itemsize
    elif change == "the length of one":
        records["count"][7] = 1
    elif change == "all outside":
        records["f0"] = 2**30
    tables = Tables(finished(writer), positions)
    if change == "all outside":
        with pytest.raises(FormatError, match="outside"):
            tables.even_numbers(0, "<u4")
        return
    matrix = tables.even_numbers(0, "<u4")
    assert (matrix is None) == (change != "nothing")
    if matrix is not None:
        assert matrix.reshape(-1).tolist() == tables.numbers(0, "<u4").values.tolist() == list(range(40))
    assert tables.take(slice(5)).even_numbers(0, "<u4") is None  # few tables have no distance
