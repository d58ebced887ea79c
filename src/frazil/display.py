"""The text and HTML of Frazil's public values. A class only names its fields.

A *call*, the ``repr`` of options, is a valid expression. A *record*, the ``str`` of options and the ``repr``
of results, has one field per line, and shows the default of a field that is None. The *HTML* has the fields
of the record, with nested values folded. This module imports nothing of Frazil.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from heapq import nsmallest
from html import escape
from itertools import islice
from textwrap import indent
from typing import Any, ClassVar, Final

PACKAGE: Final = "frazil"

_STYLE: Final = """<style>
.frazil-repr { line-height: 1.6; max-width: 700px; color: var(--jp-content-font-color0, inherit); }
.frazil-repr .frazil-header { font-weight: 500; border-bottom: solid 1px #8888; margin-bottom: 4px; }
.frazil-repr .frazil-field { padding: 2px 0; }
.frazil-repr .frazil-field-name { font-weight: 500; opacity: 0.6; }
.frazil-repr summary { cursor: pointer; }
.frazil-repr details > .frazil-repr { margin: 4px 0 0 12px; padding: 6px 10px; background: #8881; }
</style>
"""


def quoted(text: str) -> str:
    """Return the text in double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


#: `suggest` reads at most this number of names, and compares this number of them letter by letter.
_MAX_CANDIDATES: Final = 200_000
_COMPARED: Final = 200
#: The least similarity of a suggested name. 1 means equal.
_SIMILAR: Final = 0.65


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a question for the end of a message about an unknown name, or an empty text.

    The question has the most similar known name.
    """
    candidates = {each.casefold(): each for each in islice(names, _MAX_CANDIDATES)}
    word = name.casefold()
    letters = set(word)

    def distance(other: str) -> int:
        return len(letters ^ set(other)) + abs(len(word) - len(other))

    near = candidates if len(candidates) <= _COMPARED else nsmallest(_COMPARED, candidates, distance)
    close = get_close_matches(word, near, 1, _SIMILAR)
    return f". Did you mean `{candidates[close[0]]}`?" if close else ""


def span(value: timedelta) -> str:
    """Return a duration in words, for messages."""
    if value < timedelta(0):
        return f"minus {span(-value)}"
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = {
        "day": value.days,
        "hour": hours,
        "minute": minutes,
        "second": seconds + value.microseconds / 1e6,
    }
    words = [f"{count:g} {unit}{'' if count == 1 else 's'}" for unit, count in parts.items() if count]
    return " ".join(words) or "0 seconds"


def some_of(names: Iterable[str], most: int = 5) -> str:
    """Return the first names of a list, for a message."""
    first = [f"`{each}`" for each in islice(names, most + 1)]
    return ", ".join([*first[:most], *(["..."] if len(first) > most else [])]) or "none"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where needed."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def utc(moment: datetime) -> str:
    """Return a moment as an expression in UTC, with microseconds."""
    t = moment.astimezone(UTC)
    parts = (t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond)
    return f"datetime.datetime({','.join(map(str, parts))}, tzinfo=datetime.timezone.utc)"


def literal(value: Any) -> str:
    """Return the value of a field as an expression. A nested value takes several lines."""
    if isinstance(value, Record):
        return repr(value).rstrip("\n")
    if isinstance(value, Enum):
        return f"{PACKAGE}.{type(value).__qualname__}.{value.name}"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, datetime):
        return utc(value)
    if isinstance(value, dict):
        entries = [f"{literal(k)}: {literal(v)}" for k, v in value.items()]
        if any(isinstance(v, Record) for v in value.values()):
            return "{\n" + "".join(indent(entry, "    ") + ",\n" for entry in entries) + "}"
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(literal, value)) + ")"
    return repr(value)


def call(name: str, fields: Iterable[tuple[str, Any]]) -> str:
    """Return the text of a constructor call, with one keyword per line."""
    lines = (f"{field}={literal(value)}" for field, value in fields)
    return f"{name}(\n" + "".join(indent(line, "    ") + ",\n" for line in lines) + ")"


#: The value of a row of a record: text of one line, a nested record, or named records.
type Shown = str | Record | Mapping[str, Record]


def _block(name: str, value: Shown) -> list[str]:
    if isinstance(value, str):
        return [f"{name}:", indent(value, "    ")] if "\n" in value else [f"{name}: {value}"]
    if isinstance(value, Record):
        return [f"{name}:", indent(str(value).rstrip("\n"), "    ")]
    lines = [line for key, record in value.items() for line in _block(key, record)]
    return [f"{name}:", *(indent(line, "    ") for line in lines)]


def _html(name: str, value: Shown) -> str:
    if isinstance(value, str):
        return (
            f'  <div class="frazil-field"><span class="frazil-field-name">{escape(name)}:</span> '
            f'<span class="frazil-field-value">{escape(value, quote=False)}</span></div>'
        )
    if isinstance(value, Record):
        body = value._html_body()
    else:
        inner = "\n".join(_html(key, record) for key, record in value.items())
        body = f'    <div class="frazil-repr">\n{inner}\n    </div>'
    summary = f'    <summary class="frazil-field-name">{escape(name)}</summary>'
    return f"  <details>\n{summary}\n{body}\n  </details>"


def _body(title: str, rows: Iterable[tuple[str, Shown]]) -> str:
    header = f'  <div class="frazil-header">{escape(title)}</div>'
    shown = (_html(name, value) for name, value in rows)
    return "\n".join(['<div class="frazil-repr">', header, *shown, "</div>"])


def record_html(title: str, rows: Iterable[tuple[str, Shown]]) -> str:
    """Return the HTML of a record for an object that is not a ``Record``, such as a repository."""
    return _STYLE + _body(title, rows) + "\n"


def table_html(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], note: str = "") -> str:
    """Return a table as HTML: its title, the names of its columns, its rows, and a note below."""

    def row(tag: str, cells: Iterable[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    lines = [row("th", columns), *(row("td", cells) for cells in rows)]
    header = f'<div class="frazil-header">{escape(title)}</div>'
    return f'{_STYLE}<div class="frazil-repr">{header}<table>{"".join(lines)}</table>{escape(note)}</div>\n'


class Record:
    """The base of values that print as a record: dataclasses with ``shown_as``, and ``_rows`` if needed."""

    __slots__ = ()

    #: Public path of the class, without the package.
    shown_as: ClassVar[str]

    def __init_subclass__(cls, *, shown_as: str = "") -> None:
        super().__init_subclass__()
        if shown_as:
            cls.shown_as = shown_as

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        """Return the name of each field with its text or its nested record. Default: texts without quotes."""
        for each in fields(self):  # type: ignore[arg-type]  # a dataclass
            value = getattr(self, each.name)
            yield each.name, value if isinstance(value, str) else literal(value)

    def _title(self) -> str:
        return f"{PACKAGE}.{self.shown_as}"

    def __str__(self) -> str:
        lines = [f"<{self._title()}>"]
        for name, value in self._rows():
            lines += _block(name, value)
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return str(self)

    def _html_body(self) -> str:
        return _body(self._title(), self._rows())

    def _repr_html_(self) -> str:
        """Return the record as HTML, for notebooks."""
        return _STYLE + self._html_body() + "\n"


class Listing(Record):
    """Rows below a title, at most ``most`` of them, such as a detail of another record."""

    def __init__(self, title: str, rows: Iterable[tuple[str, Shown]], most: int | None = None) -> None:
        first = list(islice(rows, None if most is None else most + 1))
        more = [("and", "more")] if most is not None and len(first) > most else []
        self._named = title
        self._shown = [*first[:most], *more]

    def _title(self) -> str:
        return self._named

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return self._shown


class Lines(Listing):
    """A listing that is made from the text of an object: lines of ``name: value`` after its first line."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__(title, (line.partition(": ")[::2] for line in text.splitlines()[1:]))


class NamedEnum(Enum):
    """An enumeration whose members print as ``Class.member`` and are equal to their numbers."""

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is int and self.value == other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__


class Family(type):
    """The metaclass of a class with a closed set of variants, which are classes inside of it.

    The class itself has no instances. ``isinstance(S3Credentials.Anonymous(), S3Credentials)`` is True,
    although a class cannot inherit from the class around it.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raise ``TypeError``, because only the variants have instances."""
        variants = ", ".join(f"{cls.__name__}.{v.__name__}" for v in cls.variants())
        raise TypeError(f"{cls.__name__} has no instances. Use one of {variants}")

    def variants(cls) -> tuple[type, ...]:
        """Return the classes of the variants."""
        return tuple(v for v in vars(cls).values() if isinstance(v, type))

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.variants())

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, cls.variants())


class Numbered:
    """The base of variants whose fields also have the names ``_0`` and ``_1``, as in the reference."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    @property
    def _0(self) -> Any:
        return getattr(self, self.__match_args__[0])

    @property
    def _1(self) -> Any:
        return getattr(self, self.__match_args__[1])
