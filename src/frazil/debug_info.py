"""The information for a bug report: the versions of the platform, of Python and of packages."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from frazil.about import __version__

#: Packages whose versions belong into a bug report.
_PACKAGES: Final = ("zarr", "numcodecs", "numpy", "obstore", "xarray")


def print_debug_info() -> None:
    """Print the versions of the platform, of Python and of packages, for a bug report.

    Examples:
        >>> print_debug_info()
        platform: ...
        python: ...
        frazil: ...
    """
    print(f"platform:  {platform.platform()}")
    print(f"python:  {platform.python_version()}")
    print(f"frazil:  {__version__}")
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            print(f"{package}:  {version(package)}")
