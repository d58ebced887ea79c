"""Every statement of the table does what it says, or says why not, and writes nowhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.sql.statements import STATEMENTS, Statement, check, filled, new_rows

import frazil
from frazil.sql.catalog import StatementRunner
from frazil.sql.names import Namespace
from frazil.sql.on_duckdb import DuckDbSql


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


PAGE = Path(__file__).parents[2] / "docs" / "sql-statements.md"
ROW = re.compile(r"^\| `(.+)` \| (.+) \|$", re.MULTILINE)


def test_the_page_has_the_statements_of_the_table() -> None:
    rows = {text.replace("\\|", "|"): effect for text, effect in ROW.findall(PAGE.read_text())}
    assert rows.keys() == {each.text for each in STATEMENTS}
    for each in STATEMENTS:
        assert rows[each.text].startswith("**No**: ") == bool(each.error), each.text
        assert each.error.lower() in rows[each.text].lower()
