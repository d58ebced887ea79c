"""The progress of a job as a bar or as lines of a log, and results as a few lines that fit on a screen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from html import escape
from reprlib import Repr
from typing import Any, Final, Self, TextIO

from frazil import host
from frazil.display import Record, Shown, counted, record_html

_BAR = 24
#: The number of lines in a log: one for each quarter.
STEPS = 4
#: The time between two updates of a notebook, in seconds.
_PAUSE: Final = 0.2


@dataclass(slots=True)
class Progress:
    """A progress bar for tasks. Pass it as ``progress`` to an operation, inside of its context.

    In the kernel of a notebook the bar is HTML below the cell, unless ``out`` is given.

    Args:
        name: The text before the bar.
        total: The number of tasks. 0: the job sets it when its rounds begin.
        out: The text stream for the bar. Default: ``sys.stderr``.
        clock: A function that returns the time in seconds. Default: ``host.monotonic_seconds``.
        done: The number of finished tasks.
        rows: The number of rows in finished tasks.
        chunks: The number of chunks in finished tasks.
        bytes: The number of bytes in finished tasks.
        resumed: The number of finished tasks that an earlier run did.

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
    clock: Callable[[], float] = host.monotonic_seconds
    done: int = 0
    rows: int = 0
    chunks: int = 0
    bytes: int = 0
    resumed: int = 0
    _start: float = 0.0
    _grows: bool | None = None
    _cell: Any = None
    _shown_at: float = 0.0

    def __enter__(self) -> Self:
        self._start = self.clock()
        ipython: Any = sys.modules.get("IPython")  # the kernel of a notebook has already imported it
        shell = None if ipython is None or self.out is not sys.stderr else ipython.get_ipython()
        if getattr(shell, "kernel", None) is not None:
            self._cell = ipython.display.display(_mime([], 0.0), raw=True, display_id=True)
        if self._cell is not None or self.out.isatty():
            self._draw()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._cell is not None:
            self._draw(last=True)
        elif self.out.isatty():
            self.out.write("\n")

    def expect(self, tasks: int) -> None:
        """Announce tasks. If the total was 0 at the beginning, they are added to it.

        Args:
            tasks: The number of tasks of a round that begins.

        >>> bar = Progress("write", 0)
        >>> bar.expect(4)
        >>> bar.total
        4
        """
        if self._grows is None:
            self._grows = not self.total
        if self._grows:
            self.total += tasks

    def advance(self, *, rows: int = 0, chunks: int = 0, bytes: int = 0, resumed: bool = False) -> None:
        """Count one more finished task, and redraw the bar.

        Args:
            rows: The number of rows of the task.
            chunks: The number of chunks that the task wrote.
            bytes: The number of bytes of values that the task wrote.
            resumed: Whether an earlier run did the task. Such tasks do not count for the time estimate.

        >>> import sys
        >>> with Progress("write", 1, sys.stdout, clock=lambda: 0.0) as bar:
        ...     bar.advance(chunks=1, bytes=80_000)
        write 100%  1/1 tasks  0 rows  1 chunk  80.0 kB  in 0.0 s
        """
        before = self.done * STEPS // max(self.total, 1)
        self.done += 1
        self.total = max(self.total, self.done)  # a job that starts again has more tasks than expected
        self.resumed += resumed
        self.rows += rows
        self.chunks += chunks
        self.bytes += bytes
        moves = self._cell is not None or self.out.isatty()
        if moves or self.done * STEPS // self.total > before:
            self._draw()

    def _draw(self, *, last: bool = False) -> None:
        share = self.done / max(self.total, 1)
        parts = [f"{self.name} {share:4.0%}"]
        parts += [f"{self.done}/{self.total} tasks", counted(self.rows, "row"), counted(self.chunks, "chunk")]
        passed, own = self.clock() - self._start, self.done - self.resumed  # resumed tasks took no time
        left = f"{passed / own * (self.total - self.done):.0f} s left" if own and passed else ""
        time = f"in {passed:.1f} s" if share >= 1 else left
        parts += [size(self.bytes), *([time] if time else [])]
        if self._cell is not None:
            now = self.clock()
            if last or share == 1 or now - self._shown_at >= _PAUSE:
                self._shown_at = now
                self._cell.update(_mime(parts, share), raw=True)
        elif self.out.isatty():
            # A line that wraps could not be overwritten.
            columns = shutil.get_terminal_size().columns - 1
            width = min(_BAR, columns - len("  ".join(parts)) - 2)
            full = round(share * width)
            parts.insert(1, "━" * full + "─" * (width - full))
            self.out.write("\r" + "  ".join(parts)[:columns] + "\x1b[K")
            self.out.flush()
        else:
            self.out.write("  ".join(parts) + "\n")
            self.out.flush()


def _mime(parts: list[str], share: float) -> dict[str, str]:
    text = "  ".join(parts)
    bar = f'<progress max="1" value="{share:.4f}" style="vertical-align: middle"></progress>'
    return {"text/plain": text, "text/html": f"{bar} <code>{escape(text)}</code>"}


def size(number: float) -> str:
    """Return a number of bytes as text for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


#: The largest number of characters of a value.
WIDTH: Final = 100
_REPR: Final = Repr(
    maxlevel=2, maxtuple=4, maxlist=4, maxdict=4, maxset=4, maxfrozenset=4, maxstring=60, maxother=60
)


class Summary(Record):
    """The base class of results: slotted dataclasses with ``repr=False`` and a name in ``shown_as``.

    `_rows` are the printed lines, by default one for each field. `_details` are records only for the HTML.
    """

    __slots__ = ()

    __repr__: Final = Record.__str__

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        # a Record is not a dataclass, but a Summary is
        return [(each.name, brief(getattr(self, each.name))) for each in fields(self)]  # type: ignore[arg-type]

    def _details(self) -> Iterable[tuple[str, Shown]]:
        return ()

    def _repr_html_(self) -> str:
        return record_html(self._title(), [*self._rows(), *self._details()])


def brief(value: Any) -> str:
    """Return a value as one line of at most `WIDTH` characters."""
    match value:
        case str():
            text = value[: 2 * WIDTH]
        case int() if not isinstance(value, bool):
            text = f"{value:,}"
        case datetime():
            text = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        case _:
            text = _REPR.repr(value)
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def with_size(number: int, noun: str, total: int) -> str:
    """Return a number of things and their bytes as text."""
    return f"{counted(number, noun)}, {size(total)}"


def listed(parts: Iterable[str]) -> str:
    """Return parts as one line, without empty parts; ``"nothing"`` if all are empty."""
    return ", ".join(filter(None, parts)) or "nothing"
