"""The file system of fsspec: it agrees with the store of the session that it reads."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil

fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.deep  # it starts the event loop of fsspec

DATA = np.random.default_rng(0).integers(0, 99, (5, 6), "i4")


@pytest.fixture
def address(tmp_path: Path) -> str:
    location = str(tmp_path / "ice")
    with frazil.Repository.create(location).transaction("main", message="arrays") as store:
        zarr.create_array(store, name="g/t", shape=(5, 6), chunks=(2, 3), dtype="i4")[:] = DATA
        zarr.create_array(store, name="g/c/0", shape=(), dtype="i4")[...] = 7
    return f"{location}@main"


async def test_files_are_the_keys_of_the_store(address: str) -> None:
    files = fsspec.filesystem("frazil", address=address)
    store = frazil.open_address(address)[0].store
    values = {key: value.to_bytes() async for key in store.list() if (value := store.get_sync(key))}
    assert sorted(files.find("")) == sorted(values)
    assert files.cat(sorted(values)) == values
    mapper = fsspec.get_mapper(f"frazil://{address}:g")
    assert {f"g/{key}": data for key, data in mapper.items()} == {
        k: v for k, v in values.items() if k[:2] == "g/"
    }
    for key, data in values.items():
        assert files.info(key) == {"name": key, "size": len(data), "type": "file"}
        spans = [(None, None), (0, 3), (-4, None), (2, -2), (len(data), None), (5, 2), (0, 10**6)]
        starts, ends = map(list, zip(*spans, strict=True))
        assert files.cat_ranges([key] * len(spans), starts, ends) == [data[slice(*each)] for each in spans]
        with files.open(key) as file:
            file.seek(len(data) // 2)
            assert file.read() == data[len(data) // 2 :]
    for path in ("", "g", "g/t", "g/t/c", "g/t/c/1", "g/c"):
        assert files.isdir(path)
        expected = [
            f"{path}/{each}".lstrip("/") for each in sorted([name async for name in store.list_dir(path)])
        ]
        assert files.ls(path, detail=False) == [each["name"] for each in files.ls(path)] == expected
    for absent in ("x", "g/x/zarr.json", "g/t/c/9/9", "g/t/c/0/0/0", "g/.zgroup"):
        assert not files.exists(absent)
        with pytest.raises(FileNotFoundError):
            files.cat_file(absent)
        with pytest.raises(FileNotFoundError):
            files.ls(absent)
    with pytest.raises(frazil.errors.ReadOnlyError):
        files.open("x", "wb")


def test_zarr_reads_one_snapshot_through_it(address: str) -> None:
    def values(files: Any) -> Any:
        store = zarr.storage.FsspecStore(files, read_only=True, path="")
        return np.asarray(zarr.open_array(store, path="t", mode="r")[:]).tolist()

    url = f"frazil://{address}:g"
    files = fsspec.filesystem("frazil", address=f"{address}:g", asynchronous=True)
    with frazil.Repository.open(address.removesuffix("@main")).transaction("main", message="zeros") as store:
        zarr.open_array(store, path="g/t")[:] = 9
    assert values(files) == values(pickle.loads(pickle.dumps(files))) == DATA.tolist()
    assert values(fsspec.filesystem("frazil", address=f"{address}~1:g", asynchronous=True)) == DATA.tolist()
    now = zarr.storage.FsspecStore.from_url(url, read_only=True)
    assert (np.asarray(zarr.open_array(now, path="t", mode="r")[:]) == 9).all()
    with pytest.raises(frazil.InvalidInputError, match="address must name a repository"):
        fsspec.filesystem("frazil")


def test_urls_of_several_versions(address: str, tmp_path: Path) -> None:
    location = address.removesuffix("@main")
    repo = frazil.Repository.open(location)
    repo.create_tag("v1", "main")
    with repo.transaction("main", message="zeros") as store:
        zarr.open_array(store, path="g/t")[:] = 9
    other = tmp_path / "a@b"
    with frazil.Repository.create(other).transaction("main", message="ones") as store:
        zarr.create_array(store, name="g/t", shape=(5, 6), chunks=(2, 3), dtype="i4")[:] = 1
    addresses = [f"{location}@v1", location, str(other).replace("@", "@@")]
    urls = [f"frazil://{each}:g/t/c/0/0" for each in addresses]
    values = [fsspec.open(url).open().read() for url in urls]
    assert len(set(values)) == 3
    files = fsspec.open_files(urls)
    files = pickle.loads(pickle.dumps(files))
    assert [each.open().read() for each in files] == values
    system, (first, *_) = files[0].fs, [each.path for each in files]
    assert [fsspec.open(system.unstrip_protocol(each.path)).open().read() for each in files] == values
    assert system.unstrip_protocol("g/t") == f"frazil://{addresses[0]}:g/t"
    assert system.cat(urls) == {each.path: value for each, value in zip(files, values, strict=True)}
    assert system.glob(f"frazil://{addresses[1]}:g/t/c/0/*") == system.ls(
        f"frazil://{addresses[1]}:/g/t/c/0", False
    )
    names = {key.partition("/./")[0] for key in system.find(urls[0].removesuffix("/c/0/0"))}
    assert names == {first.partition("/./")[0]}
    for absent in ("frazil://nothere:g", f"frazil://{location}@v2:g", f"frazil://{location}@v1:h"):
        assert not system.exists(absent)


def test_names_of_dask_contain_the_version(address: str) -> None:
    bytes_ = pytest.importorskip("dask.bytes")
    url = f"frazil://{address}:g/t/c/0/0"

    def key() -> str:
        name: str = bytes_.read_bytes(url)[1][0][0].key
        return name

    before, files = key(), fsspec.filesystem("frazil", address=address)
    assert key() == before
    with frazil.Repository.open(address.removesuffix("@main")).transaction("main", message="zeros") as store:
        zarr.open_array(store, path="g/t")[:] = DATA + 1
    assert key() != before
    later = fsspec.filesystem("frazil", address=address)
    assert files._fs_token != later._fs_token
    assert files.ukey("g/t/zarr.json") != later.ukey("g/t/zarr.json")


def test_what_programs_ask_of_a_file_system(address: str, tmp_path: Path) -> None:
    url, folder = f"frazil://{address}:g", tmp_path / "copy"
    files = fsspec.filesystem("frazil", address=address)
    data = files.cat_file("g/t/zarr.json")
    files.get("g", str(folder), recursive=True)
    assert (folder / "t/zarr.json").read_bytes() == data
    for cache in ("simplecache", "filecache"):
        options = {cache: {"cache_storage": str(tmp_path / cache)}}
        with fsspec.open(f"{cache}::{url}/t/zarr.json", **options) as file:
            assert file.read() == data
    copy = fsspec.AbstractFileSystem.from_json(files.to_json())
    assert copy.cat_file("g/t/zarr.json") == data
    calls: dict[str, list[Any]] = {
        "mkdir": ["h"],
        "makedirs": ["h"],
        "rmdir": ["g"],
        "rm": ["g"],
        "rm_file": ["g/t/zarr.json"],
        "pipe": ["g/x", b""],
        "put": [str(folder / "t/zarr.json"), "h"],
        "copy": ["g/t/zarr.json", "g/x"],
        "mv": ["g/t/zarr.json", "g/x"],
        "touch": ["g/x"],
    }
    for name, arguments in calls.items():
        with pytest.raises(frazil.errors.ReadOnlyError, match="read only"):
            getattr(files, name)(*arguments)
    for name in ("created", "modified"):
        with pytest.raises(NotImplementedError, match="ancestry"):
            getattr(files, name)("g")
    with pytest.raises(frazil.InvalidInputError, match="must have an address"):
        fsspec.filesystem("frazil", session=frazil.open_address(address)[0]).to_json()
