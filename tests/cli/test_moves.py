"""Every command that moves data: copies, clones and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
import zarr

import frazil

pytestmark = pytest.mark.deep


def opened(path: Path) -> frazil.Repository:
    return frazil.Repository.open(frazil.local_filesystem_storage(str(path)))


def test_copy(own: Path, repo: frazil.Repository, run: Any) -> None:
    assert "to the directory" in run("copy ice backup")
    repo.create_tag("v3", "main")
    assert json.loads(run("copy ice backup --json"))["existing"] > 0
    assert opened(own / "backup").list_tags() == {"v1", "v2", "v3"}


def test_clone(own: Path, repo: frazil.Repository, run: Any) -> None:
    run("clone ice mine --branch main --tag v1")
    clone = opened(own / "mine")
    assert (clone.list_branches(), clone.list_tags()) == ({"main"}, {"v1"})
    assert clone.lookup_branch("main") == repo.lookup_branch("main")
    run("clone ice newest --shallow")
    assert len(list(opened(own / "newest").ancestry(branch="main"))) < 4


def test_export(own: Path, repo: frazil.Repository, run: Any) -> None:
    run("export ice@v1 plain.zarr")
    assert zarr.open_array(str(own / "plain.zarr"), path="era5/t", mode="r")[0].tolist() == [0, 1, 2]
    run("export ice@dev:era5 part.zarr")
    assert sorted(zarr.open_group(str(own / "part.zarr"), path="era5", mode="r")) == ["p", "t", "time"]
    assert run("export ice@v1 plain.zarr.zip") == "wrote plain.zarr.zip\n"
    plain = zarr.open_group(zarr.storage.ZipStore(own / "plain.zarr.zip", read_only=True), mode="r")
    assert plain["era5/t"][0].tolist() == [0, 1, 2]
    assert "--overwrite" in run("export ice plain.zarr.zip", status=1)
    assert "local file" in run("export ice s3://bucket/plain.zip", status=1)
    assert run("export ice:era5 era5.nc") == "wrote era5.nc\n"
    with xr.open_dataset(own / "era5.nc") as data:
        assert data.t[0].values.tolist() == [9, 9, 9]
    assert "--overwrite" in run("export ice:era5 era5.nc", status=1)
    run("export ice:era5 era5.nc --overwrite")
