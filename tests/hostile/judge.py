"""The verdict about one input: the type of the error, the processor time, and the memory."""

from __future__ import annotations

import os
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.hostile.decoders import Decoder, survives

#: Seconds of processor time for one input.
MOST_SECONDS: Final = 5.0
#: How much the peak of the memory of the process may grow by one input, in bytes. A payload may have 256 MiB.
MOST_GROWTH: Final = 320 << 20
_MAXRSS_UNIT: Final = 1024


@dataclass(frozen=True, slots=True)
class Offence:
    """What is wrong with a decoder: a sign that is equal for inputs with the same cause, and a text."""

    sign: str
    text: str


@dataclass(slots=True)
class Judge:
    """Gives inputs to a decoder, and counts what comes out."""

    decoder: Decoder
    inputs: int = 0
    accepted: int = 0
    slowest: float = 0.0
    offences: dict[str, int] = field(default_factory=dict)

    def verdict(self, data: bytes) -> Offence | None:
        """Return what is wrong, or None."""
        self.inputs += 1
        peak, start = _peak(), time.process_time()
        try:
            self.accepted += survives(self.decoder, data)
        except Exception as error:
            return self._noted(Offence(_sign_of(error), "".join(traceback.format_exception(error))))
        seconds, growth = time.process_time() - start, _peak() - peak
        self.slowest = max(self.slowest, seconds)
        if seconds > MOST_SECONDS:
            return self._noted(Offence("slow", f"{seconds:.1f} seconds of processor time"))
        if growth > MOST_GROWTH:
            return self._noted(Offence("memory", f"{growth >> 20} MiB more memory"))
        return None

    def _noted(self, offence: Offence) -> Offence:
        self.offences[offence.sign] = self.offences.get(offence.sign, 0) + 1
        return offence


@contextmanager
def peak_of_memory() -> Iterator[Callable[[], int]]:
    """Give a function that returns how far the memory grew in the context, at its peak (bytes).

    Linux can forget an earlier peak. Elsewhere the function returns 0.
    """
    status, forget = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not (status.exists() and os.access(forget, os.W_OK)):
        yield lambda: 0
        return

    def read(name: str) -> int:
        line = next(each for each in status.read_text().splitlines() if each.startswith(name))
        return int(line.split()[1]) << 10

    forget.write_text("5")
    start = read("VmRSS:")
    yield lambda: read("VmHWM:") - start


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


def _sign_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/frazil/" in frame.filename]
    last = (own or frames)[-1]
    place = last.filename.rpartition("/frazil/")[2]
    return f"{type(error).__name__} at {place}:{last.name}"
