"""The statements of `docs/sql-statements.md`, with what each of them does.

The repository ``ice`` has the table ``climate``: four days, latitudes -60, 0 and 60, longitudes 0 and 180,
with the values 0 to 23 of ``tas``, and the tag ``v1``. The values of the repository ``other`` begin with 100.
The view ``new_rows`` has the values 100 to 105 of a fifth day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xarray as xr
import zarr

import frazil
from frazil.errors import IcechunkError

SUM = "SELECT count(*), count(tas), sum(tas) FROM ice.climate"
#: What `SUM` returns before a statement.
BEFORE = [(24, 24, 276.0)]
CREATED = "CREATE TABLE ice.daily (time TIMESTAMP, lat DOUBLE, t DOUBLE, PRIMARY KEY (time, lat))"


@dataclass(frozen=True)
class Statement:
    """A statement: the rows of a query after it (by default of itself), or the error instead.

    ``first`` are statements before it. ``duckdb`` is its text for DuckDB, None if only Spark has it.
    """

    text: str
    rows: Any = None
    then: str | None = None
    error: str = ""
    first: tuple[str, ...] = ()
    duckdb: str | None = ""

    def text_for(self, engine: str) -> str | None:
        return self.duckdb if engine == "duckdb" and self.duckdb != "" else self.text


def changes(text: str, rows: Any, then: str = SUM, **more: Any) -> Statement:
    return Statement(text, rows, then, **more)


def refuses(text: str, error: str, **more: Any) -> Statement:
    return Statement(text, BEFORE, SUM, error, **more)


MERGE = "MERGE INTO ice.climate c USING new_rows n ON c.time = n.time AND c.lat = n.lat AND c.lon = n.lon "
BOTH = MERGE + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
ADDED = [(30, 30, 891.0)]
OF_DAY = (
    "SELECT lat, lon, tas FROM ice.climate WHERE time = TIMESTAMP '2024-01-05 00:00:00' ORDER BY lat, lon"
)

STATEMENTS = [
    # queries
    Statement("SELECT count(*), max(tas) FROM ice.climate", [(24, 23.0)]),
    Statement("SELECT sum(tas) FROM ice.climate WHERE lat >= 60 AND time < '2024-01-03'", [(30.0,)]),
    Statement("SELECT max(c.tas) FROM ice.climate AS c WHERE c.lon = 180 OR c.lon < 0", [(23.0,)]),
    Statement("SELECT sum(ice.climate.tas) FROM ice.climate", [(276.0,)]),
    Statement(
        "SELECT sum(b.tas - a.tas) FROM ice.climate a JOIN other.climate b ON a.time = b.time AND "
        "a.lat = b.lat "
        "AND a.lon = b.lon WHERE a.lat > 0",
        [(800.0,)],
    ),
    Statement(
        "SELECT count(*) FROM ice.climate a LEFT JOIN (SELECT * FROM ice.climate WHERE lat > 0) b "
        "ON a.time = "
        "b.time AND a.lat = b.lat AND a.lon = b.lon WHERE b.tas IS NULL",
        [(16,)],
    ),
    Statement("WITH warm AS (SELECT * FROM ice.climate WHERE tas > 20) SELECT count(*) FROM warm", [(3,)]),
    Statement("SELECT count(*) FROM ice.climate WHERE tas = (SELECT max(tas) FROM ice.climate)", [(1,)]),
    Statement(
        "SELECT max(tas) FROM ice.climate UNION ALL SELECT max(tas) FROM other.climate",
        lambda rows: sorted(rows) == [(23.0,), (123.0,)],  # Sail returns them in any order
    ),
    Statement(
        "SELECT lat, avg(tas) FROM ice.climate GROUP BY lat HAVING avg(tas) > 11 ORDER BY lat",
        [(0.0, 11.5), (60.0, 13.5)],
    ),
    Statement("SELECT max(tas) FROM ice.climate.tas", [(23.0,)]),
    # versions
    Statement(
        "SELECT sum(tas) FROM ice.climate VERSION AS OF 'v1'",
        [(276.0,)],
        first=("UPDATE ice.climate SET tas = 0",),
    ),
    Statement(
        "SELECT sum(tas) FROM ice.climate FOR VERSION AS OF 'v1'",
        [(276.0,)],
        first=("UPDATE ice.climate SET tas = 0",),
    ),
    Statement(
        "SELECT sum(tas) FROM ice.climate.tag_v1", [(276.0,)], first=("UPDATE ice.climate SET tas = 0",)
    ),
    Statement("SELECT sum(tas) FROM ice.climate.branch_main", [(276.0,)]),
    Statement("SELECT max(tas) FROM ice.climate TIMESTAMP AS OF '2050-01-01'", [(23.0,)]),
    Statement("SELECT max(tas) FROM ice.climate TIMESTAMP AS OF current_timestamp()", [(23.0,)]),
    Statement(
        "SELECT max(tas) FROM ice.climate WITH (version = 'v1')",
        error="must be SQL that Frazil knows",
        duckdb=None,
    ),
    Statement("SELECT message FROM ice.climate.history LIMIT 1", [("four days",)]),
    Statement("SELECT count(*) FROM ice.snapshots", [(2,)]),
    Statement("SELECT name, type FROM ice.refs ORDER BY name", [("main", "branch"), ("v1", "tag")]),
    Statement(
        "SELECT change, count(*) FROM table_changes('ice.climate', 'v1') GROUP BY change",
        [("updated", 8)],
        first=("UPDATE ice.climate SET tas = -1 WHERE lat = 0",),
        duckdb=None,
    ),
    # rows
    changes("INSERT INTO ice.climate SELECT * FROM new_rows", ADDED),
    changes("INSERT INTO ice.climate (tas, time, lat, lon) SELECT tas, time, lat, lon FROM new_rows", ADDED),
    changes("INSERT INTO ice.climate BY NAME SELECT tas, lon, lat, time FROM new_rows", ADDED),
    changes(
        "INSERT INTO ice.climate VALUES (TIMESTAMP '2024-01-06 00:00:00', 0.0, 0.0, 1.0)", [(30, 25, 277.0)]
    ),
    changes(
        "INSERT INTO ice.climate SELECT * FROM other.climate WHERE time >= '2024-01-04' AND lat = 0",
        [(24, 24, 276.0 - 41 + 241)],
        first=("DELETE FROM ice.climate WHERE time >= '2024-01-04' AND lat = 0",),
    ),
    refuses("INSERT INTO ice.climate SELECT * FROM other.climate", "cells without values"),
    refuses("INSERT INTO ice.climate SELECT time, lat FROM new_rows", "a value for each column"),
    refuses("INSERT INTO ice.climat SELECT * FROM new_rows", "must be a table of `ice`"),
    refuses("INSERT INTO ice.climate.tag_v1 SELECT * FROM new_rows", "a table of a branch"),
    refuses(
        "INSERT INTO ice.climate WITH (path = '/data/ice') SELECT * FROM new_rows",
        "must be SQL that Frazil knows",
    ),
    changes("INSERT OVERWRITE ice.climate SELECT * FROM new_rows", [(30, 6, 615.0)]),
    changes(
        "INSERT OVERWRITE ice.climate SELECT * FROM other.climate WHERE (lat = 0 AND time = "
        "'2024-01-01') OR (lat = 60 "
        "AND time = '2024-01-04')",
        [(24, 4, 205.0 + 245.0)],
    ),
    changes(
        "INSERT OVERWRITE ice.climate PARTITION (time) SELECT lat, lon, tas, time FROM "
        "other.climate WHERE lat = 0 AND "
        "time = '2024-01-01'",
        [(24, 20, 276.0 - 15 + 205)],
    ),
    changes(
        "INSERT OVERWRITE ice.climate PARTITION (time = TIMESTAMP '2024-01-01 00:00:00') SELECT "
        "lat, lon, tas FROM "
        "new_rows WHERE lat = 0",
        [(24, 20, 276.0 - 15 + 205)],
    ),
    changes(
        "INSERT INTO ice.climate REPLACE WHERE time = '2024-01-05' SELECT * FROM new_rows WHERE lat = 0",
        [(30, 26, 481.0)],
        first=("INSERT INTO ice.climate SELECT * FROM new_rows",),
    ),
    refuses(
        "INSERT INTO ice.climate REPLACE WHERE lat = 0 SELECT * FROM new_rows",
        "the condition of REPLACE WHERE",
    ),
    changes("UPDATE ice.climate SET tas = 1 WHERE lat = 0", [(24, 24, 276.0 - 92 + 8)]),
    changes(
        "UPDATE ice.climate AS c SET c.tas = c.tas * 2",
        [(24, 24, 552.0)],
        duckdb="UPDATE ice.climate AS c SET tas = c.tas * 2",
    ),
    changes(
        "UPDATE ice.climate SET tas = 0 WHERE tas > (SELECT avg(tas) FROM ice.climate VERSION AS OF 'v1')",
        [(24, 24, 66.0)],
    ),
    changes("UPDATE ice.climate SET tas = DEFAULT WHERE lat = 0", [(24, 16, 184.0)]),
    refuses("UPDATE ice.climate SET lat = 1", "SET must name variables"),
    refuses("UPDATE ice.climate SET nope = 1", "A column must be one of"),
    changes("DELETE FROM ice.climate WHERE lat = 0", [(24, 16, 184.0)]),
    changes("DELETE FROM ice.climate", [(24, 0, None)]),
    changes("TRUNCATE TABLE ice.climate", [(24, 0, None)], duckdb="TRUNCATE ice.climate"),
    refuses("DELETE FROM ice.counts WHERE x > 1", "no missing value"),
    changes(BOTH, ADDED),
    changes(
        BOTH, [(30, 30, 891.0)], first=("INSERT INTO ice.climate SELECT time, lat, lon, 0 FROM new_rows",)
    ),
    changes(
        MERGE + "WHEN NOT MATCHED THEN INSERT *",
        [(30, 30, 891.0 - 205)],
        first=("INSERT INTO ice.climate SELECT time, lat, lon, 0 FROM new_rows WHERE lat = 0",),
    ),
    changes(
        MERGE
        + "WHEN MATCHED AND n.lat > 0 THEN DELETE WHEN MATCHED THEN UPDATE SET tas = c.tas + n.tas WHEN NOT "
        "MATCHED AND n.lat < 0 THEN INSERT (time, lat, lon, tas) VALUES (n.time, n.lat, n.lon, -1)",
        [
            (-60.0, 0.0, -1.0),
            (-60.0, 180.0, -1.0),
            (0.0, 0.0, 102.0),
            (0.0, 180.0, 105.0),
            (60.0, 0.0, None),
            (60.0, 180.0, None),
        ],
        OF_DAY,
        first=("INSERT INTO ice.climate SELECT time, lat, lon, 1 FROM new_rows WHERE lat >= 0",),
    ),
    changes(
        MERGE + "WHEN NOT MATCHED BY SOURCE AND c.lat < 60 AND c.tas > 1 THEN DO NOTHING "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET tas = -1 WHEN NOT MATCHED AND n.lat = 0 THEN DO NOTHING "
        "WHEN NOT MATCHED THEN INSERT VALUES (n.time, n.lat, n.lon, 7)",
        [(30, 28, 185.0)],
    ),
    changes(MERGE + "WHEN NOT MATCHED BY SOURCE AND c.lat = 0 THEN DELETE", [(24, 16, 184.0)]),
    changes(MERGE + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET tas = 1", [(24, 24, 24.0)]),
    refuses(MERGE + "WHEN MATCHED THEN INSERT *", "WHEN MATCHED must have UPDATE or DELETE or DO NOTHING"),
    refuses(
        MERGE + "WHEN NOT MATCHED THEN INSERT (time, lat, lon, tas) VALUES (n.time, n.lat, n.lon)",
        "INSERT must have a value for each of the columns time, lat, lon, tas, got 3 values",
    ),
    refuses(
        "MERGE INTO ice.climate c USING other.climate n ON c.time = n.time AND c.lat = n.lat AND "
        "c.lon = n.lon AND "
        "n.tas > 110 WHEN NOT MATCHED THEN INSERT *",
        "cells without values",
    ),
    refuses(
        "MERGE INTO ice.climate c USING other.climate n ON c.lat = n.lat WHEN MATCHED THEN UPDATE "
        "SET tas = n.tas",
        "Each cell must have one row",
    ),
    # tables
    changes(CREATED, [("time",), ("lat",), ("t",)], "SHOW COLUMNS IN ice.daily"),
    changes(
        "INSERT INTO ice.daily SELECT time, lat, avg(tas) FROM ice.climate GROUP BY time, lat",
        [(12, 138.0)],
        "SELECT count(t), sum(t) FROM ice.daily",
        first=(CREATED,),
    ),
    changes("CREATE TABLE IF NOT EXISTS ice.climate (x INT, PRIMARY KEY (x))", BEFORE),
    refuses("CREATE TABLE ice.climate (x INT, y INT, PRIMARY KEY (x))", "must be a new table"),
    refuses("CREATE TABLE ice.bad (x INT, y INT)", "must have dimensions"),
    refuses(
        "CREATE TABLE ice.bad (x INT, y INT NOT NULL, PRIMARY KEY (x))", "must be a dimension to be NOT NULL"
    ),
    refuses(
        "CREATE TABLE ice.bad USING frazil OPTIONS (path '/data/ice', dims 'x') AS SELECT 1 AS x, 2 AS y",
        "leave out the option path",
        duckdb=None,
    ),
    refuses(
        "CREATE TABLE ice.bad (x INT, y INT, PRIMARY KEY (x)) LOCATION '/data'",
        "leave out LOCATION",
        duckdb=None,
    ),
    changes(
        "DELETE FROM ice.seen WHERE x = 1",
        [(1, 5)],
        "SELECT count(n), max(n) FROM ice.seen",
        first=(
            "CREATE TABLE ice.seen (x INT, n INT, ok BOOLEAN, name STRING, PRIMARY KEY (x))",
            "INSERT INTO ice.seen VALUES (1, 4, true, 'a'), (2, 5, NULL, NULL)",
        ),
    ),
    refuses("CREATE NAMESPACE ice.deep", "A namespace is a group"),
    changes("CREATE TABLE ice.c2 AS SELECT * FROM ice.climate", BEFORE, SUM.replace("climate", "c2")),
    changes(
        "CREATE TABLE ice.c2 AS SELECT * FROM ice.climate WITH NO DATA",
        [(0, 0, None)],
        SUM.replace("climate", "c2"),
    ),
    changes(
        "CREATE TABLE ice.deep.c2 USING frazil TBLPROPERTIES ('dims' = 'time,lat', 'chunks' = "
        "'time=2') AS SELECT time, lat, "
        "max(tas) AS tas FROM ice.climate GROUP BY time, lat",
        [(12, 12, 144.0)],
        SUM.replace("climate", "deep.c2"),
        duckdb="CREATE TABLE ice.deep.c2 WITH (dims = 'time,lat', chunks = 'time=2') AS SELECT "
        "time, lat, max(tas) AS tas FROM ice.climate GROUP BY time, lat",
    ),
    changes(
        "CREATE TABLE ice.c2 PARTITIONED BY (lat) AS SELECT lat, max(tas) AS tas FROM ice.climate "
        "GROUP BY lat",
        [(3, 3, 63.0)],
        SUM.replace("climate", "c2"),
        duckdb=None,
    ),
    changes(
        "CREATE TABLE ice.c2 AS SELECT lat, max(tas) AS tas FROM ice.climate GROUP BY lat",
        [(3, 3, 63.0)],
        SUM.replace("climate", "c2"),
    ),
    changes("CREATE OR REPLACE TABLE ice.climate AS SELECT * FROM ice.climate WHERE lat = 0", [(8, 8, 92.0)]),
    changes("REPLACE TABLE ice.climate AS SELECT * FROM ice.climate WHERE lat = 0", [(8, 8, 92.0)]),
    changes("DROP TABLE ice.climate", [("ice", "counts")], "SHOW TABLES IN ice"),
    changes("DROP TABLE IF EXISTS ice.nope", BEFORE),
    refuses("DROP TABLE ice.nope", "must be a table of `ice`"),
    changes("ALTER TABLE ice.climate RENAME TO ice.air", BEFORE, SUM.replace("climate", "air")),
    changes("ALTER TABLE ice.climate RENAME COLUMN tas TO t", [(23.0,)], "SELECT max(t) FROM ice.climate"),
    refuses("ALTER TABLE ice.climate RENAME COLUMN lat TO y", "is a dimension"),
    changes(
        "ALTER TABLE ice.climate ADD COLUMN q DOUBLE",
        [(0, 23.0)],
        "SELECT count(q), max(tas) FROM ice.climate",
    ),
    changes("ALTER TABLE ice.climate ADD COLUMN flag BOOLEAN", [(0,)], "SELECT count(flag) FROM ice.climate"),
    changes(
        "ALTER TABLE ice.climate DROP COLUMN q",
        BEFORE,
        first=("ALTER TABLE ice.climate ADD COLUMN q DOUBLE",),
    ),
    refuses(
        "ALTER TABLE ice.climate ADD COLUMN q DOUBLE DEFAULT 0", "must have only clauses that Frazil has"
    ),
    changes("ALTER TABLE ice.climate ADD COLUMN IF NOT EXISTS tas DOUBLE", BEFORE),
    changes("ALTER TABLE ice.climate DROP COLUMN IF EXISTS q", BEFORE),
    refuses("ALTER TABLE ice.climate DROP COLUMN lat", "is a dimension"),
    refuses("ALTER TABLE ice.climate REPLACE PARTITION FIELD time WITH lat", "no such statement"),
    changes(
        "ALTER TABLE ice.climate SET TBLPROPERTIES ('owner' = 'me')",
        [("owner", "me")],
        "SHOW TBLPROPERTIES ice.climate",
        duckdb=None,
    ),
    changes(
        "ALTER TABLE ice.climate ALTER COLUMN tas COMMENT 'air'",
        [("time", "TIMESTAMP", ""), ("lat", "DOUBLE", ""), ("lon", "DOUBLE", ""), ("tas", "FLOAT", "air")],
        "DESCRIBE ice.climate",
        duckdb=None,
    ),
    changes("COMMENT ON TABLE ice.climate IS 'air'", [("comment", "air")], "SHOW TBLPROPERTIES ice.climate"),
    changes("ALTER TABLE ice.climate CREATE TAG v2", [(3,)], "SELECT count(*) FROM ice.refs"),
    changes(
        "ALTER TABLE ice.climate CREATE BRANCH dev AS OF VERSION 'v1'",
        [(276.0,)],
        "SELECT sum(tas) FROM ice.climate.branch_dev",
    ),
    changes(
        "UPDATE ice.climate.branch_dev SET tas = 0",
        BEFORE,
        first=("ALTER TABLE ice.climate CREATE BRANCH dev",),
    ),
    changes(
        "ALTER TABLE ice.climate DROP TAG v1",
        [(1,)],
        "SELECT count(*) FROM ice.refs WHERE type <> 'deleted tag'",
    ),
    # what is there
    Statement(
        "DESCRIBE ice.climate",
        [("time", "TIMESTAMP", ""), ("lat", "DOUBLE", ""), ("lon", "DOUBLE", ""), ("tas", "FLOAT", "")],
    ),
    Statement(
        "DESCRIBE EXTENDED ice.climate",
        lambda rows: ("Dimensions", "time = 4, lat = 3, lon = 2", "") in rows,
        duckdb=None,
    ),
    Statement(
        "DESCRIBE HISTORY ice.climate",
        lambda rows: [each[4] for each in rows] == ["four days", "Repository initialized"],
        duckdb=None,
    ),
    Statement("SHOW CATALOGS", [("ice",), ("other",)]),
    Statement("SHOW TABLES IN ice", [("ice", "climate"), ("ice", "counts")]),
    Statement("SHOW NAMESPACES IN ice", [("ice.climate",), ("ice.counts",)]),
    Statement("SHOW COLUMNS IN ice.climate", [("time",), ("lat",), ("lon",), ("tas",)]),
    Statement(
        "SHOW CREATE TABLE ice.climate", lambda rows: "PRIMARY KEY (`time`, `lat`, `lon`)" in rows[0][0]
    ),
    refuses("SHOW PARTITIONS ice.climate", "has no partitions"),
    Statement("EXPLAIN SELECT max(tas) FROM ice.climate WHERE lat > 0", lambda rows: bool(rows)),
    # upkeep
    changes(
        "CALL ice.system.rollback_to_snapshot('ice.climate', 'v1')",
        BEFORE,
        first=("UPDATE ice.climate SET tas = 0",),
    ),
    changes(
        "RESTORE TABLE ice.climate TO VERSION AS OF 'v1'", BEFORE, first=("UPDATE ice.climate SET tas = 0",)
    ),
    changes("CALL ice.system.expire_snapshots('ice.climate', TIMESTAMP '2024-01-01 00:00:00')", BEFORE),
    changes("CALL ice.system.remove_orphan_files('ice.climate', TIMESTAMP '2024-01-01 00:00:00')", BEFORE),
    changes("CALL ice.system.rewrite_data_files('ice.climate')", BEFORE),
    changes("CALL ice.tag('v2')", [(3,)], "SELECT count(*) FROM ice.refs"),
    changes(
        "CALL ice.hold('season', 'climate/tas', TIMESTAMP '2199-06-01 00:00:00', box => '0:2,:,:')",
        [("branch", 1), ("tag", 3)],
        "SELECT type, count(*) FROM ice.refs GROUP BY type ORDER BY type",
    ),
    Statement("CALL ice.verify()", []),
    refuses("CALL ice.nope()", "A procedure must be one of"),
    changes("OPTIMIZE ice.climate", BEFORE),
    changes("VACUUM ice.climate RETAIN 200 HOURS", BEFORE),
    Statement(
        "ANALYZE TABLE ice.climate COMPUTE STATISTICS", [("ice.climate", "0")], duckdb="ANALYZE ice.climate"
    ),
    # names
    Statement("SELECT max(tas) FROM climate", [(23.0,)], first=("USE ice",)),
    refuses("INSERT INTO nope SELECT * FROM new_rows", "must be a table of `ice`", first=("USE ice",)),
    Statement(
        "CREATE TEMPORARY VIEW v AS SELECT * FROM ice.climate WHERE lat = 0", [(8,)], "SELECT count(*) FROM v"
    ),
    refuses("CREATE VIEW v AS SELECT * FROM ice.climate", "must be a view of the session"),
    refuses(
        "CREATE MATERIALIZED VIEW v AS SELECT lat, avg(tas) FROM ice.climate GROUP BY lat",
        "Derived arrays",
        duckdb=None,
    ),
    refuses("CREATE STREAMING TABLE v AS SELECT * FROM STREAM ice.climate", "no such statement", duckdb=None),
    refuses("CACHE TABLE ice.climate", "no statement CACHE", duckdb=None),
    refuses("MSCK REPAIR TABLE ice.climate", "no such statement", duckdb=None),
    Statement("UPDATE ice.climate SET tas = 1; SELECT sum(tas) FROM ice.climate", [(24.0,)]),
    Statement("SELECT count(*) FROM new_rows", [(6,)]),
]

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
    rows = result.rows if type(result).__name__ == "Answer" else result.collect()
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
