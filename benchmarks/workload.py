"""The description of a workload: sizes, implementations, and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

FRAZIL, REFERENCE = "frazil", "icechunk"
BOTH = (FRAZIL, REFERENCE)

#: The values of each implementation, as medians of all rounds.
type Medians = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Target:
    """The largest accepted value of a measurement, or of its ratio to a peer.

    The value is that of the first implementation of the workload.

    Attributes:
        peer: The other implementation of the ratio. None: a bound of the value itself.
        limit: What decides the value, for a report that misses the target.
    """

    measurement: str
    bound: float
    peer: str | None = None
    limit: str = ""


def at_most(
    peer: str | None, bounds: Mapping[str, float], limits: Mapping[str, str] = MappingProxyType({})
) -> tuple[Target, ...]:
    """Return the targets of one peer, by the names of the measurements."""
    return tuple(Target(name, bound, peer, limits.get(name, "")) for name, bound in bounds.items())


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A function to measure, with its sizes, its implementations and its targets.

    Attributes:
        run: ``module.function``, in a module beside this file.
        quick: Sizes for a test of the tool itself.
        compare: Pairs of implementations. A ratio is the value of the first divided by the value of the
            second. Default: Frazil with each of the others.
        targets: The results that the project wants.
        rounds: The largest number of rounds.
        large: Whether the workload runs only with ``--large``.
        note: Returns a sentence about the values.
    """

    title: str
    run: str
    sizes: Mapping[str, Any]
    quick: Mapping[str, Any]
    implementations: tuple[str, ...] = BOTH
    targets: tuple[Target, ...] = ()
    compare: tuple[tuple[str, str], ...] | None = None
    rounds: int = 99
    large: bool = False
    note: Callable[[Medians], str] | None = None

    def pairs(self) -> list[tuple[str, str]]:
        if self.compare is not None:
            return list(self.compare)
        rest = [name for name in self.implementations if name not in BOTH]
        return list(product([FRAZIL], [*(name for name in BOTH[1:] if name in self.implementations), *rest]))
