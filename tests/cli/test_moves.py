"""Commands that move data, and their `--dry-run`, which writes nothing and has the numbers of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

import frazil

Run = Callable[..., str]


def opened(path: Path) -> frazil.Repository:
    return frazil.Repository.open(frazil.local_filesystem_storage(str(path)))


def test_copies_and_clones(own: Path, repo: frazil.Repository, run: Run) -> None:
    pytest.importorskip("xarray")
    for command in ("copy", "clone"):
        plan = json.loads(run(f"{command} ice {command} --dry-run --json"))
        assert not (own / command).exists()
        report = json.loads(run(f"{command} ice {command} --json"))
        assert (plan["objects"], plan["bytes"]) == (report["objects"], report["bytes"])
        assert plan["objects"] > 0
    assert run("copy ice copy --dry-run").startswith("would copy 0 objects (0 B)")
    repo.create_tag("v3", "main")
    assert json.loads(run("copy ice copy --json"))["existing"] > 0
    assert opened(own / "copy").list_tags() == {"v1", "v2", "v3"}
    run("clone ice mine --branch main --tag v1")
    clone = opened(own / "mine")
    assert (clone.list_branches(), clone.list_tags()) == ({"main"}, {"v1"})
    assert clone.lookup_branch("main") == repo.lookup_branch("main")
    run("clone ice shallow --shallow --branch main")
    assert len(json.loads(run("log shallow --json"))) == 2
    assert run("cat shallow:era5/t") == run("cat ice:era5/t")


@pytest.mark.deep
def test_exports(own: Path, run: Run) -> None:
    xr = pytest.importorskip("xarray")
    assert run("export ice plain.zarr --dry-run").startswith("would write 2 arrays, 5 chunks (")
    assert not (own / "plain.zarr").exists()
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


def test_ingest_and_import(own: Path, run: Run) -> None:
    xr = pytest.importorskip("xarray")
    xr.Dataset({"a": ("x", [1.0, 2.0])}, {"x": [0, 1]}).to_netcdf("a.nc", engine="scipy")
    assert "+ array /a  1 chunk\n" in run("ingest a.nc new --dry-run")
    assert not (own / "new").exists()
    assert "`frazil ingest a.nc REPOSITORY` writes the data" in run("import a.nc new", 2)
    run("ingest a.nc new")
    assert "nothing to do" in run("ingest a.nc new --dry-run")
    assert run("tree new").splitlines() == ["/", "├── a  float64 (x: 2)", "└── x  int32 (x: 2)"]
    assert ".frazil" in run("tree new --all")
    assert ".frazil/" in run("ls new -a")
    assert ".frazil" not in run("ls new")
    assert "job      ingest" in run("show new")
