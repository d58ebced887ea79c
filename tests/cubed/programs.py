"""Programs from the documentation of xarray, as functions of a dataset of daily temperatures.

Each is unchanged for values in memory and for arrays of Cubed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it ships no types
import xarray as xr

type Program = Callable[[xr.Dataset], xr.Dataset | xr.DataArray]


def daily(days: int = 150, missing: bool = True) -> xr.Dataset:
    """Temperatures of some months on a small grid."""
    random = np.random.default_rng(7)
    values = random.normal(280, 8, (days, 6, 8)).astype("f4")
    if missing:
        values[random.random(values.shape) < 0.02] = np.nan
    return xr.Dataset(
        {"t": (("time", "lat", "lon"), values, {"units": "K"})},
        {
            "time": pd.date_range("2001-01-01", periods=days, unit="ns"),
            "lat": np.linspace(-75, 75, 6),
            "lon": np.linspace(0, 315, 8),
        },
    )


def climatology(ds: xr.Dataset) -> xr.Dataset:
    return ds.groupby("time.month").mean("time")


def anomalies(ds: xr.Dataset) -> xr.Dataset:
    months = ds.groupby("time.month")
    return months - months.mean("time")


def resample(ds: xr.Dataset) -> xr.Dataset:
    return ds.resample(time="MS").mean()


def rolling(ds: xr.Dataset) -> xr.Dataset:
    return ds.rolling(time=7, center=True).mean()


def weighted(ds: xr.Dataset) -> xr.Dataset:
    weights = np.cos(np.deg2rad(ds.lat))
    weights.name = "weights"
    return ds.weighted(weights).mean(("lat", "lon"))


def quantile(ds: xr.Dataset) -> xr.Dataset:
    return ds.quantile([0.1, 0.5, 0.9], dim="time")


def where(ds: xr.Dataset) -> xr.Dataset:
    return ds.where(ds.t > 280, 0.0).where(ds.lat > -50)


def apply_ufunc(ds: xr.Dataset) -> Any:
    def spread(values: Any) -> Any:
        return np.nanmax(values, axis=-1) - np.nanmin(values, axis=-1)

    return xr.apply_ufunc(spread, ds, input_core_dims=[["time"]], dask="parallelized", output_dtypes=["f4"])


def interp(ds: xr.Dataset) -> xr.Dataset:
    return ds.interp(lat=[-60.0, 0.0, 60.0], lon=[10.0, 100.0])


def groupby_bins(ds: xr.Dataset) -> xr.Dataset:
    return ds.groupby_bins("lat", [-90, -30, 30, 90]).mean()


PROGRAMS: dict[str, Program] = {
    each.__name__: each
    for each in (
        climatology,
        anomalies,
        resample,
        rolling,
        weighted,
        quantile,
        where,
        apply_ufunc,
        interp,
        groupby_bins,
    )
}


# The same with what Cubed has


def without_flox(program: Program) -> Program:
    def run(ds: xr.Dataset) -> xr.Dataset | xr.DataArray:
        with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]
            return program(ds)

    return run


def rolling_by_slices(ds: xr.Dataset) -> xr.Dataset:
    steps = ds.sizes["time"] - 6
    parts = [ds.isel(time=slice(shift, shift + steps)).drop_vars("time") for shift in range(7)]
    mean = sum(parts[1:], parts[0]) / 7
    return mean.assign_coords(time=ds.time[3:-3])


def weighted_by_sums(ds: xr.Dataset) -> Any:
    weights = np.cos(np.deg2rad(ds.lat))
    sums = (ds * weights).sum(("lat", "lon"))
    return sums / (ds.notnull().astype("f8") * weights).sum(("lat", "lon"))


def quantile_by_ufunc(ds: xr.Dataset) -> Any:
    def quantiles(values: Any) -> Any:
        return np.moveaxis(np.nanquantile(values, [0.1, 0.5, 0.9], axis=-1), 0, -1)

    return xr.apply_ufunc(
        quantiles,
        ds.transpose("lat", "lon", "time"),
        input_core_dims=[["time"]],
        output_core_dims=[["quantile"]],
        dask="parallelized",
        dask_gufunc_kwargs={"output_sizes": {"quantile": 3}},
        output_dtypes=["f4"],
    )


def where_with_arrays(ds: xr.Dataset) -> xr.Dataset:
    return ds.where(ds.t > 280, xr.zeros_like(ds)).where(ds.lat > -50, xr.full_like(ds, np.nan))


def apply_ufunc_to_the_last(ds: xr.Dataset) -> Any:
    return apply_ufunc(ds.transpose("lat", "lon", "time"))


#: The dimensions that a program needs in one chunk.
ONE_CHUNK = {"quantile": ("time",), "apply_ufunc": ("time",), "interp": ("lat", "lon")}
#: For each program that Cubed refuses, one with the same values.
OTHERS: dict[str, Program] = {
    **{each.__name__: without_flox(each) for each in (climatology, anomalies, resample, groupby_bins)},
    "rolling": rolling_by_slices,
    "weighted": weighted_by_sums,
    "quantile": quantile_by_ufunc,
    "where": where_with_arrays,
    "apply_ufunc": apply_ufunc_to_the_last,
}
