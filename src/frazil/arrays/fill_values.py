"""Which chunks have only the fill value: by the rules of zarr, for many chunks at once.

A fill value of zero is compared by its bits, so that -0.0 differs from 0.0. All other values are compared as
numbers, and all NaN are equal. A complex zero is compared as a number, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The dtypes whose elements can be "not a number".
_WITH_NAN = "fcmM"


def are_fill(chunks: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether all elements of a chunk are the fill value, for each chunk.

    Args:
        chunks: The elements of m chunks, shape (m, n), with at least one element each.
        fill: The fill value, shape (), of the same dtype.

    Examples:
        >>> chunks = np.array([[0.0, 0.0], [0.0, -0.0], [1.0, 0.0]])
        >>> are_fill(chunks, np.array(0.0)).tolist(), are_fill(chunks - np.nan, np.array(np.nan)).tolist()
        ([True, False, False], [True, True, True])
    """
    if fill.dtype.kind == "f" and fill == 0 and fill.dtype.itemsize in (2, 4, 8):
        bits = np.dtype(f"u{fill.dtype.itemsize}")
        chunks, fill = chunks.view(bits), fill.view(bits)
    result = np.zeros(len(chunks), np.bool_)
    # The first and the last element tell it for most chunks.
    rows = np.flatnonzero(_equal(chunks[:, 0], fill) & _equal(chunks[:, -1], fill))
    if len(rows):
        chosen = chunks if len(rows) == len(chunks) else chunks[rows]
        result[rows] = _equal(chosen, fill).all(axis=1)
    return result


def _equal(values: NDArray[Any], fill: NDArray[Any]) -> NDArray[np.bool_]:
    equal: NDArray[np.bool_] = values == fill
    if fill.dtype.kind in _WITH_NAN and np.isnan(fill):
        equal |= np.isnan(values)
    return equal
