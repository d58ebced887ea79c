"""A small repository for commands: a template that nobody changes, and a copy for commands that change it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import frazil
from frazil.cli.main import main


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the repository `ice`: `main` with the tags v1 and v2, and `dev` with one more array."""
    folder = tmp_path_factory.mktemp("commands")
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(folder / "ice")))
    with repo.transaction("main", message="Create the arrays") as store:
        era5 = zarr.create_group(store, path="era5", attributes={"title": "ERA5"})
        t = era5.create_array("t", shape=(4, 3), chunks=(1, 3), dtype="f4", dimension_names=["time", "x"])
        t[:] = np.arange(12).reshape(4, 3)
        time = era5.create_array("time", shape=(4,), chunks=(4,), dtype="i8", dimension_names=["time"])
        time[:] = np.arange(4)
    repo.create_tag("v1", "main")
    repo.create_branch("dev", "main")
    with repo.transaction("main", message="Correct the first step") as store:
        zarr.open_array(store, path="era5/t")[0] = 9
    repo.create_tag("v2", "main")
    with repo.transaction("dev", message="Add pressure\n\nhourly", metadata={"author": "Ada"}) as store:
        zarr.create_array(store, name="era5/p", shape=(4,), chunks=(1,), dtype="f4")
    with repo.transaction("main", message="Rename the title") as store:
        zarr.open_group(store, path="era5").attrs["title"] = "ERA 5"
    return folder


@pytest.fixture
def beside(template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has the repository `ice`. Do not change it."""
    monkeypatch.chdir(template)
    return template


@pytest.fixture
def own(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has a copy of the repository `ice`."""
    shutil.copytree(template / "ice", tmp_path / "ice")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def repo(own: Path) -> frazil.Repository:
    """The copy of the repository `ice`."""
    return frazil.Repository.open(frazil.local_filesystem_storage(str(own / "ice")))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line, and return its output; without output its errors."""

    def text_of(line: str | list[str], status: int = 0) -> str:
        assert main(shlex.split(line) if isinstance(line, str) else line) == status, capsys.readouterr()
        captured = capsys.readouterr()
        return captured.out if status == 0 else captured.err or captured.out

    return text_of


@pytest.fixture(autouse=True)
def no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiles of this machine are not the subject."""
    monkeypatch.setenv("FRAZIL_PROFILES", str(tmp_path / "profiles.toml"))
