"""Pictures of matrices: lines for a terminal, and files in the format PNG.

A terminal with colours shows two rows of cells in one line, with half blocks. Without colours, a line shows
one row, with characters of different density. A matrix that is larger than the terminal is thinned out.
"""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.cli.output import Output

#: Colours from low to high values, red, green and blue: dark blue, violet, red, orange, light yellow.
_COLOURS: Final = np.array(
    [[13, 8, 60], [84, 15, 109], [158, 40, 100], [220, 80, 57], [250, 160, 40], [252, 255, 164]], np.float64
)
_DENSITY: Final = np.array(list(" .:-=+*#%@"))
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_RGBA: Final = 6

type Matrix = NDArray[np.float64]


def lines_of_picture(output: Output, values: Matrix, units: str = "", note: str = "") -> Iterator[str]:
    """Yield the lines of a picture, and a last line with the limits of the colours, and what else is said."""
    columns, lines = shutil.get_terminal_size()
    rows = (2 if output.has_colours else 1) * max(lines - 3, 8)
    shown = values[:: -(-values.shape[0] // rows), :: -(-values.shape[1] // columns)]
    yield from _half_blocks(shown) if output.has_colours else _characters(shown)
    low, high = limits(values)
    yield f"{low:g} to {high:g}{units}, {values.shape[0]} x {values.shape[1]} values{note}"


def limits(values: Matrix) -> tuple[float, float]:
    """Return the lowest and the highest finite value, or 0 and 0 without finite values.

    >>> limits(np.array([[1.0, np.nan, 3.0]]))
    (1.0, 3.0)
    """
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def _levels(values: Matrix) -> Matrix:
    """Return values scaled to 0 to 1; NaN where a value is not finite."""
    low, high = limits(values)
    scaled = np.zeros_like(values) if high == low else (values - low) / (high - low)
    return np.where(np.isfinite(values), scaled, np.nan)


def _pixels(values: Matrix) -> NDArray[np.uint8]:
    """Return red, green, blue and opacity of each value, shape (rows, columns, 4)."""
    levels = _levels(values)
    at = np.nan_to_num(levels) * (len(_COLOURS) - 1)
    steps = np.arange(len(_COLOURS))
    colours = np.stack([np.interp(at, steps, _COLOURS[:, channel]) for channel in range(3)], -1)
    opacity = np.where(np.isnan(levels), 0, 255)[..., None]
    return np.concatenate([colours, opacity], -1).round().astype(np.uint8)


def png_of(values: Matrix) -> bytes:
    r"""Return a picture with one pixel for each value, as the bytes of a PNG file.

    >>> png_of(np.array([[1.0, 2.0]]))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    pixels = _pixels(values)
    height, width = values.shape
    # each row begins with the number of its filter: 0, no filter
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, _RGBA, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return _SIGNATURE + b"".join(_part(kind, data) for kind, data in parts)


def _part(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _characters(values: Matrix) -> Iterator[str]:
    levels = _levels(values)
    last = len(_DENSITY) - 1
    cells: Any = _DENSITY[(np.nan_to_num(levels) * (last - 1)).round().astype(int) + 1]
    yield from ("".join(row).rstrip() for row in np.where(np.isnan(levels), " ", cells).tolist())


def _half_blocks(values: Matrix) -> Iterator[str]:
    """Yield lines with two rows of values each: the upper half block, and its background."""
    pixels = _pixels(values)
    if len(pixels) % 2:
        pixels = np.concatenate([pixels, np.zeros_like(pixels[:1])])
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        yield "".join(map(_cell, upper, lower)) + "\x1b[0m"


def _cell(upper: list[int], lower: list[int]) -> str:
    below = f"\x1b[48;2;{lower[0]};{lower[1]};{lower[2]}m" if lower[3] else "\x1b[49m"
    if not upper[3]:
        return f"\x1b[38;2;{lower[0]};{lower[1]};{lower[2]}m\x1b[49m▄" if lower[3] else "\x1b[49m "
    return f"\x1b[38;2;{upper[0]};{upper[1]};{upper[2]}m{below}▀"
