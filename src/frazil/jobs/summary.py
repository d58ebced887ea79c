"""Prints results as a few short lines that fit on a screen. In notebooks, details are folded below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from reprlib import Repr
from typing import Any, Final

from frazil.display import Record, Shown, counted, record_html
from frazil.jobs.progress import size

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

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        # a Record is not a dataclass, but a Summary is
        return [(each.name, brief(getattr(self, each.name))) for each in fields(self)]  # type: ignore[arg-type]

    def _details(self) -> Iterable[tuple[str, Shown]]:
        return ()

    def _repr_html_(self) -> str:
        return record_html(self._title(), [*self._rows(), *self._details()])


class Listing(Record):
    """Rows below a title: a detail of a `Summary`."""

    __slots__ = ("_lines", "_named")

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        self._named = title
        self._lines = rows

    def _title(self) -> str:
        return self._named

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return self._lines


def brief(value: Any) -> str:
    r"""Return a value as one line of at most `WIDTH` characters.

    >>> brief(12000), brief("two\nlines"), brief(list(range(1000)))
    ('12,000', 'two lines', '[0, 1, 2, 3, ...]')
    """
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
    """Return a number of things and their bytes as text.

    >>> with_size(1200, "chunk", 3_400_000)
    '1,200 chunks, 3.4 MB'
    """
    return f"{counted(number, noun)}, {size(total)}"


def listed(parts: Iterable[str]) -> str:
    """Return parts as one line, without empty parts; ``"nothing"`` if all are empty.

    >>> listed(["12 rows", "", "3 chunks"]), listed([])
    ('12 rows, 3 chunks', 'nothing')
    """
    return ", ".join(filter(None, parts)) or "nothing"
