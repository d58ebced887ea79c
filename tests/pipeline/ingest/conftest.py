from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.ingest.netcdf_files import repository

import frazil


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    return repository(tmp_path / "repo")
