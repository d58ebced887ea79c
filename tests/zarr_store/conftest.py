"""Repositories in memory and on the local file system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import frazil


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return frazil.in_memory_storage()
    return frazil.local_filesystem_storage(str(tmp_path / "repo"))


@pytest.fixture
def repo(storage: Any) -> frazil.Repository:
    return frazil.Repository.create(storage)


@pytest.fixture
def session(repo: frazil.Repository) -> frazil.Session:
    return repo.writable_session("main")


@pytest.fixture
def reopened(storage: Any) -> Callable[[frazil.Session], frazil.IcechunkStore]:
    """Commit a session; the store of a new handle that reads what was committed."""

    def reopen(session: frazil.Session) -> frazil.IcechunkStore:
        session.commit("checkpoint")
        return frazil.Repository.open(storage).readonly_session("main").store

    return reopen
