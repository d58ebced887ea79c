"""Collections that the published library reads and changes, and that plain zarr and SQL read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.members.test_collection import scene

import frazil
from frazil.cli import main

icechunk = pytest.importorskip("icechunk")
pytestmark = pytest.mark.interop


@pytest.fixture
def scenes(tmp_path: Path) -> frazil.Collection:
    scenes = frazil.Collection.create(frazil.Repository.create(tmp_path / "ice"), "scenes")
    scenes.add_many({"dataset": scene(n), "name": f"s{n}", "cloud": n, "platform": "S2"} for n in (1, 2, 3))
    return scenes


def reference(tmp_path: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "ice")))


def test_the_reference_reads_the_table(scenes: frazil.Collection, tmp_path: Path) -> None:
    store = reference(tmp_path).readonly_session("main").store
    rows = xr.open_zarr(store, group="scenes/members", consolidated=False).load()
    assert rows.where(rows["cloud"] > 1, drop=True)["member"].values.tolist() == ["s2", "s3"]
    assert rows.sel(member="s3")["platform"].item() == "S2"
    assert xr.open_zarr(store, group="scenes/s3", consolidated=False)["red"].shape == (3, 3)


def test_the_reference_appends_members(scenes: frazil.Collection, tmp_path: Path) -> None:
    session = reference(tmp_path).writable_session("main")
    scene(5).to_zarr(session.store, group="scenes/by others", zarr_format=3, consolidated=False)
    rows = xr.open_zarr(session.store, group="scenes/members", consolidated=False).load()
    row = rows.isel(member=[0]).assign_coords(member=np.array(["by others"], np.dtypes.StringDType()))
    row["cloud"][:] = 99
    row.to_zarr(session.store, group="scenes/members", append_dim="member", zarr_format=3, consolidated=False)
    session.commit("by others")
    assert list(scenes.where("cloud = 99 AND platform = 'S2'")) == ["by others"]
    assert scenes.check() == {}
    scenes.add(scene(), name="after", cloud=None)
    assert list(scenes.where()) == ["s1", "s2", "s3", "by others", "after"]
    store = reference(tmp_path).readonly_session("main").store
    assert xr.open_zarr(store, group="scenes/members", consolidated=False).sizes["member"] == 5


def test_a_merge_without_the_common_version(tmp_path: Path) -> None:
    """The reference has expired it, so that all nodes are new on both sides."""
    repo = frazil.Repository.create(tmp_path / "ice")
    scenes = frazil.Collection.create(repo, "scenes")
    repo.create_branch("dev", "main")
    scenes.add(scene(), name="a")
    frazil.Collection(repo, "scenes", branch="dev").add(scene(), name="b")
    reference(tmp_path).expire_snapshots(datetime.now(UTC))
    repo.merge("dev", solver=scenes.solver)
    assert list(scenes.where()) == ["a", "b"]
    assert scenes.check() == {}


def test_spec_version_1(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice", spec_version=1)
    scenes = frazil.Collection.create(repo, "scenes")
    session = repo.writable_session("main")
    inside = frazil.Collection(session, "scenes")
    inside.add(scene(), name="a")
    scenes.add(scene(), name="b", cloud=1)
    session.commit("late", rebase_with=inside.solver)
    assert list(scenes.where()) == ["b", "a"]
    store = reference(tmp_path).readonly_session("main").store
    assert xr.open_zarr(store, group="scenes/members", consolidated=False)["member"].values.tolist() == [
        "b",
        "a",
    ]


def test_sql_finds_members(
    scenes: frazil.Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes.add(scene(time="2025-01-01"), name="late")
    query = "select member from scenes.members where cloud > 1 or time >= '2025-01-01' order by member"
    assert main(["sql", str(tmp_path / "ice"), query, "--csv"]) == 0
    assert capsys.readouterr().out.split() == ["member", "late", "s2", "s3"]


def test_the_command_lists_members(
    scenes: frazil.Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{tmp_path / 'ice'}:scenes"
    assert main(["collection", target, "--where", "cloud > 2"]) == 0
    assert capsys.readouterr().out == "s3  2024-05-01 00:00:00  7.875,49.875,8.625,50.625  lat=3 lon=3\n"
    assert main(["collection", target, "--bbox", "100,0,110,90", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert main(["collection", target, "--bbox", "100,0,110"]) != 0
    assert "bbox must be" in capsys.readouterr().err
