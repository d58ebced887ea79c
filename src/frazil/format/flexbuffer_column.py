"""Many FlexBuffers at once: scalars and texts, which most metadata are, by a few calls of numpy.

A FlexBuffer ends in its value, the packed type of the value and the width of the value. A scalar is the value
itself. A text is the distance back to its bytes, which follow their number. All values of one kind and one
width are gathered together. Other values, and damaged ones, are decoded one by one, by ``flexbuffer.loads``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format import flexbuffer
from frazil.format.columns import I64, U8, Ragged, windows
from frazil.format.flexbuffer import BOOL, FLOAT, INT, STRING, UINT

#: From this number of values on, values are decoded together.
_MANY: Final = 16
#: The bytes after the value: its packed type, and its width.
_END: Final = 2
_LETTERS: Final = {INT: "i", UINT: "u", FLOAT: "f", BOOL: "u"}


def load_values(values: Ragged) -> list[Any]:
    """Return the decoded values of rows of bytes."""
    count = len(values)
    if count < _MANY or int(values.lengths.min()) <= _END:
        return list(map(flexbuffer.loads, values.blobs()))
    rows = values.compact()
    ends = rows.starts + rows.lengths - _END
    packed, widths = rows.values[ends], rows.values[ends + 1]
    out = np.empty(count, object)
    rest = np.ones(count, np.bool_)
    for code in np.unique(packed.astype(np.int64) << 8 | widths).tolist():
        kind, child, width = code >> 10, 1 << (code >> 8 & 3), code & 255
        places = np.flatnonzero((packed == code >> 8) & (widths == width))
        places = places[rows.lengths[places] >= width + _END]
        if width not in (1, 2, 4, 8):
            continue
        part = _Part(rows.values, rows.starts[places], ends[places] - width, width)
        if kind in _LETTERS and (kind != FLOAT or width > 1):
            _set(out, places, _SCALARS[kind](part))
        elif kind == STRING:
            fits, texts = part.texts(child)
            places = places[fits]
            _set(out, places, texts)
        else:
            continue
        rest[places] = False
    others = np.flatnonzero(rest)
    _set(out, others, list(map(flexbuffer.loads, rows.take(others).blobs())))
    decoded: list[Any] = out.tolist()
    return decoded


def _set(out: NDArray[Any], places: I64, values: list[Any]) -> None:
    column = np.empty(len(values), object)
    column[:] = values
    out[places] = column


class _Part:
    """Values of one kind and one width: the start of each FlexBuffer, and the place of its value."""

    __slots__ = ("_bytes", "_places", "_starts", "_width")

    def __init__(self, data: U8, starts: I64, places: I64, width: int) -> None:
        self._bytes, self._starts, self._places, self._width = data, starts, places, width

    def numbers(self, kind: int) -> NDArray[Any]:
        """Return the values as numbers of a type of the format."""
        return _gather(self._bytes, self._places, f"<{_LETTERS[kind]}{self._width}")

    def texts(self, width: int) -> tuple[NDArray[np.bool_], list[str]]:
        """Return which values are texts inside of their FlexBuffers, and these texts.

        ``width`` is the number of bytes of a length.
        """
        distances = self.numbers(UINT)
        # A distance is compared as it is: as int64, a huge one would be negative.
        fits = (distances <= self._places - self._starts - width) & (distances > 0)
        places = self._places[fits]
        firsts = places - distances[fits].astype(np.int64)
        lengths = _gather(self._bytes, firsts - width, f"<u{width}")
        inside = lengths <= places - firsts
        fits[np.flatnonzero(fits)[~inside]] = False
        rows = Ragged(self._bytes, firsts[inside], lengths[inside].astype(np.int64))
        return fits, rows.texts()


def _gather(data: U8, places: I64, dtype: str) -> NDArray[Any]:
    kind = np.dtype(dtype)
    numbers: NDArray[Any] = windows(data, kind.itemsize)[places].view(kind)
    return numbers


#: How the values of a kind become Python values.
_SCALARS: Final[dict[int, Callable[[_Part], list[Any]]]] = {
    INT: lambda part: part.numbers(INT).tolist(),
    UINT: lambda part: part.numbers(UINT).tolist(),
    FLOAT: lambda part: part.numbers(FLOAT).tolist(),
    BOOL: lambda part: (part.numbers(BOOL) != 0).tolist(),
}
