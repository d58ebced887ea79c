"""`frazil repair`: the plan, its application and the exit status."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import frazil
from frazil.cli.main import main


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
