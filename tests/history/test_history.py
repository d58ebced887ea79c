"""Short histories of real processes, which are killed, on local files and behind a proxy with faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.history.__main__ import run
from tests.history.campaign import Scope
from tests.support.patience import patience


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param("local", marks=pytest.mark.deep), pytest.param("ministack", marks=pytest.mark.servers)],
)
def test_a_short_history_has_no_anomalies(name: str, tmp_path: Path) -> None:
    if name == "ministack":
        pytest.importorskip("ministack", reason="this environment has the core packages alone")
    scope = Scope(300, 2, kill_every=patience(3.0), fault_every=patience(1.0), limit=patience(120))
    result = run(name, tmp_path, scope)
    assert result.anomalies == []
    assert result.outcomes.total() >= scope.count
    assert result.outcomes["ok"] > scope.count / 3
