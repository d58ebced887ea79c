"""A broken rule of a file, and the functions that all rules use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import U32, Ragged
from frazil.format.envelope import reading
from frazil.format.flatbuffer import Tables
from frazil.format.row_vectors import ascending


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """A rule that a file breaks.

    Attributes:
        check: The name of the rule.
        detail: What the file contains, and what it must contain.
        node: The id of the array, 8 bytes. Empty for a whole file.
        coordinates: The coordinates of chunks that break the rule, uint32 of shape (k, ndim).
    """

    check: str
    detail: str
    node: bytes = b""
    coordinates: U32 = field(default_factory=lambda: np.zeros((0, 0), np.uint32))


type Rule[**P] = Callable[P, Iterable[Violation]]


def broken[**P](rules: Iterable[Rule[P]], *args: P.args, **kwargs: P.kwargs) -> Iterator[Violation]:
    """Yield the violations of several rules. A rule that cannot read its fields yields nothing more.

    The decoder of the file refuses such fields.
    """
    for rule in rules:
        try:
            with reading("rule"):
                yield from list(rule(*args, **kwargs))
        except FormatError:
            continue


def absent_fields(tables: Tables, names: dict[int, str]) -> list[str]:
    """Return the names of the fields that at least one of the tables lacks."""
    return [name for slot, name in names.items() if not tables.all_have(slot)]


def unsorted_text(check: str, what: str, rows: Ragged) -> Iterator[Violation]:
    """Yield a violation if rows of text are not strictly ascending in the order of their bytes."""
    if not ascending(rows):
        yield Violation(check, f"{what} must be sorted by their UTF-8 bytes, each once")


def unsorted_ids(check: str, what: str, keys: Any) -> Iterator[Violation]:
    """Yield a violation if ids, as keys of a column, are not strictly ascending."""
    if len(keys) > 1 and not (keys[:-1] < keys[1:]).all():
        place = int(np.argmin(keys[:-1] < keys[1:]))
        yield Violation(check, f"{what} must be sorted, each once; element {place + 1} is not after {place}")


__all__ = ["Rule", "Violation", "absent_fields", "broken", "unsorted_ids", "unsorted_text"]
