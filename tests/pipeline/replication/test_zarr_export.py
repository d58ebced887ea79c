"""Plain Zarr stores of versions."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.replication.test_operation import Stopped, Watched, stopping
from tests.pipeline.transform.shared import export_zarr
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil.errors import AlreadyExistsError, ConflictError, IcechunkError, InvalidInputError
from frazil.pipeline import Inline, Target, Threads, export_zip, ingest
from frazil.storage.memory import MemoryStorage

INLINE = Inline()
VALUES = np.arange(60.0).reshape(6, 10)


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    """Arrays with native, inline, virtual and missing chunks, a scalar and a sharded array, in groups."""
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "a").write_bytes(np.arange(8, dtype="i4").tobytes())
    repo = frazil.Repository.create(MemoryStorage(), **allow_folder(tmp_path / "foreign"))
    with repo.transaction("main", message="arrays") as store:
        root = zarr.create_group(store, attributes={"title": "all"})
        array = root.create_array("native", data=np.tile(VALUES, 40), chunks=(2, 400))
        array.attrs["units"] = "K"
        root.create_array("deep/inner/small", data=np.arange(3))
        root.create_array("scalar", data=np.array(7.0))
        root.create_array("sharded", data=VALUES, chunks=(1, 5), shards=(6, 10))
        root.create_array("missing", shape=(4,), chunks=(2,), dtype="i4", fill_value=5)[:2] = 1
        root.create_array("virtual", shape=(8,), chunks=(4,), dtype="i4", compressors=None, filters=None)
        for chunk in range(2):
            url = f"file://{tmp_path}/foreign/a"
            store.set_virtual_ref(f"virtual/c/{chunk}", url, offset=16 * chunk, length=16)
    return repo


def same(repo: frazil.Repository, place: Any) -> None:
    """A Zarr library without Frazil reads the same arrays, attributes and groups."""
    ours = zarr.open_group(repo.readonly_session("main").store, mode="r")
    plain: Any = zarr.open_group(place, mode="r")
    members = dict(ours.members(max_depth=None))
    assert dict(plain.members(max_depth=None)).keys() == members.keys()
    for path, node in members.items():
        if isinstance(node, zarr.Array):
            np.testing.assert_array_equal(plain[path][...], node[...], path)
            assert plain[path].metadata == node.metadata
    assert dict(plain.attrs) == {"title": "all"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", [INLINE, Threads(2)])
def test_every_kind_of_chunk(repo: frazil.Repository, tmp_path: Path, engine: Any) -> None:
    target = frazil.local_filesystem_storage(str(tmp_path / "plain"))
    done = export_zarr(repo, target, engine=engine)
    same(repo, tmp_path / "plain")
    assert (done.objects, done.existing) == (len(list(target.list(""))), 0)
    assert not (tmp_path / "plain" / "missing" / "c" / "1").exists()
    again = export_zarr(repo, target, engine=engine)
    assert (again.objects, again.existing) == (0, done.objects)
    some = MemoryStorage()
    export_zarr(repo, some, arrays=("/deep/*", "/scalar"))
    keys = [each.key for each in some.list("") if each.key.endswith("zarr.json")]
    nodes = {key.rpartition("/zarr.json")[0] for key in keys}
    assert nodes == {"", "deep", "deep/inner", "deep/inner/small", "scalar"}


def test_damaged_chunks_are_written_again(repo: frazil.Repository, tmp_path: Path) -> None:
    target = frazil.local_filesystem_storage(str(tmp_path / "plain"))
    export_zarr(repo, target)
    chunk = tmp_path / "plain" / "native" / "c" / "0" / "0"
    chunk.write_bytes(bytes(chunk.stat().st_size))
    assert export_zarr(repo, target, compare=False).objects == 0
    assert export_zarr(repo, target).objects == 1
    chunk.write_bytes(b"cut")
    assert export_zarr(repo, target, compare=False).objects == 1
    same(repo, tmp_path / "plain")


def test_other_nodes_are_not_overwritten(repo: frazil.Repository, tmp_path: Path) -> None:
    other = MemoryStorage()
    frazil.Repository.create(other)
    before = sorted(each.key for each in other.list(""))
    with pytest.raises(ConflictError, match="repository"):
        export_zarr(repo, other)
    assert sorted(each.key for each in other.list("")) == before
    zarr.create_group(str(tmp_path / "plain"), attributes={"of": "others"})
    target = frazil.local_filesystem_storage(str(tmp_path / "plain"))
    with pytest.raises(ConflictError, match=r"other metadata in zarr\.json"):
        export_zarr(repo, target)
    assert [each.key for each in target.list("")] == ["zarr.json"]


def test_other_chunk_keys_are_refused() -> None:
    repo = frazil.Repository.create(MemoryStorage())
    with repo.transaction("main", message="an array") as store:
        encoding: Any = {"name": "v2", "separator": "."}
        zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4", chunk_key_encoding=encoding)
    with pytest.raises(InvalidInputError, match="`/t` must have the chunk key encoding 'default'"):
        export_zarr(repo, MemoryStorage())


@pytest.mark.deep
def test_stopped_at_every_request_and_called_again(repo: frazil.Repository, tmp_path: Path) -> None:
    whole = MemoryStorage()
    export_zarr(repo, whole)
    expected = {each.key: bytes(whole.get(each.key)) for each in whole.list("")}
    for step in range(1, 200):
        place = MemoryStorage()
        try:
            export_zarr(repo, Watched(place, stopping(step)))
            done = True
        except (Stopped, IcechunkError):
            done = False
        assert done or place.head("zarr.json") is None
        export_zarr(repo, place)
        assert {each.key: bytes(place.get(each.key)) for each in place.list("")} == expected
        if done:
            break
    assert step > 15


def test_a_zip_file(repo: frazil.Repository, tmp_path: Path) -> None:
    file = export_zip(repo, tmp_path / "plain.zarr.zip")
    with zarr.storage.ZipStore(file, read_only=True) as store:
        same(repo, store)
    with pytest.raises(AlreadyExistsError):
        export_zip(repo, file)
    export_zip(repo, file, arrays=("/native",), overwrite=True)
    with zarr.storage.ZipStore(file, read_only=True) as store:
        assert [*zarr.open_group(store, mode="r")] == ["native"]
    assert {each.name for each in tmp_path.iterdir()} == {"foreign", "plain.zarr.zip"}


def test_exports_name_no_files_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "secret" / "a.nc"
    path.parent.mkdir()
    xr.Dataset({"t": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf(path, unlimited_dims=["time"])
    repo = frazil.Repository.create(MemoryStorage())
    ingest(str(path), Target(repo, group="/data"), engine=INLINE)
    (path.parent / "b.nc").write_bytes(b"damaged")
    ingest(f"{path.parent}/*.nc", Target(repo, group="/more"), on_problem="quarantine", engine=INLINE)
    for commit in repo.ancestry(branch="main"):
        assert str(tmp_path) not in repr(commit.metadata)
    newest = next(iter(repo.ancestry(branch="main"))).metadata
    assert newest["frazil_ingest"]["quarantined"]["names"] == ["secret/b.nc"]
    export_zarr(repo, frazil.local_filesystem_storage(str(tmp_path / "plain")))
    export_zip(repo, tmp_path / "plain.zip")
    with zipfile.ZipFile(tmp_path / "plain.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    plain = [each for each in (tmp_path / "plain").rglob("*") if each.is_file()]
    assert {str(each.relative_to(tmp_path / "plain")) for each in plain} == set(files)
    assert {"data/t/zarr.json", "more/t/zarr.json"} <= set(files)
    assert not any(".frazil" in name or b"secret" in content for name, content in files.items())
