"""Conditions on commits."""

from __future__ import annotations

from typing import Any

import pytest

from frazil import CommitPattern, ErrorKind, InvalidInputError


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
