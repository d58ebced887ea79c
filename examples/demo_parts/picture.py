"""A picture of the data, read with xarray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

WARM, COOL, INK, GREY = "#b5342b", "#2a6f97", "#22303c", "#8795a1"

STYLE: Any = {
    "figure.dpi": 150,
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw(store: Any, path: Path) -> None:
    """Draw the warming of each scenario as a map and as a time series, and El Niño in the ocean."""
    a1b, e1, ostia = (
        xr.open_zarr(store, group=group, consolidated=False, chunks=None) for group in ("a1b", "e1", "ostia")
    )
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(11, 7.4), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.25, 1), width_ratios=(1.15, 1))
        warming_map(figure, figure.add_subplot(grid[0, 0]), a1b.air_temperature, e1.air_temperature)
        warming_series(figure.add_subplot(grid[0, 1]), a1b.air_temperature, e1.air_temperature)
        equator(figure, figure.add_subplot(grid[1, :]), ostia.surface_temperature)
        figure.savefig(path)
        plt.close(figure)


def years(data: xr.DataArray) -> Any:
    return data.time.dt.year.values


def warming_map(figure: Any, axes: Any, a1b: xr.DataArray, e1: xr.DataArray) -> None:
    late = {"time": slice("2080", "2099")}
    difference = a1b.sel(late).mean("time") - e1.sel(late).mean("time")
    west = difference.longitude.values - 360
    shades = axes.contourf(
        west, difference.latitude, difference, levels=np.arange(0, 6.01, 0.5), cmap="YlOrRd", extend="both"
    )
    lines = axes.contour(
        west, difference.latitude, difference, levels=np.arange(1, 7), colors="white", linewidths=0.7
    )
    axes.clabel(lines, fmt="%d K", fontsize=7.5)
    axes.set_title("Scenario A1B minus E1, mean of 2080 to 2099")
    degrees(axes)
    figure.colorbar(shades, ax=axes, label="difference in air temperature [K]", shrink=0.9, pad=0.02)


def warming_series(axes: Any, a1b: xr.DataArray, e1: xr.DataArray) -> None:
    weights = np.cos(np.deg2rad(a1b.latitude))
    for name, data, colour, above in (("A1B", a1b, WARM, 12), ("E1", e1, COOL, -28)):
        mean = data.weighted(weights).mean(("latitude", "longitude"))
        change = mean - mean.sel(time=slice("1860", "1899")).mean("time")
        smooth = change.rolling(time=11, center=True).mean()
        axes.plot(years(change), change, color=colour, alpha=0.3, linewidth=0.8)
        axes.plot(years(smooth), smooth, color=colour, linewidth=2)
        last = smooth.dropna("time")[-1]
        axes.annotate(
            f"{name}  {last.item():+.1f} K",
            (int(last.time.dt.year), last.item()),
            xytext=(-8, above),
            textcoords="offset points",
            ha="right",
            color=colour,
            weight="bold",
        )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_title("North America, change since 1860 to 1899")
    axes.set_ylabel("[K]")
    axes.text(
        0.03, 0.93, "thin: each year\nthick: mean of 11 years", transform=axes.transAxes, va="top", color=GREY
    )
    axes.margins(x=0)


def equator(figure: Any, axes: Any, surface: xr.DataArray) -> None:
    band = surface.sel(latitude=slice(-2, 2)).mean("latitude", skipna=True)
    month = band.groupby("time.month")
    anomaly = month - month.mean("time")
    shades = axes.contourf(
        anomaly.longitude,
        anomaly.time,
        anomaly,
        levels=np.arange(-3, 3.01, 0.5),
        cmap="RdBu_r",
        extend="both",
    )
    axes.set_facecolor("#d9d4cb")  # land
    axes.set_title("El Niño and La Niña: sea surface, 2°S to 2°N, difference from the month's mean")
    axes.set_xticks(range(0, 360, 60), ["0°", "60°E", "120°E", "180°", "120°W", "60°W"])
    axes.set_ylabel("time")
    figure.colorbar(shades, ax=axes, label="[K]", pad=0.01)


def degrees(axes: Any) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{-value:.0f}°W")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}°N")
    axes.set_aspect(1.25)
