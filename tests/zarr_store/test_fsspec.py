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
    values = {key: store.get_sync(key).to_bytes() async for key in store.list()}
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
        return zarr.open_array(store, path="t", mode="r")[:].tolist()

    url = f"frazil://{address}:g"
    files = fsspec.filesystem("frazil", address=f"{address}:g", asynchronous=True)
    with frazil.Repository.open(address.removesuffix("@main")).transaction("main", message="zeros") as store:
        zarr.open_array(store, path="g/t")[:] = 0
    assert values(files) == values(pickle.loads(pickle.dumps(files))) == DATA.tolist()
    assert values(fsspec.filesystem("frazil", address=f"{address}~1:g", asynchronous=True)) == DATA.tolist()
    now = zarr.storage.FsspecStore.from_url(url, read_only=True)
    assert not zarr.open_array(now, path="t", mode="r")[:].any()
    with pytest.raises(frazil.InvalidInputError, match="address must name a repository"):
        fsspec.filesystem("frazil")
