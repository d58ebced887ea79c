"""Every command that changes a repository: its effect, its rehearsal and its question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zarr

import frazil
from frazil.pipeline import Target, derived, reduce, refresh


def state(repo: frazil.Repository) -> Any:
    """Everything that a rehearsal must not change."""
    storage = repo.storage
    return sorted((each.key, bytes(storage.get(each.key))) for each in storage.list(""))


@pytest.mark.parametrize(
    "line",
    [
        *("branch ice new", "branch ice --delete dev", "tag ice new", "tag ice --delete v1"),
        *("merge ice dev", "cherry-pick ice dev", "revert ice main~1", "reset ice v1"),
        *("mv ice:era5/t era5/t2m", "rm ice:era5", "attrs ice:era5 title=x", "attrs ice title=x"),
        *("set ice:era5/t 0,0 7", "config ice inline_chunk_threshold_bytes=9"),
        "config ice --read-only reason",
    ],
)
def test_a_rehearsal_changes_nothing(line: str, repo: frazil.Repository, run: Any) -> None:
    before = state(repo)
    document = json.loads(run(f"{line} --dry-run --json"))
    assert document["dry_run"] is True
    assert state(repo) == before
    run(f"{line} {'-y' if line.startswith(('branch', 'tag', 'reset')) else ''}")
    assert state(repo) != before


def test_the_target_of_a_move_is_a_path(own: Path, run: Any) -> None:
    assert "Write `frazil mv ice:/era5/t era5/t2m`" in run("mv ice:era5/t ice:era5/t2m", status=2)


def set_step(repo: frazil.Repository, branch: str, at: Any, value: Any) -> None:
    with repo.transaction(branch, message="a change") as store:
        zarr.open_array(store, path="era5/t")[at] = value


def test_a_merge_by_element(repo: frazil.Repository, run: Any) -> None:
    repo.reset_branch("dev", repo.lookup_branch("main"))
    set_step(repo, "main", (1, 0), -1)
    set_step(repo, "dev", (1, 2), -2)
    assert "--conflicts elements" in run("merge ice dev --conflicts fail", status=1)
    repo.create_branch("other", repo.lookup_branch("dev"))
    set_step(repo, "other", (1, 0), 5)
    error = run("merge ice other --dry-run", status=1)
    assert "[rebase-failed]" in error
    assert "1 element " in error
    assert "--conflicts source" in error
    document = json.loads(run("merge ice dev --json"))
    assert document["discarded"] == []
    assert not document["derived_behind"]
    assert frazil.read(repo.readonly_session("main"), "/era5/t", 1).tolist() == [-1, 4, -2]


def test_a_merge_keeps_derived_arrays_of_the_branch(repo: frazil.Repository, run: Any) -> None:
    to = Target(repo, group="means")
    reduce(repo, "era5/t", "time", "mean", to=to, engine="inline")
    repo.reset_branch("dev", repo.lookup_branch("main"))
    for branch, row in (("main", 0), ("dev", 1)):
        set_step(repo, branch, (row, 0), 60)
        refresh(repo, branch=branch, engine="inline").apply()
    assert "derived" in run("merge ice dev --conflicts fail", status=1)
    assert json.loads(run("merge ice dev --dry-run --json"))["derived_behind"]
    assert "`frazil refresh`" in run("merge ice dev")
    assert not derived(repo).is_current
    refresh(repo, engine="inline").apply()
    session = repo.readonly_session("main")
    expected = frazil.read(session, "/era5/t").mean(0)
    assert frazil.read(session, "/means/era5/t").tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("choice", "other", "name", "expected"),
    [("source", "branch", "`main`", [-2, 4, -2]), ("branch", "source", "`dev`", [-1, 4, -2])],
)
def test_a_choice_says_what_it_discards(
    choice: str, other: str, name: str, expected: list[int], repo: frazil.Repository, run: Any
) -> None:
    repo.reset_branch("dev", repo.lookup_branch("main"))
    set_step(repo, "main", (1, 0), -1)
    set_step(repo, "dev", (1, [0, 2]), -2)
    before, line = repo.lookup_branch("main"), f"merge ice dev --conflicts {choice}"
    assert f"/era5/t: would discard 1 value of {name} in 1 chunk" in run(f"{line} --dry-run")
    question = run(line, status=3)
    assert f"/era5/t: will discard 1 value of {name} in 1 chunk" in question
    assert "--yes" in question
    assert repo.lookup_branch("main") == before
    document = json.loads(run(f"{line} --yes --json"))
    assert document["discarded"] == [{"path": "/era5/t", "side": other, "values": 1, "chunks": 1}]
    assert frazil.read(repo.readonly_session("main"), "/era5/t", 1).tolist() == expected


def test_branches_and_tags(repo: frazil.Repository, run: Any) -> None:
    run("reset ice v1 -y")
    run("reset ice v2")  # forward: nothing is lost
    run("branch ice@v1 fix")
    assert repo.lookup_branch("fix") == repo.lookup_tag("v1")
    run("branch ice --delete fix")  # nothing is lost: no question
    assert "Pass --yes" in run("branch ice --delete dev", status=3)
    assert "dev" in repo.list_branches()
    run("branch ice -d dev -y")
    run("tag ice@main~0 checked")
    assert repo.lookup_tag("checked") == repo.lookup_tag("v2")
    assert "cannot be used again" in run("tag ice -d checked", status=3)
    run("tag ice -d checked --yes")
    assert (repo.list_branches(), repo.list_tags()) == ({"main"}, {"v1", "v2"})
    assert "Leave out" in run("branch ice:t x", status=2)
    assert "Leave out" in run("tag ice@v1 --delete v1", status=2)


def test_merge(repo: frazil.Repository, run: Any) -> None:
    document = json.loads(run("merge ice dev --metadata job=nightly --json"))
    info = repo.lookup_snapshot(document["id"])
    assert (info.message, info.metadata["job"]) == ("Merge dev into main", "nightly")
    assert run("merge ice dev").startswith("main stays at")
    assert "needs a branch" in run("merge ice@v1 dev", status=1)


def test_undo_of_a_branch(repo: frazil.Repository, run: Any) -> None:
    run("set ice@dev:era5/p 0 4")
    run("attrs ice:era5 title=new")
    changed = repo.lookup_branch("main")
    run("undo ice@dev")
    run("undo ice --branch dev --dry-run")
    assert repo.lookup_branch("main") == changed
    assert "name one branch" in run("undo ice@dev --branch main", status=2)
    assert "Leave out :PATH" in run("undo ice:era5/p", status=2)
    run("tag ice v9")
    assert "Undo? The tag `v9` is deleted, and its name" in run("undo ice", status=3)
    run("undo ice -y")
    assert "v9" not in repo.list_tags()
    assert "cannot be used again" in run("redo ice", status=1)


def test_attributes(repo: frazil.Repository, run: Any) -> None:
    run("attrs ice:era5 levels='[1, 2]' note=text")
    attributes = zarr.open_group(repo.readonly_session("main").store, path="era5", mode="r").attrs.asdict()
    assert attributes == {"title": "ERA 5", "levels": [1, 2], "note": "text"}
    run("attrs ice:era5 --unset note --unset levels")
    assert run("attrs ice:era5") == 'title: "ERA 5"\n'
    assert json.loads(run("attrs ice@v1:era5 --json")) == {"title": "ERA5"}


def test_configuration(repo: frazil.Repository, run: Any) -> None:
    assert run("config ice") == "status: online\nmanifest.splitting=auto\n"
    assert run("config ice manifest.splitting=null") == "status: online\n"
    assert run("config ice manifest.splitting=auto") == "status: online\nmanifest.splitting=auto\n"
    assert "[config-deserialization]" in run("config ice manifest.splitting=both", status=1)
    run("config ice manifest.splitting=null")
    run("config ice inline_chunk_threshold_bytes=9 compression.level=5")
    saved = frazil.Repository.fetch_config(repo.storage)
    assert saved is not None
    assert (saved.inline_chunk_threshold_bytes, saved.compression and saved.compression.level) == (9, 5)
    assert saved.storage is None
    run("config ice compression.level=null")
    assert run("config ice") == "status: online\ninline_chunk_threshold_bytes=9\n"
    assert "no option `compresion.level`" in run("config ice compresion.level=5", status=2)
    assert "[config-deserialization]" in run("config ice compression.level=high", status=1)
    assert "status: read_only" in run("config ice --read-only archived")
    assert "frazil config ice --online" in run("tag ice v9", status=1)
    assert run("config ice --online") == "status: online\ninline_chunk_threshold_bytes=9\n"
