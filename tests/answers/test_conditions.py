"""Conditions beside plain Python with fractions, and the same condition by every interface."""

from __future__ import annotations

import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

import cftime  # type: ignore[import-untyped]
import duckdb
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

import frazil
from frazil import arrow
from frazil.answers.conditions import ValueRanges, comparable, parse
from frazil.arrow.grid import Selection
from frazil.pipeline import Condition, validate
from frazil.spark.data_source import plan_rows
from frazil.spark.tables.scan import table

ON = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
NAN, INF = float("nan"), float("inf")
NUMBERS = ("f2", "f4", "f8", ">f4", "i1", "i2", ">i4", "i8", "u1", "u4", "u8", "?")
#: The types of times, with their calendars.
TIMES = {"M8[s]": None, "M8[ns]": None, "M8[D]": None, "noleap": "noleap", "360_day": "360_day"}
LITERALS = (
    *("0", "1", "-1", "2.5", "0.1", "1e-3", "127.0", "-0.0", "inf", "-inf", "nan", "null", "1e400", "-1e400"),
    *(str(2**70), str(2**63 - 1), f"{2**53}.5", str(2**64 - 1), "70000", "0.99999999999999999999", "1" * 500),
)
DAYS = (
    "'2001-02-28'",
    "DATE '2001-03-01'",
    "TIMESTAMP '2001-02-27 12:00:00'",
    "'2001-02-28T00:00:01Z'",
    "null",
)

#: ("and", a, b), ("or", a, b), ("not", a), (operator, literal), ("between", low, high) or ("in", literals).
type Tree = tuple[Any, ...]


def random_tree(dice: random.Random, literals: tuple[str, ...], depth: int = 3) -> Tree:
    kind = dice.choice(["and", "or", "not", "test"]) if depth else "test"
    if kind != "test":
        return (kind, *(random_tree(dice, literals, depth - 1) for _ in range(1 + (kind != "not"))))
    op = dice.choice(["=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">=", "in", "between", "null"])
    count = {"in": dice.randint(1, 3), "between": 2, "null": 0}.get(op, 1)
    return (op, *dice.choices(literals, k=count))


def text_of(tree: Tree, column: str = "") -> str:
    """Return the condition as a text, with more parentheses than needed."""
    op, *parts = tree
    if op == "not":
        return f"not ({text_of(parts[0], column)})"
    if op in ("and", "or"):
        return f"({text_of(parts[0], column)}) {op} ({text_of(parts[1], column)})"
    if op == "null":
        return f"{column} Is NULL"
    if op == "in":
        return f"{column} in ({', '.join(parts)})"
    return f"{column} between {parts[0]} and {parts[1]}" if op == "between" else f"{column} {op} {parts[0]}"


def truth(tree: Tree, value: Any, number: Any, nan_is_largest: bool) -> bool | None:
    """Return whether a value meets a condition; None if this is null. ``number`` converts a literal."""
    op, *parts = tree
    if op in ("not", "and", "or"):
        known = [truth(part, value, number, nan_is_largest) for part in parts]
        if op == "not":
            return None if known[0] is None else not known[0]
        decisive = op == "or"
        return decisive if decisive in known else None if None in known else not decisive
    if op == "null":
        return value is None
    if op == "between":
        return truth(("and", (">=", parts[0]), ("<=", parts[1])), value, number, nan_is_largest)
    if op == "in":
        tests = [truth(("=", part), value, number, nan_is_largest) for part in parts]
        return True if True in tests else None if None in tests else False
    if op in ("!=", "<>"):
        return truth(("not", ("=", *parts)), value, number, nan_is_largest)
    other = None if parts[0] in ("null", None) else number(parts[0])
    if value is None or other is None:
        return (value is None and other is None) if op == "<=>" else None
    pair = (value, other)
    if any(each != each for each in pair):
        if not nan_is_largest:
            return False
        value, other = ((each != each, 0 if each != each else each) for each in pair)
    ordered = {"<": value < other, "<=": value <= other, ">": value > other, ">=": value >= other}
    return bool(ordered.get(op, value == other))


def number_of(dtype: str, literal: str) -> Any:
    """Return a literal as plain Python compares it with values of a type."""
    number = float(literal)
    if np.dtype(dtype).kind != "f":
        return Fraction(literal) if np.isfinite(number) and abs(number) < 1e300 else number
    with np.errstate(over="ignore"):
        typed = float(np.float64(number).astype(dtype))
    return number if np.isinf(typed) else typed


def day_of(literal: str) -> tuple[int, ...]:
    date, _, clock = literal.split("'")[1].replace("T", " ").removesuffix("Z").partition(" ")
    return (*map(int, date.split("-")), *map(int, (clock or "0:0:0").split(":")))


def random_values(dice: random.Random, kind: str) -> tuple[NDArray[Any], NDArray[np.bool_], list[Any]]:
    """Return values, which are null, and the values as plain Python compares them."""
    count, plain = 24, list[Any]()
    null = np.array([dice.random() < 0.15 for _ in range(count)])
    if kind in TIMES:
        days = sorted(dice.choices(range(5), k=count))
        if TIMES[kind] is None:
            data = (np.datetime64("2001-02-26") + np.array(days)).astype(kind)
            plain = [day_of(f"'{str(each)[:10]}'") for each in data]
        else:
            first = cftime.datetime(2001, 2, 26, calendar=kind)
            dates = [first + timedelta(each) for each in days]
            data = np.array([None if hidden else each for each, hidden in zip(dates, null, strict=True)])
            plain = [(each.year, each.month, each.day, 0, 0, 0) for each in dates]
    else:
        dtype = np.dtype(kind)
        pool: list[Any] = [0, 1, 2, 3, 100]
        if dtype.kind == "f":
            pool += [0.1, 2.5, -1, -0.0, NAN, INF, -INF, float(np.finfo(dtype).max), 1e-3, 2**53]
        elif dtype.kind in "iu":
            pool += [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
        else:
            pool = [False, True]
        with np.errstate(over="ignore"):
            data = (
                np.array(dice.choices(pool, k=count)).astype(dtype)
                if dtype.kind == "f"
                else np.array(dice.choices(pool, k=count), dtype)
            )
        data = np.sort(data) if dice.random() < 0.7 else data
        plain = [int(each) if dtype.kind == "b" else each for each in data.tolist()]
    return data, null, [None if hidden else each for each, hidden in zip(plain, null, strict=True)]


def ranges_of(data: NDArray[Any], null: NDArray[np.bool_], dice: random.Random) -> ValueRanges:
    """Return what is known about boxes of six values."""
    numbers = comparable(data, null).reshape(-1, 6)
    nan = numbers != numbers
    others = ~(nan | null.reshape(-1, 6))
    ends = [
        np.array([f(row[mask]) if mask.any() else 0 for row, mask in zip(numbers, others, strict=True)])
        for f in (np.min, np.max)
    ]
    low, high = (each.astype(numbers.dtype.newbyteorder("=")) for each in ends)
    is_known = np.array([dice.random() < 0.9 for _ in low])
    return ValueRanges(
        low, high, others.any(axis=1), nan.any(axis=1), null.reshape(-1, 6).any(axis=1), is_known
    )


@pytest.mark.parametrize("kind", [*NUMBERS, *TIMES])
@pytest.mark.parametrize("nan_is_largest", [False, True])
def test_conditions_hold_as_in_plain_python(kind: str, nan_is_largest: bool) -> None:
    dice = random.Random(f"{kind} {nan_is_largest}")
    is_time = kind in TIMES
    dtype = np.dtype("O" if TIMES.get(kind) else kind)

    def number(literal: str) -> Any:
        return day_of(literal) if is_time else number_of(kind, literal)

    for _ in range(40):
        tree = random_tree(dice, DAYS if is_time else LITERALS)
        parsed = parse(text_of(tree))
        assert parse(str(parsed)) == parsed or "nan" in str(parsed)
        assert str(parse(str(parsed))) == str(parsed)
        condition = parsed.typed(dtype, TIMES.get(kind), nan_is_largest=nan_is_largest)
        data, null, plain = random_values(dice, kind)
        expected = np.array([truth(tree, value, number, nan_is_largest) is True for value in plain])
        assert condition.holds(data, null).tolist() == expected.tolist(), text_of(tree)
        negation = [truth(("not", tree), value, number, nan_is_largest) is True for value in plain]
        assert condition.negation().holds(data, null).tolist() == negation, text_of(tree)
        ranges = ranges_of(data, null, dice)
        may, must, boxes = condition.may_hold(ranges), condition.must_hold(ranges), expected.reshape(-1, 6)
        assert not (boxes.any(axis=1) & ~may).any(), text_of(tree)
        assert not (~boxes.all(axis=1) & must).any(), text_of(tree)
        assert not (must & ~ranges.is_known).any()
        if tree[0] in ("<", "<=", ">", ">=", "null"):  # the extremes decide
            assert (may == boxes.any(axis=1) | ~ranges.is_known).all(), text_of(tree)
            assert (must == boxes.all(axis=1) & ranges.is_known).all(), text_of(tree)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "expected a comparison .* at character 1, got the end"),
        ("40", "expected a comparison .* at character 1, got '40'"),
        ("> 1 or", "expected a comparison .* at character 7, got the end"),
        (">= 0 <= 1", "expected AND, OR or the end at character 6, got '<='"),
        ("> 12ab", "expected a literal.* at character 3, got '12ab'"),
        ("> 0x10", "expected a literal.* at character 3, got '0x10'"),
        ("> " + "1" * 200_000 + "x", "expected a literal.* at character 3"),
        ("= 'x", 'expected a literal.* at character 3, got "\'x"'),
        ("in ()", "expected a literal.* at character 5, got '\\)'"),
        ("in (1 2)", "expected a comma or \\) at character 7, got '2'"),
        ("between 1 or 2", "expected AND at character 11, got 'or'"),
        ("like 'a_'", "expected a pattern"),
        ("is nul", "expected NULL at character 4"),
        ("not", "expected a comparison"),
        ("(> 1", "expected AND, OR or \\) at character 5"),
        ("(" * 10_000 + "> 1", "at most 50 levels"),
        ("not " * 10_001, "expected a comparison"),
        ("> 1e" + "9" * 40, "a number with a smaller exponent"),
        ("lat > 3", "expected a comparison .* got 'lat'"),
    ],
)
def test_a_text_that_is_no_condition_is_refused_at_its_place(text: str, place: str) -> None:
    with pytest.raises(frazil.InvalidInputError, match=place) as caught:
        parse(text)
    assert caught.value.kind == "invalid-argument"
    with pytest.raises(frazil.InvalidInputError, match="expected"):
        parse("`a b` " + text + " and lat", has_columns=True)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        *[("f4", "> '3'"), ("f4", "like 'x%'"), ("i4", "= true"), ("U4", "> 3"), ("M8[s]", "> 3")],
        *[("M8[s]", "> 'soon'"), ("M8[s]", "= '2001-02-30'"), ("m8[s]", "> DATE '2001-01-01'")],
    ],
)
def test_literals_of_another_kind_are_refused(dtype: str, text: str) -> None:
    with pytest.raises(frazil.InvalidInputError, match="must") as caught:
        parse(text).typed(np.dtype(dtype), name="`/t`")
    assert caught.value.kind == "invalid-argument"


def test_many_conditions_and_long_lists() -> None:
    values = np.arange(100_000)
    text = " or ".join(f"= {each}" for each in range(0, 2_000, 2))
    assert parse(text).typed(values.dtype).holds(values).sum() == 1_000
    members = parse(f"in ({', '.join(map(str, range(0, 100_000, 2)))})").typed(values.dtype)
    assert members.holds(values).sum() == 50_000
    assert parse("not " * 10_001 + "> 5").typed(values.dtype).holds(values).sum() == 6


def arrays_of(
    values: NDArray[Any], chunks: int, attributes: dict[str, Any], fill: Any = None, name: str = "t"
) -> list[frazil.Repository]:
    """Return repositories with the same array: with, without and with partial statistics."""
    repositories = []
    for is_on, is_later in ((True, True), (False, False), (True, False)):
        storage = frazil.in_memory_storage()
        repo = frazil.Repository.create(storage, config=ON if is_on else None)
        with repo.transaction("main", message="array") as store:
            array = zarr.create_array(
                store,
                name=name,
                shape=values.shape,
                chunks=(chunks,),
                dtype=values.dtype,
                fill_value=fill,
                attributes=attributes,
                dimension_names=["x"],
            )
            array[:] = values
        if not is_later:
            with frazil.Repository.open(storage).transaction("main", message="a part") as store:
                zarr.open_array(store, path=name)[: len(values) // 3] = values[: len(values) // 3]
        repositories.append(frazil.Repository.open(storage))
    return repositories


AGREEMENT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("f4", {}),
    ("f4", {"_FillValue": 3.0}),
    ("f8", {"_FillValue": "AAAAAAAA+H8="}),
    ("i2", {"_FillValue": -1, "scale_factor": 0.1}),
    ("i2", {"scale_factor": -0.5, "add_offset": 1.0}),
    ("i8", {"_FillValue": 2}),
    ("i1", {"_Unsigned": "true", "_FillValue": -1}),
    ("u4", {}),
    ("?", {}),
)


@pytest.mark.deep
@pytest.mark.sample(9)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dtype", "attributes"), AGREEMENT, ids=str)
def test_all_interfaces_agree(dtype: str, attributes: dict[str, Any], seed: int) -> None:
    dice = random.Random(f"{dtype} {attributes} {seed}")
    kind = np.dtype(dtype)
    pool = [0, 1] if kind.kind == "b" else [0, 1, 2, 3, 4, 100] + [-1, -7] * (kind.kind != "u")
    values = np.array(sorted(dice.choices(pool, k=30))).astype(kind)
    if kind.kind == "f":
        values[[4, 5, 6, 20]] = NAN
        values[[1, 12]] = 0.1
    repositories = arrays_of(values, dice.choice([1, 3, 7]), attributes, dice.choice([None, values[0]]))
    sessions = [repo.readonly_session("main") for repo in repositories]
    tables = [arrow.dataset(session) for session in sessions]
    connections = [duckdb.connect().register("rows_of", rows_of) for rows_of in tables]
    plain = tables[0].to_table()["t"].to_pylist()
    single = str(tables[0].schema.field("t").type) == "float"
    number_type = "f4" if single else "f8" if kind.kind == "f" or "scale_factor" in attributes else "i8"
    for _ in range(6):
        tree = random_tree(dice, ("0", "1", "2.5", "0.1", "3", "-1", "100", "null"), depth=2)
        text, values_text = text_of(tree, "t"), text_of(tree)
        numpy_rows, spark_rows = (
            [
                row
                for row, value in enumerate(plain)
                if truth(tree, value, lambda each: number_of(number_type, each), flag)
            ]
            for flag in (False, True)
        )
        for repo, session, connection in zip(repositories, sessions, connections, strict=True):
            matches = frazil.where(frazil.Array(session, "/t"), values_text)
            assert matches.points()[:, 0].tolist() == numpy_rows, text
            assert (matches.count(), matches.any()) == (len(numpy_rows), bool(numpy_rows)), text
            (row,) = validate(repo, [Condition("/t", values_text)], engine="inline").rows
            others = len(plain) - len(numpy_rows)
            assert (row.ok, row.found.startswith(f"{others} others")) == (not others, bool(others)), text
            rows = table(*plan_rows(session, ["x"], text, Selection(block_rows=1)))
            assert sorted(rows["x"].to_pylist()) == spark_rows, text
            if kind.kind != "b" and "<=>" not in text:  # DuckDB has neither
                query = connection.sql(f"SELECT x FROM rows_of WHERE {text.replace('==', '=')} ORDER BY x")
                assert [x for (x,) in query.fetchall()] == spark_rows, text


@pytest.mark.parametrize(
    ("values", "attributes"),
    [
        (np.array([0, 1, 2, 3, -1]), {"units": "days since 2001-02-26", "_FillValue": -1}),
        (np.array([0, 1, 2, 3, NAN]), {"units": "days since 2001-02-26"}),
        (
            np.array([0, 24, 48, 72, -1]),
            {"units": "hours since 2001-02-26", "calendar": "noleap", "_FillValue": -1},
        ),
        (np.array([0, 1, 2, 3, NAN]), {"units": "days since 2001-02-26", "calendar": "360_day"}),
        (np.array(["2001-02-26", "2001-02-27", "2001-02-28", "2001-03-01", "NaT"], "M8[ns]"), {}),
        (np.array(["2001-02-26", "2001-02-27", "2001-02-28", "2001-03-01", "NaT"], "M8[D]"), {}),
    ],
)
def test_times_are_compared_with_texts_in_their_calendar(
    values: NDArray[Any], attributes: dict[str, Any]
) -> None:
    fourth = "'2001-02-29'" if attributes.get("calendar") == "360_day" else "'2001-03-01'"
    for repo in arrays_of(values, 2, attributes):
        array = frazil.Array(repo.readonly_session("main"), "/t")
        for condition, expected in (
            (">= '2001-02-27T12:00:00'", [2, 3]),
            (f"= {fourth}", [3]),
            ("!= DATE '2001-02-27'", [0, 2, 3]),
            ("not between '2001-02-27' and '2001-02-28'", [0, 3]),
            ("is null or < '2001-02-27'", [0, 4]),
            ("is not null", [0, 1, 2, 3]),
            ("in ('2001-02-26', null)", [0]),
        ):
            assert frazil.where(array, condition).points()[:, 0].tolist() == expected, condition
        number = values[1].astype("i8") if values.dtype.kind == "M" else int(values[1])
        assert frazil.where(array, f"= {number}").points().tolist() == [[1]]
        with pytest.raises(frazil.InvalidInputError, match="must be times"):
            frazil.where(array, "> '2001-02-27' and < 3")


def test_times_before_the_calendar_reform_and_durations() -> None:
    for values, attributes, condition in (
        (
            np.array([0, 1, 600_000]),
            {"units": "days since 1500-01-01"},
            "between '1500-01-02' and '1500-03-01'",
        ),
        (np.array([10, 90, 900]), {"units": "seconds", "dtype": "timedelta64[s]"}, "= '1.5 minutes'"),
        (np.array(["2023", "2024", "2025"], "M8[Y]"), {}, "= 54"),
        (np.array(["2023", "2024", "2025"], ">M8[Y]"), {}, "between '2023-05-01' and '2024-12-31'"),
        (np.array([10, 90, 900], "m8[s]"), {}, "between '11 s' and '1 hour' and != '15 minutes'"),
    ):
        for repo in arrays_of(values, 2, attributes):
            array = frazil.Array(repo.readonly_session("main"), "/t")
            assert frazil.where(array, condition).points().tolist() == [[1]]
