"""What one workload is: sizes, who runs it, and what is expected of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

FRAZIL, REFERENCE = "frazil", "icechunk"
BOTH = (FRAZIL, REFERENCE)

#: What each implementation measured, medians of all rounds.
type Medians = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """``run`` is ``module.function`` beside this file; ``quick`` are sizes for a test of the tool itself.

    ``compare`` are pairs of implementations for ratios, the first over the second; by default Frazil over
    each of the others. ``expected`` holds upper bounds of the first of these ratios, by name of the
    measurement, and ``limits`` of the values themselves, of the first implementation. ``rounds`` is the most
    that is run of it; ``large`` are run only when asked for. ``note`` says in words what the numbers mean.
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
