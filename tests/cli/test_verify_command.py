"""`frazil verify` and `frazil repair`: output, exit status, and what a repair does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.cli.main import main
from frazil.maintenance.verification.findings import checks

Run = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the repository `repo` in the current folder."""
    monkeypatch.chdir(tmp_path)
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    root = tmp_path / "repo"
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(root)), config)
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="t", shape=(8,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
    return root


def test_problems_have_status_1(place: Path, run: Run) -> None:
    for chunk in sorted((place / "chunks").iterdir()):
        chunk.unlink()
    text = run("verify repo --level exists", 1)
    assert text.splitlines()[0].startswith("8 problems: level exists")
    assert sum(line.startswith("loss: missing: chunks/") for line in text.splitlines()) == 8
    assert "of `/t`" in text
    assert "Run `frazil repair`" in text
    report = json.loads(run("verify repo --level exists --json", 1))
    assert (report["ok"], len(report["findings"])) == (False, 8)
    assert {row["coordinates"][0] for row in report["findings"]} == set(range(8))


def test_the_action_repairs_what_the_level_found(place: Path, run: Run) -> None:
    shutil.copytree(place, place.parent / "backup")
    chunk = min((place / "chunks").iterdir())
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    assert "Run `frazil repair --level checksum`" in run("verify repo --level checksum", 1)
    assert len(run("repair repo --level checksum --copy backup --yes").splitlines()) > 1
    run("verify repo --level checksum")


def test_information_is_no_problem(place: Path, run: Run) -> None:
    (place / "manifests" / ("0" * 20)).write_bytes(b"of a session that has not committed")
    assert "unreferenced" not in run("verify repo")
    assert "information: unreferenced: manifests" in run("verify repo --all")


def test_chunks_that_are_not_decoded_are_named(place: Path, run: Run) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(place)))
    with repo.transaction("main", message="an array of another program") as store:
        zarr.create_array(store, name="x", shape=(8,), chunks=(4,), dtype="f4")
        stored = store.get_sync("x/zarr.json")
        assert stored is not None
        document = json.loads(stored.to_bytes()) | {"codecs": [{"name": "openzl"}]}
        store.set_sync("x/zarr.json", Buffer.from_bytes(json.dumps(document).encode()))
        store.set_sync("x/c/0", Buffer.from_bytes(bytes(range(100))))
    tip = repo.lookup_branch("main")
    text = run("verify repo --level decode")
    assert text.startswith("no problems: level decode")
    assert "information: codec-missing: manifests/" in text
    assert "of `/x`" in text
    run("repair repo --level decode --lost fill --yes")
    assert repo.lookup_branch("main") == tip


def test_a_second_run_with_a_state_continues(place: Path, run: Run) -> None:
    command = "verify repo --level checksum --json --state repo.state"
    assert [json.loads(run(command))["resumed"] > 0 for _ in range(2)] == [False, True]


def test_an_engine_runs_the_tasks(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(place), "--engine", "inline"]) == 0
    texts = capsys.readouterr()
    assert texts.out.startswith("no problems")
    assert "tasks" in texts.err


def test_all_checks_are_listed(run: Run) -> None:
    lines = run("verify --list-checks").splitlines()
    assert [line.split()[0] for line in lines] == [each.name for each in checks]
    assert len(json.loads(run("verify --list-checks --json"))) == len(checks)


def test_an_error_of_frazil_has_status_1(place: Path, run: Run) -> None:
    assert "[repository-not-found]" in run("verify nothing", 1)
    (place.parent / "other").write_bytes(b"not a state of a verification, but another file" * 99)
    assert "[invalid-argument]" in run("verify repo --state other", 1)


@pytest.mark.parametrize("way", ["cut", "missing"])
def test_a_damaged_repo_is_a_finding(place: Path, way: str, run: Run) -> None:
    data = (place / "repo").read_bytes()
    (place / "repo").write_bytes(data[: len(data) // 2]) if way == "cut" else (place / "repo").unlink()
    report = json.loads(run("verify repo --json", 1))
    assert [(row["severity"], row["key"]) for row in report["findings"]] == [("loss", "repo")]
    for backup in (place / "overwritten").iterdir():
        backup.unlink()
    # without any trace of `repo`, there is no repository
    assert ("findings" in json.loads(run("verify repo --json", 1))) == (way == "cut")


def test_a_chunk_that_does_not_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    chunks = frazil.ChunksConfig(checksums=False)
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, chunks=chunks)
    repo = frazil.Repository.create("one", config)
    with repo.transaction("main", message="data") as store:
        zarr.create_array(store, name="t", data=np.arange(300))
    shutil.copytree("one", "other")
    (chunk,) = (tmp_path / "one" / "chunks").iterdir()
    good = chunk.read_bytes()
    chunk.write_bytes(bytes(len(good)))
    run("repair one --level checksum")
    out = run("repair one --level decode", 1)
    assert "--lost fill --yes" in out
    assert "--lost previous" not in out  # no older version has data for the chunk
    run("repair one --level decode --copy other --yes")
    assert chunk.read_bytes() == good


def test_a_detached_snapshot_goes_to_the_branch_that_the_user_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "ice")
    storage = frazil.local_filesystem_storage(place)
    repo = frazil.Repository.create(storage)
    repo.create_branch("dev", repo.lookup_branch("main"))
    with repo.transaction("dev", message="work") as store:
        zarr.create_group(store, path="g")
    tip = repo.lookup_branch("dev")
    storage.delete(["repo"])
    assert main(["repair", place]) == 1
    assert f"frazil repair {place} --recover {tip} dev --yes" in capsys.readouterr().out
    assert main(["repair", place, "--recover", tip[:6], "dev", "--yes"]) == 0
    repo = frazil.Repository.open(storage)
    assert (repo.lookup_branch("dev"), len(list(repo.ancestry(branch="main")))) == (tip, 1)


def test_a_repair_without_a_repository_names_where_it_looked(place: Path, run: Run) -> None:
    text = run("repair nothing", 1)
    assert f"found none in {place.parent}/nothing, which does not exist. Correct the location" in text
    assert "or pass --copy" in text
    assert "got no snapshots in" in run("repair nothing --copy nowhere", 1)
