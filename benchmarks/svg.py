"""Small pictures in SVG: panels with logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 300
HEIGHT: Final = 220
COLUMNS: Final = 3
#: Colours that people with a colour vision deficiency can distinguish (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_LEFT: Final = 46
_RIGHT: Final = 10
_TOP: Final = 22
_BOTTOM: Final = 32

type Points = Sequence[tuple[float, float]]


class _Axis:
    """A logarithmic axis from a value to a value, on pixels from ``start`` to ``end``."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        middle, half = (low + high) / 2, max(high - low, 0.5) / 2 * 1.15
        self._low, self._high, self._start, self._end = middle - half, middle + half, start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[float]:
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        steps = (1,) if self._high - self._low > 1.5 else (1, 2, 5)
        every = 2 if self._high - self._low > 4 else 1
        values = [step * 10.0**decade for decade in decades[::every] for step in steps]
        return [value for value in values if self._low <= math.log10(value) <= self._high]


def panel(title: str, along: str, lines: Sequence[tuple[str, Points, Points]]) -> str:
    """Return one panel. A line has a label, its points, and the two ends of its fitted line."""
    points = [point for _, measured, _ in lines for point in measured]
    x = _Axis([n for n, _ in points], _LEFT, WIDTH - _RIGHT)
    y = _Axis([cost for _, cost in points], HEIGHT - _BOTTOM, _TOP)
    out = [f'<text x="{_LEFT}" y="14" font-weight="bold">{escape(title)}</text>']
    for n in x.ticks():
        out.append(_line([(x.at(n), _TOP), (x.at(n), HEIGHT - _BOTTOM)], "#ddd"))
        out.append(f'<text x="{x.at(n)}" y="{HEIGHT - 19}" text-anchor="middle">{_short(n)}</text>')
    for cost in y.ticks():
        out.append(_line([(_LEFT, y.at(cost)), (WIDTH - _RIGHT, y.at(cost))], "#ddd"))
        out.append(f'<text x="{_LEFT - 4}" y="{y.at(cost) + 3}" text-anchor="end">{_short(cost)}</text>')
    out.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(along)}</text>')
    for number, (label, measured, ends) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        out.append(_line([(x.at(n), y.at(cost)) for n, cost in ends], colour))
        out += [f'<circle cx="{x.at(n)}" cy="{y.at(cost)}" r="3" fill="{colour}"/>' for n, cost in measured]
        place = f'x="{_LEFT + 6}" y="{_TOP + 12 + 11 * number}"'
        out.append(f'<text {place} fill="{colour}">{escape(label)}</text>')
    return "\n".join(out)


def picture(panels: Sequence[str]) -> str:
    """Return a picture with some panels, in rows."""
    columns, rows = min(COLUMNS, len(panels)), math.ceil(len(panels) / COLUMNS)
    size = f'width="{columns * WIDTH}" height="{rows * HEIGHT}"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">']
    out.append('<rect width="100%" height="100%" fill="white"/>')
    for number, each in enumerate(panels):
        place = f"translate({number % COLUMNS * WIDTH} {number // COLUMNS * HEIGHT})"
        out.append(f'<g transform="{place}">\n{each}\n</g>')
    return "\n".join([*out, "</svg>", ""])


def _line(points: Points, colour: str) -> str:
    (x1, y1), (x2, y2) = points
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"/>'


def _short(value: float) -> str:
    """Return a round number with few characters."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:g}{unit}"
    return f"{value:g}"
