"""Conditions on columns with the semantics of Spark: in Python as tuples, in options as SQL.

    [("lat", ">=", 80.0), ("name", "in", ("a", "b")), ("tas", "is not", None)]
    lat >= 80 AND name IN ('a', 'b') AND tas IS NOT NULL

    condition   name  = == <=> != <> < <= > >=  literal
                name  [NOT] IN (literal, ...)         name  IS [NOT] NULL
                name  [NOT] BETWEEN literal AND literal
                name  [NOT] LIKE 'x%' | '%x' | '%x%'
    literal     12  -0.5e3  'text'  true  false  null  nan  inf  -inf  TIMESTAMP '2024-05-01 12:00'

All conditions must hold. A condition is true, false or null; a row stays if all
of its conditions are true. As in Spark, NaN equals NaN and is larger than every other number. Numbers are
compared exactly: float32 is widened to float64. Times of other calendars are compared as times, and with LIKE
as text. Values without an exact comparison (a decimal, a date, a number with a text) are refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from math import floor, inf
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.arrow.column_ranges import Ranges
from frazil.arrow.grid import Grid, Values, to_arrow
from frazil.cf import coding_of
from frazil.errors import InvalidInputError
from frazil.spark.tables.options import timestamp
from frazil.spark.tables.schemas import argument_error

type Mask = NDArray[np.bool_]

COMPARISONS: Final = ("=", "<=>", "<", "<=", ">", ">=")
TEXTS: Final = ("starts", "ends", "contains")
_EXACT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition on ``column``. ``op`` is one of ``COMPARISONS``, ``TEXTS``, "in" (a tuple) or "null"."""

    column: str
    op: str
    value: Any = None
    negated: bool = False

    def holds(self, values: Values) -> Mask:
        """Return where the condition is true, in the shape of the values."""
        nothing = np.zeros(values.data.shape, np.bool_)
        null = unknown = nothing if values.null is None else values.null
        if self.op == "null" or (self.op == "<=>" and self.value is None):
            true, unknown = null, nothing
        elif self.op == "<=>":
            true, unknown = _compare("=", values, self.value) & ~null, nothing
        elif self.op == "in":
            items = [each for each in self.value if each is not None]
            true = _among(values, items) & ~null
            unknown = null | ~true if len(items) < len(self.value) else null
        elif self.value is None:
            true, unknown = nothing, ~nothing
        else:
            true = _compare(self.op, values, self.value)
        return ~(true | unknown) if self.negated else true & ~unknown

    def may_hold(self, ranges: Ranges) -> Mask:
        """Return where the condition can be true for a value of a box."""
        low, high = Values(ranges.low), Values(ranges.high)
        can_hold = self.holds(low) | (self.holds(high) if self.op in (">", ">=") else False)
        if self.negated:
            can_hold = can_hold | (ranges.low != ranges.high)
        elif self.op in ("=", "<=>", "in"):
            items = self.value if self.op == "in" else (self.value,)
            for each in items:
                bounds = (Predicate(self.column, "<=", each), Predicate(self.column, ">=", each))
                can_hold = can_hold | (bounds[0].holds(low) & bounds[1].holds(high))
        can_hold = ~ranges.is_known | (ranges.has_values & can_hold)
        if ranges.low.dtype.kind == "f":
            nan = np.full(1, np.nan, ranges.low.dtype)
            can_hold = can_hold | (ranges.has_nan & self.holds(Values(nan)))
        null = Values(np.zeros(1, ranges.low.dtype), np.ones(1, np.bool_))
        return can_hold | (ranges.has_null & self.holds(null))


def _matches(column: pa.DataType, value: Any) -> bool:
    if pa.types.is_string(column):
        return isinstance(value, str) or hasattr(value, "calendar")
    if pa.types.is_boolean(column) or isinstance(value, bool):
        return pa.types.is_boolean(column) and isinstance(value, bool)
    if pa.types.is_timestamp(column):
        return isinstance(value, datetime)
    if pa.types.is_integer(column):
        return isinstance(value, int)
    is_exact = isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT)
    return pa.types.is_floating(column) and is_exact


def _compare(op: str, values: Values, value: Any) -> Mask:
    data = values.data
    if hasattr(value, "calendar"):  # objects of cftime, None where they are null
        times = data if values.null is None else np.where(values.null, value, data)
        return np.asarray(_NUMBERS[op](times, value), np.bool_)
    if data.dtype.kind in "UTO":
        return _mask(_WORDS[op](_texts(values), value), data.shape)
    if data.dtype.kind == "M":
        return _NUMBERS[op](_microseconds(data), micros(value))
    if data.dtype.kind != "f":
        return _NUMBERS[op](data, value)
    # NaN equals NaN, and is larger than all other numbers.
    if value != value:
        is_nan = np.isnan(data)
        return {"<": ~is_nan, "<=": ~np.zeros_like(is_nan), ">": np.zeros_like(is_nan)}.get(op, is_nan)
    opposite = {">": "<=", ">=": "<"}.get(op)
    holds = _NUMBERS[opposite or op](data.astype(np.float64, copy=False), float(value))
    return ~holds if opposite else holds


def _among(values: Values, items: list[Any]) -> Mask:
    data = values.data
    if not items:
        return np.zeros(data.shape, np.bool_)
    if hasattr(items[0], "calendar"):
        return np.asarray(np.logical_or.reduce([_compare("=", values, each) for each in items]))
    if data.dtype.kind in "UTO":
        return _mask(pc.is_in(_texts(values), pa.array(items, pa.string())), data.shape)
    if data.dtype.kind == "M":
        return np.isin(_microseconds(data), np.array(list(map(micros, items)), np.int64))
    if data.dtype.kind == "f":
        wide = data.astype(np.float64, copy=False)
        is_among = np.isin(wide, np.array(items, np.float64))
        return is_among | np.isnan(wide) if any(each != each for each in items) else is_among
    if data.dtype.kind in "iu":
        limits = np.iinfo(data.dtype)
        items = [each for each in items if limits.min <= each <= limits.max]
    return np.isin(data, np.array(items, data.dtype))


def micros(value: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is UTC."""
    when = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return (when - _EPOCH) // timedelta(microseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _microseconds(data: NDArray[Any]) -> NDArray[np.int64]:
    return data.astype("datetime64[us]", copy=False).view(np.int64)


def _texts(values: Values) -> pa.Array:
    null = None if values.null is None else values.null.reshape(-1)
    return to_arrow(Values(values.data.reshape(-1), null), pa.string())


def _mask(result: Any, shape: tuple[int, ...]) -> Mask:
    mask: Mask = pc.fill_null(result, False).to_numpy(zero_copy_only=False).reshape(shape)
    return mask


_NUMBERS: Final[dict[str, Callable[[NDArray[Any], Any], Mask]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "starts": pc.starts_with,
    "ends": pc.ends_with,
    "contains": pc.match_substring,
}


#: ("lat", ">=", 80.0): column, one of the words above (or starts, ends, contains), value.
type Condition = tuple[str, str, Any]
type Conditions = str | Iterable[Condition]

_SPELLED: Final = {"==": "=", "!=": "=", "<>": "=", "not in": "in", "is": "null", "is not": "null"}
_NEGATED: Final = frozenset({"!=", "<>", "not in", "is not"})
_OPERATORS: Final = (*COMPARISONS, *TEXTS, "in", *_SPELLED)

_LITERAL: Final = (
    r"(?:(?:timestamp\s+|date\s+)?'(?:[^']|'')*'"
    r"|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w.])|[-+]?(?:infinity|inf)\b|(?:nan|true|false|null)\b)"
)
#: One condition, and the word after it.
_CONDITION: Final = re.compile(
    rf"""\s*(?:`(?P<quoted>[^`]+)`|(?P<name>[a-z_][\w./]*))\s*
    (?: is\s+(?P<isnot>not\s+)?(?P<null>null)\b
      | (?P<not>not\s+)?(?: in\s*\(\s*(?P<in>{_LITERAL}(?:\s*,\s*{_LITERAL})*)\s*\)
                          | like\s*(?P<like>{_LITERAL}) )
      | between\s*(?P<low>{_LITERAL})\s*and\b\s*(?P<high>{_LITERAL})
      | (?P<op><=>|==|!=|<>|<=|>=|[=<>])\s*(?P<value>{_LITERAL}) )
    \s*(?:(?P<and>and\b)|$)""",
    re.VERBOSE | re.IGNORECASE,
)
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


def predicates(grid: Grid, conditions: Conditions) -> list[Predicate]:
    """Return the conditions on columns of a grid."""
    if isinstance(conditions, str):
        return [_checked(grid, each) for each in parse(conditions)]
    checked = []
    for name, spelled, value in conditions:
        op = spelled.lower()
        if op not in _OPERATORS:
            raise argument_error(
                f"The comparison of a condition must be one of {', '.join(_OPERATORS)}, got {op!r}"
            )
        values = tuple(value) if op in ("in", "not in") else value
        checked.append(_checked(grid, Predicate(name, _SPELLED.get(op, op), values, op in _NEGATED)))
    return checked


def _checked(grid: Grid, predicate: Predicate) -> Predicate:
    column = grid.column(predicate.column)
    checked = replace(predicate, column=column.name)
    calendar = None if predicate.op in TEXTS else column.decoder.calendar
    plain = partial(_plain, column.type) if calendar is None else partial(_time, column.name, calendar)
    if predicate.op == "in":
        checked = replace(checked, value=tuple(map(plain, predicate.value)))
    elif predicate.op != "null":
        checked = replace(checked, value=plain(predicate.value))
    if pa.types.is_integer(column.type):
        checked = _of_integers(checked)
    values = checked.value if checked.op == "in" else (checked.value,)
    # Whether ``holds`` gives exactly the result of Spark for values of this type
    is_exact = checked.op == "null" or all(each is None or _matches(column.type, each) for each in values)
    if checked.op in TEXTS:
        is_exact = pa.types.is_string(column.type) and isinstance(checked.value, str)
    if not is_exact:
        raise argument_error(
            f"The value must be comparable with {column.name} ({column.type}), got {predicate.value!r}"
        )
    return checked


def _time(name: str, calendar: str, value: Any) -> Any:
    """Return a time of a calendar, from an ISO text or a time; ``InvalidInputError`` for another text."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(getattr(value, "isoformat", lambda: value)())
    coding = coding_of({"units": "microseconds since 1970-01-01", "calendar": calendar}, np.int64)
    try:
        return coding.decode(coding.encode(text, name=f"A condition on {name}"))[0].item()
    except InvalidInputError as error:
        raise argument_error(str(error)) from None


def _plain(column: pa.DataType, value: Any) -> Any:
    """Return a value as the Python type that is compared with a column of this type, as Spark casts it."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    elif isinstance(value, np.generic):
        value = value.item()
    if pa.types.is_timestamp(column):
        if isinstance(value, str):
            return timestamp(value, "where")
        if isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        value = int(value) if whole and pa.types.is_integer(column) else value
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and pa.types.is_floating(column):
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf
    return value


#: For a number with a fraction among integers: the comparison with the integer below it.
_BELOW: Final = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}


def _of_integers(predicate: Predicate) -> Predicate:
    """Return the same condition with integers only, so that it is exact. NaN is larger than all numbers."""
    if predicate.op == "in":
        values = (each for each in map(_whole, predicate.value) if not isinstance(each, float | Decimal))
        return replace(predicate, value=tuple(values))
    value = _whole(predicate.value)
    if not isinstance(value, float | Decimal):
        return replace(predicate, value=value)
    # No integer is equal to the value. Null stays null, which excludes the row.
    nothing = replace(predicate, op="in", value=())
    if predicate.op not in _BELOW:
        return nothing
    if value != value or abs(value) == inf:
        is_true = predicate.op in ((">", ">=") if value == -inf else ("<", "<="))
        return replace(nothing, negated=is_true)
    return replace(predicate, op=_BELOW[predicate.op], value=floor(value))


def _whole(value: Any) -> Any:
    """Return a number without a fraction as an integer; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse(text: str) -> list[Predicate]:
    """Return the conditions of a text in SQL."""
    conditions: list[Predicate] = []
    at, is_open = 0, bool(text.strip())
    while is_open:
        match = _CONDITION.match(text, at)
        if match is None:
            raise argument_error(
                "A condition of `where` must compare a column with a literal (=, <>, <, <=, >, >=, "
                f"BETWEEN, IN, LIKE, IS NULL), with AND between them, got {text[at:]!r}. Others belong "
                "to the query: `df.where(...)`, or WHERE in SQL"
            )
        conditions += _conditions(match)
        at, is_open = match.end(), match["and"] is not None
    return conditions


def _conditions(match: re.Match[str]) -> list[Predicate]:
    """Return the condition of a match; two for BETWEEN."""
    name, negated = match["quoted"] or match["name"], match["not"] is not None
    if match["null"] is not None:
        return [Predicate(name, "null", None, match["isnot"] is not None)]
    if match["in"] is not None:
        values = tuple(map(_literal, re.findall(_LITERAL, match["in"], re.IGNORECASE)))
        return [Predicate(name, "in", values, negated)]
    if match["low"] is not None:
        bounds = ((">=", match["low"]), ("<=", match["high"]))
        return [Predicate(name, op, _literal(value)) for op, value in bounds]
    if match["op"] is not None:
        op = match["op"]
        return [Predicate(name, _SPELLED.get(op, op), _literal(match["value"]), op in _NEGATED)]
    pattern = _literal(match["like"])
    inner = pattern.strip("%") if isinstance(pattern, str) else ""
    ends = (str(pattern).startswith("%"), str(pattern).endswith("%"))
    kinds = {(False, True): "starts", (True, False): "ends", (True, True): "contains", (False, False): "="}
    if not inner or set(inner) & {"%", "_", "\\"}:
        raise argument_error(f"The pattern of LIKE must be 'x%', '%x' or '%x%', got {pattern!r}")
    return [Predicate(name, kinds[ends], inner, negated)]


def _literal(token: str) -> Any:
    if token.endswith("'"):
        kind, _, inner = token[:-1].partition("'")
        inner = inner.replace("''", "'")
        return timestamp(inner, "where") if kind else inner
    if token.lower() in _CONSTANTS:
        return _CONSTANTS[token.lower()]
    return int(token) if re.fullmatch(r"[-+]?\d+", token) else float(token)
