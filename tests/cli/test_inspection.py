"""Every command that looks: its JSON, and its lines in a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import frazil

pytestmark = pytest.mark.usefixtures("beside")


def document(run: Any, line: str) -> Any:
    return json.loads(run(f"{line} --json"))


def test_log(run: Any) -> None:
    rows = document(run, "log ice")
    assert [row["message"] for row in rows][:2] == ["Rename the title", "Correct the first step"]
    assert (rows[0]["branches"], rows[1]["tags"], rows[0]["parent"]) == (["main"], ["v2"], rows[1]["id"])
    assert document(run, "log ice@dev -n 1")[0]["metadata"] == {"author": "Ada"}
    lines = run("log ice").splitlines()
    assert lines[0].startswith(rows[0]["id"][:8])
    assert lines[0].endswith("(main) Rename the title")
    assert "\x1b" not in run("log ice --graph")


def test_log_of_a_path(run: Any) -> None:
    assert [row["message"] for row in document(run, "log ice:era5/t")] == [
        "Correct the first step",
        "Create the arrays",
    ]
    assert len(document(run, "log ice:era5")) == 3
    assert document(run, "log ice:era5/other") == []
    assert "    ~ array /era5/t  1 chunk" in run("log ice@v2 -p -n 1")


def test_log_since(run: Any) -> None:
    time = document(run, "log ice@main~1 -n 1")[0]["time"]
    assert len(document(run, f"log ice --since {time}")) == 2
    assert document(run, "log ice --since 0s") == []
    assert len(document(run, "log ice --since 1d")) == 4


def test_patches_of_versions_without_changes(own: Path, run: Any) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(own / "ice")))
    repo.writable_session("main").commit("nothing", allow_empty=True)
    messages = [row["message"] for row in document(run, "log ice --patch")]
    assert (messages[0], messages[-1], len(messages)) == ("nothing", "Repository initialized", 5)


def test_a_pipe_has_whole_lines(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for line in ("ops ice", "log ice", "status ice", "tree ice", "ls ice:era5"):
        assert "…" not in (text := run(line))
        assert max(map(len, text.splitlines())) > 20


def test_show(run: Any) -> None:
    version = document(run, "show ice@dev")
    assert (version["branches"], version["changes"]["new_arrays"]) == (["dev"], ["/era5/p"])
    text = run("show ice@dev")
    assert 'author: "Ada"' in text
    assert "    hourly" in text
    assert version["id"] in text
    assert "changes" not in document(run, "show ice@main~3")
    assert document(run, "show ice@v1:era5/time")["changes"]["new_arrays"] == ["/era5/time"]


def test_diff(run: Any) -> None:
    changes = document(run, "diff ice@v1")
    assert (changes["updated_groups"], changes["updated_chunks"]) == (["/era5"], {"/era5/t": [[0, 0]]})
    assert run("diff ice@v1 v2 --chunks") == "~ array /era5/t  1 chunk\n    0,0\n"
    run("diff ice@v1 v2 --exit-code", status=1)
    assert run("diff ice@v1:era5/time v2 --exit-code") == ""
    assert "[ref-not-found]" in run("diff ice@dev v1:no", status=1)


def test_nodes(run: Any) -> None:
    assert run("ls ice") == "era5/  group\n"
    assert [row["path"] for row in document(run, "ls ice@dev:era5")] == ["/era5/p", "/era5/t", "/era5/time"]
    assert [row["path"] for row in document(run, "tree ice")] == ["/", "/era5", "/era5/t", "/era5/time"]
    assert run("tree ice --depth 1") == "/\n└── era5\n"
    array = document(run, "info ice:era5/t")
    assert (array["shape"], array["chunks"], array["dtype"]) == ([4, 3], [1, 3], "float32")
    assert '  title: "ERA5"' in run("info ice@v1:era5")
    assert "[node-not-found]" in run("ls ice:no", status=1)


def test_cat(run: Any) -> None:
    assert run("cat ice:era5/time") == "0 1 2 3\n"
    table = [line.split() for line in run("cat ice@v1:era5/t :2,1:").splitlines()]
    assert table == [["time", "\\", "x", "1", "2"], ["0", "1.0", "2.0"], ["1", "4.0", "5.0"]]
    assert run("cat ice:era5/t -1") == "9.0 10.0 11.0\n"
    assert document(run, "cat ice:era5/t ...,0")["values"] == [9.0, 3.0, 6.0, 9.0]
    assert run("cat ice:era5/t 1,1") == "4.0\n"
    picture = run("cat ice@v1:era5/t --plot").splitlines()
    assert picture == [".::", "-=+", "+*#", "%%@", "0 to 11, 4 x 3 values"]
    for wrong in ("cat ice:era5/t 4", "cat ice:era5/t a", "cat ice:era5/t ::0", "cat ice", "cat ice:t 0,0,0"):
        run(wrong, status=1 if wrong.startswith("cat ice:t") else 2)


def test_whole_repositories(run: Any) -> None:
    assert [(row["kind"], row["name"]) for row in document(run, "refs ice")] == [
        ("branch", "dev"),
        ("branch", "main"),
        ("tag", "v1"),
        ("tag", "v2"),
    ]
    assert document(run, "info ice")["branches"] == ["dev", "main"]
    assert document(run, "status ice")["status"] == "online"
    assert run("status ice").startswith("online, spec version 2\n  dev ")
    assert [row["update"] for row in document(run, "ops ice -n 3")] == ["new-commit"] * 2 + ["tag-created"]
    assert document(run, "ops ice")[-1]["update"] == "repo-initialized"
    assert document(run, "stats ice")["versions"] == 5


def test_bytes(run: Any) -> None:
    sizes = document(run, "du ice")
    assert [row["path"] for row in sizes["arrays"]] == ["/era5/t", "/era5/time"]
    assert sizes["total"]["chunks"] == 5
    assert sizes["total"]["bytes"] == sum(row["bytes"] for row in sizes["arrays"]) > 0
    assert run("du ice@dev:era5/p -s").split() == ["0", "B", "0", "/era5/p"]


def test_inspect(run: Any) -> None:
    assert document(run, "inspect ice@v1")["commit_message"] == "Create the arrays"
    manifest = json.loads(run("inspect ice --manifests"))[0]["id"]
    assert document(run, f"inspect ice --manifest {manifest}")["id"] == manifest
    assert len(document(run, "inspect ice@v1 --log")["new_arrays"]) == 2
    assert "dev" in document(run, "inspect ice --repo")["branches"]


def test_a_repository_of_version_1(tmp_path: Path, run: Any) -> None:

    frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "old")), spec_version=1)
    for name in ("log", "info", "status", "refs", "ls", "tree", "stats", "du"):
        assert run(f"{name} {tmp_path / 'old'}") is not None
    assert run(f"ops {tmp_path / 'old'}", status=1)
