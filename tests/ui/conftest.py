"""A repository, and a server for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ui.serving import Client, repository, served

import frazil
from frazil.chunks.virtual import VirtualSources
from frazil.repository.target import Target
from frazil.ui.server import Site


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("explorer") / "ice", 2)


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A repository with two branches and a tag, next to a file that nobody may read."""
    shutil.copytree(template.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "ice"


@pytest.fixture
def site(folder: Path) -> Site:
    storage = frazil.local_filesystem_storage(str(folder))
    return Site(Target(str(folder), "v1", "/t"), storage, 2, VirtualSources([], {}))


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with served(site) as each:
        yield each
