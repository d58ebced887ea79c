"""The page in a browser, over the server and over a plain web server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.ui.serving import Client, hosted, repository, served

import frazil
from frazil.cli.main import main
from frazil.repository.target import Target
from frazil.ui.server import Site

pytestmark = pytest.mark.browser


def sees_the_refs(page: Any) -> None:
    for name in ("main", "winter", "v1"):
        page.locator("body", has_text=name).wait_for()


def test_over_the_server(page: Any, site: Site) -> None:
    with served(replace(site, target=Target(site.target.location))) as client:
        page.goto(client.server.url)
        page.get_by_role("link", name="History").first.click()
        sees_the_refs(page)
        assert site.token not in page.url
        page.reload()
        sees_the_refs(page)


def test_over_the_server_at_an_array(page: Any, client: Client) -> None:
    """The first view is the picture; colours by statistics that do not exist are no errors in the console."""
    errors: list[str] = []
    page.on("console", lambda message: errors.extend([message.text] * (message.type == "error")))
    page.goto(client.server.url)
    page.get_by_text("4,000 values: 0 to 3999").wait_for()
    page.get_by_role("tab", name="Chunks").click()
    page.get_by_role("combobox", name="Colour").select_option("mean")
    page.get_by_text("2 chunks without statistics").wait_for()
    assert errors == []


def test_a_change_of_another_program(page: Any, client: Client, folder: Path) -> None:
    page.goto(client.server.url)
    page.locator("body", has_text="int32").wait_for()
    button = page.get_by_role("button", name="has changed")
    with page.expect_response("**/repo/repo"):
        page.evaluate("dispatchEvent(new Event('focus'))")
    assert button.count() == 0
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(folder)))
    repo.create_branch("later", repo.lookup_branch("main"))
    page.evaluate("dispatchEvent(new Event('focus'))")
    button.click()
    page.locator("datalist option[value=later]").wait_for(state="attached")
    button.wait_for(state="detached")


def test_without_the_token(page: Any, client: Client) -> None:
    page.goto(client.server.url.partition("#")[0])
    page.get_by_text("token").first.wait_for()


@pytest.mark.parametrize("spec_version", [1, 2])
def test_beside_the_data(
    page: Any, tmp_path: Path, spec_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "ice", spec_version)
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "ice", "--static", "ice/explorer"]) == 0
    with hosted(tmp_path) as root:
        page.goto(f"{root}ice/explorer/index.html#/history")
        sees_the_refs(page)


def test_requests_of_the_first_picture(
    page: Any, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is one file and asks for each file once, also for those that it asks for early."""
    monkeypatch.chdir(tmp_path)
    assert main(["ui", "ice", "--static", "page"]) == 0
    requests: list[str] = []
    page.on("request", lambda request: requests.extend([request.url] * request.url.startswith("http")))
    with hosted(tmp_path) as root:
        page.goto(f"{root}page/index.html#/v/main/t?view=data")
        page.get_by_text("4,000 values: 0 to 3999").wait_for()
        assert requests[:3] == [
            f"{root}{each}" for each in ("page/index.html", "page/explorer.json", "ice/repo")
        ]
        before = [each for each in requests if "/transactions/" not in each]
        assert requests[: len(before)] == before  # marks of the tree come later
        assert len(before) == len(set(before)) <= 6
    with served(replace(site, target=Target(site.target.location))) as client:
        page.goto(client.server.url)
        page.get_by_text("Create the array").wait_for()
        page.get_by_role("application").wait_for()
        root = f"http://127.0.0.1:{client.port}/"
        names = [each.removeprefix(root) for each in requests if each.startswith(root)]
        assert sorted(names[1:3]) == ["api/info", "repo/repo"]
        assert len(names) == len(set(names)) <= 6


def test_texts_of_a_repository_are_no_html(page: Any, site: Site, folder: Path) -> None:
    html = "<img src=x onerror=document.title='hacked'>"
    repo = frazil.Repository.open(str(folder))
    with repo.transaction("main", message=html, metadata={"author": html}) as store:
        zarr.open_array(store, path="t").attrs["units"] = html
    with served(replace(site, target=Target(site.target.location))) as client:
        page.goto(client.server.url)
        page.locator("body", has_text=html).wait_for()
    with served(replace(site, target=Target(site.target.location, "main", "/t"))) as client:
        page.goto(client.server.url)
        page.locator("body", has_text=html).wait_for()
        assert page.locator("img").count() == 0
        assert "hacked" not in page.title()


def test_rows_of_a_long_history(page: Any, site: Site, folder: Path) -> None:
    """A row that scrolls into view takes over the elements of another one."""
    repo = frazil.Repository.open(str(folder))
    for number in range(200):
        repo.writable_session("main").commit(f"commit {number}", allow_empty=True)
    with served(replace(site, target=Target(site.target.location))) as client:
        page.goto(client.server.url)
        page.get_by_role("link", name="History").first.click()
        page.get_by_role("option", name="commit 199", exact=False).wait_for()
        rows = page.get_by_role("listbox")
        # One evaluation finds and reads: between two, the elements can become those of other rows
        read = "list => [...list.querySelectorAll('[role=option]')].map(row => row.innerText)"
        for top in (90, 1000, 4000, 2500, 2590, 0):
            rows.evaluate(f"list => {{ list.scrollTop = {top} }}")
            newest = 199 - top // 30
            page.get_by_role("option", name=f"commit {newest}", exact=False).wait_for()
            texts = [text for text in rows.evaluate(read) if "commit " in text]
            numbers = [int(text.split("commit ")[1].split()[0]) for text in texts]
            assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
            assert newest in numbers
            assert len(numbers) < 60
