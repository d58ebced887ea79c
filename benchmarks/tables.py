"""Queries in SQL on a grid, as the documentation of xarray-sql shows them, and on its rows in Parquet."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from measure import Measured
from shared_inputs import shared_input
from workload import FRAZIL

XARRAY_SQL, PARQUET = "xarray-sql", "DuckDB on Parquet"

#: What an implementation imports before it is measured.
PACKAGES = {
    FRAZIL: ("duckdb", "pyarrow.dataset", "frazil.arrow.grid_dataset"),
    XARRAY_SQL: ("icechunk", "xarray_sql"),
    PARQUET: ("duckdb",),
}

QUERIES = {
    "mean of each month": (
        "SELECT CAST(date_part('month', \"time\") AS INTEGER) AS month, AVG(air) AS air FROM air "
        "GROUP BY CAST(date_part('month', \"time\") AS INTEGER) ORDER BY month"
    ),
    "mean of each step": 'SELECT "time", AVG(air) AS air FROM air GROUP BY "time" ORDER BY "time"',
    "mean of a month and a region": (
        "SELECT COUNT(*), AVG(air) AS air FROM air WHERE \"time\" BETWEEN TIMESTAMP '2013-06-01' AND "
        "TIMESTAMP '2013-06-30 18:00:00' AND lat BETWEEN 39 AND 45 AND lon BETWEEN 286 AND 300"
    ),
}


def queries(implementation: str, steps: int) -> Measured:
    """Measure queries: by DuckDB on Frazil or on Parquet, and by xarray-sql with its engine DataFusion."""
    root = shared_input(f"tables-{steps}", lambda folder: make(folder, steps))
    for package in PACKAGES[implementation]:
        importlib.import_module(package)
    out = Measured()
    answers = {}
    with out.seconds_of_all("open, first row"):
        ask = ENGINES[implementation](root)
        ask('SELECT "time", lat, lon, air FROM air LIMIT 1')
    for name, query in QUERIES.items():
        with out.seconds_of_all(name):
            answers[name] = ask(query)
    month = answers["mean of each month"]
    assert len(month) == 12
    expected = np.load(root / "mean.npy")
    np.testing.assert_allclose(answers["mean of each step"][:, 1].astype(float), expected, rtol=1e-9)
    return out


def make(folder: Path, steps: int) -> None:
    """Write the grid of xarray's tutorial with random values, and the rows as Parquet in their order."""
    arrow = importlib.import_module("frazil.arrow")
    pq = importlib.import_module("pyarrow.parquet")
    random = np.random.default_rng(0)
    time = np.datetime64("2013-01-01", "ns") + np.arange(steps) * np.timedelta64(6, "h")
    lat, lon = np.arange(75, 14, -2.5, dtype="f4"), np.arange(200, 331, 2.5, dtype="f4")
    values = np.round(280 + 10 * random.standard_normal((steps, len(lat), len(lon))), 2)
    grid = xr.Dataset({"air": (("time", "lat", "lon"), values)}, {"time": time, "lat": lat, "lon": lon})
    packing = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 250.0, "_FillValue": -32768}
    grid["air"].encoding.update(packing, chunks=(100, len(lat), len(lon)))
    importlib.import_module("frazil.xarray")  # registers the accessor
    grid.frazil.to(str(folder / "ice"), message="a grid")
    rows = arrow.dataset(folder / "ice").to_table()
    pq.write_table(rows, folder / "air.parquet", row_group_size=1 << 17)
    np.save(folder / "mean.npy", rows["air"].to_numpy().reshape(steps, -1).mean(axis=1))


type Asker = Callable[[str], Any]


def with_frazil(root: Path) -> Asker:
    connection = importlib.import_module("duckdb").connect()
    connection.register("air", importlib.import_module("frazil.arrow").dataset(root / "ice"))
    return lambda query: _rows(connection.sql(query))


def with_parquet(root: Path) -> Asker:
    connection = importlib.import_module("duckdb").connect()
    file = f"FROM '{root / 'air.parquet'}'"
    return lambda query: _rows(connection.sql(query.replace("FROM air", file)))


def with_xarray_sql(root: Path) -> Asker:
    icechunk = importlib.import_module("icechunk")
    storage = icechunk.local_filesystem_storage(str(root / "ice"))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    context = importlib.import_module("xarray_sql").Context()
    context.from_dataset("air", xr.open_zarr(store, consolidated=False, chunks=None), chunks={"time": 100})
    return lambda query: context.sql(query).to_pandas().to_numpy()


def _rows(relation: Any) -> Any:
    return np.array(relation.fetchall(), object)


ENGINES = {FRAZIL: with_frazil, XARRAY_SQL: with_xarray_sql, PARQUET: with_parquet}
