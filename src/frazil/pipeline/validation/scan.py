"""One pass over an array for all rules about its data, in pieces that combine.

Each task reads one block and says: how many values, NaN and infinities, the extremes, mean and squared
differences, and for each limit the first value that is outside, with its index.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.jobs.blocks import blocks
from frazil.jobs.engine import Engine
from frazil.jobs.memory import slabs
from frazil.pipeline.reductions.fields import Field, open_array
from frazil.pipeline.reductions.kernels import Variance
from frazil.pipeline.reductions.partials import Partial, cells, combine_partials, empty_partial
from frazil.repository.session.session import Session

_VARIANCE: Final = Variance()
_SINGLE: Final = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Offence:
    """The first value in the order of the array that breaks a limit, and how many do."""

    count: int = 0
    index: tuple[int, ...] = ()
    value: float = np.nan


@dataclass(frozen=True, slots=True)
class Limit:
    """Values outside of [low, high] are offences; infinities, and NaN, if so said."""

    low: float = -np.inf
    high: float = np.inf
    infinite: bool = False
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of some values."""

    size: int
    nan: int
    moments: Partial
    least: float
    most: float
    offences: tuple[Offence, ...]

    @property
    def mean(self) -> float:
        return float(self.moments.fields[2][0]) if self.moments.fields[0][0] else np.nan

    @property
    def std(self) -> float:
        return float(np.sqrt(_VARIANCE.finish_fields(self.moments.fields)[0]))


def look(values: NDArray[Any], start: Sequence[int], limits: Sequence[Limit]) -> Seen:
    """One block of an array that starts at ``start``."""
    values = np.asarray(values)
    flat = values.ravel()
    missing = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros(len(flat), np.bool_)
    finite = np.isfinite(flat) if flat.dtype.kind == "f" else ~missing
    there = flat[finite].astype(np.float64)
    present = flat[~missing]
    moments = _VARIANCE.partial_of(cells(there)) if len(there) else empty_partial(_VARIANCE, _SINGLE, ())
    offences = []
    for limit in limits:
        with np.errstate(over="ignore"):  # of a limit that the type does not reach
            bad = (flat < limit.low) | (flat > limit.high)
        if limit.infinite:
            bad |= ~(finite | missing)
        if limit.nan:
            bad |= missing
        count = int(np.count_nonzero(bad))
        if not count:
            offences.append(Offence())
            continue
        first = int(np.argmax(bad))
        inside = np.unravel_index(first, values.shape)
        index = tuple(int(at) + int(low) for at, low in zip(inside, start, strict=True))
        offences.append(Offence(count, index, float(flat[first])))
    least, most = (float(present.min()), float(present.max())) if len(present) else (np.nan, np.nan)
    return Seen(len(flat), int(missing.sum()), moments, least, most, tuple(offences))


def together(a: Seen, b: Seen) -> Seen:
    """What is known of both."""
    return Seen(
        a.size + b.size,
        a.nan + b.nan,
        combine_partials(_VARIANCE, a.moments, b.moments),
        float(np.fmin(a.least, b.least)),
        float(np.fmax(a.most, b.most)),
        tuple(map(_first, a.offences, b.offences)),
    )


def _first(a: Offence, b: Offence) -> Offence:
    if not a.count or not b.count:
        return a if a.count else b
    first = a if a.index <= b.index else b
    return Offence(a.count + b.count, first.index, first.value)


@dataclass(frozen=True, slots=True)
class Pass:
    """One array to look at."""

    session: Session
    field: Field
    limits: tuple[Limit, ...]


def look_at(passes: Sequence[Pass], engine: Engine, *, task: int, block: int) -> list[Seen]:
    """Look at all arrays, in tasks of about ``task`` bytes."""
    tasks: list[bytes] = []
    numbers: list[int] = []
    for number, one in enumerate(passes):
        field = one.field
        starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, task)
        pieces = zip(starts.tolist(), stops.tolist(), strict=True)
        some = [pickle.dumps((number, start, stop, block)) for start, stop in pieces]
        tasks += some
        numbers += [number] * len(some)
    out: dict[int, Seen] = {}
    results = engine.run(look_at_block, tasks, pickle.dumps(tuple(passes))) if tasks else iter(())
    for number, result in zip(numbers, results, strict=True):
        seen: Seen = pickle.loads(result)
        out[number] = together(out[number], seen) if number in out else seen
    empty = [look(np.zeros((0,)), (0,), one.limits) for one in passes]
    return [out.get(number, empty[number]) for number in range(len(passes))]


def look_at_block(shared: bytes, task: bytes) -> bytes:
    """The task: one block, read in pieces of bounded size."""
    number, start, stop, size = pickle.loads(task)
    one = _unpacked(shared)[number]
    array = open_array(one.session, one.field.path)
    shape = tuple(np.subtract(stop, start).tolist())
    seen: Seen | None = None
    for low, high in zip(*blocks(shape, one.field.grid, one.field.raw.itemsize, size), strict=True):
        at = low + np.array(start, np.int64)
        region = tuple(map(slice, at.tolist(), (high + np.array(start, np.int64)).tolist()))
        raw = np.asarray(array[region])
        for some in slabs(raw.shape, raw.itemsize):
            first = [low + inside.start for low, inside in zip(at.tolist(), some, strict=True)]
            part = look(one.field.decoded(raw[some]), first, one.limits)
            seen = part if seen is None else together(seen, part)
    return pickle.dumps(seen)


@lru_cache(maxsize=2)
def _unpacked(shared: bytes) -> tuple[Pass, ...]:
    passes: tuple[Pass, ...] = pickle.loads(shared)
    return passes
