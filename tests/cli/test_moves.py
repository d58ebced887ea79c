"""Commands that move data, and their `--dry-run`, which writes nothing and has the numbers of the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

Run = Callable[..., str]


@pytest.mark.deep
def test_exports(own: Path, run: Run) -> None:
    pytest.importorskip("xarray")
    assert run("export ice plain.zarr --dry-run").startswith("would write 2 arrays, 5 chunks (")
    assert not (own / "plain.zarr").exists()
    run("export ice@dev:era5 part.zarr")
    assert sorted(zarr.open_group(str(own / "part.zarr"), path="era5", mode="r")) == ["p", "t", "time"]
    run("export ice@v1 plain.zarr.zip")
    assert "--overwrite" in run("export ice plain.zarr.zip", status=1)
    assert "local file" in run("export ice s3://bucket/plain.zip", status=1)
    run("export ice:era5 era5.nc")
    assert "--overwrite" in run("export ice:era5 era5.nc", status=1)
    run("export ice:era5 era5.nc --overwrite")


def test_ingest_and_import(own: Path, run: Run) -> None:
    xr = pytest.importorskip("xarray")
    xr.Dataset({"a": ("x", [1.0, 2.0])}, {"x": [0, 1]}).to_netcdf("a.nc", engine="scipy")
    assert "+ array /a  1 chunk\n" in run("ingest a.nc new --dry-run")
    assert not (own / "new").exists()
    assert "  * a (x: 2) >f8" in run("ingest a.nc new --inspect").splitlines()
    run("init empty --dry-run")
    assert not (own / "empty").exists()
    assert "`frazil ingest a.nc REPOSITORY` writes the data" in run("import a.nc new", 2)
    run("ingest a.nc new")
    assert "nothing to do" in run("ingest a.nc new --dry-run")
    assert run("tree new").splitlines() == ["/", "├── a  float64 (x: 2)", "└── x  int32 (x: 2)"]
    assert ".frazil" in run("tree new --all")
    assert ".frazil/" in run("ls new -a")
    assert ".frazil" not in run("ls new")
    assert "job      ingest" in run("show new")
