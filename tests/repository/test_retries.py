"""Pauses between attempts, in a model: clients that change one object, with a clock that the model moves."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import override

import pytest

from frazil import host
from frazil.repository.retries import RetryPolicy

POLICY = RetryPolicy()


class Dice(host.Host):
    """A host with the same random numbers on each run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    @override
    def random_between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


@dataclass
class Race:
    """Some writers, which commit again soon after each commit, and one operation, the client 0.

    An attempt reads the object, and writes it ``attempt_s`` later; it is lost if another client has written
    in between.
    """

    writers: int
    attempt_s: float
    pause_s: float
    waits: list[float] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    commits: int = 0

    def run(self, seconds: float) -> None:
        events = [(host.random_between(0, 0.1), client, False) for client in range(self.writers + 1)]
        heapq.heapify(events)
        begin, seen, lost, version = {}, {}, dict.fromkeys(range(self.writers + 1), 0), 0
        while events[0][0] < seconds:
            now, client, is_write = heapq.heappop(events)
            if not is_write:
                begin.setdefault(client, now)
                seen[client] = version
                wait = self.attempt_s * host.random_between(0.8, 1.2)
            elif seen[client] == version:
                version += 1
                self._end(client, now - begin.pop(client), lost[client])
                lost[client] = 0
                wait = 5.0 if client == 0 else host.random_between(0, 2 * self.pause_s)
            else:
                wait = POLICY.pause_after_loss(lost[client])
                lost[client] += 1
            heapq.heappush(events, (now + wait, client, not is_write and client in begin))
        self.waits.append(seconds - begin.get(0, seconds))

    def _end(self, client: int, duration: float, losses: int) -> None:
        self.losses.append(losses)
        if client:
            self.commits += 1
        else:
            self.waits.append(duration)


@pytest.mark.parametrize(
    ("writers", "pause_s", "longest_s"),
    [
        (10, 0.05, 60),
        pytest.param(30, 0.5, 60, marks=pytest.mark.deep),
        pytest.param(100, 1.0, 120, marks=pytest.mark.deep),
    ],
)
def test_an_operation_beside_many_writers_ends(writers: int, pause_s: float, longest_s: float) -> None:
    """With pauses that grow to 30 s, it takes 100 to 330 seconds, where all writers together need 1 to 10."""
    race = Race(writers, attempt_s=0.1, pause_s=pause_s)
    with host.replace_host(Dice(7)):
        race.run(600)
    assert max(race.waits) < longest_s
    assert race.commits > 600 * 0.8 / 0.1 * 0.9  # most of what one object allows
    exhausted = sum(losses >= POLICY.tries for losses in race.losses)
    assert exhausted <= len(race.losses) / 1000


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
