"""Pauses between attempts, in a model: clients that change one object, with a clock that the model moves."""

from __future__ import annotations

import random

from frazil import host
from frazil.repository.retries import RetryPolicy

POLICY = RetryPolicy()


class Dice(host.Host):
    """A host with the same random numbers on each run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random_between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def test_pauses_after_losses_are_bounded_and_become_shorter() -> None:
    with host.replace_host(Dice(1)):
        longest = [max(POLICY.pause_after_loss(attempt) for _ in range(200)) for attempt in range(60)]
    assert max(longest) <= 5
    assert max(longest[:5]) <= 0.01
    assert max(longest[8:16]) > 2
    assert max(longest[40:]) <= 1


def test_the_limit_of_the_settings_holds() -> None:
    policy = RetryPolicy(initial_backoff_ms=1, max_backoff_ms=4)
    assert max(policy.pause_after_loss(attempt) for attempt in range(5, 100)) <= 0.004
    assert RetryPolicy(max_backoff_ms=60_000).pause(30) >= 30  # after errors of the storage
