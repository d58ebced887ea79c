"""References instead of copies: the values stay in the files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest import netcdf_files as nc

import frazil
from frazil.credentials import Credentials, LocalFileSystemAccess, S3Credentials
from frazil.pipeline.ingest.operation import with_containers


@pytest.mark.deep
def test_references_are_what_copies_are(tmp_path: Path) -> None:
    paths = nc.daily_files(tmp_path / "days", 6, chunks=(2, 3, 2))
    repo = nc.repository(tmp_path / "repo")
    request: dict[str, Any] = {"virtual": True}
    with pytest.raises(frazil.InvalidInputError, match="containers=") as error:
        nc.ingest(paths[:3], repo, **request)
    assert error.value.kind == frazil.ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK
    assert len(list(repo.ancestry(branch="main"))) == 1
    result = nc.ingest(paths[:3], repo, containers=[nc.container(tmp_path / "days")], **request)
    session = result.version.session()
    assert session.chunk_type("/tas", [0, 0, 0]) == frazil.ChunkType.virtual
    assert session.chunk_type("/time_bnds", [0, 0]) != frazil.ChunkType.virtual
    assert set(session.all_virtual_chunk_locations()) == {Path(path).as_uri() for path in paths[:3]}
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths[:3]))
    # The same handle reads what it was given containers for.
    own = repo.readonly_session("main").store
    xr.testing.assert_identical(
        xr.open_zarr(own, consolidated=False, chunks=None).load(), nc.stored_dataset(result.version)
    )
    # The container is in the repository's configuration now.
    repo = frazil.Repository.open(
        frazil.local_filesystem_storage(str(tmp_path / "repo")),
        authorize_virtual_chunk_access={f"file://{tmp_path / 'days'}/": LocalFileSystemAccess},
    )
    result = nc.ingest(paths[4:], repo, mode="append", allow={"hole"}, **request)
    # What is missed fits between: whole chunks move, and nothing is copied.
    result = nc.ingest(paths, repo, mode="backfill", **request)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))
    assert result.version.session().chunk_type("/tas", [11, 0, 1]) == frazil.ChunkType.virtual
    nc.write(Path(paths[2]), range(8, 12), salt=3, chunks=(2, 3, 2))
    os.utime(paths[2], (time.time() + 5,) * 2)  # references remember whole seconds
    with pytest.raises(frazil.IcechunkError, match="day_0002"):
        nc.stored_dataset(result.version)


@pytest.mark.parametrize("where", ["file", "zarr"])
def test_references_have_the_state_of_a_file_when_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The file changes after the last task, and before the references are stored."""
    paths = nc.daily_files(tmp_path / "days", 1, chunks=(2, 3, 2))
    changed = Path(paths[0])
    if where == "zarr":
        paths = [str(tmp_path / "days" / "0.zarr")]
        xr.open_dataset(changed).to_zarr(paths[0], zarr_format=3, consolidated=False)
        changed = Path(paths[0]) / "tas/c/0/0/0"

    def commit_after_a_change(*arguments: Any, **more: Any) -> str:
        os.utime(changed, (time.time() + 5,) * 2)
        return commit(*arguments, **more)

    commit = frazil.Session.commit
    monkeypatch.setattr(frazil.Session, "commit", commit_after_a_change)
    containers = [nc.container(tmp_path / "days")]
    result = nc.ingest(paths, nc.repository(tmp_path / "repo"), virtual=True, containers=containers)
    with pytest.raises(frazil.IcechunkError) as error:
        nc.stored_dataset(result.version)
    assert error.value.kind == frazil.ErrorKind.VIRTUAL_CHUNK_MODIFIED


def test_variables_without_references_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    paths = nc.daily_files(folder, 3, steps=3, chunks=(2, 3, 4))
    repo = nc.repository(tmp_path / "repo")
    request: dict[str, Any] = {"virtual": True, "containers": [nc.container(folder)]}
    with pytest.raises(frazil.InvalidInputError, match="on the borders of chunks of 2 steps"):
        nc.ingest(paths, repo, **request)
    nc.write(Path(paths[1]), range(3, 6), chunks=(1, 3, 4))
    report = nc.inspect_files(paths, virtual=True)
    assert [(each.kind, each.url) for each in report.problems if each.url] == [("chunks", paths[1])]
    nc.write(Path(paths[1]), range(3, 6), chunks=(2, 3, 4), compression="lzf")
    report = nc.inspect_files(paths, virtual=True)
    assert [(each.kind, each.url) for each in report.problems if each.url] == [("chunks", paths[1])]


@pytest.mark.parametrize(
    ("dims", "first", "second"),
    [((), "a", "a"), ((), "a", "longer"), (("lat",), ["a", "", "é"], ["a", "", "é"])],
)
def test_texts_of_a_file_are_copied(dims: tuple[str, ...], first: Any, second: Any, tmp_path: Path) -> None:
    """HDF5 has texts of variable length in a heap of the file, where no reference finds them."""
    paths = nc.daily_files(tmp_path / "days", 2, chunks=(2, 3, 4))
    for path, texts in zip(paths, (first, second), strict=True):
        xr.Dataset({"station": (dims, np.array(texts, object))}).to_netcdf(path, mode="a", engine="netcdf4")
    request: dict[str, Any] = {"virtual": True, "containers": [nc.container(tmp_path / "days")]}
    repo = nc.repository(tmp_path / "repo")
    nc.ingest(paths[:1], repo, **request)
    result = nc.ingest(paths[1:], repo, mode="append", **request)
    assert "`station`: copied" in str(result.report)
    assert result.version.session().chunk_type("/tas", [0, 0, 0]) == frazil.ChunkType.virtual
    stored = nc.stored_dataset(result.version)
    assert stored.station.values.tolist() == (first if first == second else 4 * [first] + 4 * [second])


def test_texts_of_zarr_have_references(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    path = str(tmp_path / "days" / "a.zarr")
    names = xr.Dataset({"name": ("x", np.array(["a", "long"], object))})
    names.to_zarr(path, zarr_format=3, consolidated=False)
    repo = nc.repository(tmp_path / "repo")
    result = nc.ingest([path], repo, virtual=True, containers=[nc.container(tmp_path / "days")])
    assert result.version.session().chunk_type("/name", [0]) == frazil.ChunkType.virtual
    assert nc.stored_dataset(result.version).name.values.tolist() == ["a", "long"]


def test_texts_of_steps_cannot_be_references(tmp_path: Path) -> None:
    (path,) = nc.daily_files(tmp_path / "days", 1, chunks=(2, 3, 4))
    names = ("time", np.array(list("abcd"), object))
    xr.Dataset({"name": names}).to_netcdf(path, mode="a", engine="netcdf4")
    request: dict[str, Any] = {"virtual": True, "containers": [nc.container(tmp_path / "days")]}
    with pytest.raises(frazil.InvalidInputError, match="heap of the file"):
        nc.ingest([path], nc.repository(tmp_path / "repo"), **request)


@pytest.mark.deep
def test_files_with_one_chunk_each(tmp_path: Path) -> None:
    """Without compression and chunks; the last file is shorter."""
    folder = tmp_path / "days"
    folder.mkdir()
    paths = [
        nc.write(folder / f"{i}.nc", range(4 * i, 4 * i + (2 if i == 3 else 4)), chunks=(4, 3, 4))
        for i in range(4)
    ]
    repo = nc.repository(tmp_path / "repo")
    request: dict[str, Any] = {"virtual": True, "containers": [nc.container(folder)]}
    result = nc.ingest(paths, repo, **request)
    nc.assert_same_dataset(nc.stored_dataset(result.version), nc.files_dataset(paths))
    with pytest.raises(frazil.InvalidInputError, match="on the borders of chunks"):
        nc.ingest(nc.write(folder / "late.nc", [14], chunks=(4, 3, 4)), repo, mode="append", **request)


PREFIX = "s3://archive/"


def test_given_containers_are_authorised_and_the_others_stay() -> None:
    own = frazil.VirtualChunkContainer(PREFIX, frazil.s3_store(endpoint_url="https://minio.example"))
    storage = frazil.in_memory_storage()
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(own)
    frazil.Repository.create(storage, config)
    anonymous = Credentials.S3(S3Credentials.Anonymous())
    environment = Credentials.S3(S3Credentials.FromEnv())
    for access, expected in (
        ({}, {PREFIX: environment}),
        ({PREFIX: anonymous}, {PREFIX: anonymous}),
        ({"s3://other/": anonymous}, {PREFIX: environment, "s3://other/": anonymous}),
    ):
        repo = frazil.Repository.open(storage, authorize_virtual_chunk_access=access)
        saved = repo.config.get_virtual_chunk_container(PREFIX)
        assert saved is not None
        assert saved.from_repository
        extended = with_containers(repo, [own])
        container = extended.config.get_virtual_chunk_container(PREFIX)
        assert container is not None
        assert not container.from_repository
        assert extended.virtual_chunk_access == expected
