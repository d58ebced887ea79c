"""Halos: values around a block, from its neighbours, and beyond the borders of the array by a rule.

Beyond the borders the ``boundary`` gives the values (names as in scipy.ndimage and dask, here for
``a b c d``):

    "reflect"    b a | a b c d | d c        the border is between two values
    "nearest"    a a | a b c d | d d
    "periodic"   c d | a b c d | a b
    a number     k k | a b c d | k k
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.transform.array_info import ArrayInfo, Values

type Boundary = Literal["reflect", "nearest", "periodic"] | float
type Halo = int | Mapping[str | int, int | tuple[int, int]]
#: Elements before and after a block, for each axis.
type Margins = tuple[tuple[int, int], ...]

_BOUNDARIES: Final = ("reflect", "nearest", "periodic")


def require_boundary(boundary: Boundary) -> None:
    """Raise ``InvalidInputError`` for a boundary that is neither a rule nor a number."""
    if isinstance(boundary, str) and boundary not in _BOUNDARIES:
        raise InvalidInputError(
            f"boundary must be one of {', '.join(_BOUNDARIES)} or a number, got {boundary!r}",
            ErrorKind.UNKNOWN_CHOICE,
        )


def margins_of(halo: Halo | None, array: ArrayInfo) -> Margins | None:
    """Return the margins of an argument ``halo``; None for no halo.

    Raises ``InvalidInputError`` for a depth below 0.
    """
    if halo is None or halo == 0:
        return None
    if isinstance(halo, Mapping):
        given = {array.axis(name): depth for name, depth in halo.items()}
        depths = [given.get(axis, 0) for axis in range(array.ndim)]
    else:
        depths = [halo] * array.ndim
    pairs = tuple(depth if isinstance(depth, tuple) else (depth, depth) for depth in depths)
    if any(depth < 0 for pair in pairs for depth in pair):
        raise InvalidInputError(
            f"halo must be at least 0 elements on each side, got {halo}", ErrorKind.INVALID_ARGUMENT
        )
    return pairs


def read_with_halo(
    array: Any, spans: Sequence[tuple[int, int]], margins: Sequence[tuple[int, int]], boundary: Boundary
) -> Values:
    """Return the values of a region (``spans``: start and stop of each axis) with margins around it.

    >>> read_with_halo(np.arange(4), [(0, 2)], [(1, 1)], "nearest").tolist()
    [0, 0, 1, 2]
    """
    outer = [(a - low, b + high) for (a, b), (low, high) in zip(spans, margins, strict=True)]
    if boundary == "periodic":
        return _read_periodic(array, outer)
    if isinstance(boundary, str) and all(array.shape):
        return _read_mirrored(array, outer, boundary)
    inside = [(max(a, 0), min(b, n)) for (a, b), n in zip(outer, array.shape, strict=True)]
    values = np.asarray(array[tuple(slice(a, b) for a, b in inside)])
    missing = [(c - a, b - d) for (a, b), (c, d) in zip(outer, inside, strict=True)]
    if not any(map(any, missing)):
        return values
    return np.pad(values, missing, constant_values=0 if isinstance(boundary, str) else boundary)


def _read_periodic(array: Any, outer: Sequence[tuple[int, int]]) -> Values:
    is_inside = all(a >= 0 and b <= n for (a, b), n in zip(outer, array.shape, strict=True))
    if is_inside:
        return np.asarray(array[tuple(slice(a, b) for a, b in outer)])
    index = [np.arange(a, b) % max(n, 1) for (a, b), n in zip(outer, array.shape, strict=True)]
    return np.asarray(array.oindex[tuple(index)])


def _read_mirrored(array: Any, outer: Sequence[tuple[int, int]], boundary: str) -> Values:
    """Return a block whose values beyond the borders are mirrored.

    A mirrored value may be further inside than the block: more is read, and the values are picked from it.
    """
    positions = [_mirrored(a, b, n, boundary) for (a, b), n in zip(outer, array.shape, strict=True)]
    region = tuple(slice(int(each.min()), int(each.max()) + 1) for each in positions)
    values = np.asarray(array[region])
    for axis, (each, part) in enumerate(zip(positions, region, strict=True)):
        if len(each) != values.shape[axis] or (np.diff(each) != 1).any():
            values = np.take(values, each - part.start, axis=axis)
    return values


def _mirrored(start: int, stop: int, length: int, boundary: str) -> NDArray[np.int64]:
    """Return the positions in an array of this length that give the values of ``start`` to ``stop``.

    >>> _mirrored(-2, 5, 4, "reflect").tolist(), _mirrored(-2, 5, 4, "nearest").tolist()
    ([1, 0, 0, 1, 2, 3, 3], [0, 0, 0, 1, 2, 3, 3])
    """
    positions = np.arange(start, stop)
    if boundary == "nearest":
        return np.clip(positions, 0, length - 1)
    positions %= 2 * length
    return np.minimum(positions, 2 * length - 1 - positions)


def without_margins(block: Values, margins: Sequence[tuple[int, int]], lead: int) -> Values:
    """Return a block without the margins of its last axes; its first ``lead`` axes have none."""
    lengths = block.shape[lead:]
    trim = [slice(low, n - high) for (low, high), n in zip(margins, lengths, strict=True)]
    return block[(*(slice(None),) * lead, *trim)]
