"""The compression filters that HDF5 loads from plugins: zstd, blosc, bzip2 and others."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import h5py  # type: ignore[import-untyped]  # it ships no types

#: Packages whose wheels have a folder ``plugins``. netCDF4 is in the extra ``pipeline``, and has the filters
#: of NetCDF-4: zstd, blosc, bzip2. hdf5plugin has these, and bitshuffle, lz4, blosc2, zfp, ...
PLUGIN_PACKAGES: Final = ("netCDF4", "hdf5plugin")


def add_plugins() -> None:
    """Make the filters of the installed `PLUGIN_PACKAGES` available to HDF5."""
    for name in PLUGIN_PACKAGES:
        package = importlib.util.find_spec(name)
        if package is not None:
            for folder in package.submodule_search_locations or ():
                h5py.h5pl.append(str(Path(folder, "plugins")).encode())
