"""Changes from the page: who may make them, their plans, and what happens if others are faster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.ui.serving import Client, Reply, pids, runs, served, tree_of, wait_for
from tests.ui.test_accessibility import problems_now

import frazil
from frazil.errors import ErrorKind
from frazil.repository.target import Target
from frazil.ui.server import Site


@pytest.fixture
def writer(site: Site) -> Iterator[Client]:
    with served(replace(site, target=Target(site.target.location), is_writable=True)) as client:
        yield client


@pytest.fixture
def repo(folder: Path) -> frazil.Repository:
    return frazil.Repository.open(str(folder))


def put(repo: frazil.Repository, branch: str, row: int, value: int, message: str = "put") -> str:
    with repo.transaction(branch, message=message) as store:
        zarr.open_array(store, path="t")[row] = value
    return repo.lookup_branch(branch)


def value(repo: frazil.Repository, branch: str, row: int) -> Any:
    return zarr.open_array(repo.readonly_session(branch).store, path="t", mode="r")[row, 0]


def plan(client: Client, action: str, **texts: str) -> Reply:
    return client.post("/api/plan", {"action": action, **texts})


def error_of(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.document["error"]["kind"]


ID = "0" * 20
MERGE = {"action": "merge", "branch": "main", "version": "winter"}


@pytest.mark.parametrize(
    ("path", "document", "headers", "status"),
    [
        ("/api/plan", MERGE, {"Authorization": ""}, 403),
        ("/api/apply", MERGE, {"Authorization": "Bearer x"}, 403),
        ("/api/plan", MERGE, {"Origin": "http://evil.example"}, 403),
        ("/api/plan", MERGE, {"Origin": "null"}, 403),
        ("/api/plan", MERGE, {"Host": "evil.example"}, 403),
        ("/api/plan", MERGE, {"Content_Type": "text/plain"}, 415),
        ("/api/plan", MERGE, {"Content_Length": "x"}, 411),
        ("/api/plan", b"x" * ((64 << 10) + 1), {}, 413),
        ("/api/plan", b"", {}, 400),
        ("/api/plan", b"[" * 60_000, {}, 400),
        ("/api/plan", b"\xff", {}, 400),
        ("/api/plan", [MERGE], {}, 400),
        ("/api/plan", {**MERGE, "action": "reset"}, {}, 400),
        ("/api/plan", {**MERGE, "action": ["merge"]}, {}, 400),
        ("/api/plan", {**MERGE, "yes": "yes"}, {}, 400),
        ("/api/plan", {"action": "merge", "branch": "main"}, {}, 400),
        ("/api/plan", {**MERGE, "branch": 3}, {}, 400),
        ("/api/plan", {**MERGE, "version": "dev\0"}, {}, 400),
        ("/api/plan", {**MERGE, "conflicts": "all"}, {}, 400),
        ("/api/plan", {**MERGE, "tip": "--help"}, {}, 400),
        ("/api/apply", MERGE, {}, 400),
        ("/api/apply", {**MERGE, "tip": ID}, {}, 400),
        ("/api/apply", {"action": "tag", "name": "v2", "version": "main"}, {}, 400),
        ("/api/apply", {"action": "undo"}, {}, 400),
        ("/api/info", MERGE, {}, 404),
        ("/api/plan?x", MERGE, {}, 404),
        ("/repo/repo", MERGE, {}, 404),
    ],
)
def test_requests_that_are_refused(
    writer: Client, folder: Path, path: str, document: object, headers: dict[str, str], status: int
) -> None:
    before = tree_of(folder)
    assert writer.post(path, document, **headers).status == status
    assert tree_of(folder) == before


def test_other_methods_are_refused_and_the_page_knows_that_it_may_write(
    writer: Client, client: Client
) -> None:
    assert [each.get("/api/info").document["writable"] for each in (writer, client)] == [True, False]
    for method in ("PUT", "DELETE", "PATCH"):
        assert writer.send(method, "/api/apply").status == 405
    for path in ("/api/plan", "/api/apply"):
        assert client.post(path, MERGE).status == 405
        assert writer.get(path).status == 404


@pytest.mark.deep
@pytest.mark.parametrize("action", ["branch", "tag", "merge", "revert"])
def test_a_plan_is_what_happens(writer: Client, folder: Path, repo: frazil.Repository, action: str) -> None:
    start = put(repo, "main", 0, 7)
    source = put(repo, "winter", 3, 9)
    texts = {
        "branch": {"name": "--new@x:y", "version": source},
        "tag": {"name": "v2", "version": "winter"},
        "merge": {"branch": "main", "version": "winter", "message": "--all of it"},
        "revert": {"branch": "main", "version": start},
    }[action]
    before = tree_of(folder)
    document = plan(writer, action, **texts).document
    assert tree_of(folder) == before
    reply = writer.post("/api/apply", document["apply"])
    assert reply.status == 200
    if action in ("branch", "tag"):
        names = repo.list_branches() if action == "branch" else repo.list_tags()
        assert texts["name"] in names
        assert reply.document["id"] == document["plan"]["id"] == source
        assert error_of(writer.post("/api/apply", document["apply"])) == (422, f"{action}-already-exists")
        return
    tip = repo.lookup_snapshot(repo.lookup_branch("main"))
    assert (tip.parent_id, tip.message) == (document["plan"]["before"], document["plan"]["message"])
    assert tip.parent_id == start
    assert document["plan"]["changes"]["updated_chunks"] == {"/t": 1}
    assert document["plan"].get("commits") == (1 if action == "merge" else None)
    assert (value(repo, "main", 0), value(repo, "main", 3)) == ((7, 9) if action == "merge" else (0, 3000))


@pytest.mark.deep
def test_a_branch_that_moves_after_the_plan_of_two_pages(
    writer: Client, folder: Path, repo: frazil.Repository
) -> None:
    spike = put(repo, "main", 0, 7)
    source = put(repo, "winter", 3, 9)
    merge = plan(writer, "merge", branch="main", version="winter").document["apply"]
    revert = plan(writer, "revert", branch="main", version=spike).document["apply"]
    # The merge brings the version of its plan, also if its branch has a new one.
    put(repo, "winter", 2, 5)
    assert merge["version"] == source
    assert writer.post("/api/apply", merge).status == 200
    assert (value(repo, "main", 3), value(repo, "main", 2)) == (9, 2000)
    before = tree_of(folder)
    for stale in (revert, merge):
        assert error_of(writer.post("/api/apply", stale)) == (409, ErrorKind.BRANCH_UPDATE_CONFLICT)
    assert tree_of(folder) == before
    again = plan(writer, "revert", branch="main", version=spike).document["apply"]
    assert writer.post("/api/apply", again).status == 200
    assert (value(repo, "main", 0), value(repo, "main", 3)) == (0, 9)


@pytest.mark.deep
def test_conflicts_and_rules(writer: Client, folder: Path, repo: frazil.Repository) -> None:
    tip = put(repo, "main", 0, 7)
    put(repo, "winter", 0, 9)
    before = tree_of(folder)
    reply = plan(writer, "merge", branch="main", version="winter")
    assert error_of(reply) == (422, ErrorKind.REBASE_FAILED)
    assert "/t" in reply.document["error"]["message"]
    document = plan(writer, "merge", branch="main", version="winter", conflicts="source").document
    (discarded,) = document["plan"]["discarded"]
    assert discarded == {"path": "/t", "side": "branch", "values": 998, "chunks": 1}
    assert tree_of(folder) == before
    repo.protect_branch("main", principals=["nobody"])
    for reply in (
        writer.post("/api/apply", document["apply"]),
        plan(writer, "revert", branch="main", version="main"),
    ):
        assert error_of(reply) == (422, ErrorKind.BRANCH_PROTECTED)
    assert repo.lookup_branch("main") == tip


@pytest.mark.deep
def test_the_update_of_the_plan_is_undone_or_none(writer: Client, repo: frazil.Repository) -> None:
    repo.create_branch("new", "main")
    old = plan(writer, "undo").document["apply"]
    repo.create_branch("newer", "main")
    assert error_of(writer.post("/api/apply", old)) == (409, ErrorKind.REPO_INFO_UPDATED)
    assert {"new", "newer"} <= repo.list_branches()
    document = plan(writer, "undo").document
    assert [each["subject"] for each in document["plan"]["changes"]] == ["branch `newer`"]
    assert writer.post("/api/apply", document["apply"]).status == 200
    assert repo.list_branches() == {"main", "winter", "new"}


def test_a_change_does_not_end_with_its_client(writer: Client, slow: Path) -> None:
    connections = [writer.connect(), writer.connect()]
    headers = {**writer.token, "Content-Type": "application/json"}
    body = json.dumps({**MERGE, "version": ID, "tip": ID})
    connections[0].request("POST", "/api/apply", body, headers)
    pids(slow, 1)
    connections[1].request("GET", "/api/verify", headers=writer.token)
    change, answer = pids(slow, 2)
    for connection in connections:
        connection.close()
    wait_for(lambda: not runs(answer))
    assert runs(change)
    writer.server.processes.close()
    wait_for(lambda: not runs(change))


@pytest.mark.browser
def test_a_spike_is_reverted_by_keyboard(page: Any, writer: Client, repo: frazil.Repository) -> None:
    put(repo, "main", 0, 7, "A spike")
    put(repo, "main", 3, 9, "Later work")
    page.goto(writer.server.url)
    page.get_by_role("link", name="History", exact=True).click()
    page.get_by_role("option", name="A spike").wait_for()
    page.get_by_role("listbox").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.get_by_role("heading", name="A spike").wait_for()
    undo = page.get_by_role("button", name="Revert…")
    while not undo.evaluate("button => button === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Revert a commit").wait_for()
    assert problems_now(page) == []
    page.get_by_role("textbox", name="Message").focus()
    page.keyboard.press("Enter")
    apply = page.locator("button:focus", has_text="Apply")
    apply.wait_for()
    assert problems_now(page) == []  # with the plan
    # Another page is faster: the plan is made again
    put(repo, "main", 2, 5, "Meanwhile")
    page.keyboard.press("Enter")
    page.get_by_text("main has changed since").wait_for()
    apply.wait_for()
    assert value(repo, "main", 0) == 7
    page.keyboard.press("Enter")
    page.get_by_role("heading", name='Revert "A spike"').wait_for()
    assert page.get_by_role("dialog").count() == 0
    assert page.get_by_role("listbox").evaluate("list => list === document.activeElement")
    assert [value(repo, "main", row) for row in (0, 2, 3)] == [0, 5, 9]


@pytest.mark.browser
def test_a_refusal_and_a_page_that_may_not_write(page: Any, writer: Client, site: Site) -> None:
    page.goto(writer.server.url)
    page.get_by_role("link", name="History", exact=True).click()
    page.get_by_role("button", name="New tag…").click()
    page.get_by_role("textbox", name="Name").fill("v1")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("tag-already-exists").wait_for()
    assert problems_now(page) == []
    page.get_by_role("textbox", name="Name").fill("v2")
    page.keyboard.press("Enter")
    page.get_by_text("new tag v2").wait_for()
    page.get_by_role("button", name="Apply").press("Enter")
    page.get_by_role("option", name="v2").wait_for()
    page.get_by_role("link", name="Repository", exact=True).click()
    page.get_by_role("button", name="Undo the last update…").click()
    page.get_by_text("undo tag-created").wait_for()
    page.get_by_role("button", name="Cancel").press("Enter")
    page.get_by_role("button", name="Lineage").click()
    page.get_by_text("No commit has the record of a job").wait_for()
    page.get_by_role("button", name="Open jobs").click()
    page.get_by_role("region", name="Open jobs").get_by_text("none").wait_for()
    with served(replace(site, target=Target(site.target.location))) as client:
        page.goto(client.server.url)
        page.get_by_role("link", name="History", exact=True).click()
        page.get_by_role("option", name="v2").wait_for()
        page.get_by_role("link", name="Open this version").wait_for()
        assert page.get_by_role("group", name="Changes").count() == 0
