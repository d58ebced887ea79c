"""zarr-python reads repositories through the example of an adapter."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import icechunk_kit.cases  # noqa: F401 - registers the cases
import numpy as np
import pytest
import xarray
import zarr
from icechunk_kit.case import CASES
from icechunk_kit.runner import Adapter, run
from icechunk_kit.store import Store
from obstore.store import S3Store
from zarr.storage import LocalStore, ObjectStore

import frazil

SOURCE = Path(__file__).parents[1] / "adapters" / "zarr_files.py"
#: Limits of time grow with the slowness of the machine.
PATIENCE = max(4.0, float(os.environ.get("FRAZIL_TEST_SLOWNESS", "1")))
READER = [name for name, case in CASES.items() if case.level == "reader"]


@pytest.fixture(scope="module")
def adapter() -> Iterator[Adapter]:
    with Adapter([sys.executable, str(SOURCE)]) as adapter:
        yield adapter


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", READER)
def test_the_adapter_passes(adapter: Adapter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE.parents[1] / "src"))
    (result,) = run([adapter], [CASES[name]], PATIENCE)
    assert result.outcome == "passed", result.detail


@pytest.fixture(scope="module")
def module() -> Any:
    spec = importlib.util.spec_from_file_location("zarr_files", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def first_keys(store: Any) -> list[bool]:
    return list(await asyncio.gather(store.exists("g/zarr.json"), store.exists("g/t/c/0/0")))


async def keys(store: Any) -> list[set[str]]:
    return [{key async for key in listing} for listing in (store.list(), store.list_dir("g"))]


@pytest.mark.parametrize("version", [1, 2])
def test_xarray_and_zarr_read_folders_and_object_stores(module: Any, tmp_path: Path, version: int) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), spec_version=version)
    session = repo.writable_session("main")
    data = xarray.Dataset({"t": (("x", "y"), np.arange(12.0).reshape(3, 4))}, coords={"x": [1, 2, 3]})
    data.to_zarr(session.store, group="g", consolidated=False, encoding={"t": {"chunks": (2, 3)}})
    zarr.create_array(session.store, name="g/c/0", data=np.arange(6).reshape(2, 3), chunks=(1, 2))
    zarr.create_array(session.store, name="g/scalar", data=np.array(7))
    repo.create_tag("one", session.commit("one"))
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="g/c/0")[:] = 0
    session.commit("two")

    with Store(tmp_path, lambda _: None) as server:
        place = server.location
        s3 = S3Store(
            place["bucket"],
            prefix=place["prefix"],
            endpoint=place["endpoint"],
            region=place["region"],
            access_key_id=place["access_key"],
            secret_access_key=place["secret_key"],
            client_options={"allow_http": True},
        )
        for files in (LocalStore(tmp_path, read_only=True), ObjectStore(s3, read_only=True)):
            one, two = (module.SnapshotStore(files, ref) for ref in ({"tag": "one"}, {"branch": "main"}))
            assert asyncio.run(first_keys(module.SnapshotStore(files, {"tag": "one"}))) == [True, True]
            assert asyncio.run(keys(one)) == asyncio.run(keys(repo.readonly_session(tag="one").store))
            group = zarr.open_group(one, mode="r")
            names = {name for name, _ in group.members(max_depth=None)}
            assert names == {"g", "g/t", "g/x", "g/c", "g/c/0", "g/scalar"}
            assert np.asarray(group["g/scalar"]) == 7
            np.testing.assert_array_equal(np.asarray(group["g/c/0"]), np.arange(6).reshape(2, 3))
            assert not np.any(zarr.open_array(two, path="g/c/0", mode="r")[:])
            xarray.testing.assert_identical(
                xarray.open_zarr(two, group="g", consolidated=False, drop_variables="scalar"), data
            )
            with pytest.raises(ValueError, match="read-only"):
                zarr.open_group(one, mode="a").create_group("new")
