"""`frazil sql`: tables of groups, and the forms of an answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.extras import install_command

pytestmark = pytest.mark.usefixtures("beside")

SUMS = "select time, sum(t) as total from {} where time <> 2 group by time order by time desc"


@pytest.mark.parametrize(("target", "table"), [("ice", "era5"), ("ice:era5", "t"), ("ice@v2:era5/t", "T")])
def test_groups_are_tables(run: Any, target: str, table: str) -> None:
    query = SUMS.format(table)
    assert run(f'sql {target} "{query}"').splitlines() == [
        "time  total",
        "   3   30.0",
        "   1   12.0",
        "   0   27.0",
    ]
    assert json.loads(run(f'sql {target} "{query}" --json'))[0] == {"time": 3, "total": 30.0}
    assert run(f'sql {target} "{query}" --csv').splitlines()[:2] == ["time,total", "3,30.0"]


def test_versions_times_texts_and_missing_values(run: Any, own: Path) -> None:
    with frazil.Repository.open(own / "ice").transaction("main", message="inner") as store:
        group = zarr.open_group(store).create_group("deep/inner")
        attributes: dict[str, Any] = {"units": "hours since 2026-11-01"}
        group.create_array("time", data=np.array([0, 6]), dimension_names=["time"], attributes=attributes)
        group.create_array("p", data=np.array([1.5, np.nan]), dimension_names=["time"])
    (own / "names.csv").write_text("p,name\n1.5,low\n")
    joined = """select time, name from "deep/inner" left join 'names.csv' using (p) order by time"""
    assert run(["sql", "ice", joined]).splitlines()[1:] == [
        "2026-11-01 00:00:00  low",
        "2026-11-01 06:00:00  null",
    ]
    assert json.loads(run(["sql", "ice", joined, "--json"]))[1] == {
        "time": "2026-11-01T06:00:00Z",
        "name": None,
    }
    assert "deep/inner" in run(["sql", "ice@v1", joined], status=1)


def test_statements_that_write(run: Any, own: Path) -> None:
    for statement in (
        "create table new (x int not null, t double, primary key (x))",
        "insert into new values (1, 0.5), (2, null)",
        "update new set t = 7 where x = 2",
        "delete from new where x = 1",
    ):
        run(["sql", "ice", statement])
    answer = json.loads(run(["sql", "ice", "select x, t from new order by x", "--json"]))
    assert answer == [{"x": 1, "t": None}, {"x": 2, "t": 7.0}]


def test_columns_with_one_name_have_their_own_keys(run: Any) -> None:
    query = "select 1 as x, 2 as x, 3 as x_1, 4 as x"
    assert json.loads(run(["sql", "ice", query, "--json"])) == [{"x": 1, "x_1": 2, "x_1_1": 3, "x_2": 4}]
    assert run(["sql", "ice", query, "--csv"]).splitlines()[0] == "x,x,x_1,x"


def test_wrong_queries(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "The tables are era5, t" in run('sql ice "select * from era"', status=1)
    assert "The tables are t, and time is a column of t" in run('sql ice:era5 "select * from time"', status=1)
    assert "arrays" in run('sql ice "select * from t"', status=1)  # the root has none
    assert "SQL that Frazil knows" in run('sql ice "selec 1"', status=1)
    unknown = "update era5 set t = 9 from (values (1)) a(p), (values (2)) b(q)"
    assert "does not exist" not in run(["sql", "ice", unknown], status=1)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert install_command("arrow") in run('sql ice "select 1"', status=1)
