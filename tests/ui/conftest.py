"""A repository, and a server for it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import browser as browser
from tests.support.patience import patience
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
    """A repository with two branches and a tag, beside a file that nobody may read."""
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


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The program of slow answers is one that never ends, and writes its process id."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return tmp_path / "pids"


#: The beginnings of addresses that the page may request.
HERE = ("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty page. Errors, refusals of the policy and requests to other machines are failures."""
    page = browser.new_page()
    page.set_default_timeout(1000 * patience(20))
    problems: list[str] = []
    policy = "Security Policy"
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.extend([message.text] * (policy in message.text)))
    page.on("request", lambda request: problems.extend([request.url] * (not request.url.startswith(HERE))))
    yield page
    page.close()
    assert problems == []
