"""Advice about conditions of a query that the option ``where`` would use."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from pyspark.sql import datasource as spark
from tests.spark.tables.test_reading import climate, memory, write_dataset

import frazil
from frazil.spark.tables.conditions import predicates
from frazil.spark.tables.data_source_reader import schema_of_rows, selection_of
from frazil.spark.tables.group_grid import grid_of
from frazil.spark.tables.query_conditions import AdvisingReader, advice, condition_of

EARLY = spark.LessThan(("time",), datetime(2020, 1, 2, tzinfo=UTC))
NORTH = spark.GreaterThan(("lat",), 30.0)


@pytest.fixture(scope="module")
def session() -> frazil.Session:
    repo = memory()
    write_dataset(repo, climate(), {"time": 2, "lat": 3, "lon": 4})
    return repo.readonly_session("main")


def advice_for(session: frazil.Session, *filters: spark.Filter, where: str = "") -> str | None:
    grid = grid_of(session, selection_of({"block-rows": "1"}))
    return advice(session, grid, predicates(grid, where) if where else [], filters)


def test_a_condition_on_a_coordinate(session: frazil.Session) -> None:
    text = advice_for(session, spark.IsNotNull(("lat",)), NORTH)
    assert text is not None
    assert 'where="lat > 30.0"' in text
    assert text.startswith("This query reads 12 blocks")
    assert "it reads 6." in text


def test_only_conditions_that_skip_blocks(session: frazil.Session) -> None:
    variable, always = spark.LessThan(("tas",), 0.0), spark.GreaterThan(("lat",), -100.0)
    assert advice_for(session, variable, always) is None
    assert advice_for(session) is None
    assert advice_for(session, NORTH, where="lat > 30") is None
    text = advice_for(session, NORTH, variable, EARLY)
    assert text is not None
    assert "lat > 30.0 AND time < TIMESTAMP" in text


def test_a_condition_that_where_does_not_have(session: frazil.Session) -> None:
    """No error of the advice ends a query."""
    assert advice_for(session, spark.EqualTo(("lat",), "text"), spark.EqualTo(("absent",), 1)) is None


@pytest.mark.parametrize(
    ("filter_", "text"),
    [
        (spark.EqualTo(("lat",), 3), "lat = 3"),
        (spark.EqualNullSafe(("lat",), float("inf")), "lat <=> inf"),
        (spark.GreaterThanOrEqual(("a b",), 1.5), "`a b` >= 1.5"),
        (spark.In(("name",), ("it's", "b")), "name IN ('it''s', 'b')"),
        (spark.EqualTo(("flag",), True), "flag = true"),
        (spark.LessThanOrEqual(("t",), date(2024, 5, 1)), "t <= TIMESTAMP '2024-05-01'"),
        (
            spark.LessThan(("t",), datetime(2024, 5, 1, 12, tzinfo=UTC)),
            "t < TIMESTAMP '2024-05-01 12:00:00+00:00'",
        ),
        (spark.IsNull(("lat",)), None),
        (spark.Not(NORTH), None),
        (spark.EqualTo(("a", "b"), 1), None),
        (spark.EqualTo(("lat",), b"1"), None),
    ],
)
def test_texts_of_conditions(filter_: spark.Filter, text: str | None) -> None:
    assert condition_of(filter_) == text


def test_the_reader_takes_no_condition(session: frazil.Session) -> None:
    options = {"block-rows": "1"}
    reader = AdvisingReader(session, options, schema_of_rows(session, options))
    rows = len(reader.partitions())
    with pytest.warns(UserWarning, match="where="):
        assert reader.pushFilters([NORTH]) == [NORTH]
    assert len(reader.partitions()) == rows
