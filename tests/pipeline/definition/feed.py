"""A daily feed: files of a day, and a definition that ingests, derives, checks and publishes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

import frazil
from frazil.pipeline import Pipeline

DEFINITION = """
name = "feed"
repository = "ice"
owners = ["Ada"]
engine = "inline"

[[ingest]]
files = "t2m_*.nc"
group = "/weather"
concat_dim = "time"
chunks = {time = 4}
on_problem = "quarantine"
on_change = "rewrite"
allow = ["hole"]

[[derived]]
operation = "coarsen"
sources = ["/weather/t2m"]
factors = {time = 4}
to = "/daily"

[[derived]]
operation = "climatology"
sources = ["/daily/weather/t2m"]
to = "/climatology"

[[rules]]
rule = "Range"
path = "/weather/t2m"
min = 180
max = 340
"""


def day(folder: Path, number: int, name: str = "t2m", offset: float = 0.0) -> Path:
    """Write the file of a day, with four steps."""
    time = np.datetime64("2026-01-01", "ns") + (np.arange(4) + 4 * number) * np.timedelta64(6, "h")
    values = 280 + offset + np.random.default_rng(number).random((4, 3, 4), "f4")
    variables = {name: (("time", "lat", "lon"), values.astype("f4"), {"units": "K"})}
    coords = {"time": time, "lat": np.arange(3.0), "lon": np.arange(4.0)}
    path = folder / f"{name}_{number}.nc"
    xr.Dataset(variables, coords).to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])
    return path


def damaged(folder: Path, number: int) -> None:
    """Write the first half of the file of a day."""
    path = day(folder, number)
    path.write_bytes(path.read_bytes()[:2000])


def feed(folder: Path, text: str = DEFINITION) -> Pipeline:
    """Write the definition, and load it."""
    (folder / "feed.toml").write_text(text)
    return Pipeline.load(folder / "feed.toml")


def opened(folder: Path) -> frazil.Repository:
    """Open the repository of the feed."""
    return frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "ice")))


def objects(folder: Path) -> dict[str, int]:
    """Return everything in the repository, and when it was written."""
    paths = (path for path in (folder / "ice").rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in paths}


def published(folder: Path, group: str) -> xr.Dataset:
    """Return a group of the published version."""
    store = opened(folder).readonly_session("main").store
    dataset: xr.Dataset = xr.open_zarr(store, group=group, consolidated=False)
    return dataset


def is_up_to_date(folder: Path, *numbers: int) -> None:
    """Readers find the files of these days, and the means of them."""
    names = [folder / f"t2m_{number}.nc" for number in numbers]
    with xr.open_mfdataset(names, engine="h5netcdf") as expected, xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]  # xarray
        xr.testing.assert_equal(published(folder, "weather").compute(), expected.compute())
        daily = expected.t2m.coarsen(time=4).mean()
        np.testing.assert_allclose(published(folder, "daily/weather").t2m, daily, rtol=1e-6)
        monthly = daily.groupby("time.month").mean()
        np.testing.assert_allclose(published(folder, "climatology/daily/weather").t2m, monthly, rtol=1e-6)
