"""Columns against plain Python lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import FormatError
from frazil.format import columns
from frazil.format.columns import (
    Ragged,
    copy_rows,
    distinct_rows,
    intern,
    number,
    ranges,
    row_keys,
    some_repeat,
)

cases = settings(max_examples=examples(100))
blobs = st.lists(st.binary(max_size=6), max_size=12)


@cases
@given(blobs)
def test_round_trip_of_bytes(rows: list[bytes]) -> None:
    ragged = Ragged.of_bytes(rows)
    assert ragged.blobs() == rows
    assert [ragged.bytes(i) for i in range(len(ragged))] == rows
    assert int(ragged.lengths.sum()) == sum(map(len, rows))


@pytest.mark.parametrize("lengths", [[1, 1, 1], [2, 0, 1], [2, 2], []])
def test_blobs_of_wide_values(lengths: list[int]) -> None:
    values = np.frombuffer(bytes(range(48)), "V12")[: sum(lengths)]
    ragged = Ragged.from_lengths(values, np.array(lengths, np.int64))
    assert ragged.blobs() == [ragged.row(row).tobytes() for row in range(len(lengths))]


@cases
@given(blobs, st.lists(st.integers(0, 11), max_size=20))
def test_taken_rows_share_values_until_compacted(rows: list[bytes], chosen: list[int]) -> None:
    chosen = [i for i in chosen if i < len(rows)]
    taken = Ragged.of_bytes(rows).take(np.array(chosen, np.int64))
    wanted = [rows[i] for i in chosen]
    assert taken.blobs() == wanted
    compact = taken.compact()
    assert compact.blobs() == wanted
    assert len(compact.values) == sum(map(len, wanted))
    assert compact.compact() is compact


@cases
@given(st.lists(blobs, min_size=1, max_size=4))
def test_concat(parts: list[list[bytes]]) -> None:
    joined = Ragged.concat([Ragged.of_bytes(part) for part in parts])
    assert joined.blobs() == [row for part in parts for row in part]


@cases
@given(st.lists(st.text(max_size=5), max_size=9))
def test_text(rows: list[str]) -> None:
    rows = [row.encode(errors="replace").decode() for row in rows]
    ragged = Ragged.of_text(rows)
    assert ragged.texts() == rows
    assert [ragged.text(i) for i in range(len(rows))] == rows


def test_text_that_is_not_utf8() -> None:
    ragged = Ragged.of_bytes([b"ok", b"\xff\xfe"])
    with pytest.raises(FormatError, match="UTF-8"):
        ragged.texts()
    with pytest.raises(FormatError, match="UTF-8"):
        ragged.text(1)


def test_rows_of_numbers_are_compacted_by_element() -> None:
    ragged = Ragged(np.arange(10, dtype=np.uint32), np.array([7, 0, 7]), np.array([2, 3, 2]))
    assert ragged.compact().values.tolist() == [7, 8, 0, 1, 2, 7, 8]


def test_overlapping_rows_do_not_fill_the_memory() -> None:
    values = np.zeros(1 << 20, np.uint8)
    ragged = Ragged(values, np.zeros(1 << 12, np.int64), np.full(1 << 12, 1 << 20))
    with pytest.raises(FormatError, match="at most 2147483648"):
        ragged.compact()


@pytest.mark.parametrize("distinct_lengths", [1, 5, 200, 400])
def test_copy_rows_whatever_the_lengths(distinct_lengths: int) -> None:
    rng = np.random.default_rng(distinct_lengths)
    source = rng.integers(0, 256, 5000).astype(np.uint8)
    lengths = rng.integers(0, distinct_lengths, 1500) if distinct_lengths > 1 else np.full(1500, 3)
    starts = rng.integers(0, 4000, 1500)
    target = np.zeros(int(lengths.sum()), np.uint8)
    copy_rows(target, np.cumsum(lengths) - lengths, source, starts, lengths)
    wanted = [source[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
    assert target.tobytes() == b"".join(part.tobytes() for part in wanted)


def test_copy_rows_by_index_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BLOCK", 100)
    test_copy_rows_whatever_the_lengths(400)


@cases
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5)), max_size=8))
def test_ranges(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([a for a, _ in pairs], np.int64)
    lengths = np.array([n for _, n in pairs], np.int64)
    assert ranges(starts, lengths).tolist() == [i for a, n in pairs for i in range(a, a + n)]


spread = st.sampled_from([3, 1000, 1 << 40])


@cases
@given(spread.flatmap(lambda top: st.lists(st.integers(0, top), max_size=30)), st.booleans())
def test_number(values: list[int], ordered: bool) -> None:
    values = sorted(values) if ordered else values
    distinct, codes = number(np.array(values, np.int64))
    assert distinct.tolist() == sorted(set(values))
    assert distinct[codes].tolist() == values


@cases
@given(blobs)
def test_distinct_rows(rows: list[bytes]) -> None:
    distinct, codes = distinct_rows(Ragged.of_bytes(rows))
    assert distinct.blobs() == list(dict.fromkeys(rows))
    assert distinct.take(codes).blobs() == rows
    assert some_repeat(Ragged.of_bytes(rows)) == (len(set(rows)) < len(rows))


def test_repetition_is_seen_in_a_sample() -> None:
    many = Ragged.of_bytes([b"%d" % (i % 1000) for i in range(50_000)])
    assert some_repeat(many)
    assert not some_repeat(Ragged.of_bytes([b"%d" % i for i in range(50_000)]))


def test_intern_keeps_the_order_of_appearance() -> None:
    distinct, codes = intern(["b", "a", "b", "é"])
    assert (distinct, codes.tolist(), codes.dtype) == (["b", "a", "é"], [0, 1, 0, 2], np.uint32)


def test_intern_of_runs_gives_the_numbers_of_single_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_STEP", 8)
    for texts in (["a"] * 5 + ["b"] * 4 + ["a"] * 3, ["a"] * 9 + ["c"], ["x"] * 12, list("abcdefghij")):
        distinct, codes = intern(texts)
        assert distinct == list(dict.fromkeys(texts))
        assert [distinct[code] for code in codes.tolist()] == texts
        assert codes.dtype == np.uint32


@cases
@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), max_size=20))
def test_row_keys_sort_like_rows(rows: list[tuple[int, int, int]]) -> None:
    matrix = np.array(rows, np.uint32).reshape(-1, 3)
    order = row_keys(matrix).argsort(kind="stable")
    assert matrix[order].tolist() == [list(row) for row in sorted(rows)]


def test_row_keys_of_no_columns() -> None:
    assert len(row_keys(np.zeros((3, 0), np.uint32))) == 3


@pytest.mark.parametrize("texts", [["a", "", "ä❄", "x" * 300] * 8, ["a\0b", "\0", ""] * 8, [""] * 20])
def test_many_texts_are_decoded_together(texts: list[str]) -> None:
    rows = Ragged.of_text(texts)
    assert rows.texts() == texts
    order = np.arange(len(texts))[::-2]
    assert rows.take(order).texts() == texts[::-2]


@pytest.mark.parametrize("cut", [0, 1])
def test_a_text_that_ends_in_a_character(cut: int) -> None:
    """The next text must not complete the character."""
    whole = Ragged.of_text(["ä", *["b"] * 20])
    rows = Ragged(whole.values, whole.starts, whole.lengths - np.array([cut, *[0] * 20]))
    if cut:
        with pytest.raises(FormatError, match="not UTF-8"):
            rows.texts()
    else:
        assert rows.texts()[:2] == ["ä", "b"]
