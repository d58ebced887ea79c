"""What the tests of transformations share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.dtypes import StringDType

import frazil
from frazil import pipeline
from frazil.pipeline import Inline, JobResult, Version

INLINE = Inline()
# In this thread, unless a test has another engine.
clone_repository = partial(pipeline.clone_repository, engine=INLINE)
coarsen = partial(pipeline.coarsen, engine=INLINE)
copy_repository = partial(pipeline.copy_repository, engine=INLINE)
export_zarr = partial(pipeline.export_zarr, engine=INLINE)
map_blocks = partial(pipeline.map_blocks, engine=INLINE)
materialize = partial(pipeline.materialize, engine=INLINE)
pyramid = partial(pipeline.pyramid, engine=INLINE)
rechunk = partial(pipeline.rechunk, engine=INLINE)
recompress = partial(pipeline.recompress, engine=INLINE)
regrid = partial(pipeline.regrid, engine=INLINE)
select = partial(pipeline.select, engine=INLINE)


def new_repository(storage: frazil.Storage | None = None) -> frazil.Repository:
    return frazil.Repository.create(storage or frazil.in_memory_storage())


def repository_of(
    data: xr.Dataset | np.ndarray, storage: frazil.Storage | None = None, **options: Any
) -> frazil.Repository:
    """A repository with a dataset, or with the array `x`."""
    repo = new_repository(storage)
    with repo.transaction("main", message="made") as store:
        if isinstance(data, xr.Dataset):
            data.to_zarr(store, consolidated=False, zarr_format=3, **options)
        else:
            zarr.create_array(store, name="x", data=data, **options)
    return repo


def read(result: JobResult | Version, path: str) -> Any:
    version = result.version if isinstance(result, JobResult) else result
    return zarr.open_array(version.session().store, path=path, mode="r")


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    count = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if dtype == "record":
        return np.array(list(zip(count.ravel(), count.ravel() / 2, strict=True)), "i4,f8").reshape(shape)
    return np.asarray(
        (count % 97).astype("U3" if dtype == "T" else dtype), StringDType() if dtype == "T" else None
    )


TYPES = ["u1", "<f4", ">i2", "c8", "bool", "M8[ns]", "m8[s]", "U3", "S2", "record", "T"]


def opened(version: Any, group: str) -> xr.Dataset:
    stored: xr.Dataset = xr.open_zarr(version.session().store, group=group, consolidated=False, chunks=None)
    return stored.load()
