"""Short histories of real processes, which are killed, on local files and on servers with faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.histories.__main__ import run
from tests.histories.campaign import Scope
from tests.histories.stores import is_installed
from tests.support.patience import patience, slowness

#: Storage -> how many operations.
COUNTS = {"local": 150, "ministack": 60, "ceph": 60, "azurite": 60}


@pytest.mark.sample(1, 1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.deep if name == "local" else pytest.mark.servers)
        for name in COUNTS
    ],
)
def test_a_short_history_has_no_anomalies(name: str, tmp_path: Path) -> None:
    if name == "ministack":
        pytest.importorskip("ministack", reason="this environment has the core packages alone")
    if not is_installed(name):
        pytest.skip(f"{name} is not installed: run scripts/install-test-servers")
    scope = Scope(
        COUNTS[name], 2, kill_every=1.5 * slowness(), fault_every=0.5 * slowness(), limit=patience(120)
    )
    result = run(name, tmp_path, scope)
    assert result.anomalies == []
    assert result.outcomes.total() >= scope.count
    assert result.outcomes["ok"] > scope.count / 3
