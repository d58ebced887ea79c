from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import ceph as ceph_cluster
from tests.support import servers

from frazil.testing.processes import QUIET_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.support.servers import RunningServer


@pytest.fixture(autouse=True, scope="session")
def _nobody_looks_for_credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name.startswith(("AWS_", "GOOGLE_", "AZURE_")) or name.lower().endswith("_proxy"):
                patch.delenv(name)
        for name, value in QUIET_ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


def _need(name: str, is_installed: bool) -> None:
    if not is_installed:
        pytest.skip(f"{name} is not installed: run scripts/install-test-servers {name}")


def _session_of(start: Callable[[], AbstractContextManager[RunningServer]]) -> Iterator[RunningServer]:
    with start() as server:
        yield server


@pytest.fixture(scope="session")
def ministack() -> Iterator[RunningServer]:
    pytest.importorskip(
        "ministack", reason="ministack is not installed: this environment has only the core packages"
    )
    yield from _session_of(servers.ministack)


@pytest.fixture(scope="session")
def gcs() -> Iterator[RunningServer]:
    yield from _session_of(servers.gcs)


@pytest.fixture(scope="session")
def ceph() -> Iterator[RunningServer]:
    _need("ceph", ceph_cluster.is_installed())
    yield from _session_of(servers.ceph)


@pytest.fixture(scope="session")
def azurite() -> Iterator[RunningServer]:
    _need("azurite", servers.azurite_binary() is not None)
    yield from _session_of(servers.azurite)


@pytest.fixture(
    params=[
        "ministack",
        "gcs",
        *(pytest.param(name, marks=pytest.mark.servers) for name in ("ceph", "azurite")),
    ]
)
def server(request: pytest.FixtureRequest) -> RunningServer:
    """Each server in turn."""
    server: RunningServer = request.getfixturevalue(request.param)
    return server
