"""Files of real archives: ``scripts/install-test-data`` fetches packages that hold them.

Tests run over a selection of files. ``FRAZIL_TEST_ARCHIVES=all`` runs them over all files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

EVERY = os.environ.get("FRAZIL_TEST_ARCHIVES") == "all"
NETCDF = (b"CDF", b"\x89HDF")
GRIB = (b"GRIB",)
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def packages() -> Path:
    """The folder of the packages; it need not be there."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frazil"
    return Path(os.environ.get("FRAZIL_CACHE") or default) / "test-data"


@cache
def files(*names: str, magic: tuple[bytes, ...], largest: int = 1 << 40) -> list[Path]:
    """The files of these packages that begin with one of these bytes, the same bytes once only."""
    folders = [folder for name in names for folder in sorted(packages().glob(f"{name}*"))]
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    small = [path for path in paths if path.stat().st_size <= largest]
    whole = {path: path.read_bytes() for path in small if _first(path).startswith(magic)}
    return list({data: path for path, data in reversed(whole.items())}.values())[::-1]


def parameters(cases: Iterable[Path | list[Path]]) -> list[Any]:
    """Files, or lists of files, as parameters of a test. The test is skipped where there are none."""
    params = [
        pytest.param(each, id=(each[0] if isinstance(each, list) else each).name, marks=pytest.mark.deep)
        for each in cases
    ]
    reason = "no files of real archives: run scripts/install-test-data"
    return params or [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")]


def _first(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)
