"""The files that the demo ingests: real data of the Met Office, from the package iris-sample-data.

There are two scenarios of the same climate model over North America, with 240 time steps of one year, and
54 months of sea surface temperature along the equator.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import iris_sample_data  # type: ignore[import-untyped]
import netCDF4
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from frazil.spark import Block

FILES = Path(iris_sample_data.path)


@dataclass(frozen=True, slots=True)
class Source:
    """One file, its target group, and how its large variable is divided along time.

    A chunk has ``chunk`` time steps. A task reads and writes ``block`` time steps, which are a few chunks.
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
        """Return the name, size and hash of the file, which identify it later."""
        content = self.path.read_bytes()
        return {"file": self.file, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


SOURCES = (
    Source("a1b", "A1B_north_america.nc", "air_temperature", chunk=12, block=24),
    Source("e1", "E1_north_america.nc", "air_temperature", chunk=12, block=24),
    Source("ostia", "ostia_monthly.nc", "surface_temperature", chunk=6, block=12),
)


def write_metadata(source: Source, store: Any) -> None:
    """Write the group with all arrays and attributes, and all values except those of the large variable.

    Values stay as they are in the file (``decode_cf=False``). Units, calendars and fill values are
    attributes, and xarray applies them when it reads the data.
    """
    with xr.open_dataset(source.path, decode_cf=False) as file:
        data = file[source.variable]
        chunks = (source.chunk, *data.shape[1:])
        # With a dask array and compute=False, xarray creates the array, but does not write its values.
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
    """Return the blocks of the large variable along time, one for each task."""
    with netCDF4.Dataset(source.path) as file:
        steps, *rest = file[source.variable].shape
    path = f"{source.group}/{source.variable}"
    origin = (0,) * len(rest)
    return [
        Block(path, (first, *origin), (min(first + source.block, steps), *rest), source)
        for first in range(0, steps, source.block)
    ]


def read_block(block: Block) -> NDArray[Any]:
    """Read the values of one block from its file. This runs on an executor."""
    source: Source = block.source
    with netCDF4.Dataset(source.path) as file:
        file.set_auto_maskandscale(False)
        return np.asarray(file[source.variable][block.region])
