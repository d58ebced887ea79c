"""A snapshot with many arrays."""

from __future__ import annotations

import importlib
import json

import numpy as np
import xarray
import zarr
from measure import Measured, scratch
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync


def many_arrays(implementation: str, arrays: int) -> Measured:
    """Measure creating the arrays, opening the repository, listing the arrays, and changing one array."""
    icechunk = importlib.import_module(implementation)
    out = Measured()
    with scratch() as root:
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root))
        session = repo.writable_session("main")
        zarr.create_group(session.store)
        zarr.create_array(session.store, name="a0", shape=(8,), chunks=(4,), dtype="f4")
        prototype = default_buffer_prototype()
        document = sync(session.store.get("a0/zarr.json", prototype))

        async def make() -> None:
            for number in range(1, arrays):
                await session.store.set(f"a{number}/zarr.json", document)

        with out.seconds("make and commit"):
            sync(make())
            session.commit("arrays")

        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        with out.milliseconds_each("open", 1):
            store = repo.readonly_session("main").store
            sync(store.get(f"a{arrays - 1}/zarr.json", prototype))

        async def names(prefix: str) -> int:
            return len([name async for name in store.list_dir(prefix)])

        with out.milliseconds_each("list the root", 1):
            assert sync(names("")) == arrays + 1
        with out.milliseconds_each("list an array", 10):
            for number in range(10):
                sync(names(f"a{number}"))
        document = json.loads(document.to_bytes())
        with out.milliseconds_each("change one array and commit", 3):
            for count in range(3):
                document["attributes"] = {"count": count}
                session = repo.writable_session("main")
                value = prototype.buffer.from_bytes(json.dumps(document).encode())
                sync(session.store.set("a5/zarr.json", value))
                session.commit("one array")
    return out


def tree(implementation: str, groups: int) -> Measured:
    """Measure opening a tree of groups with xarray, and reading a box of one of its arrays."""
    icechunk = importlib.import_module(implementation)
    out = Measured()
    with scratch() as root:
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root))
        session = repo.writable_session("main")
        values = np.arange(200, dtype="f4").reshape(10, 20)
        for number in range(groups):
            group = zarr.create_group(session.store, path=f"sweep/{number}")
            for name in ("t", "u", "v"):
                array = group.create_array(name, shape=(10, 20), dtype="f4", dimension_names=["y", "x"])
                array[...] = values
            x = group.create_array("x", shape=(20,), dtype="f8", dimension_names=["x"])
            x[...] = np.arange(20)
        session.commit("sweeps")
        xarray.backends.list_engines()
        with out.seconds("open the tree"):
            if implementation == "frazil":
                data = xarray.open_datatree(root, engine="frazil")
            else:
                store = (
                    icechunk.Repository.open(icechunk.local_filesystem_storage(root))
                    .readonly_session("main")
                    .store
                )
                data = xarray.open_datatree(store, engine="zarr", consolidated=False)
        with out.milliseconds_each("read an array", 20):
            for number in range(20):
                assert data[f"sweep/{number}"]["t"].to_numpy()[9, 19] == 199
    return out
