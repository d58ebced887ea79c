"""Which tests the first tier has: `tests/support/tiers.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.tiers import beyond_samples, selects_marks


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", False),
        ("hypothesis", True),
        ("deep and not spark", True),
        ("not spark and not servers", False),
        ("not (spark or connect)", True),  # such an expression runs more, not less
    ],
)
def test_expressions_that_select(expression: str, expected: bool) -> None:
    assert selects_marks(expression) == expected


def items(name: str, sets: int, *marks: Any) -> list[Any]:
    by_name = {mark.name: mark.mark for mark in marks}
    return [
        SimpleNamespace(nodeid=f"{name}[{index}]", get_closest_marker=by_name.get) for index in range(sets)
    ]


def test_a_sample_is_spread_over_the_sets_of_parameters() -> None:
    sampled = items("a.py::test", 10, pytest.mark.sample(2))
    every = [
        *sampled,
        *items("a.py::other", 3),
        *items("a.py::slow", 3, pytest.mark.sample(1), pytest.mark.deep),
    ]
    beyond = beyond_samples(every)
    assert [item.nodeid for item in sampled if item not in beyond] == ["a.py::test[0]", "a.py::test[5]"]
    assert len(beyond) == 8
