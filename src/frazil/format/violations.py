"""The broken rules of a file, as its decoder meets them.

Readers accept some files that break a rule of the specification, because they do not need the rule: they
sort vectors that a writer did not sort. A decoder raises a ``FormatError`` for the first broken rule that
readers need. If a decoder gets a list, it also adds each other broken rule to the list. The names of the
rules are those of ``Repository.list_checks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import FormatError
from frazil.format.columns import U32
from frazil.format.envelope import reading


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


def collect(broken: list[Violation] | None, *rules: Iterable[Violation]) -> None:
    """Add the violations of rules to a list, if there is one.

    A rule that cannot read its fields yields nothing more. Readers raise the error when they use the fields.
    """
    if broken is None:
        return
    for violations in rules:
        try:
            with reading("rule"):
                broken.extend(violations)
        except FormatError as error:
            if error.check:
                broken.append(Violation(error.check, error.message.removeprefix("rule: ")))


def unsorted(check: str, what: str, keys: NDArray[Any] | list[Any]) -> Iterator[Violation]:
    """Yield a violation if keys are not strictly ascending."""
    is_sorted = sorted(set(keys)) == keys if isinstance(keys, list) else (keys[:-1] < keys[1:]).all()
    if not is_sorted:
        yield Violation(check, f"{what} must be sorted, each once")


def undecodable(check: str, what: str, decode: Callable[[], object]) -> Iterator[Violation]:
    """Yield a violation if a field cannot be decoded, which readers notice when they use it."""
    try:
        decode()
    except FormatError as error:
        yield Violation(error.check or check, f"{what}: {error.message}")
