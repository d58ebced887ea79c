"""The static page and its repository in buckets, and data on hosts that a page may or may not read."""

from __future__ import annotations

import mimetypes
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers import RunningServer, ministack
from tests.ui.serving import hosted, repository

from frazil.cli.main import main

pytestmark = pytest.mark.browser

#: What a server answers with the rule of docs/explorer.md.
RULE = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Content-Range, ETag"}


@pytest.fixture(scope="module")
def s3() -> Iterator[RunningServer]:
    with ministack() as server:
        server.make_bucket("data")
        yield server


def upload(folder: Path, server: RunningServer) -> str:
    """Upload files with their types, as the tools of clouds do, and return the address of the bucket."""
    address = f"http://127.0.0.1:{server.port}/data"
    for path in (each for each in folder.rglob("*") if each.is_file() and "#" not in each.name):
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        url = f"{address}/{path.relative_to(folder).as_posix()}"
        urllib.request.urlopen(
            urllib.request.Request(url, path.read_bytes(), {"Content-Type": kind}, method="PUT")
        ).close()
    return address


def sees_the_values(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data")
    page.get_by_text("4,000 values: 0 to 3999").wait_for()


def test_page_and_data_in_a_bucket(
    page: Any, s3: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "ice", 2)
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "ice", "--static", "ice/explorer"]) == 0
    sees_the_values(page, f"{upload(tmp_path, s3)}/ice/explorer/index.html")


def test_data_of_another_host(page: Any, s3: RunningServer, tmp_path: Path) -> None:
    folder = repository(tmp_path / "ice", 2)
    with hosted(folder, RULE) as allowed, hosted(folder) as closed, hosted(tmp_path) as root:
        for name, url in (("s3", f"{upload(tmp_path, s3)}/ice"), ("allowed", allowed), ("closed", closed)):
            assert main(["ui", str(folder), "--static", str(tmp_path / name), "--repo-url", url]) == 0
        for name in ("s3", "allowed"):
            sees_the_values(page, f"{root}{name}/index.html")
        page.goto(f"{root}closed/index.html")
        alert = page.get_by_role("alert")
        alert.get_by_text(f'"AllowedOrigins":["{root.rstrip("/")}"]').wait_for()
        alert.get_by_text(closed.rstrip("/")).wait_for()
