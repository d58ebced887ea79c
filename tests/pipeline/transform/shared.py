"""What the tests of transformations share."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.dtypes import StringDType

import frazil
from frazil.pipeline import Inline, JobResult, Version

INLINE = Inline()


def new_repository(storage: frazil.Storage | None = None) -> frazil.Repository:
    return frazil.Repository.create(storage or frazil.in_memory_storage())


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
