"""Which Frazil this is: its version, how it names itself to servers, and what a bug report should say."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

__version__ = "0.1.0"

#: The folder of this package. A warning that skips it names the line of the user's program.
PACKAGE_FOLDER: Final = os.path.dirname(__file__) + os.sep

#: What else matters when something goes wrong.
_PACKAGES: Final = ("zarr", "numcodecs", "numpy", "obstore", "xarray")


def user_agent() -> str:
    """What requests to object stores carry as ``User-Agent``; see also ``Attribution``.

    >>> user_agent().partition("/")[0]
    'frazil'
    """
    return f"frazil/{__version__}"


def print_debug_info() -> None:
    """Print the versions of the platform, of Python, and of the packages involved: for bug reports."""
    print(f"platform:  {platform.platform()}")
    print(f"python:  {platform.python_version()}")
    print(f"frazil:  {__version__}")
    for package in _PACKAGES:
        try:
            print(f"{package}:  {version(package)}")
        except PackageNotFoundError:
            continue
