"""Conditions and the rows that meet them, beside the answers of Spark 4.3 in SQL."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import zarr
from tests.spark.tables.test_reading import memory, planned

import frazil
from frazil.arrow.grid import Selection
from frazil.errors import InvalidInputError
from frazil.spark.tables.scan import table
from frazil.spark.tables.schemas import Conditions

NAN, INF = float("nan"), float("inf")
LARGE = 2**63 - 1


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    repository = memory()
    with repository.transaction("main", message="columns") as store:
        group = zarr.open_group(store)

        def add(name: str, data: Any, **attributes: Any) -> None:
            group.create_array(name, data=np.array(data), dimension_names=["n"], attributes=attributes)

        add("f", [-INF, -0.0, 0.0, 1.5, INF, NAN])
        add("i", np.array([-LARGE, -1, 0, 1, 2, LARGE], "i8"))
        add("u", np.array([0, 1, 2, 3, 2**31, 2**32 - 1], "u4"))
        add("t", [0, 1, 2, 3, 4, 5], units="days since 2024-01-01")
        add("a b", np.array(["it's", "its", "b", "ab", "?", "ba"], "U4"), _FillValue="?")
    return repository


def rows(repo: frazil.Repository, where: Any) -> list[int]:
    result = table(*planned(repo.readonly_session("main"), Selection(), where=where))
    return sorted(result["n"].to_pylist())


@pytest.mark.sample(16)
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("f >= inf", [4, 5]),
        ("f = nan", [5]),
        ("f = -0.0", [1, 2]),
        ("f IN (-0.0, nan)", [1, 2, 5]),
        ("f < 0 OR NOT f < 2", [0, 4, 5]),
        ("n NOT BETWEEN 1 AND 4 OR n IN (2, 3)", [0, 2, 3, 5]),
        ("f > 9007199254740993", [4, 5]),
        ("i <=> 1.5", []),
        ("i < nan", [0, 1, 2, 3, 4, 5]),
        ("`a b` NOT LIKE 'it''s%'", [1, 2, 3, 5]),
        ("`a b` LIKE '%b' AND n BETWEEN 1 AND 2", [2]),
        ("`a b` LIKE '%b%' AND `a b` IS NOT NULL", [2, 3, 5]),
        ("t > DATE '2024-01-04'", [4, 5]),
        ("t = '2024-01-02T00:00:00+00:00'", [1]),
        ([("i", "=", Decimal("1.5"))], []),
        ([("i", ">=", Decimal(2))], [4, 5]),
        ([("i", "<", Decimal("NaN"))], [0, 1, 2, 3, 4, 5]),
        ([("f", "<", Decimal("0.1"))], [0, 1, 2]),
        ([("i", "in", (np.int8(1), 2.5, None))], [3]),
        ([("i", "<=", np.float32(1.5))], [0, 1, 2, 3]),
        ([("t", ">=", date(2024, 1, 5))], [4, 5]),
        ([("t", "=", np.datetime64("2024-01-03", "ns"))], [2]),
    ],
    ids=str,
)
def test_rows_that_meet_a_condition(repo: frazil.Repository, where: Any, expected: list[int]) -> None:
    assert rows(repo, where) == expected


@pytest.mark.parametrize(
    "where", ["i = '1'", "f = true", "t = 5", "i = inf inf", "nothing = 1", "i = 1 OR f = 1"]
)
def test_values_of_another_kind_are_refused(repo: frazil.Repository, where: str) -> None:
    with pytest.raises(InvalidInputError, match=r"must (be|compare|join)") as caught:
        rows(repo, where)
    assert ",," not in str(caught.value)


def test_a_query_of_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any task is planned; the message says what makes it smaller, and that does."""
    monkeypatch.setattr("frazil.spark.tables.scan.MOST_BLOCKS", 100)
    repo = memory()
    with repo.transaction("main", message="a huge array without chunks") as store:
        zarr.create_array(
            store,
            name="v",
            shape=(40_000, 1_000_000),
            chunks=(300, 9000),
            dtype="f4",
            dimension_names=["y", "x"],
        )
    session = repo.readonly_session("main")
    with pytest.raises(InvalidInputError, match=r"cells \(40000 x 1000000\)\. .*where.*include-missing=skip"):
        planned(session, Selection())
    assert table(*planned(session, Selection(), where="y = 5 AND x < 2"))["x"].to_pylist() == [0, 1]
    assert len(table(*planned(session, Selection(), missing="skip"))) == 0


@pytest.mark.parametrize(
    ("calendar", "where", "expected"),
    [
        ("noleap", "time = '2001-02-28'", [2]),
        ("noleap", "time <=> '2001-03-01'", [3]),
        ("noleap", "time < '2001-02-28'", [0, 1]),
        ("noleap", "time != '2001-02-28'", [0, 1, 3, 4]),
        ("noleap", "time > TIMESTAMP '2001-02-28 12:00:00'", [3, 4]),
        ("noleap", "time NOT IN ('2001-02-26', '2001-03-02')", [1, 2, 3]),
        ("noleap", "time LIKE '2001-03%'", [3, 4]),
        ("360_day", "time BETWEEN '2001-02-28' AND '2001-02-30'", [2, 3, 4]),
        ("360_day", [("time", ">=", "2001-02-29")], [3, 4]),
        ("360_day", [("time", "<", date(2001, 2, 28))], [0, 1]),
    ],
)
def test_times_of_other_calendars_are_compared_as_times(
    calendar: str, where: Conditions, expected: list[int]
) -> None:
    assert chosen(calendar, 2001, where) == expected
    assert chosen("noleap", 12001, "time > '9999-12-31' AND time < '12001-02-28'") == [0, 1]


@pytest.mark.parametrize("text", ["2001-02-29", "soon", "2001-13-01"])
def test_dates_that_a_calendar_does_not_have_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="time.*" + text):
        chosen("noleap", 2001, f"time = '{text}'")


def chosen(calendar: str, year: int, where: Conditions) -> list[int]:
    """Return which of five days from the 26th of February on meet conditions on a coordinate.

    Conditions on a variable with a missing time choose the same days.
    """
    repo = memory()
    with repo.transaction("main", message="days") as store:
        group = zarr.open_group(store)
        units: dict[str, Any] = {"units": f"days since {year}-02-26", "calendar": calendar, "_FillValue": -1}
        group.create_array("time", data=np.arange(5), dimension_names=["time"], attributes=units)
        group.create_array("v", data=np.arange(5), dimension_names=["time"])
        days = np.array([[0, 1, 2, 3, 4, -1]])
        group.create_array("t", data=days, dimension_names=["y", "x"], attributes=units)
    of_t = where.replace("time", "t") if isinstance(where, str) else [("t", *each[1:]) for each in where]
    session, days_of = repo.readonly_session("main"), list[list[int]]()
    for variable, number, conditions in (("v", "v", where), ("t", "x", of_t)):
        scan = planned(session, Selection(variables=(variable,)), where=conditions)
        days_of.append(table(*scan)[number].to_pylist())
    assert days_of[0] == days_of[1]
    return days_of[0]
