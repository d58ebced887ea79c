"""After any changes by two libraries, and after killed refreshes, results are those from nothing."""

from __future__ import annotations

import pytest
from tests.pipeline.derivation.machine import OPERATIONS, REACHES, run


@pytest.mark.deep
@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(24))
def test_results_are_those_from_nothing(seed: int) -> None:
    counts = run(range(seed, seed + 1), 25)
    assert counts["refreshes"]
    assert counts["compared results"] >= 5


def test_reaches_are_of_operations() -> None:
    assert OPERATIONS.keys() >= REACHES.keys()
