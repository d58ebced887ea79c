"""A browser for tests: Debian's Chromium, if `scripts/install-browser` has installed it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the group `browser`")
    find = subprocess.run(
        [ROOT / "scripts" / "install-browser", "--find"], capture_output=True, text=True, check=False
    )
    if find.returncode:
        pytest.skip("no Chromium here: scripts/install-browser installs it")
    with playwright.sync_playwright() as driver:
        limit = 1000 * patience(30)
        browser = driver.chromium.launch(executable_path=find.stdout.strip(), args=FLAGS, timeout=limit)
        yield browser
        browser.close()
