"""Flatbuffers by columns: the reader finds what the writer lays out, and never leaves the buffer."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import Ragged
from frazil.format.flatbuffer import MAX_BYTES, NUL, Buffer, Layout, OffsetVectors, Tables, Writer

cases = settings(max_examples=examples(100))

ROOT = Layout({0: "u4", 1: "u4", 2: "u4", 3: "u8", 5: "u4"}, 7)
CHILD = Layout({0: "u8", 1: "V8", 2: "u4", 4: "u1"}, 5)
BARE = Layout({}, 5)


def finished(writer: Writer, fields: dict[int, int | bytes] | None = None) -> Buffer:
    return Buffer(b"".join(part.tobytes() for part in writer.finish(fields or {})))


def buffer_of(names: list[str], with_fields: list[bool], numbers: list[int]) -> Buffer:
    """A root with children (some of them without any field), strings, numbers and a string of its own."""
    writer = Writer(ROOT)
    root: dict[int, int | bytes] = {3: 2**63}
    entries = OffsetVectors(writer, [len(names)])
    root[0] = int(entries.positions[0])
    targets = np.empty(len(names), np.int64)
    chosen = np.array(with_fields, np.bool_)
    children = writer.tables(CHILD, 0)
    for _, records in writer.tables_by_shape(chosen, {True: CHILD, False: BARE}, targets):
        children = records if records.layout is CHILD else children
    entries.lead(targets)
    children.fields["f0"] = np.arange(len(children.positions)) + 2**40
    children.fields["f1"] = np.arange(8 * len(children.positions), dtype=np.uint8).view("V8")
    children.fields["f4"] = 9
    texts = Ragged.of_text(names)
    children.link(2, writer.vectors(texts.take(chosen), NUL))
    root[1] = writer.vector(np.array(numbers, "<u8"), alignment=8)
    vectors = OffsetVectors(writer, [len(names)])
    root[2] = int(vectors.positions[0])
    vectors.lead(writer.vectors(texts, NUL))
    root[5] = writer.vector("é".encode(), NUL)
    return finished(writer, root)


@cases
@given(
    st.lists(st.tuples(st.text("aé/", max_size=9), st.booleans()), max_size=9),
    st.lists(st.integers(0, 2**64 - 1), max_size=12),
)
def test_round_trip(rows: list[tuple[str, bool]], numbers: list[int]) -> None:
    names, chosen = [name for name, _ in rows], [has for _, has in rows]
    buffer = buffer_of(names, chosen, numbers)
    assert bytes(buffer.bytes[4:8]) == b"Ichk"
    root = buffer.root()
    assert root.scalars(3, "<u8").tolist() == [2**63]
    assert root.numbers(1, "<u8").row(0).tolist() == numbers
    assert root.vectors(5).texts() == ["é"]
    strings, counts = root.string_vectors(2)
    assert (strings.texts(), counts.tolist()) == (names, [len(names)])
    # A slot that no table has, and one beyond every vtable.
    assert root.scalars(4, "<u4", 7).tolist() == root.scalars(60, "<u4", 7).tolist() == [7]
    assert root.vectors(6).texts() == [""]
    children, counts = root.children(0)
    assert counts.tolist() == [len(rows)]
    ranks = np.cumsum(chosen) - 1
    assert children.scalars(0, "<u8", 5).tolist() == [
        int(rank) + 2**40 if has else 5 for rank, has in zip(ranks, chosen, strict=True)
    ]
    assert [row.tobytes() for row in children.structs(1, 8)] == [
        bytes(range(8 * rank % 256, 8 * rank % 256 + 8)) if has else bytes(8)
        for rank, has in zip(ranks.tolist(), chosen, strict=True)
    ]
    assert children.vectors(2).texts() == [name if has else "" for name, has in rows]
    assert children.present(4).tolist() == chosen
    assert children.take(np.array(chosen, np.bool_)).scalars(4, "u1").tolist() == [9] * sum(chosen)


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


def test_scalars_are_aligned() -> None:
    """The format wants numbers at multiples of their size."""
    for fields in ({0: "u8", 1: "u4"}, {0: "u1", 1: "u8", 2: "V12", 3: "u2"}, {0: "u4", 1: "u4", 2: "u8"}):
        layout = Layout(fields, 4, "<u4")
        writer = Writer(ROOT)
        writer.vector(b"x", NUL)
        positions = writer.tables(layout, 3).positions
        for slot, kind in fields.items():
            if kind[0] == "u":
                assert not ((positions + layout.offsets[slot]) % int(kind[1:])).any()
        ends = {slot: layout.offsets[slot] + np.dtype(kind).itemsize for slot, kind in fields.items()}
        spans = sorted((layout.offsets[slot], end) for slot, end in ends.items())
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert layout.tail_offset >= max(ends.values())


def test_one_vtable_for_reservedof_one_shape() -> None:
    writer = Writer(ROOT)
    first = writer.tables(CHILD, 3).fields
    second = writer.tables(Layout({0: "u8", 1: "V8", 2: "u4", 4: "u1"}, 5), 2).fields
    assert (np.diff(first["vtable"]) == CHILD.dtype.itemsize).all()
    assert finished(writer).bytes.tobytes().count(CHILD.vtable) == 1
    assert second["vtable"][0] > first["vtable"][-1]


@cases
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_vectors_of_offsets(counts: list[int], seed: int) -> None:
    writer = Writer(ROOT)
    vectors = OffsetVectors(writer, counts)
    texts = [str(i) for i in range(sum(counts))]
    targets = writer.vectors(Ragged.of_text(texts), NUL)
    # In two portions, as tables of two shapes would come.
    order = np.random.default_rng(seed).permutation(len(texts))
    for part in np.array_split(order, 2):
        vectors.lead(targets[np.sort(part)], np.sort(part))
    roots = [finished(writer, {0: position}).root() for position in vectors.positions.tolist()]
    actual = [root.string_vectors(0)[0].texts() for root in roots]
    starts = np.cumsum(counts) - counts
    assert actual == [texts[a : a + n] for a, n in zip(starts.tolist(), counts, strict=True)]


def test_vectors_without_elements_share_their_place() -> None:
    writer = Writer(ROOT)
    root: dict[int, int | bytes] = {0: writer.no_elements(), 1: writer.vector(b"text", NUL)}
    root |= {2: writer.no_elements(), 5: writer.vector(b"raw")}
    assert root[0] == root[2]
    tables = finished(writer, root).root()
    assert [tables.vectors(slot).bytes(0) for slot in (0, 1, 2, 5)] == [b"", b"text", b"", b"raw"]


def test_no_buffer_beyond_two_gigabytes() -> None:
    writer = Writer(ROOT)
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
    writer = Writer(ROOT)
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
    assert (
        buffer.gather(range(1, 12, 5), "<u4").tolist() == buffer.gather(np.array([1, 6, 11]), "<u4").tolist()
    )
    for places in (range(1, 14, 6), range(-1, 10, 5), range(8, -3, -5)):
        with pytest.raises(FormatError, match="outside"):
            buffer.gather(places, "<u4")


@pytest.mark.parametrize("change", ["nothing", "the place of one", "the length of one", "all outside"])
def test_vectors_of_numbers_at_even_distances(change: str) -> None:
    """Vectors that are stored in the same way are read as a matrix. ``numbers`` reads all of them."""
    layout = Layout({0: "u4"}, 1, np.dtype([("count", "<u4"), ("at", "<u4", (2,))]))
    writer = Writer(ROOT)
    reserved = writer.tables(layout, 20)
    records = reserved.fields
    records["f0"] = layout.tail_offset - layout.offsets[0]
    records["tail"]["count"] = 2
    records["tail"]["at"] = np.arange(40).reshape(20, 2)
    if change == "the place of one":
        records["f0"][7] += layout.dtype.itemsize
    elif change == "the length of one":
        records["tail"]["count"][7] = 1
    elif change == "all outside":
        records["f0"] = 2**30
    tables = Tables(finished(writer), reserved.positions)
    if change == "all outside":
        with pytest.raises(FormatError, match="outside"):
            tables.even_numbers(0, "<u4")
        return
    matrix = tables.even_numbers(0, "<u4")
    assert (matrix is None) == (change != "nothing")
    if matrix is not None:
        assert matrix.reshape(-1).tolist() == tables.numbers(0, "<u4").values.tolist() == list(range(40))
    assert tables.take(slice(5)).even_numbers(0, "<u4") is None  # few tables have no distance
