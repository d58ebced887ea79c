"""Commands about the history: bisect, watch, restore, protections, the doctor."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import frazil
from frazil.cli.main import main
from frazil.maintenance import doctor
from frazil.pipeline import Target, coarsen, map_blocks

Run = Callable[..., str]

CHECK = (
    "import json, sys; sys.exit(json.loads(open('known.json').read()).get(sys.argv[1].split('@')[1][:20], 1))"
)


def test_bisect_runs_a_program(own: Path, repo: frazil.Repository, run: Run) -> None:
    for value in range(4):
        run(f"set ice:era5/t 0,0 {value}")
    ids = [each.id for each in repo.ancestry(branch="main")]
    (own / "known.json").write_text(json.dumps(dict.fromkeys(ids[2:], 0)))
    (own / "check.py").write_text(CHECK)
    report = json.loads(run(f"bisect ice:era5/t v1 --json -- {sys.executable} check.py {{}}"))
    assert (report["first_bad"], report["last_good"]) == (ids[1], ids[2])
    assert report["skipped"] == 1  # the commit of an attribute
    assert "no answer" in run("bisect ice v1 -- sh -c 'exit 130'", 2)
    assert "does not start" in run("bisect ice v1 -- ./absent {}", 2)
    assert "either --rules FILE or a program" in run("bisect ice v1", 2)


def test_watch_prints_each_version_once(own: Path, repo: frazil.Repository, run: Run) -> None:
    lines = run("watch ice@main --since 1d --timeout 0s --json").splitlines()
    messages = [json.loads(line)["message"] for line in lines]
    assert messages == ["Create the arrays", "Correct the first step", "Rename the title"]
    cursor = json.loads(lines[1])["cursor"]
    assert "commit   Rename the title" in run(f"watch ice --cursor {cursor} --timeout 0s")
    assert run("watch ice --timeout 0s") == ""
    assert "30s, 5m or 12h" in run("watch ice --timeout 5", 2)


def test_restore_goes_back_by_updates(own: Path, repo: frazil.Repository, run: Run) -> None:
    before = repo.lookup_branch("main")
    run("branch ice new")
    run("set ice:era5/t 0,0 1")
    assert "The branch `new` is deleted" in run("restore-to ice ~2", 3)
    run("restore-to ice ~2 --yes")
    assert (repo.lookup_branch("main"), "new" in repo.list_branches()) == (before, False)
    assert "fewer than 500 updates" in run("restore-to ice ~500", 2)


def test_protections(own: Path, repo: frazil.Repository, run: Run) -> None:
    run("protect ice main --by ada --by ben --allow-reset")
    assert run("protect ice") == "main: no deletion; only ada, ben\n"
    assert "Did you mean `main`?" in run("protect ice mian", 1)


def test_the_doctor_names_commands(
    own: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("doctor ice").startswith("no findings in ")
    monkeypatch.setattr(doctor, "_BACKUP_BYTES", 1)
    assert main(["doctor", "ice", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["command"].startswith("frazil collect ice --older-than 2")
    assert main([*finding["command"].split()[1:], "--yes"]) == 0


def test_the_doctor_goes_on_without_the_snapshot_of_main(
    own: Path, repo: frazil.Repository, run: Run
) -> None:
    repo.storage.delete([f"snapshots/{repo.lookup_branch('main')}"])
    lines = run("doctor ice", 1).splitlines()
    assert [each.split(":")[0] for each in lines] == [
        "unreadable-file",
        "    frazil repair ice",
        "derived-array",
        "    frazil repair ice",
    ]


def test_the_doctor_lists_derived_arrays_that_are_not_current(
    own: Path, repo: frazil.Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    with repo.transaction("main", message="a row") as store:
        zarr.create_array(
            store, name="row/t", data=np.arange(8.0), chunks=(2,), dimension_names=["x"], fill_value=0
        )
    coarsen(repo, ["row/t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
    map_blocks(lambda block: block, repo, ["row/t"], to=Target(repo, group="lambda"), engine="inline")
    with repo.transaction("main", message="a correction") as store:
        zarr.open_array(store, path="row/t")[0] = 9
    assert main(["doctor", "ice", "--json"]) == 1
    rows = {each["subject"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert rows.keys() == {"/half/row/t", "/lambda/row/t"}
    assert rows["/half/row/t"]["command"] == "frazil refresh ice"
    assert "function" in rows["/lambda/row/t"]["detail"]
    assert main(["refresh", "ice"]) == 0
    capsys.readouterr()
    assert main(["refresh", "ice:half"]) == 0
    assert "1 derived array: all current" in capsys.readouterr().out
    assert main(["refresh", "ice:hal"]) == 1
    assert "node-not-found" in capsys.readouterr().err
    assert main(["doctor", "ice", "--json"]) == 1
    assert [each["subject"] for each in json.loads(capsys.readouterr().out)["findings"]] == ["/lambda/row/t"]
