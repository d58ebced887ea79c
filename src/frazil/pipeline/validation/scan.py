"""One scan of an array for all rules about its values, in pieces that combine.

Each task reads one block and summarizes it: how many values, NaN and infinities, the extremes, mean and
squared differences, and for each limit the first value outside of it, with its index.
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
    """The first value in the order of the array that breaks a limit, and the number of such values."""

    count: int = 0
    index: tuple[int, ...] = ()
    value: float = np.nan


@dataclass(frozen=True, slots=True)
class Limit:
    """Values outside of [low, high] are offences; with ``infinite`` and ``nan``, infinities and NaN too."""

    low: float = -np.inf
    high: float = np.inf
    infinite: bool = False
    nan: bool = False


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """The summary of some values.

    ``nan`` of ``size`` values are NaN. ``least`` and ``most`` are the extremes of the other values.
    """

    size: int
    nan: int
    moments: Partial
    least: float
    most: float
    offences: tuple[Offence, ...]

    @property
    def mean(self) -> float:
        """The mean of the finite values, NaN without any."""
        return float(self.moments.fields[2][0]) if self.moments.fields[0][0] else np.nan

    @property
    def std(self) -> float:
        """The standard deviation of the finite values, NaN without any."""
        return float(np.sqrt(_VARIANCE.finish_fields(self.moments.fields)[0]))


def summarize_block(values: NDArray[Any], start: Sequence[int], limits: Sequence[Limit]) -> ValueSummary:
    """Return the summary of a block of an array that starts at ``start``."""
    values = np.asarray(values)
    flat = values.ravel()
    missing = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros(len(flat), np.bool_)
    finite = np.isfinite(flat) if flat.dtype.kind == "f" else ~missing
    finite_values = flat[finite].astype(np.float64)
    valid_values = flat[~missing]
    if len(finite_values):
        moments = _VARIANCE.partial_of(cells(finite_values))
    else:
        moments = empty_partial(_VARIANCE, _SINGLE, ())
    least, most = np.nan, np.nan
    if len(valid_values):
        least, most = float(valid_values.min()), float(valid_values.max())
    offences = []
    for limit in limits:
        is_offence = _is_offence(flat, missing, finite, limit)
        count = int(np.count_nonzero(is_offence))
        if not count:
            offences.append(Offence())
            continue
        first = int(np.argmax(is_offence))
        position = np.unravel_index(first, values.shape)
        index = tuple(int(at) + int(low) for at, low in zip(position, start, strict=True))
        offences.append(Offence(count, index, float(flat[first])))
    return ValueSummary(len(flat), int(missing.sum()), moments, least, most, tuple(offences))


def _is_offence(
    values: NDArray[Any], missing: NDArray[np.bool_], finite: NDArray[np.bool_], limit: Limit
) -> NDArray[np.bool_]:
    with np.errstate(over="ignore"):  # a limit may be beyond the type
        out: NDArray[np.bool_] = (values < limit.low) | (values > limit.high)
    if limit.infinite:
        out |= ~(finite | missing)
    if limit.nan:
        out |= missing
    return out


def combine_summaries(a: ValueSummary, b: ValueSummary) -> ValueSummary:
    """Return the summary of the values of both."""
    return ValueSummary(
        a.size + b.size,
        a.nan + b.nan,
        combine_partials(_VARIANCE, a.moments, b.moments),
        float(np.fmin(a.least, b.least)),
        float(np.fmax(a.most, b.most)),
        tuple(map(_combine_offences, a.offences, b.offences)),
    )


def _combine_offences(a: Offence, b: Offence) -> Offence:
    if not a.count or not b.count:
        return a if a.count else b
    first = a if a.index <= b.index else b
    return Offence(a.count + b.count, first.index, first.value)


@dataclass(frozen=True, slots=True)
class ArrayScan:
    """An array to scan, and the limits of its values."""

    session: Session
    field: Field
    limits: tuple[Limit, ...]


def scan_arrays(scans: Sequence[ArrayScan], engine: Engine, *, task: int, block: int) -> list[ValueSummary]:
    """Scan all arrays, by tasks of about ``task`` bytes that read about ``block`` bytes at once."""
    items: list[bytes] = []
    numbers: list[int] = []
    for number, scan in enumerate(scans):
        field = scan.field
        starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, task)
        corners = zip(starts.tolist(), stops.tolist(), strict=True)
        array_items = [pickle.dumps((number, start, stop, block)) for start, stop in corners]
        items += array_items
        numbers += [number] * len(array_items)
    summaries: dict[int, ValueSummary] = {}
    results = engine.run(scan_block, items, pickle.dumps(tuple(scans))) if items else iter(())
    for number, result in zip(numbers, results, strict=True):
        summary: ValueSummary = pickle.loads(result)
        summaries[number] = combine_summaries(summaries[number], summary) if number in summaries else summary
    empty = [summarize_block(np.zeros((0,)), (0,), scan.limits) for scan in scans]
    return [summaries.get(number, empty[number]) for number in range(len(scans))]


def scan_block(shared: bytes, item: bytes) -> bytes:
    """Summarize one block, which is read in pieces of bounded size: the task."""
    number, start, stop, size = pickle.loads(item)
    scan = _scans(shared)[number]
    array = open_array(scan.session, scan.field.path)
    shape = tuple(np.subtract(stop, start).tolist())
    summary: ValueSummary | None = None
    for low, high in zip(*blocks(shape, scan.field.grid, scan.field.raw.itemsize, size), strict=True):
        piece = low + np.array(start, np.int64)
        region = tuple(map(slice, piece.tolist(), (high + np.array(start, np.int64)).tolist()))
        raw = np.asarray(array[region])
        for slab in slabs(raw.shape, raw.itemsize):
            slab_start = [at + inside.start for at, inside in zip(piece.tolist(), slab, strict=True)]
            part = summarize_block(scan.field.decoded(raw[slab]), slab_start, scan.limits)
            summary = part if summary is None else combine_summaries(summary, part)
    return pickle.dumps(summary)


@lru_cache(maxsize=2)
def _scans(shared: bytes) -> tuple[ArrayScan, ...]:
    scans: tuple[ArrayScan, ...] = pickle.loads(shared)
    return scans
