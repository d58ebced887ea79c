"""The demo runs over what an earlier run left, finds everything equal, and would notice if it were not."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import zarr
from tests.support.program_runner import ONE_PROCESS

import frazil

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.deep]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("demo")
    (directory / "repository").mkdir()
    (directory / "repository" / "left-over").touch()  # of the run before
    run = ONE_PROCESS.run(DEMO, str(directory))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    return directory, run.stdout


def test_everything_is_equal(output: tuple[Path, str]) -> None:
    _, text = output
    assert text.splitlines()[-1].startswith("OK: everything is equal, bit by bit.")
    assert text.count(": 0 differences") == 2


def test_it_shows_what_it_promises(output: tuple[Path, str]) -> None:
    directory, text = output
    assert "writing 100%  25/25 tasks  534 rows  49 chunks  5.2 MB" in text
    assert "/e1/air_temperature: 2 chunks, (15, 0, 0) (16, 0, 0)" in text
    assert "2050                282.74 K            282.34 K   -0.40" in text
    assert (directory / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert not (directory / "repository" / "left-over").exists()


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    return importlib.import_module("demo_parts.proof")


@pytest.fixture
def tampered(output: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the repository where one value is another."""
    copy = tmp_path / "copy"
    shutil.copytree(output[0] / "repository", copy)
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(copy)))
    with repo.transaction("main", message="Hardly visible") as store:
        air = zarr.open_array(store, path="a1b/air_temperature", mode="r+")
        air[7, 7, 7] = air[7, 7, 7] + 1e-3
    repo.create_tag("tampered", snapshot_id=repo.lookup_branch("main"))
    return copy


def test_a_difference_from_the_files_is_reported(proof: ModuleType, tampered: Path) -> None:
    assert proof.compared_with_files(tampered, "v1") == (27, [])
    expected = ["tampered: a1b/air_temperature and A1B_north_america.nc"]
    assert proof.compared_with_files(tampered, "tampered") == (27, expected)


def test_a_difference_from_icechunk_is_reported(
    proof: ModuleType, output: tuple[Path, str], tampered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = output[0] / "repository"
    assert proof.compared(original) == (54, [])
    ours = frazil.local_filesystem_storage(str(tampered))
    monkeypatch.setattr(frazil, "local_filesystem_storage", lambda path: ours)
    assert proof.compared(original) == (54, ["main: the history", "main: a1b/air_temperature"])
