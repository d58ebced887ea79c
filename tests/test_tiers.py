"""Which tests the first tier has: `tests/support/tiers.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.tiers import excluded_items, selects_marks


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


@dataclass(frozen=True, eq=False)
class Item:
    nodeid: str
    marks: tuple[Any, ...]

    def get_closest_marker(self, name: str) -> Any:
        return next((mark.mark for mark in self.marks if mark.name == name), None)


def items(name: str, sets: int, *marks: Any) -> list[Any]:
    return [Item(f"{name}[{index}]", marks) for index in range(sets)]


def names(selection: list[Any]) -> list[str]:
    return [item.nodeid for item in selection]


def test_a_sample_is_spread_over_the_sets_of_parameters() -> None:
    sampled = items("a.py::test", 10, pytest.mark.sample(2, 5))
    first, second = (excluded_items(sampled, tier) for tier in (1, 2))
    assert names([item for item in sampled if item not in first]) == ["a.py::test[0]", "a.py::test[5]"]
    assert names(second) == [f"a.py::test[{index}]" for index in (1, 3, 5, 7, 9)]


def test_each_tier_has_the_tests_of_the_one_before() -> None:
    deep = items("a.py::slow", 4, pytest.mark.sample(1, 2), pytest.mark.deep)
    weekly = items("a.py::long", 1, pytest.mark.weekly)
    every = [*items("a.py::other", 3), *deep, *weekly, *items("a.py::some", 3, pytest.mark.sample(1))]
    assert set(names(excluded_items(every, 1))) == set(names(every)) - {
        "a.py::other[0]",
        "a.py::other[1]",
        "a.py::other[2]",
        "a.py::some[0]",
    }
    assert names(excluded_items(every, 2)) == ["a.py::long[0]", "a.py::slow[1]", "a.py::slow[3]"]
