"""A picture of the climatology: global temperature and precipitation of each month."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import xarray as xr

mpl.use("Agg")
from matplotlib import pyplot  # after mpl.use, which chooses a backend without a screen


def draw(store: Any, path: Path) -> None:
    """Draw the months from left to right, with one row for each variable."""
    means = xr.open_zarr(store, group="climatology/daily/weather", consolidated=False, zarr_format=3)
    weather = xr.open_zarr(store, group="weather", consolidated=False, zarr_format=3)
    months = means.sizes["month"]
    figure, axes = pyplot.subplots(
        2, months, figsize=(3.2 * months, 3.8), layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    for row, (name, colours) in zip(axes, (("t2m", "RdYlBu_r"), ("tp", "Blues")), strict=True):
        values = means[name].load()
        low, high = float(values.min()), float(values.max())
        for number, axis in enumerate(row):
            image = axis.pcolormesh(
                weather.longitude, weather.latitude, values[number], cmap=colours, vmin=low, vmax=high
            )
            axis.set_title(f"{name}, month {int(means.month[number])}", fontsize=9)
        figure.colorbar(image, ax=row, label=values.attrs.get("units", ""))
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
