"""Statistics of elements: those of each chunk of a box, and what they mean.

Integers, booleans, times and durations have exact sums. Floating-point numbers are added in pairs, as 64-bit
numbers: the error of a sum is below ``SUM_ERROR`` times the sum of the magnitudes. ``squares`` has the sum of
the squares of integers. Of floating-point numbers it has the squares of the distances from the mean of their
chunk: a difference of large sums would lose the digits of a small variance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import chunk_bounds
from frazil.cf import Coding, coding_of
from frazil.format.chunk_statistics import SQUARE_DIGITS, SUM_DIGITS, row_dtype
from frazil.format.columns import I64, U32

#: The attribute of an array that overrides the configuration of the repository.
STATISTICS_ATTRIBUTE: Final = "frazil_statistics"
#: The largest error of a sum of floating-point numbers, as a part of the sum of the magnitudes.
SUM_ERROR: Final = 2.0**-46

#: The kind of the columns for each kind of elements.
KINDS: Final = {"f": "f", "i": "i", "u": "u", "b": "u", "m": "i", "M": "i"}
_NAT: Final = np.iinfo(np.int64).min
_DIGIT: Final = 32
_MASK: Final = (1 << _DIGIT) - 1
#: The number of elements that are converted and added together: they fit into the cache of a processor.
_BLOCK: Final = 1 << 16
#: The number of elements whose sum is one number: the sums of lines are added afterwards.
_LINE: Final = 256
#: The part of a sum of squares below which a variance has lost too many digits.
_CANCELLED: Final = 2.0**-20


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """What the elements of an array mean for statistics.

    Attributes:
        context: The digest of everything that decides about the statistics of stored bytes.
        kind: The kind of the columns: ``f``, ``i`` or ``u``.
        coding: How elements become values.
        is_wanted: What the array says about statistics of new chunks; None if it says nothing.
    """

    context: bytes
    kind: str
    coding: Coding
    is_wanted: bool | None

    def hidden(self, coding: Coding, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows have elements that statistics leave out as missing, and that are values here."""
        has_missing = coding.promoted is not None or coding.is_time
        is_same = has_missing and repr(coding.fills) == repr(self.coding.fills)
        return np.zeros(rows.shape, np.bool_) if is_same else np.asarray(rows["missing"] > 0)


@lru_cache(256)
def meaning_of(document: bytes) -> Meaning | None:
    """Return what the elements of an array mean, or None if they are not real numbers, or not in bulk."""
    encoding = encoding_of(document)
    if encoding is None or encoding.dtype.kind not in KINDS:
        return None
    metadata = json.loads(document)
    attributes = metadata.get("attributes", {})
    coding = coding_of(attributes, encoding.dtype)
    dtype = encoding.dtype if coding.unsigned is None else coding.unsigned
    grid = metadata["chunk_grid"]
    parts = (
        *(metadata["data_type"], metadata["codecs"], metadata["fill_value"]),
        # The lengths of a rectilinear grid are in the extents of the chunks, and change when it grows.
        grid if grid["name"] == "regular" else grid["name"],
        *(repr(coding.fills), str(coding.unsigned)),
    )
    context = sha256(json.dumps(parts, sort_keys=True).encode()).digest()[:16]
    wish = attributes.get(STATISTICS_ATTRIBUTE)
    return Meaning(context, KINDS[dtype.kind], coding, wish if isinstance(wish, bool) else None)


def extents_of(encoding: Encoding, index: NDArray[np.integer]) -> U32:
    """Return the shapes of the part of each chunk that the array has, for coordinates of shape (n, ndim)."""
    out = np.zeros(index.shape, np.uint32)
    for axis, (length, size) in enumerate(zip(encoding.lengths, encoding.shape, strict=True)):
        low, high = chunk_bounds(index[:, axis].astype(np.int64), length)
        out[:, axis] = np.clip(np.minimum(high, size) - low, 0, None)
    return out


def chunk_rows(meaning: Meaning, encoding: Encoding, index: U32, chunks: NDArray[Any]) -> NDArray[Any]:
    """Return the statistics of chunks of one shape, elements of shape (m, *shape), as m rows."""
    rows = np.zeros(len(chunks), row_dtype(meaning.kind, index.shape[1]))
    rows["extent"] = extents = extents_of(encoding, index)
    for members in _equal_rows(extents):
        rows["known"][members] = True
        if not extents[members[0]].all():  # an inner chunk of a shard outside of the array
            continue
        part = chunks if len(members) == len(chunks) else chunks[members]
        spot = tuple(slice(0, n) for n in extents[members[0]].tolist())
        elements = part[(slice(None), *spot)]
        for name, column in statistics_of(meaning, elements.reshape(len(part), -1)).items():
            rows[name][members] = column
    return rows


def _equal_rows(rows: U32) -> Iterator[I64]:
    """Yield the numbers of equal rows, for each distinct row. Most chunks have the same shape."""
    if not len(rows) or (rows == rows[0]).all():
        yield np.arange(len(rows))
        return
    _, group = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1)


def statistics_of(meaning: Meaning, elements: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the columns of statistics for each row of elements, shape (m, n) with n > 0."""
    coding = meaning.coding
    numbers = np.ascontiguousarray(elements)
    if not numbers.dtype.isnative:
        numbers = numbers.astype(numbers.dtype.newbyteorder("="))
    stored = numbers
    if coding.unsigned is not None:
        numbers = numbers.view(coding.unsigned.newbyteorder("="))
    if numbers.dtype.kind in "mM":
        numbers = numbers.view(np.int64)
    elif numbers.dtype.kind == "b":
        numbers = numbers.view(np.uint8)
    elif numbers.dtype.itemsize == 2 and numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float32)  # processors compare no half numbers
    count = np.full(len(numbers), numbers.shape[1], np.int64)
    nan = np.zeros(len(numbers), np.int64)
    missing = np.zeros(len(numbers), np.int64)
    low, high = numbers.min(axis=1), numbers.max(axis=1)
    # Most chunks have no element to leave out, and the extremes show this.
    rows = _suspects(meaning, stored, low, high)
    clean, gaps = numbers, None
    if len(rows):
        part = stored[rows]
        is_nan = _is_nan(part)
        is_missing = np.zeros(part.shape, np.bool_)
        for fill in coding.fills:
            if fill == fill:
                is_missing |= part == fill
        is_missing &= ~is_nan
        nan[rows], missing[rows] = is_nan.sum(axis=1), is_missing.sum(axis=1)
        count -= nan + missing
        left_out = is_nan | is_missing
        values = numbers[rows]
        top, bottom = limits(numbers.dtype)
        low[rows] = np.where(left_out, top, values).min(axis=1)
        high[rows] = np.where(left_out, bottom, values).max(axis=1)
        values[left_out] = 0
        clean = values if len(rows) == len(numbers) else numbers.copy()
        clean[rows] = values
        gaps = np.zeros(numbers.shape, np.bool_)
        gaps[rows] = left_out
        low[count == 0], high[count == 0] = 0, 0
    if meaning.kind == "f":
        sums, squares = _float_sums(clean, count, gaps)
    else:
        largest = int(max(abs(int(low.min())), abs(int(high.max()))))
        sums, squares = _integer_sums(clean, largest)
    return {
        "nan": nan,
        "missing": missing,
        "minimum": low,
        "maximum": high,
        "sum": sums,
        "squares": squares,
    }


def limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the largest and the smallest number of a type."""
    if dtype.kind == "f":
        return np.inf, -np.inf
    return np.iinfo(dtype).max, np.iinfo(dtype).min


def _is_nan(stored: NDArray[Any]) -> NDArray[np.bool_]:
    if stored.dtype.kind == "f":
        return np.asarray(np.isnan(stored))
    return np.asarray(np.isnat(stored)) if stored.dtype.kind in "mM" else np.zeros(stored.shape, np.bool_)


def _suspects(meaning: Meaning, stored: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> I64:
    """Return the rows that may have elements that are NaN, NaT or missing."""
    suspect = np.zeros(len(stored), np.bool_)
    if stored.dtype.kind == "f":
        suspect |= np.isnan(low)  # the smallest element of numbers with a NaN is NaN
    elif stored.dtype.kind in "mM":
        suspect |= low == _NAT
    for fill in meaning.coding.fills:
        if fill == fill:
            number = np.asarray(fill, stored.dtype)
            if meaning.coding.unsigned is not None:
                number = number.view(meaning.coding.unsigned.newbyteorder("="))
            elif stored.dtype.kind in "mM":
                number = number.view(np.int64)
            with np.errstate(invalid="ignore"):
                suspect |= ~((number < low) | (number > high))
    return np.flatnonzero(suspect)


def _line_sums(numbers: NDArray[Any], dtype: type[np.floating]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sums of lines of each row, and those of their squares, computed in a type.

    Blocks of lines are converted in the cache of the processor. A line is so short that BLAS uses no threads.
    """
    m, n = numbers.shape
    whole = n - n % _LINE
    rows, step = max(1, _BLOCK // n), _BLOCK // _LINE
    sums, squares = np.empty((2, m, -(-n // _LINE)))
    buffer = np.empty(0 if numbers.dtype == dtype else _BLOCK, dtype)
    ones, is_whole = np.ones(_LINE, dtype), numbers.dtype.kind != "f"
    lines = (numbers[:, :whole].reshape(m, whole // _LINE, _LINE), numbers[:, None, whole:])
    with np.errstate(invalid="ignore", over="ignore"):
        for begin, each in zip((0, whole // _LINE), lines[: 1 + (n > whole)], strict=False):
            for first, at in product(range(0, m, rows), range(0, each.shape[1], step)):
                part = each[first : first + rows, at : at + step]
                if len(buffer):
                    wide = buffer[: part.size].reshape(part.shape)
                    np.copyto(wide, part)
                    part = wide
                place = slice(first, first + rows), slice(begin + at, begin + at + part.shape[1])
                if is_whole:  # in any order, sums are exact
                    np.vecdot(part, ones[: part.shape[-1]], out=sums[place])
                else:
                    np.add.reduce(part, axis=-1, out=sums[place])
                np.vecdot(part, part, out=squares[place])
    return sums, squares


def _float_sums(
    numbers: NDArray[Any], count: I64, gaps: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sums of rows, and of the squares of the distances from their means. Gaps are zeros."""
    sums, squares = (part.sum(axis=1) for part in _line_sums(numbers, np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        mean = sums / np.maximum(count, 1)
        distances = squares - sums * mean
        # Where most digits cancel, distances are squared instead.
        rows = np.flatnonzero(distances < squares * _CANCELLED)
        if len(rows):
            centred = numbers[rows].astype(np.float64) - mean[rows, None]
            if gaps is not None:
                centred[gaps[rows]] = 0
            distances[rows] = (centred**2).sum(axis=1)
    return sums, np.maximum(distances, 0)


def _integer_sums(numbers: NDArray[Any], largest: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the exact sums of rows and of their squares as digits. ``largest`` is the largest magnitude."""
    if largest**2 * _LINE < 1 << 53:  # lines have exact sums
        dtype = np.float32 if largest**2 * _LINE < 1 << 24 else np.float64
        sums, squares = (part.astype(np.int64).sum(axis=1) for part in _line_sums(numbers, dtype))
        pairs = ([part & _MASK, part >> _DIGIT] for part in (sums, squares))
        return to_digits(next(pairs), SUM_DIGITS), to_digits(next(pairs), SQUARE_DIGITS)
    digit = np.uint64(_MASK), np.uint64(_DIGIT)
    # The magnitude of the smallest number, too, although its absolute value is out of the range of its type.
    wide = numbers.astype(np.int64) if numbers.dtype.kind == "i" else numbers.astype(np.uint64)
    parts = (wide & wide.dtype.type(_MASK)), wide >> wide.dtype.type(_DIGIT)
    total = to_digits([part.sum(axis=1, dtype=np.int64) for part in parts], SUM_DIGITS)
    magnitude: NDArray[Any] = np.abs(wide).view(np.uint64)
    low, high = magnitude & digit[0], magnitude >> digit[1]
    (a0, a1), (b0, b1), (c0, c1) = (
        ((half & digit[0]).sum(axis=1).view(np.int64), (half >> digit[1]).sum(axis=1).view(np.int64))
        for half in (low * low, low * high, high * high)
    )
    return total, to_digits([a0, a1 + 2 * b0, 2 * b1 + c0, c1], SQUARE_DIGITS)


def to_digits(terms: Sequence[NDArray[Any]], count: int) -> NDArray[np.uint32]:
    """Return numbers, the sums of ``terms[k] << 32 * k``, as ``count`` digits, two's complement."""
    out = np.empty((len(terms[0]), count), np.uint32)
    carry = np.zeros(len(terms[0]), np.int64)
    for place in range(count):
        total = carry + terms[place] if place < len(terms) else carry
        out[:, place] = (total & _MASK).astype(np.uint32)
        carry = total >> _DIGIT
    return out


def signed_digits(digits: NDArray[np.uint32]) -> I64:
    """Return digits as numbers of 64 bits that can be added. The last one has the sign."""
    numbers = digits.astype(np.int64)
    numbers[..., -1] = digits[..., -1].astype(np.int32)
    return numbers


def to_integer(digits: Sequence[int]) -> int:
    """Return the number with these digits, which may be sums of digits."""
    return sum(digit << _DIGIT * place for place, digit in enumerate(digits))
