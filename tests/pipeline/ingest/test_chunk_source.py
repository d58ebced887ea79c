"""Lost chunks come back from the files that were ingested, if no guess is needed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.format.ids import id_to_text
from frazil.format.manifest import NativeRef
from frazil.pipeline import IngestedFiles, ingest
from frazil.pipeline.ingest import chunk_source
from frazil.storage.memory import MemoryStorage

repair = frazil.Repository.repair


def write(folder: Path, day: int, offset: float = 0.0) -> str:
    values = np.random.default_rng(day).random((4, 30)) + offset
    data = xr.Dataset({"t": (("time", "x"), values)}, {"time": np.arange(4) + 4 * day})
    path = folder / f"day{day}.nc"
    data.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [write(tmp_path, day) for day in range(4)]


@pytest.fixture(params=[False, True], ids=["files", "packs"])
def repo(files: list[str], request: pytest.FixtureRequest) -> frazil.Repository:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=request.param)
    )
    repo = frazil.Repository.create(MemoryStorage(), config)
    ingest(files, repo, chunks={"time": 2}, encoding={"t": {"compressors": None}}, engine="inline")
    return repo


def chunk_key(repo: frazil.Repository, coords: tuple[int, int]) -> str:
    ref = repo.readonly_session("main").workspace.ref("/t", coords)
    assert isinstance(ref, NativeRef)
    return f"chunks/{id_to_text(ref.chunk_id)}"


def values(repo: frazil.Repository) -> Any:
    return zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")[:]


@pytest.mark.sample(1)
def test_chunks_of_unchanged_files_come_back(repo: frazil.Repository) -> None:
    before = values(repo)
    key = chunk_key(repo, (3, 0))
    data = bytes(repo.storage.get(key))
    repo.storage.delete([key])
    assert repair(repo.storage).lost
    tip = repo.lookup_branch("main")
    plan = repair(repo.storage, sources=[IngestedFiles()])
    assert [(each.action, each.keys) for each in plan.steps] == [("source", (key,))]
    assert plan.complete
    assert repo.storage.head(key) is None
    plan.apply()
    assert bytes(repo.storage.get(key))[: len(data)] == data
    reopened = frazil.Repository.open(repo.storage)
    np.testing.assert_array_equal(values(reopened), before)
    assert (reopened.lookup_branch("main"), reopened.list_branches()) == (tip, {"main"})
    assert repair(repo.storage).ok


@pytest.mark.sample(1)
def test_a_changed_bit_is_repaired(repo: frazil.Repository) -> None:
    key = chunk_key(repo, (3, 0))
    data = bytes(repo.storage.get(key))
    ref = repo.readonly_session("main").workspace.ref("/t", (3, 0))
    assert isinstance(ref, NativeRef)
    at = ref.offset + 9
    repo.storage.put(key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    plan = repair(repo.storage, level="checksum", sources=[IngestedFiles()], dry_run=False)
    assert [(each.action, each.certainty) for each in plan.steps] == [("source", "proved")]
    assert bytes(repo.storage.get(key)) == data
    assert repair(repo.storage, level="checksum").ok


@pytest.mark.sample(1)
def test_a_changed_file_is_not_used(repo: frazil.Repository, tmp_path: Path) -> None:
    key = chunk_key(repo, (3, 0))
    write(tmp_path, 1, offset=5.0)
    repo.storage.delete([key])
    plan = repair(repo.storage, sources=[IngestedFiles()])
    assert not plan.steps
    assert plan.lost


@pytest.mark.sample(1)
def test_values_that_were_written_after_the_ingest_are_not_replaced(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="corrected") as store:
        zarr.open_array(store, path="t")[6:8] = 1.25
    repo.storage.delete([chunk_key(repo, (3, 0))])
    plan = repair(repo.storage, sources=[IngestedFiles()])
    assert not plan.steps
    assert {tuple(row["coordinates"]) for row in plan.lost_rows()} >= {(3, 0)}


@pytest.mark.sample(1)
def test_values_that_a_later_ingest_has_kept_are_not_replaced(
    repo: frazil.Repository, tmp_path: Path
) -> None:
    """The last step of the last chunk is corrected. Then another file gets a step in the same chunk."""
    odd = xr.Dataset({"t": (("time", "x"), np.ones((1, 30)))}, {"time": [16]})
    odd.to_netcdf(tmp_path / "odd.nc", engine="h5netcdf", unlimited_dims=["time"])
    ingest(str(tmp_path / "odd.nc"), repo, mode="append", engine="inline")
    with repo.transaction("main", message="corrected") as store:
        zarr.open_array(store, path="t")[16] = 2.5
    last = odd.assign_coords(time=[17])
    last.to_netcdf(tmp_path / "last.nc", engine="h5netcdf", unlimited_dims=["time"])
    ingest(str(tmp_path / "last.nc"), repo, mode="append", engine="inline")
    assert values(repo)[16:, 0].tolist() == [2.5, 1.0]
    repo.storage.delete([chunk_key(repo, (8, 0))])
    plan = repair(repo.storage, sources=[IngestedFiles()])
    assert not [each for each in plan.steps if each.action == "source"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("tag", [False, True])
def test_after_an_expiration_nothing_is_certain(repo: frazil.Repository, tag: bool) -> None:
    if tag:  # the ingest stays in the history, and the correction does not
        repo.create_tag("ingested", repo.lookup_branch("main"))
    with repo.transaction("main", message="corrected") as store:
        zarr.open_array(store, path="t")[0] = 2.5
    with repo.transaction("main", message="other") as store:
        zarr.create_array(store, name="other", shape=(1,), dtype="i1")
    repo.expire_snapshots(datetime.now(UTC))
    assert "corrected" not in [info.message for info in repo.ancestry(branch="main")]
    repo.storage.delete([chunk_key(repo, (3, 0))])
    assert not repair(repo.storage, sources=[IngestedFiles()]).steps


@pytest.mark.sample(1)
def test_only_the_files_of_lost_chunks_are_ingested_again(
    repo: frazil.Repository, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    module = chunk_source
    real = module.run_ingest
    monkeypatch.setattr(module, "run_ingest", lambda request, *a: opened.append(request) or real(request, *a))
    repo.storage.delete([chunk_key(repo, (3, 0))])
    assert repair(repo.storage, sources=[IngestedFiles()]).complete
    (request,) = opened
    in_packs = len([*repo.storage.list("chunks")]) < 8
    assert [Path(url).name for url in request.files.urls] == (
        ["day0.nc", "day1.nc", "day2.nc", "day3.nc"] if in_packs else ["day1.nc"]
    )
