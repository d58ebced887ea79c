"""What every test gets: Hypothesis profiles, a network of loopback only, and workers that share.

Fixtures of one room belong in that room's own conftest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.engines"]
pytest.register_assert_rewrite("tests.expected")

# ``ci``, the default, gives the same examples on every run: a failure there is a change in the code.
# ``fuzz`` (`make fuzz`) looks for new ones. Tests leave ``max_examples`` to the profile where they can.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100, print_blob=True)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    max_examples=5_000,
    stateful_step_count=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# `make test` runs in a network namespace without a way out. These are for a plain `pytest`: cloud
# clients, told to be anonymous, may still ask the metadata service, and hang; Spark must resolve its host.
_NOWHERE = "127.0.0.1:9"
_LOOPBACK = {
    "GCE_METADATA_HOST": _NOWHERE,
    "GCE_METADATA_ROOT": _NOWHERE,
    "METADATA_IP": _NOWHERE,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_METADATA_ENDPOINT": f"http://{_NOWHERE}",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_LOCAL_HOSTNAME": "localhost",
    "PYSPARK_PYTHON": sys.executable,  # else its workers run whatever python3 is on PATH
}
for _name, _value in _LOOPBACK.items():
    os.environ.setdefault(_name, _value)

# One of each: the tests that need it go to one worker (pytest -n, --dist loadgroup).
_SHARED = ("cluster", "connect", "spark", "servers")


@pytest.hookimpl(wrapper=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    for item in items:
        for name in _SHARED:
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.xdist_group(name))
                break
    return (yield)
