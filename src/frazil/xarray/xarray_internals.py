"""The functions of xarray that Frazil uses although they are not public.

The only public writer of xarray for zarr is ``to_zarr``, and it has no hook for another writer of
dask arrays.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from operator import attrgetter
from typing import Any, Final

import xarray as xr

try:
    from xarray.backends.common import ArrayWriter
    from xarray.backends.zarr import ZarrStore, encode_zarr_variable

    # xarray has moved its writers: before 2025.9, they are in the module of readers
    _module = "writers" if find_spec("xarray.backends.writers") else "api"
    dump_to_store = import_module(f"xarray.backends.{_module}").dump_to_store
    attrgetter("_validate_and_autodetect_region", "_validate_encoding")(ZarrStore)
    _in_memory = attrgetter("_in_memory")
    _in_memory(xr.Variable)
except (ImportError, AttributeError) as error:
    raise ImportError(
        f"frazil.xarray uses functions of xarray that are not public, and xarray {xr.__version__} lacks one "
        f"({error}). Install an older xarray (Frazil is tested with 2025.6 to 2026.9), or write with "
        "`dataset.to_zarr(session.store, consolidated=False)`"
    ) from error

__all__ = ["ArrayWriter", "ZarrStore", "dump_to_store", "encode_variable", "is_lazy"]

#: Older versions of xarray use the same encoding for all formats of zarr.
_FORMAT: Final[dict[str, Any]] = (
    {"zarr_format": 3} if "zarr_format" in signature(encode_zarr_variable).parameters else {}
)


def encode_variable(variable: xr.Variable, name: str) -> xr.Variable:
    """Return the variable that xarray stores for a variable."""
    encoded: xr.Variable = encode_zarr_variable(variable, name=name, **_FORMAT)
    return encoded


def is_lazy(variable: xr.Variable) -> bool:
    """Return whether the values of a variable are still to be read or computed."""
    return not _in_memory(variable)
