"""`frazil repair`: the plan, its application and the exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.maintenance.test_verification import keys, small
from tests.repository.version_1 import fill

import frazil
from frazil.cli.main import main
from frazil.storage.memory import MemoryStorage


def repository(folder: Path) -> frazil.Storage:
    storage = frazil.local_filesystem_storage(str(folder))
    template = small().storage
    assert isinstance(template, MemoryStorage)
    fill(storage, template)
    return storage


@pytest.mark.deep
def test_plan_then_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    storage = repository(tmp_path / "one")
    copy = frazil.local_filesystem_storage(other)
    for each in storage.list(""):
        copy.put(each.key, bytes(storage.get(each.key)))
    assert main(["repair", one]) == 0
    key = keys(storage, "chunks")[0]
    storage.delete([key])
    assert main(["repair", one]) == 1
    assert "lost: 1 chunk of /" in capsys.readouterr().out
    assert main(["repair", one, "--copy", other, "--json"]) == 1
    assert [row["key"] for row in json.loads(capsys.readouterr().out)["steps"]] == [key]
    assert storage.head(key) is None
    assert main(["repair", one, "--copy", other, "--yes"]) == 0
    assert storage.head(key) is not None
    assert main(["repair", one]) == 0


def test_a_chunk_that_does_not_decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    chunks = frazil.ChunksConfig(checksums=False)
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, chunks=chunks)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(one), config)
    with repo.transaction("main", message="data") as store:
        zarr.create_array(store, name="t", data=np.arange(300))
    shutil.copytree(one, other)
    (chunk,) = (tmp_path / "one" / "chunks").iterdir()
    good = chunk.read_bytes()
    chunk.write_bytes(bytes(len(good)))
    assert main(["repair", one, "--level", "checksum"]) == 0
    assert main(["repair", one, "--level", "decode", "--copy", other, "--yes"]) == 0
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


def test_the_plan_ends_with_commands_for_lost_chunks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = repository(tmp_path / "one")
    storage.delete([keys(storage, "chunks")[0]])
    assert main(["repair", str(tmp_path / "one")]) == 1
    assert "--lost fill --yes" in capsys.readouterr().out
