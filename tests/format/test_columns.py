"""Columns against plain Python lists."""

from __future__ import annotations

import numpy as np
import pytest

from frazil.errors import FormatError
from frazil.format import columns
from frazil.format.columns import Ragged, copy_rows, intern


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


def test_intern_of_runs_gives_the_numbers_of_single_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_STEP", 8)
    for texts in (["a"] * 5 + ["b"] * 4 + ["a"] * 3, ["a"] * 9 + ["c"], ["x"] * 12, list("abcdefghij")):
        distinct, codes = intern(texts)
        assert distinct == list(dict.fromkeys(texts))
        assert [distinct[code] for code in codes.tolist()] == texts
        assert codes.dtype == np.uint32


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
