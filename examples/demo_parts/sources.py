"""The files that the demo ingests: real data of the Met Office, from the package iris-sample-data.

Two scenarios of the same climate model over North America, a year in each of 240 time steps, and
54 months of sea surface temperature along the equator.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import iris_sample_data
import netCDF4
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.spark import Block

FILES = Path(iris_sample_data.path)


@dataclass(frozen=True, slots=True)
class Source:
    """One file: where it goes, and how its large variable is cut along time.

    A chunk has ``chunk`` time steps; a task reads and writes ``block`` of them, a few chunks.
    """

    group: str
    file: str
    variable: str
    chunk: int
    block: int

    @property
    def path(self) -> Path:
        return FILES / self.file

    def fingerprint(self) -> dict[str, Any]:
        """What tells later whether the file is still the one that was ingested."""
        content = self.path.read_bytes()
        return {"file": self.file, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


SOURCES = (
    Source("a1b", "A1B_north_america.nc", "air_temperature", chunk=12, block=24),
    Source("e1", "E1_north_america.nc", "air_temperature", chunk=12, block=24),
    Source("ostia", "ostia_monthly.nc", "surface_temperature", chunk=6, block=12),
)


def write_metadata(source: Source, store: Any) -> None:
    """The group: all arrays and attributes, and all values but those of the large variable.

    Values stay as they are in the file (``decode_cf=False``): units, calendars and fill values are
    attributes, and xarray applies them when the data are read back.
    """
    with xr.open_dataset(source.path, decode_cf=False) as file:
        data = file[source.variable]
        chunks = (source.chunk, *data.shape[1:])
        # A dask array with compute=False: xarray makes the array and leaves its values to us.
        template = file.assign({source.variable: data.chunk(dict(zip(data.dims, chunks, strict=True)))})
        template.drop_encoding().to_zarr(
            store,
            group=source.group,
            zarr_format=3,
            consolidated=False,
            compute=False,
            encoding={source.variable: {"chunks": chunks}},
        )


def blocks(source: Source) -> list[Block]:
    """What the tasks do: pieces of the large variable, along time."""
    with netCDF4.Dataset(source.path) as file:
        steps, *rest = file[source.variable].shape
    path = f"{source.group}/{source.variable}"
    origin = (0,) * len(rest)
    return [
        Block(path, (first, *origin), (min(first + source.block, steps), *rest), source)
        for first in range(0, steps, source.block)
    ]


def read_block(block: Block) -> NDArray[Any]:
    """On an executor: the values of one block, from its file."""
    source: Source = block.source
    with netCDF4.Dataset(source.path) as file:
        file.set_auto_maskandscale(False)
        return np.asarray(file[source.variable][block.region])
