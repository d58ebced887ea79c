"""`frazil ui FOLDER`: several repositories, with one page that lists them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.patience import patience
from tests.support.servers import ministack
from tests.ui.serving import Client, repository, served

import frazil
from frazil.cli.main import main
from frazil.cli.ui import repository_of
from frazil.repository.target import Target
from frazil.ui.server import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with repositories of both spec versions, other folders, and a file that nobody may read."""
    root = tmp_path / "archive"
    repository(root / "ice", 2)
    repository(root / "old ice", 1)
    (root / "empty").mkdir()
    (root / "notes").mkdir()
    (root / "notes" / "secret").write_text("secret")
    repo = frazil.Repository.create(str(root / "sea"))
    with repo.transaction("main", message="Waves <b>", metadata={"author": "Ada"}) as store:
        group = zarr.open_group(store, mode="a")
        coordinates = {
            "time": (np.arange(4) * 24, {"units": "hours since 2020-01-01"}),
            "lat": (np.linspace(-60, 60, 5), {"units": "degrees_north"}),
            "lon": (np.arange(0, 360, 45.0), {"units": "degrees_east"}),
        }
        for name, (values, attributes) in coordinates.items():
            group.create_array(name, data=values, dimension_names=[name]).attrs.update(attributes)
        group.create_array("swh", data=np.ones((4, 5, 8), "f4"), dimension_names=list(coordinates))
    return root


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    shown = repository_of([Target(str(folder))])
    assert isinstance(shown, Folder)
    with served(shown) as each:
        yield each


def test_the_names_and_the_files_of_each_repository(client: Client, folder: Path) -> None:
    info = client.get("/api/info").document
    assert info["repositories"] == ["ice", "old ice", "sea"]
    assert str(folder) in info["label"]
    member = client.get("/r/ice/api/info").document
    assert (member["label"], member["folder"], member["writable"]) == ("ice", "../../?folder", False)
    assert client.get("/r/ice/repo/repo").body == (folder / "ice" / "repo").read_bytes()
    assert client.get("/r/sea/repo/repo").body == (folder / "sea" / "repo").read_bytes()
    assert client.get("/r/old%20ice/api/info").document["specVersion"] == 1
    assert client.get("/r/old%20ice/repo/index.json").document["branches"].keys() == {"main", "winter"}
    assert client.get("/r/ice/").body == client.get("/").body


@pytest.mark.parametrize(
    "path",
    [
        *("/repo/repo", "/virtual", "/api/statistics", "/r/notes/repo/secret", "/r/empty/api/info"),
        *("/r/../archive/ice/repo/repo", "/r/..%2fice/repo/repo", "/r/ice/../sea/repo/repo"),
        *("/r/%2e/repo/repo", "/r/ice%2f..%2fsea/repo/repo", "/r//repo/repo", "/r/ice"),
        *("/r/ice/repo/../secret", "/r/ice/repo/secret", "/r/ice/r/sea/repo/repo", "/r/ice/api/info/"),
        *("/r/none/api/info", "/r/ice%00/repo/repo"),
    ],
)
def test_nothing_else(client: Client, path: str) -> None:
    reply = client.get(path)
    assert reply.status in (400, 404), path
    assert b"secret" not in reply.body


def test_names_need_the_token(client: Client) -> None:
    for path in ("/api/info", "/r/ice/api/info", "/r/none/api/info", "/r/ice/repo/repo"):
        assert client.send("GET", path, {}).status == 403, path
    for path in ("/r/ice/", "/r/none/"):  # the same public page
        assert client.send("GET", path, {}).status == 200, path
    assert client.send("POST", "/r/ice/api/plan").status == 405


@pytest.mark.deep
def test_slow_answers_are_about_the_repository(client: Client) -> None:
    assert (
        client.get("/r/sea/api/sizes?version=main&path=/").document
        != client.get("/r/ice/api/sizes?version=main&path=/").document
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["archive", "--write"], "Name one of them"),
        (["archive@v1"], "there is no repository"),
        (["archive:/t"], "there is no repository"),
        (["archive/empty"], "there is no repository"),
        (["archive/none"], "does not exist"),
    ],
)
def test_wrong_arguments(
    folder: Path,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["ui", *words]) != 0
    assert message in capsys.readouterr().err


@pytest.mark.servers
def test_prefix_of_a_bucket() -> None:
    with ministack() as server:
        server.make_bucket("ice")
        for name in ("a", "b"):
            frazil.Repository.create(server.storage("ice", f"all/{name}"))
        server.storage("ice", "all/other").put("x", b"x")
        assert server.storage("ice", "all").folders() == ["a", "b", "other"]
        assert server.storage("ice", "all/none").folders() == []


def test_folders_of_a_storage(tmp_path: Path) -> None:
    memory, local = frazil.in_memory_storage(), frazil.local_filesystem_storage(str(tmp_path))
    for storage in (memory, local):
        for key in ("a/x", "a/y", "b/c/x", "top"):
            storage.put(key, b"x")
        assert storage.folders() == ["a", "b"]


@pytest.mark.browser
def test_the_page_lists_and_opens_repositories(client: Client, page: Any) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(client.server.url)
    page.get_by_role("heading", name="3 repositories").wait_for()
    entry = page.get_by_role("listitem").filter(has_text="sea")
    entry.get_by_text("Waves <b>").wait_for()
    entry.get_by_text("lat -60 to 60 degrees_north · lon 0 to 315 degrees_east").wait_for()
    entry.get_by_text("time 2020-01-01 to 2020-01-04").wait_for()
    entry.get_by_text("Ada").wait_for()
    page.get_by_role("listitem").filter(has_text="old ice").get_by_text(
        "1 array, 16.0 kB of values"
    ).wait_for()
    entry.get_by_role("link", name="sea").click()
    page.get_by_role("heading", name="sea").wait_for()
    page.goto(f"http://127.0.0.1:{client.port}/r/ice/#/v/main/t?view=data")
    page.get_by_text("4,000 values: 0 to 3999").wait_for()
    page.get_by_role("link", name="Repositories").click()
    page.get_by_role("heading", name="3 repositories").wait_for()
    assert f"http://127.0.0.1:{client.port}/repo/repo" not in requests  # a folder has none


@pytest.mark.deep
def test_the_command(folder: Path) -> None:
    command = [sys.executable, "-m", "frazil", "ui", str(folder), "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()).keys() == {"url"}
        process.terminate()
        process.communicate(timeout=patience(30))
    assert process.returncode == 0
