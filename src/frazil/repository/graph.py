"""The history as a picture: text for terminals, SVG for notebooks.

Newest first; a lane for each line of descent; lanes that come from one snapshot meet there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.mutations import require_snapshot

_ANSI: Final = (34, 32, 35, 33, 36, 31)
_COLOURS: Final = ("#2f6fb7", "#2e8b57", "#8e4fa8", "#b8860b", "#1f8a8a", "#b03a3a")
_STEP: Final = 26


@dataclass(frozen=True, slots=True)
class Dot:
    """One commit: its lane, the lanes that pass by, the lanes that end here, and its text."""

    lane: int
    passing: int
    joined: tuple[int, ...]
    is_root: bool
    text: str


@dataclass(frozen=True, slots=True)
class AncestryGraph:
    """The commits that some refs reach. ``print`` it, or let a notebook show it."""

    dots: tuple[Dot, ...]
    plain: bool = False

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines: list[str] = []
        for number, dot in enumerate(self.dots):
            if dot.joined:
                lines.append(self._join(dot))
            marks = [self._ink("●" if lane == dot.lane else "│", lane) for lane in range(dot.passing)]
            lines.append(" ".join(marks) + " " + dot.text)
            left = dot.passing - dot.is_root
            if left and number + 1 < len(self.dots):
                lines.append(" ".join(self._ink("│", lane) for lane in range(left)) + " ")
        return "".join(f"{line}\n" for line in lines)

    def _join(self, dot: Dot) -> str:
        last = dot.joined[-1]
        cells = []
        for lane in range(dot.passing + len(dot.joined)):
            mark = "├" if lane == dot.lane else "╯" if lane == last else "┴" if lane in dot.joined else "│"
            line = "─" if dot.lane <= lane < last else " "
            cells.append(self._ink(mark, lane) + line)
        return "".join(cells).rstrip()

    def _ink(self, mark: str, lane: int) -> str:
        return mark if self.plain else f"\x1b[{_ANSI[lane % len(_ANSI)]}m{mark}\x1b[0m"

    def _repr_svg_(self) -> str:
        lanes = max((dot.passing + len(dot.joined) for dot in self.dots), default=1)
        left = lanes * _STEP
        width = left + 20 + max((len(dot.text) for dot in self.dots), default=0) * 8
        places = [
            (_STEP // 2 + dot.lane * _STEP, _STEP // 2 + row * _STEP) for row, dot in enumerate(self.dots)
        ]
        shapes = [
            f'<line x1="{x}" y1="{y}" x2="{x}" y2="{y2}" stroke="{_colour(lane)}" stroke-width="2"/>'
            for row, (dot, _) in enumerate(pairwise(self.dots))
            for lane in range(dot.passing - dot.is_root)
            for x, y, y2 in [(_STEP // 2 + lane * _STEP, places[row][1], places[row][1] + _STEP)]
        ]
        shapes += [
            f'<path d="M {_STEP // 2 + lane * _STEP} {y - _STEP} Q {_STEP // 2 + lane * _STEP} {y} {x} {y}" '
            f'fill="none" stroke="{_colour(lane)}" stroke-width="2"/>'
            for dot, (x, y) in zip(self.dots, places, strict=True)
            for lane in dot.joined
        ]
        shapes += [
            f'<circle cx="{x}" cy="{y}" r="6" fill="{_colour(dot.lane)}"/>'
            f'<text x="{left + 8}" y="{y + 5}" font-family="monospace">{escape(dot.text)}</text>'
            for dot, (x, y) in zip(self.dots, places, strict=True)
        ]
        height = len(self.dots) * _STEP
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        return head + "".join(shapes) + "</svg>"


def _colour(lane: int) -> str:
    return _COLOURS[lane % len(_COLOURS)]


def ancestry_graph(info: RepoInfo, tips: Iterable[bytes], *, plain: bool = False) -> AncestryGraph:
    """Draw the snapshots that ``tips`` reach, each with its branches and tags."""
    table = info.snapshots
    names: dict[bytes, list[str]] = {}
    for refs in (info.branches, info.tags):
        for name in sorted(refs):
            names.setdefault(refs[name], []).append(name)
    reached: set[int] = set()
    for id_ in tips:
        reached.update(table.chain(require_snapshot(info, id_)).tolist())
    # Behind the walk: a table that is read on demand has no rows before.
    parents, times = table.parents().tolist(), table.flushed_at().tolist()
    lanes: list[int] = []  # the snapshot that each lane leads to
    dots: list[Dot] = []
    for row in sorted(reached, key=times.__getitem__, reverse=True):
        mine = [lane for lane, leads_to in enumerate(lanes) if leads_to == row]
        if not mine:
            mine = [len(lanes)]
            lanes.append(row)
        lane, joined = mine[0], tuple(mine[1:])
        for gone in reversed(joined):
            del lanes[gone]
        entry = table.entry(row)
        labels = f" ({', '.join(names[entry.id])})" if entry.id in names else ""
        text = f"{id_to_text(entry.id)[:8]}{labels} {entry.message}"
        is_root = parents[row] < 0
        dots.append(Dot(lane, len(lanes), joined, is_root, text))
        if is_root:
            del lanes[lane]
        else:
            lanes[lane] = parents[row]
    return AncestryGraph(tuple(dots), plain)
