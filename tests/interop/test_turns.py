"""Frazil and the published icechunk take turns: see ``turns``."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from tests.interop.turns_versions import VersionTurns

IS_DEEP = settings.get_current_profile_name() == "fuzz"
#: Profile -> examples.
EXAMPLES = {"fuzz": 500, "weekly": 40}
pytestmark = [pytest.mark.deep, pytest.mark.interop, pytest.mark.timeout(7200 if IS_DEEP else 600)]

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TestTurns = VersionTurns.TestCase
# Half a minute, the same every time; or an hour of new ones.
TestTurns.settings = settings(
    max_examples=EXAMPLES.get(settings.get_current_profile_name(), 20),
    stateful_step_count=100 if IS_DEEP else 40,
    suppress_health_check=QUIET,
)
