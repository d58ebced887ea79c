"""Conditions on columns, with the semantics of Spark.

    =  <=>  <  <=  >  >=  IN  IS NULL  LIKE 'x%' '%x' '%x%', and NOT before any of them

A condition is true, false or null; a row stays if all of its conditions are true. As in Spark, NaN equals
NaN and is larger than every other number. Numbers are compared exactly: float32 is widened to float64.
Times of other calendars are compared as times, and with LIKE as text. ``comparable`` refuses values without
an exact comparison (a decimal, a date, a number with a text), so that Spark compares them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from frazil.spark.tables.decoding import Values, to_arrow

type Mask = NDArray[np.bool_]

COMPARISONS: Final = ("=", "<=>", "<", "<=", ">", ">=")
TEXTS: Final = ("starts", "ends", "contains")
_EXACT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition on ``column``.

    ``op`` is one of ``COMPARISONS``, ``TEXTS``, "in" or "null". ``value`` is compared with the column; it is
    a tuple for "in", and unused for "null". With ``negated`` the condition is NOT.
    """

    column: str
    op: str
    value: Any = None
    negated: bool = False

    def comparable(self, column: pa.DataType) -> bool:
        """Return whether ``holds`` gives exactly the result of Spark for values of this type."""
        if self.op == "null":
            return True
        values = self.value if self.op == "in" else (self.value,)
        if self.op in TEXTS:
            return pa.types.is_string(column) and isinstance(self.value, str)
        return all(each is None or _matches(column, each) for each in values)

    def holds(self, values: Values) -> Mask:
        """Return where the condition is true, in the shape of the values."""
        true, unknown = self._evaluate(values)
        return ~(true | unknown) if self.negated else true & ~unknown

    def _evaluate(self, values: Values) -> tuple[Mask, Mask]:
        nothing = np.zeros(values.data.shape, np.bool_)
        null = nothing if values.null is None else values.null
        if self.op == "null":
            return null, nothing
        if self.op == "<=>":
            if self.value is None:
                return null, nothing
            return _compare("=", values, self.value) & ~null, nothing
        if self.op == "in":
            given = [each for each in self.value if each is not None]
            among = _among(values, given) & ~null
            return among, null | (~among if len(given) < len(self.value) else nothing)
        if self.value is None:
            return nothing, ~nothing
        return _compare(self.op, values, self.value), null


def _matches(column: pa.DataType, value: Any) -> bool:
    if pa.types.is_string(column):
        return isinstance(value, str) or hasattr(value, "calendar")
    if pa.types.is_boolean(column):
        return isinstance(value, bool)
    if pa.types.is_timestamp(column):
        return isinstance(value, datetime)
    if isinstance(value, bool):
        return False
    if pa.types.is_integer(column):
        return isinstance(value, int)
    if pa.types.is_floating(column):
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT)
    return False


def _compare(op: str, values: Values, value: Any) -> Mask:
    data = values.data
    if hasattr(value, "calendar"):  # objects of cftime, None where they are null
        times = data if values.null is None else np.where(values.null, value, data)
        return np.asarray(_NUMBERS[op](times, value), np.bool_)
    if data.dtype.kind in "UTO":
        return _compare_text(op, values, value)
    if data.dtype.kind == "M":
        return _NUMBERS[op](_microseconds(data), micros(value))
    if data.dtype.kind == "f":
        return _FLOATS[op](data.astype(np.float64, copy=False), float(value))
    return _NUMBERS[op](data, value)


def _among(values: Values, given: list[Any]) -> Mask:
    data = values.data
    if not given:
        return np.zeros(data.shape, np.bool_)
    if hasattr(given[0], "calendar"):
        return np.asarray(np.logical_or.reduce([_compare("=", values, each) for each in given]))
    if data.dtype.kind in "UTO":
        flat = to_arrow(Values(data.reshape(-1), _flat(values.null)), pa.string())
        return _mask(pc.is_in(flat, pa.array(given, pa.string())), data.shape)
    if data.dtype.kind == "M":
        return np.isin(_microseconds(data), np.array(list(map(micros, given)), np.int64))
    if data.dtype.kind == "f":
        wide = data.astype(np.float64, copy=False)
        is_among = np.isin(wide, np.array(given, np.float64))
        return is_among | np.isnan(wide) if any(each != each for each in given) else is_among
    if data.dtype.kind in "iu":
        limits = np.iinfo(data.dtype)
        inside = [each for each in given if limits.min <= each <= limits.max]
        return np.isin(data, np.array(inside, data.dtype))
    return np.isin(data, np.array(given, data.dtype))


def micros(value: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is UTC."""
    when = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    delta = when - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _microseconds(data: NDArray[Any]) -> NDArray[np.int64]:
    return data.astype("datetime64[us]", copy=False).view(np.int64)


def _compare_text(op: str, values: Values, value: str) -> Mask:
    flat = to_arrow(Values(values.data.reshape(-1), _flat(values.null)), pa.string())
    return _mask(_WORDS[op](flat, value), values.data.shape)


def _flat(null: Mask | None) -> Mask | None:
    return None if null is None else null.reshape(-1)


def _mask(result: Any, shape: tuple[int, ...]) -> Mask:
    mask: Mask = pc.fill_null(result, False).to_numpy(zero_copy_only=False).reshape(shape)
    return mask


def _float_equal(data: NDArray[Any], value: float) -> Mask:
    return np.isnan(data) if value != value else data == value


def _float_less(data: NDArray[Any], value: float) -> Mask:
    return ~np.isnan(data) if value != value else data < value


def _not(compare: Callable[[NDArray[Any], Any], Mask], data: NDArray[Any], value: Any) -> Mask:
    return ~compare(data, value)


def _float_less_equal(data: NDArray[Any], value: float) -> Mask:
    return np.ones(data.shape, np.bool_) if value != value else data <= value


_FLOATS: Final[dict[str, Callable[[NDArray[Any], float], Mask]]] = {
    "=": _float_equal,
    "<": _float_less,
    "<=": _float_less_equal,
    ">": partial(_not, _float_less_equal),
    ">=": partial(_not, _float_less),
}
_NUMBERS: Final[dict[str, Callable[[NDArray[Any], Any], Mask]]] = {
    "=": lambda data, value: data == value,
    "<": lambda data, value: data < value,
    "<=": lambda data, value: data <= value,
    ">": lambda data, value: data > value,
    ">=": lambda data, value: data >= value,
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
