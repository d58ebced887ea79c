"""Partial results combine_partials in any order and any tree to what all cells say at once."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.answers.kernels import (
    STATISTICS,
    Cells,
    absorb_partial,
    cells,
    combine_partials,
    combine_tree,
    empty_partial,
)

DTYPES = st.sampled_from(["f4", "f8", "i4", "u1"])


def some(seed: int, size: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 40, (size, 3)).astype(dtype)
    if values.dtype.kind == "f":
        values[rng.random(values.shape) < 0.3] = np.nan
    return values, rng.integers(-1, 5, size)


def part(values: np.ndarray, codes: np.ndarray, first: int, stop: int) -> Cells:
    return cells(values[first:stop], codes[first:stop], positions=np.arange(first, stop))


@settings(max_examples=40)
@given(
    st.sampled_from(list(STATISTICS)),
    DTYPES,
    st.integers(0, 99),
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.randoms(),
)
def test_any_order_any_tree(how: str, dtype: str, seed: int, cuts: list[int], random: Any) -> None:
    values, codes = some(seed, 30, dtype)
    one = STATISTICS[how].kernel(values.dtype, False, 0, None)
    borders = [0, *sorted(cuts), 30]
    parts = [
        pickle.loads(pickle.dumps(one.partial_of(part(values, codes, low, high))))
        for low, high in pairwise(borders)
        if (codes[low:high] >= 0).any()
    ]
    whole = one.partial_of(part(values, codes, 0, 30))
    random.shuffle(parts)
    tree = combine_tree(one, list(parts))
    row = empty_partial(one, np.arange(5), (3,))
    for each in parts:
        absorb_partial(one, row, each)
    group_mask = np.isin(row.groups, whole.groups)
    for fields in (tree.fields, tuple(each[group_mask] for each in row.fields)):
        np.testing.assert_allclose(
            one.finish_fields(fields), one.finish_fields(whole.fields), rtol=1e-12, atol=1e-12
        )
    assert tree.groups.tolist() == whole.groups.tolist()


def test_variances_far_from_zero_lose_nothing() -> None:
    values = 1e8 + np.random.default_rng(0).normal(size=(10_000, 1))
    one = STATISTICS["var"].kernel(np.dtype("f8"), False, 1, None)
    parts = [one.partial_of(cells(values[at : at + 100])) for at in range(0, 10_000, 100)]
    variance = one.finish_fields(combine_tree(one, parts).fields)[0, 0]
    assert variance == pytest.approx(values.var(ddof=1), rel=1e-8)  # as far as the values themselves go


def test_sums_of_integers_are_exact() -> None:
    values = np.full((3, 1), 2**53 + 1, np.int64)
    one = STATISTICS["sum"].kernel(values.dtype, False, 0, None)
    assert one.finish_fields(
        combine_partials(one, *(one.partial_of(cells(values)) for _ in "ab")).fields
    ).item() == 6 * (2**53 + 1)


def test_an_infinity_is_no_number() -> None:
    one = STATISTICS["std"].kernel(np.dtype("f8"), False, 0, None)
    parts = [one.partial_of(cells(np.array([each]))) for each in (1.0, np.inf, np.nan)]
    assert np.isnan(one.finish_fields(combine_tree(one, parts).fields)).all()
    mean = STATISTICS["mean"].kernel(np.dtype("f8"), False, 0, None)
    parts = [mean.partial_of(cells(np.array([each]))) for each in (1.0, np.inf, np.nan)]
    assert np.isposinf(mean.finish_fields(combine_tree(mean, parts).fields)).all()
