"""What a catalog promises beyond statements: the work of an analyst, conflicts, names, and exact scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import xarray as xr
import zarr
from tests.sql.statements import answer, filled, tips

import frazil
from frazil.arrow.grid import COMPLEX
from frazil.arrow.row_jobs import RowSource
from frazil.arrow.write_layout import as_type
from frazil.errors import (
    ConflictError,
    IcechunkError,
    InvalidInputError,
    NodeNotFoundError,
    RepositoryNotFoundError,
)
from frazil.sql.catalog import StatementRunner, repositories_of
from frazil.sql.names import Namespace
from frazil.sql.on_duckdb import DuckDbSql
from frazil.sql.queries import condition_text, conditions_on, parse, tables_in

type Run = Callable[[str], Any]


@pytest.fixture
def ice(tmp_path: Path) -> frazil.Repository:
    return filled(frazil.Repository.create(frazil.local_filesystem_storage(tmp_path / "ice")), 0)


def on_duckdb(ice: frazil.Repository, engine: DuckDbSql | None = None) -> Run:
    return StatementRunner(engine or DuckDbSql(), Namespace({"ice": ice})).run


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.deep])])
def run(request: pytest.FixtureRequest, ice: frazil.Repository) -> Run:
    if request.param == "duckdb":
        return on_duckdb(ice)
    pytest.importorskip("pyspark")
    from frazil.spark import Catalog

    return Catalog(request.getfixturevalue("spark"), {"ice": ice}).sql


def is_spark(run: Run) -> bool:
    return type(getattr(run, "__self__", None)).__name__ == "Catalog"


def test_the_work_of_an_analyst(run: Run, ice: frazil.Repository, tmp_path: Path) -> None:
    """Two tables, a join, a correction, a look at last week, a late file, and the way back, by pandas."""
    pytest.importorskip("datasketches", reason="CALL needs the extra `pipeline`")
    hours = pd.date_range("2024-03-01", periods=48, freq="h")
    rng = np.random.default_rng(5)
    readings = xr.Dataset(
        {"rain": (("time", "station"), rng.random((48, 3)).astype("f4"))},
        {"time": hours, "station": [1, 2, 3]},
    )
    stations = xr.Dataset({"height": ("station", [10.0, 200.0, 3000.0])}, {"station": [1, 2, 3]})
    with ice.transaction("main", message="two tables") as store:
        readings.to_zarr(store, group="readings", consolidated=False)
        stations.to_zarr(store, group="stations", consolidated=False)
    frame = readings.to_dataframe().reset_index()
    high = frame.merge(stations.to_dataframe().reset_index(), on="station").query("height > 100")
    expected = high.groupby("station").rain.mean()
    query = (
        "SELECT r.station, avg(r.rain) FROM ice.readings{} r JOIN ice.stations s ON r.station = s.station "
        "WHERE s.height > 100 GROUP BY r.station ORDER BY r.station"
    )
    before = answer(run, query.format(""))
    assert [each[0] for each in before] == [2, 3]
    np.testing.assert_allclose([each[1] for each in before], expected.to_numpy(), rtol=1e-6)

    moment = frazil.Repository.open(ice.storage).lookup_snapshot(ice.lookup_branch("main")).written_at
    run("UPDATE ice.readings SET rain = rain * 2 WHERE station = 2 AND time < '2024-03-02'")
    frame.loc[(frame.station == 2) & (frame.time < "2024-03-02"), "rain"] *= 2
    total = answer(run, "SELECT sum(rain) FROM ice.readings")[0][0]
    assert total == pytest.approx(frame.rain.sum(), rel=1e-6)
    last_week = query.format(f" TIMESTAMP AS OF '{moment:%Y-%m-%d %H:%M:%S.%f}'")
    assert answer(run, last_week) == before

    late = pd.DataFrame(
        {"time": [hours[0], hours[47] + pd.Timedelta("1h")], "station": [1, 3], "rain": [np.float32(7), 9]}
    )
    late.to_parquet(tmp_path / "late.parquet", coerce_timestamps="us")
    path = str(tmp_path / "late.parquet")
    source = f"parquet.`{path}`" if is_spark(run) else f"'{path}'"
    run(
        f"MERGE INTO ice.readings r USING (SELECT * FROM {source}) n ON r.time = n.time AND r.station = "
        "n.station WHEN MATCHED THEN UPDATE SET rain = n.rain WHEN NOT MATCHED THEN "
        "INSERT (time, station, rain) VALUES (n.time, n.station, n.rain)"
    )
    keys = ["time", "station"]
    merged = pd.concat([frame, late]).drop_duplicates(keys, keep="last").sort_values(keys)
    stored = ice.readonly_session("main").store
    table = xr.open_zarr(stored, group="readings", consolidated=False).to_dataframe().reset_index()
    table = table.dropna().sort_values(keys)
    assert len(table) == len(merged) == 145
    np.testing.assert_allclose(table.rain.to_numpy(), merged.rain.to_numpy(), rtol=1e-6)

    id_ = answer(run, "SELECT snapshot_id FROM ice.history WHERE message = 'two tables'")[0][0]
    run(f"CALL ice.system.rollback_to_snapshot('ice.readings', '{id_}')")
    assert answer(run, query.format("")) == before


class WithAnotherWriter(DuckDbSql):
    """An engine during whose query somebody else commits."""

    def __init__(self, other: Callable[[], None]) -> None:
        super().__init__()
        self.other = other

    @contextmanager
    def source(self, text: str) -> Iterator[RowSource]:
        with super().source(text) as source:
            self.other()
            yield source


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ice.climate SET tas = tas + 1 WHERE lat = 0",
        "DELETE FROM ice.climate WHERE tas > 3",
        "INSERT INTO ice.counts SELECT 3 + x, n FROM ice.counts WHERE n > (SELECT min(tas) FROM ice.climate)",
        (
            "MERGE INTO ice.climate c USING ice.climate.tag_v1 n ON c.time = n.time AND c.lat = n.lat AND "
            "c.lon = n.lon WHEN MATCHED THEN UPDATE SET tas = n.tas + 1"
        ),
        "CREATE OR REPLACE TABLE ice.climate AS SELECT * FROM ice.climate WHERE lat > 0",
    ],
)
def test_a_statement_commits_on_the_version_that_it_has_read(statement: str, ice: frazil.Repository) -> None:
    def other() -> None:
        with ice.transaction("main", message="another writer") as store:
            zarr.open_array(store, path="climate/tas")[0, 0, 0] = 1000

    run = on_duckdb(ice, WithAnotherWriter(other))
    with pytest.raises(ConflictError):
        run(statement)
    assert [each.message for each in ice.ancestry(branch="main")][:2] == ["another writer", "four days"]
    assert frazil.read(ice.readonly_session("main"), "/climate/tas").sum() == 276 + 1000
    on_duckdb(ice)(statement)  # again, without the other one


def test_a_coordinate_with_fewer_dimensions_is_no_value(ice: frazil.Repository) -> None:
    run, rain = on_duckdb(ice), np.array([[1.0, np.nan], [3.0, 4.0]])
    coords = {"time": [0, 1], "station": [1, 2], "height": ("station", [10.0, 20.0])}
    data = xr.Dataset({"rain": (("time", "station"), rain)}, coords)
    with ice.transaction("main", message="heights") as store:
        data.to_zarr(store, group="rain", consolidated=False)
    merge = (
        "MERGE INTO ice.rain r USING (SELECT 0 AS time, 2 AS station, 7 AS rain) n ON r.time = n.time AND "
        "r.station = n.station WHEN NOT MATCHED THEN INSERT (time, station, rain) "
        "VALUES (n.time, n.station, n.rain)"
    )
    assert answer(run, merge)[0][0] == 1
    assert answer(run, merge)[0][0] == 0
    assert answer(run, "DELETE FROM ice.rain WHERE height > 15")[0][0] == 2
    rows = answer(run, "SELECT time, height, rain FROM ice.rain WHERE rain IS NOT NULL ORDER BY time")
    assert rows == [(0, 10.0, 1.0), (1, 10.0, 3.0)]
    with pytest.raises(InvalidInputError, match="Name the other columns"):
        run("INSERT INTO ice.rain SELECT * FROM ice.rain")
    (statement,) = answer(run, "SHOW CREATE TABLE ice.rain")[0]
    assert "height" not in statement


def test_show_create_table_makes_the_table_again(run: Run, ice: frazil.Repository) -> None:
    """The statement is in the SQL of Spark."""
    (statement,) = answer(run, "SHOW CREATE TABLE ice.climate")[0]
    if not is_spark(run):
        return
    run("DROP TABLE ice.climate")
    run(statement)
    run("INSERT INTO ice.climate SELECT * FROM ice.climate VERSION AS OF 'v1'")
    stores = (ice.readonly_session(tag="v1").store, ice.readonly_session("main").store)
    old, new = (zarr.open_array(each, path="climate/tas", mode="r") for each in stores)
    facts = (old.dtype, old.chunks, old.metadata.to_dict()["dimension_names"])
    assert facts == (new.dtype, new.chunks, new.metadata.to_dict()["dimension_names"])
    np.testing.assert_array_equal(np.asarray(old[...]), np.asarray(new[...]))


def test_names(run: Run, ice: frazil.Repository) -> None:
    with ice.transaction("main", message="names") as store:
        group = zarr.open_group(store, mode="a").create_group("deep/history")
        group.create_array("v", data=np.arange(2.0), dimension_names=["x"])
        zarr.open_group(store, mode="a").create_array("top", data=np.ones(3), dimension_names=["z"])
    count = "SELECT count(*) FROM "
    for name, rows in {
        "ice": 3,
        "ICE.Climate": 24,
        "ice.deep.history": 2,  # a group, and not the table
        'ice."deep/history"': 2,
        "ice.deep.history.v": 2,
        "ice.history": 3,
        "ice.climate.tag_v1": 24,
    }.items():
        quoted = name.replace('"', "`") if is_spark(run) else name
        assert answer(run, count + quoted) == [(rows,)], name
    for wrong in ("ice.nope", "ice.climate.time", "ice.climate.tag_v9", "ice.deep"):
        with pytest.raises(IcechunkError):
            answer(run, count + wrong)
    before = tips(ice)
    for statement in ("UPDATE ice.nope SET v = 1", "DELETE FROM ice.deep.nope", "TRUNCATE TABLE ice.nope"):
        with pytest.raises(NodeNotFoundError):
            run(statement if is_spark(run) else statement.replace("TABLE ", ""))
    assert tips(ice) == before


def test_places_are_opened(ice: frazil.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[cold]\nlocation = "{tmp_path / "ice"}"\n')
    monkeypatch.setenv("FRAZIL_PROFILES", str(profiles))
    for place in (tmp_path / "ice", str(tmp_path / "ice"), "cold", ice):
        assert repositories_of({"ice": place})["ice"].lookup_branch("main") == ice.lookup_branch("main")
    with pytest.raises(RepositoryNotFoundError):
        repositories_of({"ice": str(tmp_path / "none")})


def test_a_common_table_expression_hides_a_table(run: Run) -> None:
    assert answer(run, "WITH ice AS (SELECT 5 AS tas) SELECT tas FROM ice") == [(5,)]


@pytest.mark.parametrize(
    ("statement", "total"),
    [
        ("WITH keep AS (SELECT 0 AS lat) DELETE FROM climate WHERE lat IN (SELECT lat FROM keep)", 184.0),
        (
            "WITH keep AS (SELECT 0 AS lat) UPDATE climate SET tas = 0 WHERE lat IN (SELECT lat FROM keep)",
            184.0,
        ),
        (
            (
                "WITH a AS (SELECT 0 AS lat), keep AS (SELECT * FROM a) INSERT INTO climate "
                "WITH b AS (SELECT * FROM keep) SELECT TIMESTAMP '2030-01-01', lat, 0, 5 FROM b"
            ),
            281.0,
        ),
    ],
)
def test_a_common_table_expression_of_a_statement_that_writes(
    statement: str, total: float, run: Run, ice: frazil.Repository
) -> None:
    """Also if a table of the catalog has its name."""
    with ice.transaction("main", message="keep") as store:
        xr.Dataset({"v": ("lat", [1.0])}, {"lat": [60.0]}).to_zarr(store, group="keep", consolidated=False)
    run("USE ice")
    run(statement)
    assert answer(run, "SELECT sum(tas) FROM climate") == [(total,)]
    with pytest.raises(InvalidInputError, match="Rename the expression"):
        run("WITH climate AS (SELECT 0 AS lat) DELETE FROM climate WHERE lat IN (SELECT lat FROM climate)")


def test_labels_are_never_null(ice: frazil.Repository) -> None:
    run = on_duckdb(ice)
    run("USE ice")
    run("CREATE TABLE n (x INT NOT NULL, t DOUBLE NULL, CONSTRAINT pk PRIMARY KEY (x))")
    run("INSERT INTO n VALUES (1, NULL), (2, 0.5)")
    assert answer(run, "SELECT x, t FROM n ORDER BY x") == [(1, None), (2, 0.5)]
    before = tips(ice)
    run("ALTER TABLE IF EXISTS nothing ADD COLUMN q DOUBLE")
    assert tips(ice) == before
    run("ALTER TABLE IF EXISTS n ADD COLUMN q DOUBLE")
    assert answer(run, "SELECT q FROM n WHERE x = 1") == [(None,)]
    with pytest.raises(InvalidInputError, match="must have a coordinate of each dimension, got lat = nan"):
        run("INSERT INTO climate SELECT time, CAST('NaN' AS DOUBLE) AS lat, lon, tas FROM climate")


def test_a_row_of_columns_gets_a_row_of_values(ice: frazil.Repository) -> None:
    run = on_duckdb(ice)
    run("ALTER TABLE ice.climate ADD COLUMN q DOUBLE")
    run("UPDATE ice.climate SET (tas, q) = (7, lat + 1) WHERE lat = 0")
    assert answer(run, "SELECT DISTINCT tas, q FROM ice.climate WHERE lat = 0") == [(7.0, 1.0)]
    with pytest.raises(InvalidInputError, match="a value for each column"):
        run("UPDATE ice.climate SET (tas, q) = (7, 8, 9)")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM climate AT (VERSION => 'v1')",
        "SELECT * FROM ice.climate AT (VERSION => 'v1')",
        "UPDATE ONLY climate SET tas = 1",
        "ALTER TABLE climate ADD COLUMN z INT DEFAULT 5",
        "ALTER TABLE climate ADD COLUMN z INT NOT NULL",
        "ALTER TABLE climate ADD COLUMN z INT PRIMARY KEY",
        "ALTER TABLE climate DROP CONSTRAINT tas",
        "ALTER TABLE climate RENAME tas TO t",
        "ALTER VIEW climate RENAME TO air",
        "CREATE TABLE n (x INT, t DOUBLE NOT NULL, PRIMARY KEY (x))",
        "CREATE TABLE n (x INT, t DOUBLE DEFAULT 7, PRIMARY KEY (x))",
        "CREATE TABLE n (x INT, t DOUBLE, u INT AS (x * 2), PRIMARY KEY (x))",
        "CREATE TABLE n (x INT, t DOUBLE CHECK (t > 0), PRIMARY KEY (x))",
        "CREATE TABLE n (x INT, t DOUBLE UNIQUE, PRIMARY KEY (x))",
        "CREATE TABLE n (x INT, t DOUBLE, PRIMARY KEY (x), UNIQUE (t))",
        "CREATE TABLE n (x INT, t DOUBLE, PRIMARY KEY (x), CHECK (t > 0))",
        "CREATE TABLE n (x INT, t DOUBLE, PRIMARY KEY (x), CONSTRAINT c CHECK (t > 0))",
        "CREATE TABLE n (x INT, t DOUBLE, PRIMARY KEY (x), CONSTRAINT c UNIQUE (t))",
        "CREATE TABLE n (a, b) AS SELECT lat, tas FROM climate",
        "CREATE TEMP TABLE n AS SELECT * FROM climate",
        "CREATE VIEW n AS SELECT * FROM climate",
        "CREATE TEMP VIEW n (a, b, c, d) AS SELECT * FROM climate",
        "DROP TABLE climate, counts",
        "TRUNCATE climate, counts",
        "UPDATE climate SET tas = 1, TAS = 2",
        "UPDATE climate SET tas = 1 RETURNING *",
        "INSERT INTO climate (time, lat, lon, tas, tas) SELECT time, lat, lon, 1, 2 FROM climate",
        'INSERT INTO climate BY NAME SELECT time, lat, lon, 1 AS tas, 2 AS "TAS" FROM climate',
        "INSERT INTO climate DEFAULT VALUES",
        "INSERT OR REPLACE INTO climate SELECT * FROM climate",
        "DELETE FROM climate USING counts WHERE x = lat",
        "DELETE FROM climate WHERE lat = 0 LIMIT 1",
        "MERGE INTO climate c USING counts n ON c.lat = n.x WHEN MATCHED THEN UPDATE SET tas = 1, tas = 2",
        "MERGE INTO climate c USING counts n ON c.lat = n.x WHEN MATCHED THEN UPDATE SET tas = 1 WHERE n = 1",
    ],
)
def test_clauses_that_nothing_honours_are_refused(statement: str, ice: frazil.Repository) -> None:
    run = on_duckdb(ice)
    run("USE ice")
    before = tips(ice)
    with pytest.raises(InvalidInputError, match="must"):
        run(statement)
    assert tips(ice) == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE ice.n (x INT, `a/b` INT, PRIMARY KEY (x))",
        "CREATE TABLE ice.n (`a/b` INT, t INT, PRIMARY KEY (`a/b`))",
        "CREATE TABLE ice.n AS SELECT time, lat, lon, tas AS `a/b` FROM ice.climate",
        "ALTER TABLE ice.climate ADD COLUMN `a/b` DOUBLE",
        "ALTER TABLE ice.climate RENAME COLUMN tas TO `a/b`",
        "ALTER TABLE ice.climate RENAME COLUMN tas TO `.`",
    ],
)
def test_a_column_has_the_name_of_an_array(statement: str, run: Run, ice: frazil.Repository) -> None:
    before = tips(ice)
    with pytest.raises(InvalidInputError, match="A column must have a name that an array can have"):
        run(statement if is_spark(run) else statement.replace("`", '"'))
    assert tips(ice) == before


def test_columns_that_exist_or_not(run: Run, ice: frazil.Repository) -> None:
    before = tips(ice)
    for change in ("ADD COLUMN IF NOT EXISTS TAS FLOAT", "DROP COLUMN IF EXISTS nope"):
        run(f"ALTER TABLE ice.climate {change}")
        with pytest.raises(IcechunkError):
            run(f"ALTER TABLE ice.climate {change.replace('IF NOT EXISTS ', '').replace('IF EXISTS ', '')}")
    assert tips(ice) == before
    run("ALTER TABLE ice.climate ADD COLUMN IF NOT EXISTS k INT")
    assert answer(run, "SELECT count(*), count(k) FROM ice.climate") == [(24, 0)]
    run("ALTER TABLE ice.climate DROP COLUMN IF EXISTS k")
    assert [each[0] for each in answer(run, "SHOW COLUMNS IN ice.climate")] == ["time", "lat", "lon", "tas"]


def test_a_new_column_has_its_comment(run: Run) -> None:
    if not is_spark(run):
        pytest.skip("DuckDB has no COMMENT of columns")
    run("ALTER TABLE ice.climate ADD COLUMNS (k INT COMMENT 'kinds')")
    assert ("k", "INT", "kinds") in answer(run, "DESCRIBE ice.climate")


def test_sql_that_only_the_engine_knows(ice: frazil.Repository, tmp_path: Path) -> None:
    run = on_duckdb(ice)
    run("USE ice")
    run(f"EXPORT DATABASE '{tmp_path / 'all'}'")
    assert (tmp_path / "all" / "schema.sql").exists()
    for text in ("UPDATE climate SET tas = 9 FROM (VALUES (1)) a(p), (VALUES (2)) b(q)", "SELEC 1"):
        with pytest.raises(InvalidInputError, match="must be SQL that Frazil knows"):
            run(text)
    assert answer(run, "SUMMARIZE climate")[3][0] == "tas"


@pytest.mark.parametrize(
    ("merge", "total"),
    [
        ("ON c.lat = n.lat WHEN MATCHED THEN delete", 184.0),
        ("ON c.lat = n.lat WHEN MATCHED AND c.lon = 0 THEN do nothing WHEN MATCHED THEN delete", 228.0),
        ("USING (lat, lon) WHEN MATCHED THEN UPDATE SET tas = n.tas", 300.0),
    ],
)
def test_spellings_of_merge(merge: str, total: float, run: Run) -> None:
    if is_spark(run) and "USING" in merge:
        pytest.skip("not in the SQL of Spark")
    source = "(SELECT 0 AS lat, 0 AS lon, 17 AS tas)"
    run(f"MERGE INTO ice.climate c USING {source} n {merge}")
    assert answer(run, "SELECT sum(tas) FROM ice.climate") == [(total,)]


@pytest.mark.parametrize(("clause", "rows"), [("WITH NO DATA", 0), ("WITH DATA", 24)])
def test_a_table_with_or_without_the_rows_of_its_query(
    clause: str, rows: int, ice: frazil.Repository
) -> None:
    run = on_duckdb(ice)
    run(f"CREATE TABLE ice.n AS SELECT * FROM ice.climate {clause}")
    assert answer(run, "SELECT count(*) FROM ice.n") == [(rows,)]
    assert answer(run, "DESCRIBE ice.n") == answer(run, "DESCRIBE ice.climate")


def test_a_view_of_the_session_keeps_its_rows(ice: frazil.Repository) -> None:
    run = on_duckdb(ice)
    run("USE ice")
    run("CREATE TEMP VIEW north AS SELECT * FROM climate WHERE lat > -1")
    assert answer(run, "SELECT count(*) FROM climate WHERE lat > 1") == [(8,)]
    assert answer(run, "SELECT count(*) FROM north") == [(16,)]


@pytest.mark.parametrize(
    "condition",
    [
        "p > 0.1",
        "p >= 0.1",
        "p < 0.1",
        "p = 0.1",
        "p BETWEEN 0.1 AND 0.2",
        "p BETWEEN SYMMETRIC 0.4 AND 0.1",
        "p IN (0.1, 0.5)",
        "NOT p > 0.1",
    ],
)
def test_a_scan_leaves_out_no_row_of_the_answer(condition: str, run: Run, ice: frazil.Repository) -> None:
    """0.1 is another number with 32 bits: the engine decides which rows stay."""
    values = np.array([np.nan, 0.1, 0.05, 0.2, 0.5], "f4")
    with ice.transaction("main", message="small numbers") as store:
        group = zarr.open_group(store, mode="a").create_group("small")
        group.create_array("p", data=values, chunks=(1,), dimension_names=["x"])
    ice.upkeep.build_statistics()
    every = "(SELECT x, p + 0 * x AS p FROM ice.small)"  # no condition reaches this scan
    exact = answer(
        run, f"SELECT x FROM {every} q WHERE {condition.replace('p', 'CAST(p AS FLOAT)')} ORDER BY x"
    )
    assert answer(run, f"SELECT x FROM ice.small WHERE {condition} ORDER BY x") == exact


@pytest.mark.parametrize(
    ("query", "conditions"),
    [
        ("SELECT * FROM t WHERE lat > 0.5 AND lon < 3", ["`lat` >= 0.5", "`lon` <= 3"]),
        ("SELECT * FROM t WHERE (lat = 1 OR lat = 2)", ["(`lat` = 1 OR `lat` = 2)"]),
        ("SELECT * FROM t WHERE lat = 1 OR f(lon) = 2", []),
        ("SELECT * FROM t WHERE NOT lat > 1", []),
        ("SELECT * FROM t WHERE lat BETWEEN 1 AND 3", ["`lat` BETWEEN 1 AND 3"]),
        ("SELECT * FROM t WHERE lat BETWEEN SYMMETRIC 3 AND 1", []),
        ("SELECT * FROM t WHERE 5 < lat AND name IN ('a', 'b')", ["`lat` >= 5", "`name` IN ('a', 'b')"]),
        ("SELECT * FROM t WHERE time >= TIMESTAMP '2024-01-01'", ["`time` >= TIMESTAMP '2024-01-01'"]),
        ("SELECT * FROM t JOIN s ON t.x = s.x WHERE t.lat > 1 AND s.lat < 3 AND x = 4", ["`lat` >= 1"]),
        ("SELECT * FROM s LEFT JOIN t ON t.x = s.x WHERE t.lat IS NULL AND t.lon > 1", ["`lon` >= 1"]),
        ("SELECT * FROM t WHERE lat > (SELECT max(y) FROM u)", []),
        ("SELECT * FROM t LIMIT 3", []),
    ],
)
def test_conditions_of_scans(query: str, conditions: list[str]) -> None:
    (tree,) = parse(query, "spark")
    table = next(each for each in tables_in(tree) if each.name == "t")
    assert [text for text in map(condition_text, conditions_on(table)) if text] == conditions


def test_complex_numbers_are_pairs_of_numbers_that_fit(ice: frazil.Repository) -> None:
    with ice.transaction("main", message="waves") as store:
        options: dict[str, Any] = {"dimension_names": ["x"], "chunks": (2,)}
        zarr.create_array(store, name="waves/x", data=np.arange(3), **options)
        zarr.create_array(store, name="waves/z", data=np.array([1 + 2j, 0, 3], "c8"), **options)
    sql = on_duckdb(ice)
    sql("UPDATE ice.waves SET z = {'real': 7.5, 'imag': -1.0} WHERE z.real > 2")
    assert sql("SELECT x, z.imag FROM ice.waves ORDER BY x").rows == [(0, 2.0), (1, 0.0), (2, -1.0)]
    array = zarr.open_array(ice.readonly_session("main").store, path="waves/z", mode="r")
    np.testing.assert_array_equal(array[:], np.array([1 + 2j, 0, 7.5 - 1j], "c8"))


def test_parts_of_complex_numbers_must_fit() -> None:
    large = pa.array([{"imag": 0.0, "real": 1e300}])  # in another order
    assert as_type(large, COMPLEX["complex128"], "z").to_pylist() == [{"real": 1e300, "imag": 0.0}]
    with pytest.raises(InvalidInputError, match=r"z\.real must fit into float"):
        as_type(large, COMPLEX["complex64"], "z")
    with pytest.raises(InvalidInputError, match="The column z must be"):
        as_type(pa.array([{"re": 1.0, "im": 2.0}]), COMPLEX["complex64"], "z")
