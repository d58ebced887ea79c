"""The static export: a plain web server gives the page and the repository at the addresses of the page."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

import pytest
from tests.ui.serving import hosted, repository

import frazil
from frazil.cli.main import main


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        data: bytes = answer.read()
        return data


@pytest.mark.parametrize("page", ["ice/explorer", "ice/a/b", "pages", "."])
def test_a_page_beside_the_data(tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "ice", 2)
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "ice@v1:/t", "--static", page]) == 0
    with hosted(tmp_path) as root:
        home = urljoin(root, f"{page}/")
        names = re.findall('<link rel="preload"[^>]* href="([^"]+)"', fetch(home).decode())
        links = [urljoin(home, each) for each in names]
        assert links == [urljoin(home, "explorer.json"), urljoin(root, "ice/repo")]
        settings = json.loads(fetch(urljoin(home, "explorer.json")))
        assert {"version": "v1", "path": "/t", "label": "ice", "specVersion": 2}.items() <= settings.items()
        repo = urljoin(home, settings["repo"])
        for path in (each for each in folder.glob("*/*") if each.is_file() and page not in str(each)):
            key = path.relative_to(folder).as_posix()
            assert fetch(urljoin(repo, key)) == path.read_bytes()
        assert fetch(urljoin(repo, "repo")) == (folder / "repo").read_bytes()
        assert "index" not in settings
    # both can move together
    assert str(tmp_path) not in (tmp_path / page / "explorer.json").read_text()


def test_the_export_is_repeatable_and_no_concern_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "ice", 2)
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "ice", "--static", "ice/explorer"]) == 0
    first = {each.name: each.read_bytes() for each in (tmp_path / "ice" / "explorer").iterdir()}
    assert json.loads(first["explorer.json"]) == {"repo": "../", "label": "ice", "specVersion": 2}
    assert main(["ui", "ice", "--static", "ice/explorer"]) == 0
    assert {each.name: each.read_bytes() for each in (tmp_path / "ice" / "explorer").iterdir()} == first
    assert main(["verify", "ice", "--level", "decode"]) == 0


def test_refs_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path / "old data", 1)
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "old data", "--static", "page"]) == 0
    repo = frazil.Repository.open("old data")
    tip = repo.lookup_branch("main")
    with hosted(tmp_path) as root:
        settings = json.loads(fetch(f"{root}page/explorer.json"))
        assert settings["repo"] == "../old%20data/"
        refs = json.loads(fetch(urljoin(f"{root}page/", settings["index"])))
        assert refs == {"branches": {"main": tip, "winter": tip}, "tags": {"v1": tip}}
        assert fetch(urljoin(f"{root}page/", f"{settings['repo']}snapshots/{tip}"))


def test_the_address_of_a_repository_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(tmp_path / "data" / "ice", 2)
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "data/ice", "--static", "other/page"]) == 1
    assert "--repo-url" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    for url in ("https://a.example/ice", "https://a.example/ice/", "../ice"):
        assert main(["ui", "data/ice", "--static", "other/page", "--repo-url", url]) == 0
        settings = json.loads((tmp_path / "other" / "page" / "explorer.json").read_text())
        assert settings["repo"] == url.rstrip("/") + "/"
    for url in (
        "s3://bucket/ice",
        "https://me:secret@a.example/",
        "javascript:alert(1)",
        "https://a.example/?x",
    ):
        assert main(["ui", "data/ice", "--static", "other/page", "--repo-url", url]) == 1
