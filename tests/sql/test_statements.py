"""Every statement of the table does what it says, or says why not, and writes nowhere else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.sql.statements import STATEMENTS, Statement, check, filled, new_rows

import frazil
from frazil.sql.catalog import StatementRunner
from frazil.sql.names import Namespace
from frazil.sql.on_duckdb import DuckDbSql

FIRST = {"ice": 0, "other": 100}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repositories, which each test copies."""
    folder = tmp_path_factory.mktemp("archives")
    for name, first in FIRST.items():
        filled(frazil.Repository.create(frazil.local_filesystem_storage(folder / name)), first)
    return folder


@pytest.fixture
def repos(archives: Path, tmp_path: Path) -> list[frazil.Repository]:
    shutil.copytree(archives, tmp_path, dirs_exist_ok=True)
    storages = [frazil.local_filesystem_storage(tmp_path / name, flush=False) for name in FIRST]
    return [frazil.Repository.open(each) for each in storages]


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.text[:60])
def test_statements_on_duckdb(case: Statement, repos: list[frazil.Repository], tmp_path: Path) -> None:
    ice, other = repos
    runner = StatementRunner(DuckDbSql(), Namespace({"ice": ice, "other": other}))
    new_rows().to_parquet(tmp_path / "new.parquet")
    runner.run(f"CREATE VIEW new_rows AS SELECT * FROM '{tmp_path / 'new.parquet'}'")
    check(case, "duckdb", runner.run, ice, other)


@pytest.mark.sample(6)
@pytest.mark.spark
@pytest.mark.parametrize("case", STATEMENTS, ids=lambda each: each.text[:60])
def test_statements_on_spark(case: Statement, spark: Any, repos: list[frazil.Repository]) -> None:
    from frazil.spark import Catalog

    spark.createDataFrame(new_rows()).createOrReplaceTempView("new_rows")
    try:
        catalog = Catalog(spark, dict(zip(FIRST, repos, strict=True)))
        check(case, "spark", catalog.sql, *repos)
    finally:
        spark.catalog.dropTempView("v")


PAGE = Path(__file__).parents[2] / "docs" / "sql-statements.md"
ROW = re.compile(r"^\| `(.+)` \| (.+) \|$", re.MULTILINE)


def test_the_page_has_the_statements_of_the_table() -> None:
    rows = {text.replace("\\|", "|"): effect for text, effect in ROW.findall(PAGE.read_text())}
    assert rows.keys() == {each.text for each in STATEMENTS}
    for each in STATEMENTS:
        assert rows[each.text].startswith("**No**: ") == bool(each.error), each.text
        assert each.error.lower() in rows[each.text].lower()
