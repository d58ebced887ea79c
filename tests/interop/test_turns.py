"""Frazil and the published icechunk take turns: see ``turns``.

python -m tests.interop.test_turns --steps 500      # many more, and how many there were
"""

from __future__ import annotations

import argparse
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.interop.turns_versions import VersionTurns

IS_DEEP = settings.get_current_profile_name() == "fuzz"
#: Profile -> examples.
EXAMPLES = {"fuzz": 500, "weekly": 40}
pytestmark = [pytest.mark.deep, pytest.mark.interop, pytest.mark.timeout(7200 if IS_DEEP else 600)]

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TestTurns = VersionTurns.TestCase
# Half a minute, the same every time; or an hour of new ones.
TestTurns.settings = settings(
    max_examples=EXAMPLES.get(settings.get_current_profile_name(), 5),
    stateful_step_count=100 if IS_DEEP else 40,
    suppress_health_check=QUIET,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Frazil and icechunk take turns until so many steps are done"
    )
    parser.add_argument("--steps", type=int, default=500)
    wanted = parser.parse_args().steps
    start = time.monotonic()
    while VersionTurns.steps < wanted:
        run_state_machine_as_test(
            VersionTurns,
            settings=settings(
                max_examples=5,
                stateful_step_count=50,
                derandomize=False,
                database=None,
                deadline=None,
                suppress_health_check=QUIET,
            ),
        )
    took = time.monotonic() - start
    print(f"{VersionTurns.steps} steps, {VersionTurns.commits} commits, {took:.0f} s, no difference")
    print(", ".join(f"{name} {count}" for name, count in VersionTurns.seen.most_common()))


if __name__ == "__main__":
    main()
