"""Faults do not pile up before a slow storage."""

from __future__ import annotations

from tests.history.stores import Faults
from tests.support.fault_proxy import FaultProxy


def test_few_faults_wait_for_a_request() -> None:
    """With more of them, each request of a slow machine would fail, and its pauses would grow without end."""
    with FaultProxy(9) as proxy:
        faults = Faults(proxy, 1)
        for _ in range(50):
            faults.make()
        assert faults.waiting() == 2
        requests = 0
        while faults.waiting():
            proxy.pick("PUT /bucket/repository/repo")
            proxy.pick("GET /bucket/repository/repo")
            requests += 1
        assert requests <= 6
        assert 2 <= faults.hits().total() <= 6
        faults.make()
        assert faults.waiting() == 1
