"""The chunks that a slice of one dimension touches, as columns.

The chunks of a slice fall into few *classes*: chunks from which the same elements are taken. A slice with the
step 1 has at most three: the first chunk, the chunks that are taken whole, and the last chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from frazil.format.columns import I64


@dataclass(frozen=True, slots=True, eq=False)
class AxisChunks:
    """The chunks of one dimension that a selection touches, in ascending order.

    Attributes:
        number: The numbers of the chunks, int64 of shape (k,).
        first: The first selected element in each chunk, int64 of shape (k,).
        count: The number of selected elements in each chunk, at least 1, int64 of shape (k,).
        target: The position of the first selected element in the result, int64 of shape (k,).
        length: The number of elements of each chunk along the dimension, int64 of shape (k,).
        step: The distance between selected elements.
    """

    number: I64
    first: I64
    count: I64
    target: I64
    length: I64
    step: int

    def classes(self) -> tuple[I64, I64]:
        """Return the class of each chunk, and a chunk (its row) for each class.

        All chunks of a class have equal values of ``first``, ``count`` and ``length``.
        """
        k = len(self.number)
        if k == 1:
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        middle = slice(1, k - 1)
        is_uniform = all(
            (column[middle] == column[1]).all() for column in (self.first, self.count, self.length)
        )
        if not is_uniform:
            columns = np.stack([self.first, self.count, self.length], axis=1)
            _, rows, class_ = np.unique(columns, axis=0, return_index=True, return_inverse=True)
            return class_.reshape(-1), rows
        # The usual case, without a sort: the first, the middle and the last chunks.
        rows = np.unique([0, 1, k - 1])
        class_ = np.ones(k, np.int64)
        class_[0], class_[-1] = 0, len(rows) - 1
        return _joined(class_, rows, (self.first, self.count, self.length))


def _joined(class_: I64, rows: I64, columns: tuple[I64, ...]) -> tuple[I64, I64]:
    """Return classes without doubles."""
    values = [tuple(int(column[row]) for column in columns) for row in rows.tolist()]
    distinct = list(dict.fromkeys(values))
    if len(distinct) == len(values):
        return class_, rows
    renumbered = np.array([distinct.index(value) for value in values])
    return renumbered[class_], rows[[values.index(value) for value in distinct]]


def chunks_of_slice(start: int, count: int, step: int, length: int | I64) -> AxisChunks:
    """Return the chunks of the elements ``start``, ``start + step``, ... (``count`` elements, at least 1)."""
    last = start + (count - 1) * step
    number = chunk_numbers(np.array([start, last]), length)
    if number[1] - number[0] < count:
        numbers = np.arange(number[0], number[1] + 1)
    else:  # more chunks than elements
        numbers = np.unique(chunk_numbers(start + step * np.arange(count), length))
    low, high = chunk_bounds(numbers, length)
    target = np.maximum(0, -((start - low) // step))
    end = np.minimum(count, -((start - high) // step))
    is_touched = end > target
    if not is_touched.all():
        numbers, low, high, target, end = (c[is_touched] for c in (numbers, low, high, target, end))
    return AxisChunks(numbers, start + target * step - low, end - target, target, high - low, step)


def chunk_numbers(elements: I64, length: int | I64) -> I64:
    """Return the number of the chunk of each element."""
    if isinstance(length, int):
        return elements // length
    return np.searchsorted(length, elements, "right") - 1


def chunk_bounds(numbers: I64, length: int | I64) -> tuple[I64, I64]:
    """Return the first element of each chunk, and the element after its last one."""
    if isinstance(length, int):
        low = numbers * length
        return low, low + length
    return length[numbers], length[numbers + 1]
