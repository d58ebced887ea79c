"""Messages of GRIB, made with eccodes, and datasets as a reader sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.readers.comparing import read_all

from frazil.readers.base_reader import Reader

cfgrib = pytest.importorskip("cfgrib")
eccodes = pytest.importorskip("eccodes")


#: A grid with coordinates of two dimensions.
LAMBERT: dict[str, Any] = {
    "gridType": "lambert",
    "Nx": 6,
    "Ny": 4,
    "DxInMetres": 100_000,
    "DyInMetres": 100_000,
    "Latin1InDegrees": 40,
    "Latin2InDegrees": 50,
    "LoVInDegrees": 10,
    "latitudeOfFirstGridPointInDegrees": 40,
    "longitudeOfFirstGridPointInDegrees": 5,
    "jScansPositively": 1,
}


def message(edition: int, *, ni: int = 6, nj: int = 4, packing: str = "", **keys: Any) -> bytes:
    """One field of ``nj`` rows; ``keys`` are set in their order, ``values`` last."""
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_pl_grib{edition}")
    grid = {
        "Ni": ni,
        "Nj": nj,
        "longitudeOfLastGridPointInDegrees": ni - 1,
        "latitudeOfFirstGridPointInDegrees": nj - 1,
        "latitudeOfLastGridPointInDegrees": 0,
        "jDirectionIncrementInDegrees": 1,
        "iDirectionIncrementInDegrees": 1,
    }
    values = keys.pop("values", np.arange(float(ni * nj)))
    for key, value in {**grid, **keys}.items():
        eccodes.codes_set(handle, key, value)
    if packing:
        eccodes.codes_set(handle, "packingType", packing)
    eccodes.codes_set_values(handle, values)
    data: bytes = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return data


def field(name: str, level: int | None = 2, *, edition: int = 2, kind: str = "", **keys: Any) -> bytes:
    """A field at a height above ground, at the surface (``level`` None) or of another ``kind`` of level."""
    typed = kind or ("surface" if level is None else "heightAboveGround")
    return message(edition, typeOfLevel=typed, level=level or 0, shortName=name, **keys)


def dataset(reader: Reader) -> xr.Dataset:
    """What a reader sees, as a dataset of xarray."""
    schema = reader.schema()
    variables = {
        name: (each.dims, read_all(reader, name), each.attrs) for name, each in schema.variables.items()
    }
    return xr.decode_cf(xr.Dataset(variables, attrs=schema.attrs), decode_timedelta=True)


def cubes(path: Path, **options: Any) -> list[xr.Dataset]:
    """What cfgrib splits a file into."""
    datasets: list[xr.Dataset] = cfgrib.open_datasets(path, backend_kwargs={"indexpath": "", **options})
    return datasets


def has(dataset: xr.Dataset, expected: xr.DataArray) -> bool:
    """Whether a dataset has a variable with these values, attributes, and values of coordinates."""
    return any(_equal(each, expected) for each in dataset.data_vars.values())


def _equal(array: xr.DataArray, expected: xr.DataArray) -> bool:
    if array.shape != expected.shape or _texts(array.attrs) != _texts(expected.attrs):
        return False
    along = [each for each in array.coords.values() if each.dims]
    return (
        np.array_equal(array.values, expected.values, equal_nan=True)
        and len(along) == sum(1 for each in expected.coords.values() if each.dims)
        and all(
            any(
                (own == name or str(own).startswith(f"{name}_")) and np.array_equal(each.values, coord.values)
                for own, each in array.coords.items()
            )
            for name, coord in expected.coords.items()
        )
    )


def _texts(attrs: dict[Any, Any]) -> list[str]:
    return sorted(f"{name}={value!r}" for name, value in attrs.items())
