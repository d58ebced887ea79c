"""Conditions on values: one predicate for elements and for the extremes of chunks, and its text.

    > 40 and <= 50                                 values of one array
    lat >= 80 AND (tas IS NULL OR tas < 273.15)    columns of a table

    condition   test  |  NOT condition  |  (condition)  |  condition AND condition  |  condition OR condition
    test        = == <=> != <> < <= > >=  literal         [NOT] IN (literal, ...)       IS [NOT] NULL
                [NOT] BETWEEN literal AND literal         [NOT] LIKE 'x%' | '%x' | '%x%' | 'x'
    literal     12  -0.5e3  'text'  true  false  null  nan  inf  -inf  DATE '2024-05-01'  TIMESTAMP '...'

A test of a table begins with the name of a column. Words are in upper or lower case, and AND comes before OR.

A condition is true, false or null. A missing value, NaT or a literal ``null`` makes a comparison null, and
NOT of null is null. An element meets a condition that is true. So NOT moves to the comparisons: a negated
comparison is true where the comparison is false, and a condition is a tree of AND and OR.

A literal becomes a number of the type of the values once. For floating-point values this is the nearest
number of their type: 0.1 is the element that float32 has for it. A number beyond the type has 64 bits.
Integers and times are compared exactly. NaN is a value: it meets only ``!=``, ``NOT IN`` and other negations,
as in numpy.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import reduce
from math import floor, inf
from typing import Any, Final, NoReturn, override

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import Mask, TimeUnits
from frazil.errors import InvalidInputError

_ORDER: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Comparisons of texts, and their pattern in SQL.
_TEXTS: Final[dict[str, tuple[Callable[[Any, str], Any], str]]] = {
    "starts": (np.strings.startswith, "{}%"),
    "ends": (np.strings.endswith, "%{}"),
    "contains": (lambda texts, part: np.strings.find(texts, part) >= 0, "%{}%"),
}
#: The comparisons of `ValueComparison`, without their spellings.
OPERATORS: Final = (*_ORDER, *_TEXTS, "in", "null")
#: Other spellings of comparisons, and whether they are negated.
SPELLINGS: Final = {
    "==": ("=", False),
    "!=": ("=", True),
    "<>": ("=", True),
    "not in": ("in", True),
    "is": ("null", False),
    "is not": ("null", True),
}
#: For a number with a fraction among integers: the comparison with the integer below it.
_BELOW: Final = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
#: All integers of values, and all times, are between these bounds.
_BEYOND: Final = 1 << 200
_SINCE: Final = "microseconds since 1970-01-01"
#: The microseconds of the units of numpy. Years and months become days first.
_UNITS: Final = (
    {unit: Fraction(1, 1000**power) for power, unit in enumerate(("us", "ns", "ps", "fs", "as"))}
    | {
        unit: Fraction(1_000_000 * seconds)
        for unit, seconds in {"s": 1, "m": 60, "h": 3_600, "D": 86_400, "W": 604_800}.items()
    }
    | {"ms": Fraction(1_000)}
)
_TEXT_TYPE: Final = np.dtypes.StringDType()


@dataclass(frozen=True, slots=True, eq=False)
class ValueRanges:
    """What is known about the values of boxes. All arrays have the shape of the boxes.

    Attributes:
        low: The smallest value that is neither null nor NaN.
        high: The largest such value.
        has_values: Whether a box has such values. Other boxes have any number in ``low`` and ``high``.
        has_nan: Whether a box can have NaN.
        has_null: Whether a box can have null.
        is_known: Whether the other arrays are true for a box.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    has_values: Mask
    has_nan: Mask
    has_null: Mask
    is_known: Mask


@dataclass(frozen=True, slots=True)
class Moment:
    """The literal ``TIMESTAMP '...'`` or ``DATE '...'``: a time, and no text."""

    text: str


class Predicate:
    """A condition: a `ValueComparison`, or a `Junction` of conditions.

    ``holds``, ``may_hold`` and ``must_hold`` need literals of the type of the values: see ``typed``.
    """

    __slots__ = ()

    def comparisons(self) -> Iterator[ValueComparison]:
        """Yield the comparisons, in the order of the text."""
        raise NotImplementedError

    def each(self, change: Callable[[ValueComparison], Predicate]) -> Predicate:
        """Return the condition with other comparisons."""
        raise NotImplementedError

    def negation(self) -> Predicate:
        """Return the condition that is true where this one is false."""
        raise NotImplementedError

    def fold(self, mask: Callable[[ValueComparison], Mask]) -> Mask:
        """Return the masks of the comparisons, joined by AND and OR."""
        raise NotImplementedError

    def holds(self, values: NDArray[Any], null: Mask | None = None) -> Mask:
        """Return where the condition is true, in the shape of the values."""
        return self.fold(lambda test: test.is_met(values, null))

    def may_hold(self, ranges: ValueRanges) -> Mask:
        """Return where the condition can be true for a value of a box."""
        may = ~ranges.is_known
        for is_present, is_some, _ in self._sorts(ranges):
            may = may | (is_present & is_some)
        return may

    def must_hold(self, ranges: ValueRanges) -> Mask:
        """Return where the condition is true for all values of a box."""
        must = ranges.is_known
        for is_present, _, is_every in self._sorts(ranges):
            must = must & (~is_present | is_every)
        return must

    def _sorts(self, ranges: ValueRanges) -> Iterator[tuple[Mask, Mask, Mask]]:
        """Yield where boxes have a sort of values, where some of them may meet the condition, all must."""
        low, high, dtype = ranges.low, ranges.high, ranges.low.dtype
        some, every = self.fold(lambda test: np.stack(test.between(low, high)))
        yield ranges.has_values, some, every
        null = self.holds(np.zeros(1, dtype), np.ones(1, np.bool_))[0]
        yield ranges.has_null, null, null
        if dtype.kind == "f":
            nan = self.holds(np.full(1, np.nan, dtype))[0]
            yield ranges.has_nan, nan, nan

    def typed(
        self,
        dtype: np.dtype[Any],
        calendar: str | None = None,
        *,
        name: str = "the values",
        nan_is_largest: bool = False,
    ) -> Predicate:
        """Return the condition with literals of the type of values.

        Args:
            dtype: The type of the values: numbers, booleans, texts, times of numpy, or objects of cftime.
            calendar: The calendar of times; None for those of numpy.
            name: What has the values, for errors.
            nan_is_largest: Whether NaN equals NaN and is larger than all numbers, as in Spark.

        Raises:
            InvalidInputError: ``invalid-argument`` for a literal that is not comparable with the values.
        """

        def literal(value: Any) -> Any:
            return None if value is None else _in_type(value, dtype, calendar, name)

        def comparison(test: ValueComparison) -> Predicate:
            if test.op in _TEXTS:
                is_text = isinstance(test.value, str) and (dtype.kind in "UTO" or calendar is not None)
                return test if is_text else _refuse(name, "texts", test.value)
            value = tuple(map(literal, test.value)) if test.op == "in" else literal(test.value)
            test = replace(test, value=value, nan_is_largest=nan_is_largest or test.nan_is_largest)
            return _of_integers(test) if dtype.kind in "biumM" or calendar is not None else test

        return self.each(comparison)


@dataclass(frozen=True, slots=True)
class ValueComparison(Predicate):
    """A comparison of values with a literal.

    Attributes:
        op: One of ``OPERATORS``.
        value: The literal; a tuple for ``in``.
        column: The name of the column; empty for the values of an array.
        negated: Whether the condition is true where the comparison is false.
        nan_is_largest: See ``Predicate.typed``.
    """

    op: str
    value: Any = None
    column: str = ""
    negated: bool = False
    nan_is_largest: bool = False

    @override
    def comparisons(self) -> Iterator[ValueComparison]:
        yield self

    @override
    def each(self, change: Callable[[ValueComparison], Predicate]) -> Predicate:
        return change(self)

    @override
    def negation(self) -> ValueComparison:
        return replace(self, negated=not self.negated)

    @override
    def fold(self, mask: Callable[[ValueComparison], Mask]) -> Mask:
        return mask(self)

    @property
    def literals(self) -> tuple[Any, ...]:
        """The literals: one, or those of ``in``."""
        return self.value if self.op == "in" else (self.value,)

    @property
    def _is_of_null(self) -> bool:
        """Whether the comparison asks for null, so that it is never null itself."""
        return self.op == "null" or (self.op == "<=>" and self.value is None)

    @property
    def _is_never_true(self) -> bool:
        """Whether a literal is null, so that the condition is false or null."""
        has_null = not self._is_of_null and any(each is None for each in self.literals)
        return has_null and (self.negated or self.op != "in")

    def is_met(self, values: NDArray[Any], null: Mask | None = None) -> Mask:
        """Return which values meet the condition."""
        if self._is_never_true:
            return np.zeros(values.shape, np.bool_)
        if self._is_of_null:
            is_true = np.zeros(values.shape, np.bool_) if null is None else null
            return ~is_true if self.negated else is_true.copy()
        is_text = self.op in _TEXTS or any(isinstance(each, str) for each in self.literals)
        is_true = np.asarray(self._met_by(comparable(values, null, is_text)))
        if self.negated:
            is_true = np.logical_not(is_true, out=is_true)
        if null is not None:
            is_null_met = self.op == "<=>" and self.negated
            return np.asarray(is_true | null if is_null_met else is_true & ~null)
        return is_true

    def _met_by(self, data: NDArray[Any]) -> Any:
        if self.op in _TEXTS:
            return _TEXTS[self.op][0](data, self.value)
        if self.op == "in":
            is_member = np.isin(data, self._members(data.dtype))
            if self.nan_is_largest and data.dtype.kind == "f" and any(each != each for each in self.literals):
                is_member |= np.isnan(data)
            return is_member
        compare = _ORDER[self.op]
        if not self.nan_is_largest or data.dtype.kind != "f":
            return compare(data, self.value)
        if self.value != self.value:
            is_nan = np.isnan(data)
            of_nan = {"<": ~is_nan, "<=": np.ones_like(is_nan), ">": np.zeros_like(is_nan)}
            return of_nan.get(self.op, is_nan)
        opposite = {">": operator.le, ">=": operator.lt}.get(self.op)
        return compare(data, self.value) if opposite is None else ~opposite(data, self.value)

    def _members(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the literals of ``=`` and ``in`` that are not null, in order."""
        members = [each for each in self.literals if each is not None]
        if dtype.kind == "f":
            return np.sort(np.array(members, None if members else dtype))
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            members = [each for each in members if limits.min <= each <= limits.max]
        return np.sort(np.array(members, dtype if dtype.kind in "iu" else _TEXT_TYPE))

    def between(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[Mask, Mask]:
        """Return where a number of an interval may meet the condition, and where all must.

        Numbers are neither NaN nor null. Both ends of an interval are values.
        """
        if self._is_of_null or self._is_never_true:
            is_met = np.full(low.shape, self._is_of_null and self.negated)
            return is_met, is_met
        low, high = comparable(low), comparable(high)
        ends = np.asarray(self._met_by(low)), np.asarray(self._met_by(high))
        some, every = ends[0] | ends[1], ends[0] & ends[1]
        if self.op in ("=", "<=>", "in"):
            members, every = self._members(low.dtype), every & (low == high)
            some = np.searchsorted(members, low, "left") < np.searchsorted(members, high, "right")
        return (~every, ~some) if self.negated else (some, every)

    def __str__(self) -> str:
        name = f"`{self.column}` " if self.column else ""
        negation = "NOT " if self.negated else ""
        if self.op == "null":
            return f"{name}IS {negation}NULL"
        if self.op == "in":
            return f"{name}{negation}IN ({', '.join(map(_literal_text, self.value))})"
        if self.op in _TEXTS:
            return f"{name}{negation}LIKE {_literal_text(_TEXTS[self.op][1].format(self.value))}"
        return f"{negation}{name}{self.op} {_literal_text(self.value)}"


@dataclass(frozen=True, slots=True)
class Junction(Predicate):
    """At least one condition, of which all must be true (AND), or one (OR). See `joined`."""

    parts: tuple[Predicate, ...]
    is_all: bool

    @override
    def comparisons(self) -> Iterator[ValueComparison]:
        for part in self.parts:
            yield from part.comparisons()

    @override
    def each(self, change: Callable[[ValueComparison], Predicate]) -> Predicate:
        return Junction(tuple(part.each(change) for part in self.parts), self.is_all)

    @override
    def negation(self) -> Junction:
        return Junction(tuple(part.negation() for part in self.parts), not self.is_all)

    @override
    def fold(self, mask: Callable[[ValueComparison], Mask]) -> Mask:
        masks = (part.fold(mask) for part in self.parts)
        return reduce(operator.and_ if self.is_all else operator.or_, masks)

    def __str__(self) -> str:
        texts = (f"({part})" if isinstance(part, Junction) else str(part) for part in self.parts)
        return (" AND " if self.is_all else " OR ").join(texts)


#: The condition that all values meet.
ALWAYS: Final = Junction((ValueComparison("null"), ValueComparison("null", negated=True)), False)


def joined(parts: Iterable[Predicate], *, is_all: bool) -> Predicate:
    """Return the junction of one or more conditions, without a junction of the same kind in it."""
    flat: list[Predicate] = []
    for part in parts:
        flat += part.parts if isinstance(part, Junction) and part.is_all == is_all else [part]
    return flat[0] if len(flat) == 1 else Junction(tuple(flat), is_all)


def comparable(data: NDArray[Any], null: Mask | None = None, is_text: bool = False) -> NDArray[Any]:
    """Return values as they are compared: numbers, or texts. Times are integers in their unit.

    Objects of cftime are microseconds since 1970 in their calendar, and ISO texts if ``is_text``.
    """
    kind = data.dtype.kind
    if kind in "mM":
        if np.datetime_data(data.dtype)[0] in "YM":
            data = data.astype(f"{kind}8[D]")
        return data.view(f"{data.dtype.str[0]}i8")
    if kind == "b":
        return data.view(np.int8)
    if kind != "O":
        return data
    values = data.reshape(-1) if null is None else data[~null]
    if is_text or (len(values) and isinstance(values[0], str)):
        texts = np.full(data.size, "", object)
        texts[slice(None) if null is None else ~null.reshape(-1)] = [
            each if isinstance(each, str) else each.isoformat(" ") for each in values
        ]
        return texts.astype(_TEXT_TYPE).reshape(data.shape)
    if not len(values):
        return np.zeros(data.shape, np.int64)
    return TimeUnits(_SINCE, values[0].calendar).encode(data, null, "times")


def _refuse(name: str, demand: str, value: Any) -> NoReturn:
    raise InvalidInputError(
        f"the literals of a condition on {name} must be {demand}, got {_literal_text(value)}"
    )


def _in_type(value: Any, dtype: np.dtype[Any], calendar: str | None, name: str) -> Any:
    """Return a literal as it is compared with values of a type. Integers can still have a fraction."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        value = value.item()
    if calendar is not None or dtype.kind in "mM":
        return _ticks(value, dtype, calendar, name)
    if dtype.kind in "UTO":
        return value if isinstance(value, str) else _refuse(name, "texts", value)
    if isinstance(value, bool):
        return int(value) if dtype.kind == "b" else _refuse(name, "numbers", value)
    if dtype.kind not in "biuf" or not isinstance(value, int | float | Decimal):
        _refuse(name, "numbers" if dtype.kind in "biuf" else "null", value)
    return _nearest(value, dtype) if dtype.kind == "f" else value


def _nearest(number: float | Decimal, dtype: np.dtype[Any]) -> Any:
    """Return a number in a floating-point type, or with 64 bits if the type has no such number."""
    try:
        exact = np.float64(float(number))
    except OverflowError:  # an integer
        exact = np.float64(inf if number > 0 else -inf)
    with np.errstate(over="ignore"):
        typed = exact.astype(dtype.newbyteorder("="))
    return exact if np.isinf(typed) else typed


def _ticks(value: Any, dtype: np.dtype[Any], calendar: str | None, name: str) -> Any:
    """Return a time or a duration in the unit of values; with a fraction if it is between two of them."""
    is_duration, rest = dtype.kind == "m", Fraction(0)
    if is_duration and isinstance(value, timedelta | np.timedelta64):
        ticks = np.array([value], "m8[us]")
    elif isinstance(value, str) or (
        not is_duration and (isinstance(value, Moment | date | np.datetime64) or hasattr(value, "calendar"))
    ):
        units = TimeUnits(_SINCE, calendar or "proleptic_gregorian")
        units = TimeUnits("microseconds", None) if is_duration else units
        text = value.text if isinstance(value, Moment) else value
        text = text.isoformat() if hasattr(text, "isoformat") else str(text)
        digits = re.search(r"\.\d{6}(\d+)", text)  # below a microsecond
        rest = Fraction(f"0.{digits[1]}" if digits else 0)
        try:
            ticks = units.parse(np.array([text], object), f"a condition on {name}")
            ticks = ticks if ticks.dtype.kind in "mM" else units.encode(ticks, None, name)
        except InvalidInputError as error:
            raise InvalidInputError(error.problem) from None
    else:
        demand = "durations, such as '90 s'" if is_duration else "times, such as '2024-03-01'"
        _refuse(name, demand, value)
    unit, count = np.datetime_data(dtype) if dtype.kind in "mM" else ("us", 1)
    step = _UNITS["D"] if unit in "YM" else count * _UNITS[unit]
    return (int(ticks.astype(np.int64)[0]) + rest) / step


def _of_integers(test: ValueComparison) -> Predicate:
    """Return the same condition with integers only, so that it is exact."""
    if test.op == "in":
        values = tuple(each for each in map(_whole, test.value) if each is None or isinstance(each, int))
        return replace(test, value=values)
    value = _whole(test.value)
    if value is None or isinstance(value, int):
        return replace(test, value=value)
    if test.op == "<=>":  # no integer is equal to the value, and null is not
        return ALWAYS if test.negated else ALWAYS.negation()
    nothing = replace(test, op="in", value=())
    if test.op == "=":
        return nothing
    if value != value:
        is_true = test.nan_is_largest and test.op in ("<", "<=")
    elif abs(value) == inf:
        is_true = (test.op in ("<", "<=")) == (value > 0)
    else:
        return replace(test, op=_BELOW[test.op], value=floor(value))
    return replace(nothing, negated=test.negated != is_true)


def _whole(value: Any) -> Any:
    """Return a number without a fraction as an integer, and one beyond all integers as infinite."""
    if value is None or isinstance(value, int) or value != value:
        return value
    if value > _BEYOND or value < -_BEYOND:
        return inf if value > 0 else -inf
    return int(value) if value == floor(value) else value


def _literal_text(value: Any) -> str:
    """Return a literal as it is written in a condition."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Moment):
        return f"TIMESTAMP {_literal_text(value.text)}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool | float) else str(value)


# ---- the grammar

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')
    | (?P<number>(?:[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|[-+]inf(?:inity)?)(?![\w.]))
    | `(?P<quoted>[^`]+)`
    | (?P<word>[^\W\d][\w./]*)
    | (?P<sign><=>|==|!=|<>|<=|>=|[=<>(),]))""",
    re.VERBOSE | re.IGNORECASE,
)
_CONSTANTS: Final = dict[str, Any](true=True, false=False, null=None, nan=np.nan, inf=inf, infinity=inf)
_WORDS: Final = frozenset({"and", "or", "not", "in", "between", "like", "is"})
#: The most levels of parentheses, and the most digits of an integer.
_DEPTH: Final = 50
_DIGITS: Final = 400


def parse(text: str, *, has_columns: bool = False) -> Predicate:
    """Return the condition of a text: on columns of a table, or on the values of one array.

    Raises:
        InvalidInputError: ``invalid-argument`` with the place, what was expected, and what is there.
    """
    parser = _Parser(text, has_columns)
    condition = parser.condition()
    parser.require("", "AND, OR or the end")
    return condition


class _Parser:
    """A parser of a text, with the place of the next token."""

    def __init__(self, text: str, has_columns: bool) -> None:
        self._text, self._has_columns = text, has_columns
        self._tokens: list[tuple[str, str, int]] = []
        self._at = self._depth = end = 0
        while match := _TOKEN.match(text, end):
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind], match.start(kind)))
            end = match.end()
        rest = text[end:]
        self._tokens.append(("rest" if rest.strip() else "end", rest.strip(), len(text) - len(rest.lstrip())))

    def condition(self) -> Predicate:
        """Return the condition at this place, up to what does not belong to it."""
        return self._joined("or", lambda: self._joined("and", self._one))

    def require(self, token: str, expected: str) -> None:
        """Go on after a token; an empty one is the end."""
        if not self._accept(token):
            self._fail(expected)

    def _joined(self, word: str, part: Callable[[], Predicate]) -> Predicate:
        parts = [part()]
        while self._accept(word):
            parts.append(part())
        return joined(parts, is_all=word == "and")

    def _one(self) -> Predicate:
        is_negated = False
        while self._next() == "not" and self._next(1) not in ("in", "between", "like"):
            is_negated, self._at = not is_negated, self._at + 1
        if self._accept("("):
            self._depth += 1
            if self._depth > _DEPTH:
                self._fail(f"at most {_DEPTH} levels of parentheses")
            condition = self.condition()
            self.require(")", "AND, OR or )")
            self._depth -= 1
        else:
            condition = self._test()
        return condition.negation() if is_negated else condition

    def _test(self) -> Predicate:
        column = ""
        kind, text, _ = self._tokens[self._at]
        if self._has_columns:
            if kind != "quoted" and (kind != "word" or text.lower() in _WORDS):
                self._fail("the name of a column, NOT or (")
            column, self._at = text, self._at + 1
        is_negated = self._accept("not")
        if self._accept("in"):
            self.require("(", "(")
            values = [self._literal()]
            while self._accept(","):
                values.append(self._literal())
            self.require(")", "a comma or )")
            return ValueComparison("in", tuple(values), column, is_negated)
        if self._accept("between"):
            low = ValueComparison(">=", self._literal(), column)
            self.require("and", "AND")
            both = Junction((low, ValueComparison("<=", self._literal(), column)), True)
            return both.negation() if is_negated else both
        if self._accept("like"):
            return ValueComparison(*self._pattern(), column, is_negated)
        if not is_negated and self._accept("is"):
            is_negated = self._accept("not")
            self.require("null", "NULL")
            return ValueComparison("null", None, column, is_negated)
        sign = self._next()
        op, is_other = SPELLINGS.get(sign, (sign, False))
        if is_negated or op not in _ORDER:
            signs = "=, !=, <, <=, >, >=, IN, BETWEEN, IS NULL"
            self._fail("IN, BETWEEN or LIKE" if is_negated else f"a comparison ({signs})")
        self._at += 1
        return ValueComparison(op, self._literal(), column, is_other)

    def _literal(self) -> Any:
        kind, text, _ = self._tokens[self._at]
        word = text.lower()
        if kind == "word" and word in ("timestamp", "date") and self._tokens[self._at + 1][0] == "text":
            self._at += 1
            return Moment(str(self._literal()))
        value: Any = None
        if kind == "text":
            value = text[1:-1].replace("''", "'")
        elif kind == "word" and word in _CONSTANTS:
            value = _CONSTANTS[word]
        elif kind == "number":
            value = self._number(word)
        else:
            self._fail("a literal: a number, a 'text', TIMESTAMP '...', true, false or null")
        self._at += 1
        return value

    def _number(self, text: str) -> Any:
        if "inf" in text:
            return float(text)
        if text.lstrip("+-").isdecimal() and len(text) <= _DIGITS:
            return int(text)
        try:
            number = Decimal(text)
        except InvalidOperation:
            self._fail("a number with a smaller exponent")
        return number

    def _pattern(self) -> tuple[str, str]:
        """Return the comparison and the text of a pattern of LIKE."""
        kind, text, _ = self._tokens[self._at]
        pattern = text[1:-1].replace("''", "'") if kind == "text" else ""
        inner = pattern.removeprefix("%").removesuffix("%")
        forms = {form.format(inner): op for op, (_, form) in _TEXTS.items()} | {inner: "="}
        if pattern not in forms or not inner or set(inner) & {"%", "_", "\\"}:
            self._fail("a pattern 'x', 'x%', '%x' or '%x%'")
        self._at += 1
        return forms[pattern], inner

    def _next(self, ahead: int = 0) -> str:
        """Return the word or the sign at this place, in lower case."""
        kind, text, _ = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        return text.lower() if kind in ("word", "sign", "end") else "?"

    def _accept(self, token: str) -> bool:
        is_next = self._next() == token
        self._at += is_next and bool(token)
        return is_next

    def _fail(self, expected: str) -> NoReturn:
        kind, text, start = self._tokens[self._at]
        example = "lat >= 80 AND tas IS NOT NULL" if self._has_columns else "> 40 and <= 50"
        raise InvalidInputError(
            f"a condition must be such as `{example}`: expected {expected} at character {start + 1}, got "
            f"{'the end' if kind == 'end' else repr(text[:40])}"
        )
