"""A withdrawal by source names the files that an ingest has copied, and the versions that got them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import frazil
from frazil.pipeline import Target, ingest
from frazil.storage.memory import MemoryStorage

BASE = "file:///archive"


def save(folder: Path, number: int, value: float = 1.0, **labels: list[float]) -> Path:
    """Save a file with one time, and more labels."""
    x = labels.get("x", [1.0, 2.0])
    values, coords = np.full((1, len(x)), number * 10 + value), {"time": [number], "x": x}
    path = folder / f"day{number}.nc"
    xr.Dataset({"t": (("time", "x"), values)}, coords).to_netcdf(
        path, engine="h5netcdf", unlimited_dims=["time"]
    )
    return path


def add(repo: frazil.Repository, *files: Path, group: str = "", **further: Any) -> str:
    ingest([str(each) for each in files], Target(repo, group=group), engine="inline", **further)
    return repo.lookup_branch("main")


@pytest.fixture
def repo() -> frazil.Repository:
    return frazil.Repository.create(MemoryStorage())


def copied(repo: frazil.Repository, source: str, data: Any = ()) -> list[str]:
    unresolved = repo.upkeep.forget(data, sources=source).report.unresolved
    return [each for each in unresolved if "has copied" in each]


def test_files_in_order_and_out_of_order(repo: frazil.Repository, tmp_path: Path) -> None:
    first = add(repo, save(tmp_path, 1), save(tmp_path, 3))
    second = add(repo, save(tmp_path, 2), mode="backfill")
    for name, version in (("day1", first), ("day3", first), ("day2", second)):
        (sentence,) = copied(repo, f"{BASE}/{name}.nc")
        assert f"1 file of the source into `/`: `{name}.nc (" in sentence
        assert f"in the versions `{version}`. Withdraw their cells by paths and labels" in sentence
    (sentence,) = copied(repo, f"{BASE}/day*")
    assert "3 files" in sentence
    assert all(each in sentence for each in (first, second))
    assert copied(repo, f"{BASE}/other.nc") == []
    assert copied(repo, f"{BASE}/day1.nc", {"t": slice(0, 1)}) == []  # the person has named cells


def test_a_corrected_file_has_two_versions(repo: frazil.Repository, tmp_path: Path) -> None:
    first = add(repo, save(tmp_path, 1))
    add(repo, save(tmp_path, 2), mode="append")
    second = add(repo, save(tmp_path, 1, 5.0), mode="upsert", on_change="rewrite")
    (sentence,) = copied(repo, f"{BASE}/day1.nc")
    assert f"`{first}`, `{second}`" in sentence


def test_an_array_of_another_group_names_no_cells_of_the_files(
    repo: frazil.Repository, tmp_path: Path
) -> None:
    add(repo, save(tmp_path, 1))
    add(repo, save(tmp_path, 2), group="other")
    source = f"{BASE}/day1.nc"
    (sentence,) = copied(repo, source, {"other/t": slice(0, 1)})
    assert "into `/`" in sentence
    assert copied(repo, f"{BASE}/day2.nc", {"other": None}) == []


def test_labels_that_grow_and_groups(repo: frazil.Repository, tmp_path: Path) -> None:
    add(repo, save(tmp_path, 1), group="a/b")
    version = add(repo, save(tmp_path, 2, x=[2.0, 3.0]), group="a/b", grow=["x"], mode="append")
    (sentence,) = copied(repo, f"{BASE}/day2.nc")
    assert "into `/a/b/`: `day2.nc (" in sentence
    assert f"`{version}`" in sentence


def test_the_certificate_says_what_is_left(repo: frazil.Repository, tmp_path: Path) -> None:
    add(repo, save(tmp_path, 1), save(tmp_path, 2))
    certificate = repo.upkeep.forget(sources=f"{BASE}/day2.nc").apply()
    assert not certificate.ok
    (left,) = certificate.left
    assert "has copied 1 file" in left
    assert frazil.read(repo.readonly_session("main"), "t")[1].tolist() == [21, 21]
    assert repo.upkeep.forget({"t": slice(1, 2)}).apply().ok
    assert [each.ok for each in repo.upkeep.certificates()] == [True, True]


def test_virtual_files_are_no_copies(tmp_path: Path) -> None:
    store = frazil.local_filesystem_store(str(tmp_path))
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(f"file://{tmp_path}/", store))
    access = {f"file://{tmp_path}/": frazil.credentials.LocalFileSystemAccess}
    repo = frazil.Repository.create(MemoryStorage(), config, authorize_virtual_chunk_access=access)
    add(repo, save(tmp_path, 1), save(tmp_path, 2), virtual=True)
    source = f"file://{tmp_path}/day1.nc"
    plan = repo.upkeep.forget(sources=source)
    assert plan.report.sources == (source,)
    assert plan.report.unresolved == ()
    assert plan.apply().ok
    assert copied(repo, source) == []  # its references are gone, and it was no copy
