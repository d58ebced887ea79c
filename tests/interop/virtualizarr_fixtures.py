"""What VirtualiZarr's own tests import from a ``conftest`` that its wheel does not have.

Run with ``frazil`` or ``icechunk`` first, and what pytest wants after it:

    python virtualizarr_fixtures.py frazil -q .../virtualizarr/tests/test_writers/test_icechunk.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    if sys.argv[1] == "frazil":
        import frazil.compat

        frazil.compat.install_as_icechunk()
    sys.modules["conftest"] = sys.modules["__main__"]

import numpy as np
import pytest
import xarray as xr

ARRAYBYTES_CODEC = {"name": "bytes", "configuration": {"endian": "little"}}
ZLIB_CODEC = {"name": "numcodecs.zlib", "configuration": {"level": 1}}


@pytest.fixture
def array_v3_metadata() -> Callable[..., Any]:
    from virtualizarr.manifests.utils import create_v3_array_metadata

    def make(
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        codecs: list[Any] | None = None,
        data_type: Any = "int32",
        **more: Any,
    ) -> Any:
        return create_v3_array_metadata(
            shape=shape,
            chunk_shape=chunks,
            data_type=np.dtype(data_type),
            codecs=codecs or [ARRAYBYTES_CODEC],
            **more,
        )

    return make


@pytest.fixture
def simple_netcdf4(tmp_path: Path) -> str:
    """An array of int32, (3, 4), contiguous."""
    path = str(tmp_path / "simple.nc")
    values = np.arange(12, dtype="int32").reshape(3, 4)
    xr.Dataset({"foo": (("x", "y"), values)}).to_netcdf(path, engine="h5netcdf")
    return path


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[2:], plugins=[sys.modules["__main__"]]))
