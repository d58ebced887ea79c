"""Reduces a traceback to the frames that a user needs, without the frames of Frazil and of Spark."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final

#: Packages whose frames are left out, if they are imported.
_OWN_PACKAGES: Final = ("frazil", "pyspark", "py4j")

#: The largest numbers of characters of a line, and of lines of a text.
_LONGEST_LINE: Final = 500
_LINES_OF_TEXT: Final = 10


def causes_of(summary: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Yield a summary and the summaries of all its causes."""
    waiting: list[traceback.TracebackException | None] = [summary]
    while waiting:
        each = waiting.pop()
        if each is not None:
            yield each
            waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]


def remove_own_frames(summary: traceback.TracebackException) -> None:
    """Remove the frames of Frazil and Spark from a summary, unless there are no others, and the markers."""
    frames = [frame for frame in summary.stack if not is_own(frame.filename)] or summary.stack[-1:]
    plain = [(frame.filename, frame.lineno or 0, frame.name, frame.line) for frame in frames]
    summary.stack = traceback.StackSummary.from_list(plain)


def without_own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of Frazil and Spark, or its last frame if there are no others."""
    every: list[TracebackType] = []
    while frames is not None:
        every.append(frames)
        frames = frames.tb_next
    foreign = [each for each in every if not is_own(each.tb_frame.f_code.co_filename)] or every[-1:]
    out: TracebackType | None = None
    for each in reversed(foreign):
        out = TracebackType(out, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return out


def is_own(filename: str) -> bool:
    """Return whether a file belongs to Frazil or Spark."""
    return filename.startswith(_own_folders())


def _own_folders() -> tuple[str, ...]:
    modules: list[Any] = [sys.modules.get(name) for name in _OWN_PACKAGES]
    return tuple(f"{Path(each.__file__).parent}/" for each in modules if getattr(each, "__file__", None))


@lru_cache(1)
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(f"{paths[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


#: Endings of compiled modules, whose files have no directory in a traceback.
_CYTHON: Final = (".pyx", ".pxi", ".pxd")


def is_library(filename: str) -> bool:
    """Return whether a file belongs to Python, an installed package or Frazil, and not to the user."""
    installed = "/site-packages/" in filename or "/dist-packages/" in filename or filename.endswith(_CYTHON)
    return installed or is_own(filename) or filename.startswith(("<frozen ", *_library_folders()))


def first_and_last(lines: list[str]) -> list[str]:
    """Return the first and the last lines, if there are many."""
    half = _LINES_OF_TEXT // 2
    return [*lines[:half], "...", *lines[-half:]] if len(lines) > _LINES_OF_TEXT else lines


def clip_line(line: str) -> str:
    """Return a line with at most `_LONGEST_LINE` characters."""
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."
