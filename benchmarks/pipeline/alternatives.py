"""The alternatives to Frazil: xarray, dask and VirtualiZarr on the published icechunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import dask
import icechunk
import numpy as np
import xarray as xr
import zarr
from dask.base import compute
from dask.delayed import delayed
from icechunk.xarray import to_icechunk
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_mfdataset
from virtualizarr.parsers import HDFParser

#: The number of threads is the number of slots of Spark. Processes were not measured.
SCHEDULER: dict[str, Any] = {"scheduler": "threads", "num_workers": 2}
#: How files that follow each other in time become one dataset.
COMBINED: dict[str, Any] = {
    "combine": "nested",
    "concat_dim": "time",
    "data_vars": "minimal",
    "coords": "minimal",
    "compat": "override",
    "join": "override",
}


def create(path: str) -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.local_filesystem_storage(path))


def opened(path: str) -> icechunk.Session:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(path)).readonly_session("main")


def opened_files(files: Sequence[str]) -> xr.Dataset:
    """Open files as one dataset of dask, without the encodings of the files."""
    data = xr.open_mfdataset(files, engine="h5netcdf", **COMBINED)
    for variable in data.variables.values():
        variable.encoding = {}
    return data


def ingest_copies(files: Sequence[str], path: str) -> None:
    session = create(path).writable_session("main")
    with dask.config.set(SCHEDULER):
        to_icechunk(opened_files(files), session)
    session.commit("copies")


def ingest_references(files: Sequence[str], path: str) -> None:
    folder = str(Path(files[0]).parent)
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(folder)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{folder}/", store))
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(path), config, {f"file://{folder}/": None}
    )
    session = repo.writable_session("main")
    data = open_virtual_mfdataset(
        [f"file://{name}" for name in files],
        ObjectStoreRegistry({"file://": LocalStore()}),
        HDFParser(),
        **COMBINED,
        loadable_variables=["time", "lat", "lon"],
    )
    data.virtualize.to_icechunk(session.store)
    session.commit("references")


type Shape = tuple[int, ...]

#: The result of `rechunker.algorithm.rechunking_plan` (rechunker 0.5.4), by shape and ``max_mem``: the blocks
#: of the first copy, the chunks of the intermediate array, the blocks of the second copy. rechunker needs
#: zarr 2, so it cannot be installed beside icechunk. The values are for the chunks in ``workloads``, float32.
RECHUNKER: dict[tuple[Shape, int], tuple[Shape, Shape, Shape]] = {
    ((48, 500, 1000), 16_000_000): ((16, 250, 1000), (16, 50, 1000), (48, 50, 1000)),
    ((48, 500, 1000), 64_000_000): ((48, 300, 1000), (48, 300, 1000), (48, 300, 1000)),
    ((480, 2500, 2000), 64_000_000): ((32, 250, 2000), (32, 150, 2000), (48, 150, 2000)),
    ((8, 20, 40), 8000): ((4, 10, 40), (4, 5, 40), (8, 5, 40)),
    ((8, 20, 40), 64_000_000): ((8, 20, 40), (8, 20, 40), (8, 20, 40)),
}


def rechunk(source: str, path: str, between: str, chunks: Shape, max_mem: int | None) -> None:
    """Rechunk by the plan of rechunker. Without ``max_mem``, write each new chunk separately."""
    old: zarr.Array[Any] = zarr.open_array(opened(source).store, path="tas", mode="r")
    session = create(path).writable_session("main")
    new = zarr.create_array(session.store, name="tas", shape=old.shape, dtype="f4", chunks=chunks)
    if max_mem is None:
        _copy(old, new, chunks)
    else:
        read, middle, write = RECHUNKER[old.shape, max_mem]
        if read == write:
            _copy(old, new, write)
        else:
            temporary = zarr.create_array(
                between, shape=old.shape, dtype="f4", chunks=middle, compressors=None, filters=None
            )
            _copy(old, temporary, read)
            _copy(temporary, new, write)
    session.commit("rechunked")


def _copy(old: zarr.Array[Any], new: zarr.Array[Any], block: Shape) -> None:
    def one(region: tuple[slice, ...]) -> None:
        new[region] = old[region]

    _all(one, regions(old.shape, block))


def regions(shape: Shape, block: Shape) -> list[tuple[slice, ...]]:
    axes = zip(shape, block, strict=True)
    cuts = ([slice(at, min(at + step, size)) for at in range(0, size, step)] for size, step in axes)
    return list(product(*cuts))


def _all(function: Callable[[Any], None], items: Sequence[Any]) -> None:
    with dask.config.set(SCHEDULER):
        compute(*(delayed(function)(item) for item in items))  # type: ignore[no-untyped-call]


def mean(source: str, path: str) -> np.ndarray:
    session = create(path).writable_session("main")
    data = xr.open_zarr(opened(source).store, consolidated=False, chunks={})
    with dask.config.set(SCHEDULER):
        result = data[["tas"]].mean("time").compute()
    to_icechunk(result, session)
    session.commit("mean")
    values: np.ndarray = result["tas"].values
    return values


def climatology(source: str, path: str) -> np.ndarray:
    session = create(path).writable_session("main")
    data = xr.open_zarr(opened(source).store, consolidated=False, chunks={})
    with dask.config.set(SCHEDULER):
        result = data[["tas"]].groupby("time.month").mean("time").compute()
    to_icechunk(result, session)
    session.commit("climatology")
    values: np.ndarray = result["tas"].values
    return values
