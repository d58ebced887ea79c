"""What every test gets: a tier, limits of time, a network of loopback only, and workers that share.

Fixtures of one room belong in that room's own conftest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

pytest_plugins = ["tests.support.tiers", "tests.support.engines"]
pytest.register_assert_rewrite("tests.expected", "tests.interop.both", "tests.readers.comparing")

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

#: One of each: the tests that need it run on one worker (pytest -n, --dist loadgroup). A test with two of
#: these marks belongs to the first.
_KINDS = ("cluster", "connect", "spark", "servers", "browser")
#: The longest chain of tests first.
_CHAINS = ("spark", "cluster", "connect", "servers")


@pytest.hookimpl(wrapper=True)  # before xdist reads the groups
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    for item in items:
        for name in _KINDS:
            if item.get_closest_marker(name):
                if item.get_closest_marker("xdist_group") is None:  # else the group would have both names
                    item.add_marker(pytest.mark.xdist_group(name))
                break
    if hasattr(config, "workerinput"):
        # A chain that starts late ends alone, while the other workers have nothing left to do.
        items.sort(key=_place_of_chain)
    return (yield)


def pytest_collection_finish() -> None:
    """Let the published icechunk log errors only. Its variable `ICECHUNK_LOG` is for Frazil, too."""
    if "icechunk" in sys.modules:
        sys.modules["icechunk"].set_logs_filter("error")


def _place_of_chain(item: pytest.Item) -> int:
    places = (place for place, name in enumerate(_CHAINS) if item.get_closest_marker(name))
    return next(places, len(_CHAINS))
