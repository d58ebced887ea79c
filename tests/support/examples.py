"""How many examples Hypothesis tries: numbers that follow the profile."""

from __future__ import annotations

from hypothesis import settings

#: The profile in which a test tries exactly its number of examples has this many examples by default.
_FULL = 100


def examples(count: int) -> int:
    """Return how many examples to try, for a test that shall try ``count`` where others try 100.

    `quick` tries a fifth, `ci` three tenths, `weekly` twice and `fuzz` fifty times as many.
    """
    return max(
        1, round(count * settings.get_profile(settings.get_current_profile_name()).max_examples / _FULL)
    )
