"""Repositories in memory and in files."""

from __future__ import annotations

from pathlib import Path

import pytest

import frazil


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> frazil.Storage:
    if request.param == "memory":
        return frazil.in_memory_storage()
    return frazil.local_filesystem_storage(str(tmp_path / "repo"))


@pytest.fixture
def repo(storage: frazil.Storage) -> frazil.Repository:
    return frazil.Repository.create(storage)
