"""Statistics of elements: those of each chunk of a box, and what they mean.

Integers, booleans, times and durations have exact sums. Floating-point numbers are added in short lines, as
64-bit numbers: the error of a sum is below ``SUM_ERROR`` times the sum of the magnitudes. ``squares`` has the
sum of the squares of integers. Of floating-point numbers it has the squares of the distances from the mean of
their chunk: a difference of large sums would lose the digits of a small variance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
from frazil.errors import InvalidInputError, MissingExtraError
from frazil.extras import warn_of_unreadable
from frazil.format.chunk_statistics import SQUARE_DIGITS, SUM_DIGITS, blank_rows, row_dtype
from frazil.format.columns import I64, U32, rows_by_number
from frazil.zarr_store.array_metadata import array_metadata

#: The attribute of an array that overrides the configuration of the repository.
STATISTICS_ATTRIBUTE: Final = "frazil_statistics"
#: The largest error of a sum of floating-point numbers, as a part of the sum of the magnitudes.
SUM_ERROR: Final = 2.0**-46

#: The kind of the columns for each kind of elements.
KINDS: Final = {"f": "f", "i": "i", "u": "u", "b": "u", "m": "i", "M": "i"}
_NAT: Final = np.iinfo(np.int64).min
_DIGIT: Final = 32
_MASK: Final = (1 << _DIGIT) - 1
#: The number of bytes of a block. It fits into the cache of a processor, also as larger numbers.
_BLOCK: Final = 1 << 18
#: The number of elements whose sum is one number: the sums of lines are added afterwards.
_LINE: Final = 256
#: The same for sums of floating-point numbers. In any order, the error stays below ``SUM_ERROR``.
_FLOAT_LINE: Final = 64
#: The number of terms of integers: two of the sum, and four of the sum of squares.
_TERMS: Final = 6
#: The part of a sum of squares below which a variance has lost too many digits.
_CANCELLED: Final = 2.0**-24


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """What the elements of an array mean for statistics.

    Attributes:
        context: The digest of everything that decides about the statistics of stored bytes, 16 bytes. The
            second half is of what attributes decide: other readers can make it of the attributes.
        kind: The kind of the columns: ``f``, ``i`` or ``u``.
        coding: How elements become values.
        is_wanted: What the array says about statistics of new chunks; None if it says nothing.
    """

    context: bytes
    kind: str
    coding: Coding
    is_wanted: bool | None

    def hidden(self, coding: Coding, rows: NDArray[Any] | Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return which rows have elements that statistics leave out as missing, and that are values here."""
        has_missing = coding.promoted is not None or coding.is_time
        is_same = has_missing and repr(coding.fills) == repr(self.coding.fills)
        missing = rows["missing"]
        return np.zeros(missing.shape, np.bool_) if is_same else np.asarray(missing > 0)


@lru_cache(256)
def meaning_of(document: bytes) -> Meaning | None:
    """Return what the elements of an array mean.

    It is None if they are not real numbers, are not decoded in bulk, or have attributes that mean nothing.
    """
    encoding = encoding_of(document)
    if encoding is None or encoding.dtype.kind not in KINDS:
        return None
    metadata = json.loads(document)
    attributes = metadata.get("attributes", {})
    try:
        coding = coding_of(attributes, encoding.dtype)
    except InvalidInputError:  # who decodes values gets the error
        return None
    dtype = encoding.dtype if coding.unsigned is None else coding.unsigned
    grid = metadata["chunk_grid"]
    parts = (
        *(metadata["data_type"], metadata["codecs"], metadata["fill_value"]),
        # The lengths of a rectilinear grid are in the extents of the chunks, and change when it grows.
        grid if grid["name"] == "regular" else grid["name"],
        *(repr(coding.fills), str(coding.unsigned)),
    )
    context = sha256(json.dumps(parts, sort_keys=True).encode()).digest()[:8] + _missing_digest(coding)
    wish = attributes.get(STATISTICS_ATTRIBUTE)
    return Meaning(context, KINDS[dtype.kind], coding, wish if isinstance(wish, bool) else None)


def _missing_digest(coding: Coding) -> bytes:
    """Return the digest of the missing elements as sorted float64, and of a 1 for ``_Unsigned``: 8 bytes."""
    stored = coding.dtype.newbyteorder("=")
    # + 0.0: zeros have one sign.
    missing = {float(_numbers(coding, np.asarray(fill, stored))) + 0.0 for fill in coding.fills}
    if coding.is_time:
        missing.discard(float(_NAT))  # not of an attribute
    numbers = [*sorted(each for each in missing if each == each), float(coding.unsigned is not None)]
    return sha256(np.array(numbers, "<f8").tobytes()).digest()[:8]


def has_meaning(document: bytes, path: str, *, required: bool = False) -> bool:
    """Return whether an array can have statistics.

    An array that no installed package reads gives a warning, or its error if it is ``required``.
    """
    if meaning_of(document) is not None:
        return True
    try:
        array_metadata(document, path)
    except (InvalidInputError, MissingExtraError) as error:
        if required:
            raise
        warn_of_unreadable(path, error)
    return False


def extents_of(encoding: Encoding, index: NDArray[np.integer]) -> U32:
    """Return the shapes of the part of each chunk that the array has, for coordinates of shape (n, ndim)."""
    out = np.zeros(index.shape, np.uint32)
    for axis, (length, size) in enumerate(zip(encoding.lengths, encoding.shape, strict=True)):
        low, high = chunk_bounds(index[:, axis].astype(np.int64), length)
        out[:, axis] = np.clip(np.minimum(high, size) - low, 0, None)
    return out


def chunk_rows(meaning: Meaning, encoding: Encoding, index: U32, chunks: NDArray[Any]) -> NDArray[Any]:
    """Return the statistics of chunks of one shape, elements of shape (m, *shape), as m rows."""
    rows = blank_rows((len(chunks),), row_dtype(meaning.kind, index.shape[1]))
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


def _equal_rows(rows: U32) -> list[I64]:
    """Return the numbers of equal rows, for each distinct row. Most chunks have the same shape."""
    if not len(rows) or (rows == rows[0]).all():
        return [np.arange(len(rows))]
    return rows_by_number(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))


def statistics_of(meaning: Meaning, elements: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the columns of statistics for each row of elements, shape (m, n) with n > 0.

    Blocks of elements have statistics first. A block has some rows, or a part of a long row.
    """
    stored = np.ascontiguousarray(elements)
    if not stored.dtype.isnative:
        stored = stored.astype(stored.dtype.newbyteorder("="))
    numbers = _numbers(meaning.coding, stored)
    m, n = numbers.shape
    most = _BLOCK // numbers.itemsize
    width, rows = min(n, most), max(1, most // n)
    shape, is_float = (m, -(-n // width)), meaning.kind == "f"
    count, (nan, missing) = np.full(shape, width), np.zeros((2, *shape), np.int64)
    count[:, -1] = n - width * (shape[1] - 1)
    low, high = np.empty((2, *shape), np.float64 if numbers.dtype == np.float16 else numbers.dtype)
    sums = np.empty((*shape, 2 if is_float else _TERMS), np.float64 if is_float else np.int64)
    sums_of, buffer = (_float_sums if is_float else _integer_sums), np.empty(min(m * n, most))
    with np.errstate(invalid="ignore", over="ignore"):
        for row, block in product(range(0, m, rows), range(shape[1])):
            at = slice(row, row + rows), block
            part = numbers[at[0], block * width : (block + 1) * width]
            if part.dtype == np.float16:  # processors compare no half numbers
                part = _copied(part, buffer)
            low[at], high[at] = np.minimum.reduce(part, axis=1), np.maximum.reduce(part, axis=1)
            sums[at] = sums_of(part, low[at], high[at], buffer)
        # Most blocks have no element to leave out, and the extremes show this.
        for at, spot in _groups(_suspects(meaning, stored, low, high), rows, width):
            nan[at], missing[at], low[at], high[at], part = _without(meaning, stored[spot], numbers[spot])
            count[at] -= nan[at] + missing[at]
            sums[at] = sums_of(part, low[at], high[at], buffer)
        if is_float:
            means, squares = sums[..., 0] / np.maximum(count, 1), sums[..., 1].copy()
            sums[..., 1] -= sums[..., 0] * means
            # Where most digits cancel, or squares are too large, distances are squared instead.
            for at, spot in _groups(~(sums[..., 1] >= squares * _CANCELLED), rows, width):
                distances = numbers[spot] - means[at][:, None]
                if (count[at] < distances.shape[1]).any():
                    distances[_left_out(meaning, stored[spot])] = 0
                sums[(*at, 1)] = _line_sums(distances, _LINE, squares=True).sum(axis=1)
        joined = _joined_floats(count, sums) if is_float else _joined_integers(sums)
    low, high = low.min(axis=1), high.max(axis=1)
    is_empty = ~count.any(axis=1)
    low[is_empty], high[is_empty] = 0, 0
    return {
        "nan": nan.sum(axis=1),
        "missing": missing.sum(axis=1),
        "minimum": low,
        "maximum": high,
        "sum": joined[0],
        "squares": joined[1],
    }


def _numbers(coding: Coding, stored: NDArray[Any]) -> NDArray[Any]:
    """Return elements, extremes or a fill value as the numbers that have their order."""
    if coding.unsigned is not None:
        return stored.view(coding.unsigned.newbyteorder("="))
    return stored.view({"m": np.int64, "M": np.int64, "b": np.uint8}.get(stored.dtype.kind, stored.dtype))


def _groups(is_member: NDArray[np.bool_], rows: int, width: int) -> Iterator[tuple[Any, Any]]:
    """Yield the places of some blocks in the columns, and in the elements. They are not more than a block."""
    for block in np.flatnonzero(is_member.any(axis=0)).tolist():
        members = np.flatnonzero(is_member[:, block])
        for first in range(0, len(members), rows):
            row = members[first : first + rows]
            yield (row, block), (row, slice(block * width, (block + 1) * width))


def _left_out(meaning: Meaning, stored: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements are NaN, NaT or missing."""
    left_out = _is_nan(stored)
    for fill in meaning.coding.fills:
        if fill == fill:
            left_out |= stored == fill
    return left_out


def _without(meaning: Meaning, stored: NDArray[Any], numbers: NDArray[Any]) -> tuple[Any, ...]:
    """Return columns without elements that are NaN, NaT or missing, and the numbers with zeros for them.

    The columns are the counts of NaN and missing elements, and the extremes.
    """
    left_out = _left_out(meaning, stored)
    nan = _counts(_is_nan(stored))
    missing = _counts(left_out) - nan
    top, bottom = limits(numbers.dtype)
    if numbers.dtype.kind != "f":
        low = np.where(left_out, top, numbers).min(axis=1)
        high = np.where(left_out, bottom, numbers).max(axis=1)
        numbers[left_out] = 0
        return nan, missing, low, high, numbers
    if numbers.dtype == np.float16:
        numbers = numbers.astype(np.float32)
    if missing.any():
        numbers[left_out] = np.nan
    low, high = np.fmin.reduce(numbers, axis=1, initial=top), np.fmax.reduce(numbers, axis=1, initial=bottom)
    # Faster than a mask: one term is 0, and both are for NaN.
    return nan, missing, low, high, np.fmax(numbers, 0) + np.fmin(numbers, 0)


def _counts(mask: NDArray[np.bool_]) -> I64:
    """Return how many elements of each row are true, several times as fast as a sum."""
    return np.bitwise_count(np.packbits(mask, axis=1)).sum(axis=1, dtype=np.int64)


def limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the largest and the smallest number of a type."""
    if dtype.kind == "f":
        return np.inf, -np.inf
    return np.iinfo(dtype).max, np.iinfo(dtype).min


def _is_nan(stored: NDArray[Any]) -> NDArray[np.bool_]:
    if stored.dtype.kind == "f":
        return np.asarray(np.isnan(stored))
    return np.asarray(np.isnat(stored)) if stored.dtype.kind in "mM" else np.zeros(stored.shape, np.bool_)


def _suspects(meaning: Meaning, stored: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Return which blocks may have elements that are NaN, NaT or missing."""
    suspect = np.zeros(low.shape, np.bool_)
    if stored.dtype.kind == "f":
        suspect |= np.isnan(low)  # the smallest element of numbers with a NaN is NaN
    elif stored.dtype.kind in "mM":
        suspect |= low == _NAT
    for fill in meaning.coding.fills:
        if fill == fill:
            number = _numbers(meaning.coding, np.asarray(fill, stored.dtype))
            suspect |= ~((number < low) | (number > high))
    return suspect


def _copied(part: NDArray[Any], buffer: NDArray[Any]) -> NDArray[Any]:
    """Return a block as numbers of the type of the buffer, which it overwrites."""
    copy = buffer[: part.size].reshape(part.shape)
    np.copyto(copy, part)
    return copy


def _line_sums(part: NDArray[Any], length: int, *, squares: bool) -> NDArray[np.float64]:
    """Return the sums of lines of each row, or of their squares, shape (m, lines).

    A line is so short that BLAS uses no threads.
    """
    m, n = part.shape
    whole = n - n % length
    sums, ones = np.empty((m, -(-n // length))), np.ones(length, part.dtype)
    for lines, place in (
        (part[:, :whole].reshape(m, whole // length, length), slice(0, whole // length)),
        (part[:, None, whole:], slice(whole // length, None)),
    ):
        if lines.size:
            np.vecdot(lines, lines if squares else ones[: lines.shape[-1]], out=sums[:, place])
    return sums


def _float_sums(
    part: NDArray[Any], _low: NDArray[Any], _high: NDArray[Any], buffer: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sums of rows, and of their squares, shape (m, 2)."""
    if part.dtype != buffer.dtype:
        part = _copied(part, buffer)
    sums = _line_sums(part, _FLOAT_LINE, squares=False), _line_sums(part, _LINE, squares=True)
    return np.stack([each.sum(axis=1) for each in sums], axis=-1)


def _integer_sums(
    part: NDArray[Any], low: NDArray[Any], high: NDArray[Any], buffer: NDArray[np.float64]
) -> I64:
    """Return terms of the exact sums of rows, and of their squares, shape (m, 6): two terms, and four.

    ``low`` and ``high`` are the extremes of the rows. A term k stands for ``term << 32 * k``.
    """
    terms = np.zeros((len(part), _TERMS), np.int64)
    largest = max(int(high.max()), -int(low.min()))
    if largest**2 * _LINE < 1 << 53:  # lines have exact sums
        exact: NDArray[Any] = buffer.view(np.float32) if largest**2 * _LINE < 1 << 24 else buffer
        numbers = _copied(part, exact)
        for place, squares in ((0, False), (2, True)):
            sums = _line_sums(numbers, _LINE, squares=squares)
            terms[:, place] = sums.astype(np.int64).sum(axis=1)
        return terms
    digit = np.uint64(_MASK), np.uint64(_DIGIT)
    # The magnitude of the smallest number, too, although its absolute value is out of the range of its type.
    wide = part.astype(np.int64) if part.dtype.kind == "i" else part.astype(np.uint64)
    for place, half in enumerate((wide & wide.dtype.type(_MASK), wide >> wide.dtype.type(_DIGIT))):
        terms[:, place] = half.sum(axis=1, dtype=np.int64)
    magnitude: NDArray[Any] = np.abs(wide).view(np.uint64)
    low, high = magnitude & digit[0], magnitude >> digit[1]
    for place, times, half in ((2, 1, low * low), (3, 2, low * high), (4, 1, high * high)):
        terms[:, place] += times * (half & digit[0]).sum(axis=1).view(np.int64)
        terms[:, place + 1] += times * (half >> digit[1]).sum(axis=1).view(np.int64)
    return terms


def _joined_floats(count: I64, sums: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sums of rows, and of the squares of the distances from their means, from those of blocks."""
    total = sums[..., 0].sum(axis=1)
    means, mean = sums[..., 0] / np.maximum(count, 1), total / np.maximum(count.sum(axis=1), 1)
    squares = np.maximum(sums[..., 1], 0) + count * (means - mean[:, None]) ** 2
    return total, squares.sum(axis=1)


def _joined_integers(terms: I64) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the digits of the sums of rows, and of their squares, from the terms of blocks."""
    for place in (0, 2):  # so that the terms of many blocks add up in 64 bits
        terms[..., place + 1] += terms[..., place] >> _DIGIT
        terms[..., place] &= _MASK
    total = terms.sum(axis=1).T
    return to_digits(list(total[:2]), SUM_DIGITS), to_digits(list(total[2:]), SQUARE_DIGITS)


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
