"""How many examples Hypothesis tries: numbers that follow the profile."""

from __future__ import annotations

from hypothesis import settings

#: Examples of a test that does not say, under the profile `ci`.
_OF_CI = 100


def examples(under_ci: int) -> int:
    """Return how many examples to try where the profile `ci` shall try this many.

    `quick` tries a fifth, `fuzz` fifty times as many.
    """
    return max(1, round(under_ci * settings.default.max_examples / _OF_CI))
