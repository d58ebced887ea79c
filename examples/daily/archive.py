"""An archive that grows by one file each day, like the output of a model or a sensor network.

Each file has ``2 m temperature`` and ``precipitation`` every six hours on a grid. Temperature is packed in 16
bits. The values are invented: a mean by latitude, a season, a daily cycle, and weather that moves eastwards.
The file of a day always has the same content.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

STEPS = 4
LATITUDE = np.linspace(88.75, -88.75, 72)
LONGITUDE = np.arange(0.0, 360.0, 2.5)
EPOCH = date(2000, 1, 1)


def fill(folder: Path, first: date, days: int) -> list[Path]:
    """Return the files of the days, and write the missing ones."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"weather-{first + timedelta(number):%Y-%m-%d}.nc" for number in range(days)]
    for number, file in enumerate(files):
        if not file.exists():
            _write(file, first + timedelta(number))
    return files


def damage(file: Path) -> None:
    """Keep only the first half of the file, like an interrupted download."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def repair(file: Path) -> None:
    """Write the complete file again."""
    _write(file, date.fromisoformat(file.stem[-10:]))


def _write(file: Path, day: date) -> None:
    hours = 24.0 * (day - EPOCH).days + 6.0 * np.arange(STEPS)
    with netCDF4.Dataset(file, "w", format="NETCDF4") as out:
        out.title = "Invented weather"
        out.Conventions = "CF-1.11"
        out.createDimension("time", None)
        for name, values, units in (
            ("latitude", LATITUDE, "degrees_north"),
            ("longitude", LONGITUDE, "degrees_east"),
        ):
            out.createDimension(name, len(values))
            axis = out.createVariable(name, "f8", (name,))
            axis.units, axis.standard_name = units, name
            axis[:] = values
        time = out.createVariable("time", "f8", ("time",))
        time.units, time.calendar, time.standard_name = "hours since 2000-01-01", "standard", "time"
        time[:] = hours
        temperature, rain = _weather(hours)
        shape: dict[str, Any] = {
            "dimensions": ("time", "latitude", "longitude"),
            "chunksizes": (STEPS, 36, 72),
        }
        t2m = out.createVariable("t2m", "i2", zlib=True, fill_value=-32768, **shape)
        t2m.scale_factor, t2m.add_offset = 0.01, 273.15
        t2m.units, t2m.standard_name = "K", "air_temperature"
        t2m[:] = temperature
        tp = out.createVariable("tp", "f4", zlib=True, **shape)
        tp.units, tp.standard_name = "mm", "precipitation_amount"
        tp[:] = rain


def _weather(hours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Temperature in K and precipitation in mm, (time, latitude, longitude)."""
    t = hours[:, None, None]
    lat, lon = np.radians(LATITUDE)[:, None], np.radians(LONGITUDE)
    year = 2 * np.pi * t / (24 * 365.25)
    sun = 2 * np.pi * t / 24 + lon
    waves = np.sin(5 * lon - 0.02 * t) * np.cos(lat) + 0.6 * np.sin(3 * lon - 0.011 * t + 4 * lat)
    temperature = 243 + 57 * np.cos(lat) ** 2 - 18 * np.sin(lat) * np.cos(year) - 3 * np.cos(sun) + 4 * waves
    rain = np.maximum(0, 3 * waves - 1.5) * np.cos(lat)
    return temperature, rain.astype("f4")
