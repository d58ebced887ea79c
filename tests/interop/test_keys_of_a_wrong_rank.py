"""Keys whose number of coordinates is not that of their array: the reference accepts them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from tests.support.judge import readable_by_reference
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.pipeline import Inline

KEYS = {"a/c/0": (4, 4), "a/c/0/0/0": (4, 4), "a/c/0/0": (4,)}


def by_the_reference(folder: Path, key: str, *, is_virtual: bool, is_later: bool) -> frazil.Repository:
    (folder / "data").write_bytes(b"\7\7\7\7")
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{folder}/", store))
    root = str(folder / "repo")
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root), config=config)
    session = repo.writable_session("main")
    for name, shape in (("a", KEYS[key]), ("b", (4,))):
        chunks = (2,) * len(shape)
        options: Any = {
            "shape": shape,
            "chunks": chunks,
            "dtype": "u1",
            "dimension_names": list("xy")[: len(shape)],
        }
        zarr.create_array(session.store, name=name, fill_value=0, **options)[...] = 5
    if is_later:
        session.commit("without the key")
        session = repo.writable_session("main")
    if is_virtual:
        session.store.set_virtual_ref(key, f"file://{folder}/data", offset=0, length=4)
    else:
        asyncio.run(session.store.set(key, Buffer.from_bytes(b"\7\7\7\7")))
    session.commit("a key of a wrong rank")
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert np.asarray(array[...]).sum() == 5 * array.size
    return frazil.Repository.open(frazil.local_filesystem_storage(root))


def values(repo: frazil.Repository) -> dict[str, list[int]]:
    """Return the values of both arrays, which all faces read alike."""
    session = repo.readonly_session("main")
    group = zarr.open_group(session.store, mode="r")
    out = {name: np.asarray(array[...]).reshape(-1).tolist() for name, array in group.arrays()}
    dataset = xr.open_zarr(session.store, consolidated=False)
    for name, expected in out.items():
        assert frazil.Array(session, f"/{name}")[...].reshape(-1).tolist() == expected
        assert dataset[name].values.reshape(-1).tolist() == expected
        table = session.chunk_table(f"/{name}")
        assert len(table) == len(expected) // 2**table.ndim
    return out


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("is_virtual", [False, True])
@pytest.mark.parametrize("key", KEYS)
def test_all_chunks_read(tmp_path: Path, key: str, is_virtual: bool, is_later: bool) -> None:
    repo = by_the_reference(tmp_path, key, is_virtual=is_virtual, is_later=is_later)
    expected = {"a": [5] * 4 ** len(KEYS[key]), "b": [5] * 4}
    assert values(repo) == expected
    tip, parent = list(repo.ancestry(branch="main"))[:2]
    diff = repo.diff(from_snapshot_id=parent.id, to_snapshot_id=tip.id)
    assert "/a" in diff.updated_chunks
    if not is_later:  # the log has all chunks of the array, and the key
        assert sorted(diff.updated_chunks["/a"]) == np.argwhere(np.ones([2] * len(KEYS[key]))).tolist()
    target = frazil.local_filesystem_storage(str(tmp_path / "export"))
    frazil.pipeline.export_zarr(repo, target, arrays=["/b"], engine=Inline())
    exported = zarr.open_array(tmp_path / "export", path="b", mode="r")
    assert np.asarray(exported[...]).tolist() == [5] * 4
    checks = {each.check for each in repo.upkeep.verify("exists").problems}
    assert checks <= {"extents-rank", "ref-rank"}
    # A repair leaves out the key, and the versions before stay as they are.
    frazil.Repository.upkeep.repair(repo.storage).apply()
    assert values(repo) == expected
    assert all(not each.affected.branches for each in repo.upkeep.verify("exists").problems)
    assert not frazil.Repository.upkeep.repair(repo.storage).steps
    readable_by_reference(tmp_path / "repo")


def test_commits_without_a_repair(tmp_path: Path) -> None:
    repo = by_the_reference(tmp_path, "a/c/0", is_virtual=False, is_later=False)
    with repo.transaction("main", message="another array") as store:
        zarr.open_array(store, path="b")[0] = 6
    assert values(repo) == {"a": [5] * 16, "b": [6, 5, 5, 5]}
    with repo.transaction("main", message="the array itself") as store:
        zarr.open_array(store, path="a")[:2] = 7
    assert values(repo)["a"] == [7] * 8 + [5] * 8
    tip = repo.lookup_branch("main")
    assert not [each for each in repo.upkeep.verify().problems if "main" in each.affected.branches], tip
