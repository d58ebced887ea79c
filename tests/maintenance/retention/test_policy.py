"""The rules that a user writes: wrong ones are refused before anything happens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import frazil
from frazil import CommitPattern, ErrorKind, InvalidInputError, Retention


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "must have a rule"),
        ({"tags": "v*"}, "must have a rule"),
        ({"last": -1}, "last must be at least 0"),
        ({"daily": -2}, "daily must be at least 0"),
        ({"last": 1, "zone": "Nowhere/Town"}, "zone must be the name of a time zone"),
        ({"last": 1, "zone": ""}, "zone must be the name of a time zone"),
    ],
)
def test_wrong_values(options: Any, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text) as error:
        Retention(**options)
    assert error.value.kind == ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "options",
    [
        {"last": True},
        {"last": "all"},
        {"daily": 1.5},
        {"newer_than": 3},
        {"newer_than": datetime(2020, 1, 1)},
        {"where": "a"},
        {"where": ["a"]},
        {"last": 1, "tags": 3},
        {"last": 1, "tags": [3]},
    ],
)
def test_wrong_types(options: Any) -> None:
    with pytest.raises(TypeError, match=list(options)[-1]):
        Retention(**options)


@pytest.mark.parametrize("policy", [3, {"main": 3}, {3: Retention(last=1)}])
def test_wrong_policies(policy: Any) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(TypeError, match="policy"):
        repo.upkeep.retain(policy).apply()


def test_no_policy() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(InvalidInputError, match="at least one branch"):
        repo.upkeep.retain({}).apply()


@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        (CommitPattern(message="release *"), True),
        (CommitPattern(message="RELEASE *"), False),
        (CommitPattern(author="ada*"), True),
        (CommitPattern(author="bob"), False),
        (CommitPattern(metadata={"run": 3}), True),
        (CommitPattern(metadata={"run": "3"}), False),
        (CommitPattern(metadata={"run": 3, "missing": 1}), False),
        (CommitPattern(message="release *", author="bob"), False),
    ],
)
def test_a_commit_meets_all_parts(pattern: CommitPattern, met: bool) -> None:
    assert pattern.meets("release 7", {"author": "ada l", "run": 3}) is met


def test_a_condition_has_a_part() -> None:
    with pytest.raises(InvalidInputError) as error:
        CommitPattern()
    assert error.value.kind == ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize("options", [{"message": 3}, {"author": b"a"}, {"metadata": ["a"]}])
def test_types(options: Any) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        CommitPattern(**options)
