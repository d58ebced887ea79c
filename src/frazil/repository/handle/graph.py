"""The history as a graph: text for terminals, SVG for notebooks.

Newest commits come first. Each branch has a lane: ``main`` the first, the others by name. A commit is in the
lane of the first branch that contains it, so a branch without own commits has an empty lane. A lane ends at
the parent of its oldest commit, in another lane.

    ● 6EN3VYHR (dev) on dev          column 1
    │
  ●─╯ CHVPPPNW (main) on main        column 0, where lane 1 ends
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import chain, pairwise
from typing import Final
from unicodedata import east_asian_width

import numpy as np

from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.clock import to_datetime

_ANSI: Final = (34, 32, 35, 33, 36, 31)
_COLOURS: Final = ("#2f6fb7", "#2e8b57", "#8e4fa8", "#b8860b", "#1f8a8a", "#b03a3a")
_STEP: Final = 26
_LONGEST: Final = 60
_FONT: Final = 13
#: Pixels per character: the characters of monospaced fonts are 0.6 to 0.65 of the font size wide.
_CHARACTER: Final = 9


@dataclass(frozen=True, slots=True)
class Label:
    """The text beside a commit. ``message`` is the first line of the commit message, shortened."""

    id: str
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    time: datetime
    message: str

    def line(self) -> str:
        """Return the label as one line for terminals."""
        names = ", ".join((*self.branches, *self.tags))
        return f"{self.id}{f' ({names})' if names else ''} {self.message}"

    def parts(self) -> list[tuple[str, str]]:
        """Return the parts of the label for notebooks: pairs of a text and its SVG attributes."""
        names = [f"branch {name}" for name in self.branches] + [f"tag {name}" for name in self.tags]
        return [
            (self.id, ""),
            (f"{self.time:%Y-%m-%d %H:%M}", 'opacity="0.65"'),
            *((name, 'font-weight="bold"') for name in names),
            (self.message, ""),
        ]


@dataclass(frozen=True, slots=True)
class Dot:
    """One commit: its lane, the lanes that continue below it, the lanes that end at it, and its label."""

    lane: int
    below: frozenset[int]
    joined: frozenset[int]
    label: Label


@dataclass(frozen=True, slots=True)
class AncestryGraph:
    """A graph of the commits that some refs reach. ``print`` shows text, notebooks show an image."""

    dots: tuple[Dot, ...]
    lanes: int = 1
    plain: bool = False

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = list(chain.from_iterable((self._row(dot), self._between(dot.below)) for dot in self.dots))
        return "".join(f"{line}\n" for line in lines[:-1])

    def _row(self, dot: Dot) -> str:
        last = max(dot.joined, default=dot.lane)
        cells = []
        for lane in range(self.lanes):
            line = "─" if dot.lane <= lane < last else " "
            if lane == dot.lane:
                cells.append(self._ink("●", lane) + line)
            elif lane in dot.joined:
                cells.append(self._ink("╯", lane) + line)
            elif lane in dot.below:
                cells.append(self._ink("│", lane) + " ")
            else:
                cells.append(line * 2)
        return "".join(cells) + dot.label.line()

    def _between(self, lanes: frozenset[int]) -> str:
        return "".join(self._ink("│", lane) + " " if lane in lanes else "  " for lane in range(self.lanes))

    def _ink(self, mark: str, lane: int) -> str:
        return mark if self.plain else f"\x1b[{_ANSI[lane % len(_ANSI)]}m{mark}\x1b[0m"

    def _repr_svg_(self) -> str:
        left = self.lanes * _STEP
        texts = [[part for part in dot.label.parts() if part[0]] for dot in self.dots]
        columns = max((sum(_columns(text) + 2 for text, _ in parts) for parts in texts), default=0)
        width = left + 20 + columns * _CHARACTER
        places = [(_place(dot.lane), _place(row)) for row, dot in enumerate(self.dots)]
        shapes = [
            f'<line x1="{x}" y1="{_place(row)}" x2="{x}" y2="{_place(row + 1)}" {self._stroke(lane)}/>'
            for row, (dot, after) in enumerate(pairwise(self.dots))
            for lane in sorted(dot.below - after.joined)
            for x in [_place(lane)]
        ]
        shapes += [
            f'<path d="M {_place(lane)} {y - _STEP} Q {_place(lane)} {y} {x} {y}" fill="none" '
            f"{self._stroke(lane)}/>"
            for dot, (x, y) in zip(self.dots, places, strict=True)
            for lane in sorted(dot.joined)
        ]
        shapes += [
            f'<circle cx="{x}" cy="{y}" r="6" fill="{self._colour(dot.lane)}"/>'
            f'<text x="{left + 8}" y="{y + 5}">{_spans(parts)}</text>'
            for dot, parts, (x, y) in zip(self.dots, texts, places, strict=True)
        ]
        height = len(self.dots) * _STEP
        # The text colour of the page, because pages are light or dark. Wide text overflows and is not cut.
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" fill="currentColor" '
            f'font-family="monospace" font-size="{_FONT}px" style="overflow: visible; max-width: none">'
        )
        return head + "".join(shapes) + "</svg>"

    def _repr_html_(self) -> str:
        return f"<div>{self._repr_svg_()}</div>"

    def _stroke(self, lane: int) -> str:
        return f'stroke="{self._colour(lane)}" stroke-width="2"'

    def _colour(self, lane: int) -> str:
        return "currentColor" if self.plain else _COLOURS[lane % len(_COLOURS)]


def _spans(parts: list[tuple[str, str]]) -> str:
    first, *others = (f"<tspan {attributes}>{escape(text)}</tspan>" for text, attributes in parts)
    return first + "".join(span.replace("<tspan", '<tspan dx="1.2em"', 1) for span in others)


def _columns(text: str) -> int:
    """Return how many columns of a monospaced font a text takes."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _place(number: int) -> int:
    return _STEP // 2 + number * _STEP


def ancestry_graph(
    info: RepoInfo, branches: Mapping[str, bytes], tip: bytes | None = None, *, plain: bool = False
) -> AncestryGraph:
    """Draw the snapshots that ``branches`` reach, or that ``tip`` reaches.

    Each snapshot is labelled with the branches of ``branches`` and with the tags on it.
    """
    table = info.snapshots
    named = sorted(branches, key=lambda name: (name != MAIN, name))
    branches_of = _names_of((name, branches[name]) for name in named)
    tags_of = _names_of(sorted(info.tags.items()))
    tips = [branches[name] for name in named] if tip is None else [tip]
    chains = [table.chain(require_snapshot(info, id_)) for id_ in tips]
    # After the walks, because a table that is read on demand has no rows before them.
    lane_of = np.full(len(table), -1, np.int64)
    joins: dict[int, set[int]] = {}
    for lane, rows in enumerate(chains):
        taken = np.flatnonzero(lane_of[rows] >= 0)
        own = rows[: taken[0]] if len(taken) else rows
        lane_of[own] = lane
        if len(taken) and len(own):
            joins.setdefault(int(rows[taken[0]]), set()).add(lane)
    shown = np.flatnonzero(lane_of >= 0)
    newest_first = shown[np.argsort(table.flushed_at()[shown], kind="stable")[::-1]]
    parents = table.parents()[newest_first].tolist()
    dots: list[Dot] = []
    open_lanes: frozenset[int] = frozenset()
    lanes_of_rows = lane_of[newest_first].tolist()
    for row, lane, parent in zip(newest_first.tolist(), lanes_of_rows, parents, strict=True):
        joined = frozenset(joins.get(row, ()))
        passing = open_lanes - joined - {lane}
        open_lanes = passing if parent < 0 else passing | {lane}
        entry = table.entry(row)
        label = Label(
            id_to_text(entry.id)[:8],
            branches_of.get(entry.id, ()),
            tags_of.get(entry.id, ()),
            to_datetime(entry.flushed_at),
            first_line(entry.message),
        )
        dots.append(Dot(lane, open_lanes, joined, label))
    return AncestryGraph(tuple(dots), len(tips), plain)


def _names_of(refs: Iterable[tuple[str, bytes]]) -> dict[bytes, tuple[str, ...]]:
    names: dict[bytes, tuple[str, ...]] = {}
    for name, id_ in refs:
        names[id_] = (*names.get(id_, ()), name)
    return names


def first_line(message: str) -> str:
    """Return the first line of a message, shortened, without characters that control a terminal."""
    line = "".join(filter(str.isprintable, message.partition("\n")[0]))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
