"""The description of a workload: sizes, implementations, and expected results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

FRAZIL, REFERENCE = "frazil", "icechunk"
BOTH = (FRAZIL, REFERENCE)

#: The values of each implementation, as medians of all rounds.
type Medians = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A function to measure, with its sizes, its implementations and the expected results.

    Attributes:
        run: ``module.function``, in a module beside this file.
        quick: Sizes for a test of the tool itself.
        compare: Pairs of implementations. A ratio is the value of the first divided by the value of the
            second. Default: Frazil with each of the others.
        expected: Upper bounds of the first ratio, by the name of the measurement.
        limits: Upper bounds of the values of the first implementation.
        rounds: The largest number of rounds.
        large: Whether the workload runs only with ``--large``.
        note: Returns a sentence about the values.
    """

    title: str
    run: str
    sizes: Mapping[str, Any]
    quick: Mapping[str, Any]
    implementations: tuple[str, ...] = BOTH
    expected: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    compare: tuple[tuple[str, str], ...] | None = None
    rounds: int = 99
    large: bool = False
    note: Callable[[Medians], str] | None = None

    def pairs(self) -> list[tuple[str, str]]:
        if self.compare is not None:
            return list(self.compare)
        rest = [name for name in self.implementations if name not in BOTH]
        return list(product([FRAZIL], [*(name for name in BOTH[1:] if name in self.implementations), *rest]))
