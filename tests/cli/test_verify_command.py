"""`frazil verify`: output and exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import zarr
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.cli import main
from frazil.maintenance.verification.findings import checks


@pytest.fixture
def place(tmp_path: Path) -> Path:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    root = tmp_path / "repo"
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(root)), config)
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="t", shape=(8,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
    return root


def test_problems_have_status_1(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for chunk in sorted((place / "chunks").iterdir()):
        chunk.unlink()
    assert main(["verify", str(place), "--level", "exists"]) == 1
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("8 problems: level exists")
    assert sum(line.startswith("loss: missing: chunks/") for line in text.splitlines()) == 8
    assert "of `/t`" in text
    assert "Run `frazil repair`" in text
    assert main(["verify", str(place), "--level", "exists", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], len(report["findings"])) == (False, 8)
    assert {row["coordinates"][0] for row in report["findings"]} == set(range(8))


def test_the_action_repairs_what_the_level_found(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = shutil.copytree(place, place.parent / "backup")
    chunk = min((place / "chunks").iterdir())
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    assert main(["verify", str(place), "--level", "checksum"]) == 1
    assert "Run `frazil repair --level checksum`" in capsys.readouterr().out
    assert main(["repair", str(place), "--level", "checksum", "--copy", str(backup), "--yes"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 1
    assert main(["verify", str(place), "--level", "checksum"]) == 0


def test_information_is_no_problem(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "manifests" / ("0" * 20)).write_bytes(b"of a session that has not committed")
    assert main(["verify", str(place)]) == 0
    assert "unreferenced" not in capsys.readouterr().out
    assert main(["verify", str(place), "--all"]) == 0
    assert "information: unreferenced: manifests" in capsys.readouterr().out


def test_chunks_that_are_not_decoded_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(place)))
    with repo.transaction("main", message="an array of another program") as store:
        zarr.create_array(store, name="x", shape=(8,), chunks=(4,), dtype="f4")
        stored = store.get_sync("x/zarr.json")
        assert stored is not None
        document = json.loads(stored.to_bytes()) | {"codecs": [{"name": "openzl"}]}
        store.set_sync("x/zarr.json", Buffer.from_bytes(json.dumps(document).encode()))
        store.set_sync("x/c/0", Buffer.from_bytes(bytes(range(100))))
    tip = repo.lookup_branch("main")
    assert main(["verify", str(place), "--level", "decode"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("no problems: level decode")
    assert "information: codec-missing: manifests/" in text
    assert "of `/x`" in text
    assert main(["repair", str(place), "--level", "decode", "--lost", "fill", "--yes"]) == 0
    assert repo.lookup_branch("main") == tip


def test_a_second_run_with_a_state_continues(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify", str(place), "--level", "checksum", "--json", "--state", str(place) + ".state"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == 0
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] > 0


def test_an_engine_runs_the_tasks(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(place), "--engine", "inline"]) == 0
    texts = capsys.readouterr()
    assert texts.out.startswith("no problems")
    assert "tasks" in texts.err


def test_all_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--list-checks"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        each.name for each in checks
    ]
    assert main(["verify", "--list-checks", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(checks)


def test_an_error_of_frazil_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "nothing")]) == 1
    assert "[repository-not-found]" in capsys.readouterr().err
    (tmp_path / "other").write_bytes(b"not a state of a verification, but another file" * 99)
    frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    assert main(["verify", str(tmp_path / "repo"), "--state", str(tmp_path / "other")]) == 1
    assert "[invalid-argument]" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["cut", "missing"])
def test_a_damaged_repo_is_a_finding(place: Path, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = (place / "repo").read_bytes()
    (place / "repo").write_bytes(data[: len(data) // 2]) if way == "cut" else (place / "repo").unlink()
    assert main(["verify", str(place), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(row["severity"], row["key"]) for row in report["findings"]] == [("loss", "repo")]
    for backup in (place / "overwritten").iterdir():
        backup.unlink()
    assert main(["verify", str(place), "--json"]) == 1
    report = json.loads(capsys.readouterr().out if way == "cut" else capsys.readouterr().err)
    assert ("findings" in report) == (way == "cut")  # without any trace of `repo`, there is no repository
