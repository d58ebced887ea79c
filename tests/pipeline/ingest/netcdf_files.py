"""Archives of small files, and what xarray makes of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import h5netcdf  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
import xarray as xr

import frazil
from frazil import pipeline
from frazil.pipeline import Inline, Version
from frazil.pipeline.ingest.operation import IngestResult
from frazil.pipeline.ingest.report import Report

#: In this thread, unless a test has another engine.
ingest = partial(pipeline.ingest, engine=Inline())
inspect_files = partial(pipeline.inspect_files, engine=Inline())

LAT, LON = 3, 4
UNITS = "hours since 2000-01-01"


def field(label: float, name: str = "tas") -> np.ndarray:
    """The values of one step: each its own."""
    return (np.arange(LAT * LON).reshape(LAT, LON) + 100 * label + 10_000 * len(name)).astype("i4")


def write(
    path: Path,
    labels: Iterable[float],
    *,
    names: Iterable[str] = ("tas",),
    salt: float = 0,
    attrs: Mapping[str, Any] | None = None,
    chunks: tuple[int, int, int] | None = None,
    lat: Iterable[float] = (1.0, 2.0, 3.0),
    compression: str | None = "gzip",
) -> str:
    """One NetCDF-4 file: steps ``labels``, with values that tell label, name and ``salt``."""
    labels = list(labels)
    with h5netcdf.File(path, "w") as file:
        file.attrs["title"] = "small files"
        file.attrs["history"] = f"written as {path.name}"
        file.dimensions = {"time": None, "lat": LAT, "lon": LON, "nv": 2}
        file.resize_dimension("time", len(labels))
        time = file.create_variable("time", ("time",), "i8", data=np.array(labels, "i8"))
        time.attrs.update(units=UNITS, calendar="standard", bounds="time_bnds", standard_name="time")
        bounds = np.stack([labels, np.array(labels) + 1], 1).astype("i8")
        file.create_variable("time_bnds", ("time", "nv"), "i8", data=bounds)
        file.create_variable("lat", ("lat",), "f8", data=np.array(list(lat)))
        file.create_variable("lon", ("lon",), "f8", data=np.arange(LON, dtype="f8"))
        for name in names:
            values = np.stack([field(label + salt, name) for label in labels])
            data = file.create_variable(
                name, ("time", "lat", "lon"), "i4", data=values, chunks=chunks, fillvalue=np.int32(-1),
                **({"compression": compression} if compression else {}),
            )  # fmt: skip
            data.attrs.update({"units": "K", "long_name": f"a {name}", **(attrs or {})})
    return str(path)


def daily_files(folder: Path, days: int, steps: int = 4, **more: Any) -> list[str]:
    """A file for each day, ``steps`` in each."""
    folder.mkdir(exist_ok=True)
    return [
        write(folder / f"day_{day:04}.nc", range(day * steps, (day + 1) * steps), **more)
        for day in range(days)
    ]


def files_dataset(paths: list[str]) -> xr.Dataset:
    """What xarray sees in the files: `open_mfdataset`, which needs Dask, without Dask."""
    combined = xr.combine_by_coords(
        [xr.load_dataset(path, engine="h5netcdf") for path in paths],
        data_vars="minimal", coords="minimal", compat="override", join="outer", combine_attrs="override",
    )  # fmt: skip
    assert isinstance(combined, xr.Dataset)
    return combined


def report_of(result: IngestResult) -> Report:
    assert result.report is not None
    return result.report


def stored_dataset(version: Version, group: str | None = None) -> xr.Dataset:
    """What xarray sees in the store."""
    stored: xr.Dataset = xr.open_zarr(version.session().store, group=group, consolidated=False, chunks=None)
    return stored.load()


def assert_same_dataset(dataset: xr.Dataset, expected: xr.Dataset) -> None:
    """Values, dtypes, dimensions, attributes, and what decoding remembers."""
    xr.testing.assert_identical(dataset, expected)
    for name, variable in expected.variables.items():
        assert dataset[name].dtype == variable.dtype or dataset[name].dtype.kind == "T", name
        for key in ("_FillValue", "units", "calendar", "scale_factor", "add_offset", "missing_value"):
            actual, wanted = dataset[name].encoding.get(key), variable.encoding.get(key)
            assert (actual is None) == (wanted is None), (name, key)
            if actual is not None:
                np.testing.assert_equal(actual, wanted, f"{name} {key}")


def repository(path: Path, **more: Any) -> frazil.Repository:
    return frazil.Repository.create(frazil.local_filesystem_storage(str(path)), **more)


def container(folder: Path) -> frazil.VirtualChunkContainer:
    """The files of a folder, for references."""
    return frazil.VirtualChunkContainer(f"file://{folder}/", frazil.local_filesystem_store(str(folder)))


def replace_seam(monkeypatch: pytest.MonkeyPatch, path: str, value: Any) -> None:
    """Replace a name of a module of the ingest. ``frazil.pipeline.ingest`` itself is a function."""
    module, _, name = path.rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), name, value)
