"""The output of a command: text for people, JSON for programs, and progress on a terminal.

Standard output contains only the result. Questions, progress and errors go to standard error. Colours, a
pager and shortened texts appear only on a terminal. In a pipe, the same columns are plain and complete.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click

#: Style -> the number of an ANSI colour.
STYLES: Final = {
    "id": 33,
    "branch": 32,
    "tag": 36,
    "add": 32,
    "remove": 31,
    "change": 33,
    "faint": 2,
    "bold": 1,
}
#: The begin of a colour in a line, before `Output.visible`. A name in a repository cannot contain it.
_COLOUR: Final = f"\x1b{secrets.token_hex(8)}"
#: Colours of `Output.paint`, and the characters that control a terminal or change the order of others.
_CONTROLS: Final = re.compile(
    rf"{_COLOUR}(\d+)m|[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Options of the pager `less`: end if the text fits on the screen, pass colours on, leave the text visible.
_LESS: Final = "FRX"


@dataclass(slots=True)
class Output:
    """Where and how a command prints.

    Attributes:
        as_json: Whether the result is JSON.
        debug: Whether an error shows its trace.
        location: The location of the repository that the command works on, for the commands in messages.
    """

    as_json: bool = False
    debug: bool = False
    location: str = "LOCATION"

    @property
    def is_terminal(self) -> bool:
        """Whether people read the output on a terminal."""
        return sys.stdout.isatty() and not self.as_json

    @property
    def has_colours(self) -> bool:
        """Whether texts have colours: on a terminal, without ``NO_COLOR`` and not on a dumb one."""
        return self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def paint(self, text: str, style: str) -> str:
        """Return a text in the colour of a style, if there are colours."""
        return f"{_COLOUR}{STYLES[style]}m{text}{_COLOUR}0m" if self.has_colours and text else text

    def emit(self, document: Any, lines: Iterable[str], *, pages: bool = False) -> None:
        """Print a result: ``document`` as JSON, or ``lines``. Both may be computed on demand.

        With ``pages``, lines on a terminal go through a pager.
        """
        if self.as_json:
            document = list(document) if isinstance(document, Iterator) else document
            sys.stdout.write(f"{_json(document, indent=2)}\n")
            return
        lines = map(visible, lines)
        if pages and self.is_terminal:
            os.environ.setdefault("LESS", _LESS)
            click.echo_via_pager((f"{line}\n" for line in lines), color=self.has_colours)
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines)

    def emit_now(self, document: Any, *lines: str) -> None:
        """Print a part of a result that grows, at once: a JSON object, or ``lines``."""
        text = _json(document) if self.as_json else "\n".join(map(visible, lines))
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def cut(self, line: str) -> str:
        """Return a line without colours that fits on the terminal. In a pipe it stays complete."""
        if not self.is_terminal:
            return line
        columns = shutil.get_terminal_size().columns
        return line if len(line) <= columns else line[: columns - 1] + "…"

    @contextmanager
    def progress(self, name: str) -> Iterator[Any]:
        """Yield a progress bar on a terminal, and None elsewhere."""
        if not sys.stderr.isatty() or self.as_json:
            yield None
            return
        from frazil.jobs.progress import Progress

        with Progress(name, 0) as bar:
            yield bar


def visible(line: str) -> str:
    """Return a line for a terminal: its control characters are escaped, and `Output.paint` has its colours.

    Names, messages and values come from the repository, whose writers must not control the terminal.
    """
    return _CONTROLS.sub(lambda match: f"\x1b[{match[1]}m" if match[1] else _escaped(match[0]), line)


def _escaped(character: str) -> str:
    """Return a character as the escape of Python and JSON."""
    return {"\n": "\\n", "\r": "\\r"}.get(character, f"\\u{ord(character):04x}")


def _json(document: Any, **options: Any) -> str:
    """Return a result as JSON. JSON has no NaN and no infinity: they are null."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, default=_plain, **options)
    except ValueError:
        document = json.loads(json.dumps(document, default=_plain), parse_constant=lambda name: None)
        text = json.dumps(document, ensure_ascii=False, **options)
    return "\n".join(map(visible, text.split("\n")))


def _plain(value: Any) -> Any:
    """Return a value of a result in a form that JSON has."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def picked(value: Any, *names: str, **attributes: str) -> dict[str, Any]:
    """Return attributes of a value as a document: those ``names``, and name of a member -> attribute."""
    named = dict(zip(names, names, strict=True)) | attributes
    return {name: getattr(value, attribute) for name, attribute in named.items()}


def table(rows: Iterable[tuple[str, ...]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as lines with aligned columns. ``right`` has the columns of numbers."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = [
        [each.rjust(width) if at in right else each.ljust(width) for each in column]
        for at, (column, width) in enumerate(zip(zip(*cells, strict=True), widths, strict=True))
    ]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
