"""A session of Sail. Without the extra `sail`, these tests skip: `make test-sail` runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it ships no types
import pytest
import xarray as xr
from pyspark.sql import SparkSession

import frazil


@pytest.fixture(scope="session")
def sail() -> Iterator[str]:
    """The address of a server of Sail in this process."""
    pysail = pytest.importorskip("pysail.spark", reason="the extra `sail` is not installed: make test-sail")
    os.environ.setdefault("RUST_LOG", "off")  # the log of the server goes to standard error
    server = pysail.SparkConnectServer()
    server.start(background=True)
    host, port = server.listening_address
    yield f"sc://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def spark(sail: str) -> Iterator[SparkSession]:
    # pyspark takes a main module without a file, such as that of xdist, for a run of its doctests.
    vars(sys.modules["__main__"]).setdefault("__file__", __file__)
    session = SparkSession.builder.remote(sail).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "climate")


@pytest.fixture
def repo(path: str) -> frazil.Repository:
    """Two versions of a grid. The first one has the tag v1."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(path))
    grid = xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), np.arange(24, dtype="f4").reshape(4, 3, 2)),
            "rain": (("time", "lat", "lon"), np.arange(24).reshape(4, 3, 2) * 3),
        },
        {"time": pd.date_range("2024-01-01", periods=4), "lat": [-60.0, 0.0, 60.0], "lon": [0.0, 180.0]},
    )
    session = repo.writable_session("main")
    encoding = {"tas": {"chunks": (2, 3, 2)}, "rain": {"chunks": (1, 3, 2)}}
    grid.to_zarr(session.store, consolidated=False, zarr_format=3, encoding=encoding)
    repo.create_tag("v1", session.commit("four days"))
    session = repo.writable_session("main")
    (grid[["tas"]] + 100).to_zarr(session.store, consolidated=False, mode="r+")
    session.commit("warmer")
    return repo
