"""The version of Frazil, its name in requests, and the information for a bug report."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

__version__ = "0.1.0"

#: The folder of this package. Warnings skip its frames, so that they name a line of the user's program.
PACKAGE_FOLDER: Final = os.path.dirname(__file__) + os.sep

#: Packages whose versions belong into a bug report.
_PACKAGES: Final = ("zarr", "numcodecs", "numpy", "obstore", "xarray")


def user_agent() -> str:
    """Return the ``User-Agent`` of requests to object stores.

    Returns:
        The name and version of Frazil. ``Attribution`` adds the name of a program.

    Examples:
        >>> user_agent().partition("/")[0]
        'frazil'
    """
    return f"frazil/{__version__}"


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
        try:
            print(f"{package}:  {version(package)}")
        except PackageNotFoundError:
            continue
