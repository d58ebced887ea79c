"""Drivers of plans of Cubed that are killed, and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.cubed.programs import daily

import frazil
import frazil.xarray

PROGRAM = "import sys; from tests.cubed.killed import main; main(*sys.argv[1:])"
#: The chunks of the operations of the program: a rechunk, a mean, and two ends of the plan.
CHUNKS = [32, 1, 4, 2]


def run(folder: Path, last: int, factor: int = 1) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    environment["PYTHONHASHSEED"] = str(last % 7)  # the order of sets must not matter
    command = [sys.executable, "-c", PROGRAM, str(folder), str(last), str(factor)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def chunks_left(folder: Path) -> list[Path]:
    return [path for path in (folder / "work").rglob("*") if path.is_file() and path.name != "zarr.json"]


@pytest.fixture
def data(tmp_path: Path) -> xr.Dataset:
    data = daily(240, missing=False)
    data.frazil.to(tmp_path / "repo", encoding={"t": {"chunks": (30, 3, 4)}})
    return data


def require_rows(folder: Path, mean: xr.DataArray) -> None:
    repo: Any = frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "repo")))
    assert [each.message for each in repo.ancestry(branch="main")][:2] == ["rows", "Write t"]
    result = xr.open_dataset(repo, engine="frazil", group="rows")
    np.testing.assert_allclose(result.t, mean, rtol=1e-6)
    assert not chunks_left(folder)


@pytest.mark.parametrize("last", [20, 34])
def test_a_killed_driver_resumes(tmp_path: Path, data: xr.Dataset, last: int) -> None:
    died = run(tmp_path, last)
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = len(chunks_left(tmp_path))
    assert done >= min(last, CHUNKS[0])
    again = run(tmp_path, -1)
    assert again.returncode == 0, again.stderr
    counts = json.loads(again.stdout)
    assert counts[-2:] == CHUNKS[-2:] or sum(counts) < sum(CHUNKS[1:])
    assert sum(counts) <= sum(CHUNKS) - min(last, CHUNKS[0])
    require_rows(tmp_path, data.t.mean("lat"))


def test_chunks_of_another_program_or_version_are_computed_again(tmp_path: Path, data: xr.Dataset) -> None:
    assert run(tmp_path, 34, factor=2).returncode == -signal.SIGKILL
    (data + 1).frazil.to(tmp_path / "repo", mode="r+", message="Write t", accept=["attributes"])
    again = run(tmp_path, -1, factor=3)
    assert json.loads(again.stdout) == CHUNKS
    require_rows(tmp_path, data.t.mean("lat") * 3 + 3)
