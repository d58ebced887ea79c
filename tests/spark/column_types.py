"""Rows with a column of each type, which go to arrays and come back, on any Spark.

The session is in New York, and times are around the changes of its clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import zarr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.driver import Site

import frazil
from frazil.spark import Target, read, scan, write_table

ZONE = "America/New_York"
EAST, SUMMER = timezone(timedelta(hours=-5)), timezone(timedelta(hours=-4))
_NAMES = ("x", "t", "n", "d", "f", "k", "g", "s", "b", "i", "w", "z")
_TYPES = (
    *("bigint", "timestamp", "timestamp_ntz", "date", "double", "double", "float", "string", "boolean"),
    *("smallint", "bigint", "struct<real:double,imag:double>"),
)
_NAN = float("nan")
#: The second hour of one o'clock, an hour that the clock of New York does not have, and old and far times.
ROWS: list[tuple[Any, ...]] = [
    (
        *(0, datetime(2024, 11, 3, 1, 30, tzinfo=SUMMER), datetime(2024, 3, 10, 2, 30), date(2024, 3, 10)),
        *(1.5, _NAN, 0.1, "ab", True, 3, 2**53 + 1, (1.5, -2.0)),
    ),
    (
        *(1, datetime(2024, 11, 3, 1, 30, tzinfo=EAST), datetime(1890, 1, 1, 0, 0, 1), date(1, 1, 1)),
        *(-0.0, None, 0.25, "", False, -32768, -5, (0.0, 1e300)),
    ),
    (2, None, None, None, None, 2.0, None, None, None, None, -(2**63), (_NAN, 0.0)),
    (
        *(
            3,
            datetime(1890, 6, 1, 12, 0, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59),
            date(9999, 12, 31),
        ),
        *(1e300, -_NAN, -1.0, "été", True, 0, 7, (0.1, 0.1)),
    ),
    (
        4,
        datetime(2024, 3, 10, 7, 0, tzinfo=UTC),
        None,
        date(1969, 12, 31),
        float("inf"),
        0.5,
        None,
        "b%",
        None,
        -7,
        0,
        (-7.25, float("inf")),
    ),
]
#: Conditions that Spark evaluates on the rows, and that may leave out what a query reads.
CONDITIONS = (
    *("t >= '2024-11-03 01:30:00'", "t = TIMESTAMP '2024-11-03 01:30:00-05:00'", "t < DATE '1900-01-01'"),
    *(
        "t > '2024-03-10 02:59:59'",
        "t IS NULL",
        "year(t) = 2024",
        "t < n",
        "t IN ('2024-03-10 03:00:00', NULL)",
    ),
    *(
        "n = TIMESTAMP_NTZ '2024-03-10 02:30:00'",
        "n < TIMESTAMP_NTZ '1900-01-01 00:00:00'",
        "n >= '2024-03-10'",
    ),
    *(
        "d = DATE '2024-03-10'",
        "d < '1900-01-01'",
        "d IN (DATE '0001-01-01', DATE '9999-12-31')",
        "NOT d > '2000-01-01'",
    ),
    *("f > 1", "f <= 0", "f = 0", "NOT f > 1", "f <=> NULL", "NOT (f <=> 1.5D)", "f IS NOT NULL"),
    *("k > 1", "k = double('NaN')", "k >= double('NaN')", "k < double('NaN')", "k IS NULL", "NOT k > 1"),
    *("k IN (0.5D, double('NaN'))", "k <> 2", "NOT k IN (2D, double('NaN'))"),
    *("g = 0.1", "g = 0.1F", "g >= 0.1", "g < 0.1D", "g IN (0.25F, 7F)"),
    *("s = 'ab'", "s LIKE 'a%'", "s LIKE '%b%'", "s LIKE '%b'", "NOT s LIKE 'a%'", "s > 'b'", "s = ''"),
    *(
        "s IS NULL",
        "s <> 'ab'",
        "s IN ('été', 'x')",
        "s NOT IN ('ab', NULL)",
        "s LIKE 'b\\\\%'",
        "upper(s) = 'AB'",
    ),
    *("b", "NOT b", "b IS NULL", "b = false", "b <=> true"),
    *(
        "i = 3",
        "i > 2.5",
        "i = 2.5",
        "i < 100000",
        "i <= -32768",
        "i BETWEEN -7 AND 0",
        "i <> 3",
        "NOT i IN (3, 0)",
    ),
    *("w = 9007199254740993", "w > 9007199254740992", "w <= -9223372036854775808", "w = 7.0"),
    *("i = 3 OR i < -1", "i = 3 OR s = 'b%'", "(i = 3 OR d IS NULL) AND x > 1", "NOT (i = 3 OR b)"),
    *("z.real > 0", "z.imag = 0.1D AND x > 1", "z.real = double('NaN')", "z IS NULL"),
    *("x = 3 AND f > 1", "x IN (1, 3)", "false", "x > 1 OR NULL"),
)


def frame_of(spark: SparkSession) -> DataFrame:
    """The rows. Times with a zone are instants; others are not changed."""
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(_NAMES, _TYPES, strict=True))
    return spark.createDataFrame(ROWS, schema)


def create(repo: frazil.Repository) -> None:
    """Arrays of ``x`` and ``k`` that exist before the rows. The fill value of ``k`` is not NaN."""
    with repo.transaction("main", message="two arrays") as store:
        group = zarr.create_group(store)
        for name, dtype, attributes in (("x", "i8", {}), ("k", "f8", {"_FillValue": -999.0})):
            more: dict[str, Any] = {"dimension_names": ["x"], "attributes": attributes}
            group.create_array(name, data=np.arange(len(ROWS)).astype(dtype), chunks=(2,), **more)


def ways(
    spark: SparkSession, repo: frazil.Repository, path: str | None
) -> dict[str, Callable[[], DataFrame]]:
    every: dict[str, Callable[[], DataFrame]] = {
        "scan": lambda: scan(spark, repo),
        "read": lambda: read(spark, repo),
    }
    return every if path is None else every | {"format": lambda: spark.read.format("frazil").load(path)}


def there_and_back(spark: SparkSession, repo: frazil.Repository, path: str | None) -> dict[str, str]:
    """Write the rows, read them in every way, and return differences of values, types and conditions."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        create(repo)
        rows = frame_of(spark)
        write_table(rows, Target(repo), mode="insert", merge_schema=True, partitions=2)
        wanted = texts(rows)
        differences = {}
        chosen = {}
        for condition in CONDITIONS:
            try:
                chosen[condition] = sorted(row[0] for row in rows.where(condition).select("x").collect())
            except PySparkException:  # Sail compares no instants with times without a zone
                assert condition == "t < n"
        for name, way in ways(spark, repo, path).items():
            frame = way().select(*_NAMES)
            kinds = tuple(field.dataType.simpleString() for field in frame.schema.fields)
            if kinds != _TYPES:
                differences[f"{name}: types"] = f"{kinds}"
            if (found := texts(frame)) != wanted:
                differences[f"{name}: values"] = f"{found} instead of {wanted}"
            # `read` has the planner of `scan`. The source by name takes no conditions. A quarter is enough.
            for condition, expected in list(chosen.items())[:: 1 if name == "scan" else 4]:
                result = sorted(row[0] for row in frame.where(condition).select("x").collect())
                if result != expected:
                    differences[f"{name}: {condition}"] = f"{result} instead of {expected}"
        return differences
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def differences(repo: frazil.Repository, site: Site) -> dict[str, str]:
    return there_and_back(site.spark, repo, None)


def texts(frame: DataFrame) -> list[tuple[str, ...]]:
    """Rows of the values, in the order of ``x``, with instants in UTC. Null is not NaN."""
    rows = sorted(frame.toArrow().to_pylist(), key=lambda row: int(row["x"]))
    return [tuple(map(_text, row.values())) for row in rows]


def _text(value: Any) -> str:
    is_instant = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC).isoformat() if is_instant else repr(value)
