"""`--dry-run` of commands that move data: nothing is written, and the numbers are those of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


def test_copies_and_clones(own: Path, run: Run) -> None:
    pytest.importorskip("xarray")
    for command in ("copy", "clone"):
        plan = json.loads(run(f"{command} ice {command} --dry-run --json"))
        assert not (own / command).exists()
        report = json.loads(run(f"{command} ice {command} --json"))
        assert (plan["objects"], plan["bytes"]) == (report["objects"], report["bytes"])
        assert plan["objects"] > 0
    assert run("copy ice copy --dry-run").startswith("would copy 0 objects (0 B)")


def test_a_shallow_clone_has_the_newest_versions(own: Path, run: Run) -> None:
    pytest.importorskip("xarray")
    run("clone ice shallow --shallow --branch main")
    assert len(json.loads(run("log shallow --json"))) == 2
    assert run("cat shallow:era5/t") == run("cat ice:era5/t")


def test_exports(own: Path, run: Run) -> None:
    pytest.importorskip("xarray")
    assert run("export ice plain --dry-run").startswith("would write 2 arrays, 5 chunks (")
    assert not (own / "plain").exists()


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
