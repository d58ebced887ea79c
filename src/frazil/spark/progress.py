"""How far a job is: one line that moves on a terminal, a few that do not in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, TextIO

WIDTH = 24
#: Lines in a log: one for each quarter.
STEPS = 4


@dataclass(slots=True)
class Progress:
    """A bar for ``total`` tasks; ``advance`` it as they finish, then leave the context.

    >>> import sys
    >>> with Progress("write", 2, sys.stdout, clock=lambda: 0.0) as bar:
    ...     bar.advance(rows=12, chunks=1, bytes=80_000)
    ...     bar.advance(rows=12, chunks=1, bytes=80_000)
    write  50%  1/2 tasks  12 rows  1 chunk  80.0 kB
    write 100%  2/2 tasks  24 rows  2 chunks  160.0 kB  in 0.0 s
    """

    name: str
    total: int
    out: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    rows: int = 0
    chunks: int = 0
    bytes: int = 0
    _start: float = 0.0
    _grows: bool | None = None

    def __enter__(self) -> Self:
        self._start = self.clock()
        if self.out.isatty():
            self._draw()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.out.isatty():
            self.out.write("\n")

    def expect(self, tasks: int) -> None:
        """So many tasks are begun: where the total was given as 0, they are added to it."""
        if self._grows is None:
            self._grows = not self.total
        if self._grows:
            self.total += tasks

    def advance(self, *, rows: int = 0, chunks: int = 0, bytes: int = 0) -> None:
        """One more task is done, with so much in it."""
        before = self.done * STEPS // self.total
        self.done += 1
        self.rows += rows
        self.chunks += chunks
        self.bytes += bytes
        if self.out.isatty() or self.done * STEPS // self.total > before:
            self._draw()

    def _draw(self) -> None:
        share = self.done / max(self.total, 1)
        parts = [f"{self.name} {share:4.0%}"]
        parts += [f"{self.done}/{self.total} tasks", counted(self.rows, "row"), counted(self.chunks, "chunk")]
        parts += [size(self.bytes), *self._time(share)]
        if self.out.isatty():
            # A line that wraps could not be overwritten.
            columns = shutil.get_terminal_size().columns - 1
            width = min(WIDTH, columns - len("  ".join(parts)) - 2)
            full = round(share * width)
            parts.insert(1, "━" * full + "─" * (width - full))
            self.out.write("\r" + "  ".join(parts)[:columns] + "\x1b[K")
        else:
            self.out.write("  ".join(parts) + "\n")
        self.out.flush()

    def _time(self, share: float) -> list[str]:
        passed = self.clock() - self._start
        if share >= 1:
            return [f"in {passed:.1f} s"]
        return [f"{passed / share - passed:.0f} s left"] if share and passed else []


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "chunk"), counted(1200, "row")
    ('1 chunk', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """Bytes for people, in powers of 1000.

    >>> size(12), size(1_740_000)
    ('12 B', '1.7 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
