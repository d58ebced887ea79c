"""Faults of requests: which request of which client fails, and how."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum


class Fault(Enum):
    """What happens to one request."""

    #: The process stops before the request reaches the storage.
    CRASH_BEFORE = "crash-before"
    #: The process stops after the request took effect.
    CRASH_AFTER = "crash-after"
    #: The request does not reach the storage; the client gets an error.
    LOST = "lost"
    #: The request takes effect; the client gets an error.
    ANSWER_LOST = "answer-lost"
    #: The client gets an error, and the request takes effect later.
    LATE = "late"
    #: A conditional write takes effect, the client retries, and finds its own write: it gets ``Refused``.
    MET_ITSELF = "met-itself"
    #: A part of a deletion takes effect; the client gets an error.
    HALF = "half"
    #: The storage has too many requests.
    THROTTLED = "throttled"
    #: The storage is full for a while: all writes fail.
    FULL = "full"
    #: A read returns fewer bytes than the object has. This breaks the contract of a storage.
    SHORT = "short"
    #: The clock of the client's host is set to another time.
    CLOCK_SET = "clock-set"


CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER})
#: The faults of a storage that fulfils its contract.
LAWFUL = frozenset(Fault) - {Fault.SHORT}
#: Faults that let the request itself succeed.
HARMLESS = frozenset({Fault.SHORT, Fault.CLOCK_SET})
OF_READS = (Fault.CRASH_BEFORE, Fault.LOST, Fault.LOST, Fault.THROTTLED, Fault.SHORT, Fault.CLOCK_SET)
OF_WRITES = (*(fault for fault in Fault if fault is not Fault.SHORT), Fault.ANSWER_LOST, Fault.MET_ITSELF)

type Request = tuple[str, int]  # name of the client, number of its request


@dataclass(eq=False)
class Faults:
    """The faults of a run.

    With a ``rate``, each request has a fault with this probability, and the next one of the same client
    with a probability of one half: double faults. ``record`` has all faults that happened.
    """

    rate: float = 0.0
    seed: int = 0
    kinds: frozenset[Fault] = LAWFUL
    record: dict[Request, Fault] = field(default_factory=dict)
    _last: Request | None = None
    _numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = random.Random(f"faults {self.seed}")

    def of(self, request: Request, *, writes: bool) -> Fault | None:
        """Return the fault of a request, or None."""
        fault = None
        if self.rate:
            follows = self._last == (request[0], request[1] - 1)
            if self._numbers.random() < (max(0.5, self.rate) if follows else self.rate):
                choices = [each for each in (OF_WRITES if writes else OF_READS) if each in self.kinds]
                fault = self._numbers.choice(choices) if choices else None
        if fault is not None:
            self.record[request] = fault
            self._last = request
        return fault
