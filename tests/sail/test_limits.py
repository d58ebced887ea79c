"""The statements of docs/sail.md that wait for Sail still fail, with the messages of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import frazil
from frazil.spark import Target, read_stream, register, write_stream

PAGE = Path(__file__).parents[2] / "docs" / "sail.md"
LIMITS = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE))


@pytest.fixture
def tables(spark: SparkSession, repo: frazil.Repository, path: str) -> Iterator[None]:
    spark.conf.set("spark.frazil.profile.climate.location", path)
    register(spark)
    options = {"climate": f"LOCATION '{path}'", "elsewhere": f"OPTIONS (path '{path}')"}
    options["named"] = "OPTIONS (profile 'climate')"
    for name, option in options.items():
        schema = (
            "" if name == "climate" else "(time TIMESTAMP, lat DOUBLE, lon DOUBLE, rain BIGINT, tas FLOAT) "
        )
        spark.sql(f"CREATE TABLE {name} {schema}USING frazil {option}").collect()
    yield
    for name in options:
        spark.sql(f"DROP TABLE {name}").collect()
    spark.conf.unset("spark.frazil.profile.climate.location")


def test_the_page_has_statements() -> None:
    assert len(LIMITS) > 9


@pytest.mark.parametrize("statement", LIMITS)
@pytest.mark.usefixtures("tables")
def test_a_statement_fails(statement: str, spark: SparkSession, repo: frazil.Repository) -> None:
    tip = repo.lookup_branch("main")
    names = {"read_stream": read_stream, "write_stream": write_stream, "Target": Target}
    is_sql = statement[0].isupper()
    program = f"spark.sql({statement!r}).collect()" if is_sql else statement
    with pytest.raises(Exception, match=re.escape(LIMITS[statement])):
        eval(program, {"spark": spark, "repo": repo, **names})
    assert repo.lookup_branch("main") == tip
