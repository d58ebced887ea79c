"""The input of all implementations: NetCDF files, and an array in a repository. Each run makes it once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5netcdf  # type: ignore[import-untyped]
import icechunk
import numpy as np
import zarr
from shared_inputs import shared_input


def field(seed: int, *shape: int) -> np.ndarray:
    """Return values like measurements: smooth, with a little noise, two decimals; float32."""
    rng = np.random.default_rng(seed)
    wave = np.add.outer(np.sin(np.linspace(0, 3, shape[-2])), np.cos(np.linspace(0, 5, shape[-1])))
    noise = rng.standard_normal(shape, "f4")
    return np.round(280 + 20 * wave + noise, 2, out=noise).astype("f4")


def archive(files: int, steps: int, lat: int, lon: int, hours: int = 1) -> list[str]:
    """Make NetCDF-4 files of ``steps`` steps each, one compressed chunk, with ``hours`` from step to step."""

    def make(folder: Path) -> None:
        for number in range(files):
            _netcdf(folder / f"day_{number:04}.nc", number, steps, lat, lon, hours)

    folder = shared_input(f"archive-{files}-{steps}-{lat}-{lon}-{hours}", make)
    return sorted(map(str, folder.glob("*.nc")))


def _netcdf(path: Path, number: int, steps: int, lat: int, lon: int, hours: int) -> None:
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": None, "lat": lat, "lon": lon}
        file.resize_dimension("time", steps)
        labels = np.arange(number * steps, (number + 1) * steps) * hours
        time = file.create_variable("time", ("time",), "i8", data=labels)
        time.attrs.update(units="hours since 2000-01-01", calendar="standard", standard_name="time")
        file.create_variable("lat", ("lat",), "f8", data=np.linspace(-90, 90, lat))
        file.create_variable("lon", ("lon",), "f8", data=np.linspace(0, 360, lon, endpoint=False))
        data = file.create_variable(
            "tas",
            ("time", "lat", "lon"),
            "f4",
            data=field(number, steps, lat, lon),
            chunks=(steps, lat, lon),
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
        data.attrs["units"] = "K"


def grid(shape: tuple[int, ...], chunks: tuple[int, ...], time_units: str | None = None) -> str:
    """Make a repository with an array ``tas`` and its coordinates. The published icechunk writes it.

    ``time_units`` are units of the CF conventions for the coordinate of time: ``days since 2000-01-01``.
    """

    def make(folder: Path) -> None:
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)))
        session = repo.writable_session("main")
        names = ("time", "lat", "lon")
        root = zarr.create_group(session.store)
        for name, length in zip(names, shape, strict=True):
            values = np.arange(length, dtype="f8")
            attributes: dict[str, Any] = (
                {"units": time_units, "calendar": "standard"} if time_units and name == "time" else {}
            )
            root.create_array(
                name, data=values, chunks=(length,), dimension_names=[name], attributes=attributes
            )
        array = root.create_array("tas", shape=shape, dtype="f4", chunks=chunks, dimension_names=names)

        def write(start: int) -> None:
            stop = min(start + chunks[0], shape[0])
            array[start:stop] = field(start, stop - start, *shape[1:])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, range(0, shape[0], chunks[0])))
        session.commit("a grid")

    kind = "dated-grid-" if time_units else "grid-"
    return str(shared_input(kind + "-".join(map(str, (*shape, *chunks))), make))
