"""Every statement of the table does what it says, or says why not, and writes nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xarray as xr
import zarr
from tests.sql.statements import STATEMENTS, Statement

import frazil
from frazil.errors import IcechunkError
from frazil.sql.catalog import StatementRunner
from frazil.sql.names import Namespace
from frazil.sql.on_duckdb import DuckDbSql

DAYS = pd.date_range("2024-01-01", periods=4)
LATS, LONS = [-60.0, 0.0, 60.0], [0.0, 180.0]


def filled(repo: frazil.Repository, first: float) -> frazil.Repository:
    values = np.arange(24, dtype="f4").reshape(4, 3, 2) + np.float32(first)
    data = xr.Dataset({"tas": (("time", "lat", "lon"), values)}, {"time": DAYS, "lat": LATS, "lon": LONS})
    session = repo.writable_session("main")
    chunks = {"tas": {"chunks": (2, 3, 2)}}
    data.to_zarr(session.store, group="climate", consolidated=False, encoding=chunks)
    counts = zarr.open_group(session.store, mode="a").create_group("counts")
    counts.create_array("n", data=np.arange(3, dtype="i4"), dimension_names=["x"])
    session.commit("four days")
    repo.create_tag("v1", repo.lookup_branch("main"))
    return repo


def new_rows() -> pd.DataFrame:
    cells = [(lat, lon) for lon in LONS for lat in LATS]
    frame = pd.DataFrame(cells, columns=["lat", "lon"])
    frame.insert(0, "time", pd.Timestamp("2024-01-05"))
    return frame.assign(tas=np.arange(100, 106, dtype="f4"))


def tips(repo: frazil.Repository) -> dict[str, str]:
    return {name: repo.lookup_branch(name) for name in repo.list_branches()}


def answer(run: Any, text: str) -> list[tuple[Any, ...]]:
    result = run(text)
    rows = result.rows if hasattr(result, "names") else list(map(tuple, result.collect()))
    return [tuple(each) for each in rows]


def check(case: Statement, engine: str, run: Any, ice: frazil.Repository, other: frazil.Repository) -> None:
    text, elsewhere = case.text_for(engine), tips(other)
    if text is None:
        pytest.skip("a statement of Spark only")
    for each in case.first:
        run(each)
    before = tips(ice)
    if case.error:
        with pytest.raises(IcechunkError, match=case.error):
            answer(run, text)
        assert tips(ice) == before
    else:
        rows = answer(run, text)
    if case.then is not None:
        rows = answer(run, case.then)
    if callable(case.rows):
        assert case.rows(rows), rows
    elif case.rows is not None:
        assert rows == case.rows
    assert tips(other) == elsewhere


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.text[:60])
def test_statements_on_duckdb(case: Statement, tmp_path: Path) -> None:
    empty = (frazil.Repository.create(frazil.in_memory_storage()) for _ in range(2))
    ice, other = (filled(each, first) for each, first in zip(empty, (0, 100), strict=True))
    runner = StatementRunner(DuckDbSql(), Namespace({"ice": ice, "other": other}))
    new_rows().to_parquet(tmp_path / "new.parquet")
    runner.run(f"CREATE VIEW new_rows AS SELECT * FROM '{tmp_path / 'new.parquet'}'")
    check(case, "duckdb", runner.run, ice, other)


@pytest.mark.sample(6)
@pytest.mark.spark
@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.text[:60])
def test_statements_on_spark(case: Statement, spark: Any, tmp_path: Path) -> None:
    from frazil.spark import Catalog

    repos = []
    for name, first in (("ice", 0), ("other", 100)):
        copy = frazil.Repository.create(frazil.local_filesystem_storage(tmp_path / name))
        repos.append(filled(copy, first))
    spark.createDataFrame(new_rows()).createOrReplaceTempView("new_rows")
    try:
        catalog = Catalog(spark, dict(zip(("ice", "other"), repos, strict=True)))
        check(case, "spark", catalog.sql, *repos)
    finally:
        spark.catalog.dropTempView("v")
