"""Quantiles: exact where all cells of a column fit into memory, else from sketches.

    Exact      has all cells, sorts them, and interpolates linearly, as numpy does by default
    Sketch     one KLL sketch (Karnin, Lang, Liberty 2016) for each cell of the result

A sketch of size ``k`` holds about 3 k numbers, for any number of cells. The *rank* of its answer is off by
at most ``rank_error(k)`` with 99 % confidence: with k = 200 the answer for the median is between the
quantiles 0.487 and 0.513. It picks numbers at random: two runs may differ within that bound. The extremes (0
and 1) are exact. A sketch gets no NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from datasketches import kll_doubles_sketch  # type: ignore[import-not-found,import-untyped,unused-ignore]

from frazil.jobs.memory import slabs
from frazil.pipeline.reductions.partials import Cells, Fields, Index, Partial, Values

#: Bytes that one number of a sketch of size ``k`` may take: 3 k numbers and some levels.
BYTES_PER_K: Final = 28


def rank_error(k: int) -> float:
    """Return how far the rank of an answer may be off, with 99 % confidence.

    >>> round(rank_error(200), 4)
    0.0133
    """
    return float(kll_doubles_sketch.get_normalized_rank_error(k, False))


class NanSketch:
    """A sketch that can be pickled, and whether a cell was NaN."""

    __slots__ = ("nan", "sketch")

    def __init__(self, sketch: Any, nan: bool = False) -> None:
        self.sketch, self.nan = sketch, nan

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self.sketch.serialize(), self.nan))


def _unpickled(data: bytes, nan: bool) -> NanSketch:
    return NanSketch(kll_doubles_sketch.deserialize(data), nan)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Quantiles ``q`` by sketches. Its one field is an array of `NanSketch`, or None for no cells."""

    q: tuple[float, ...]
    k: int = 200
    skipna: bool = True
    identities: tuple[tuple[Any, Any], ...] = ((object, None),)

    def partial_of(self, cells: Cells) -> Partial:
        """Return one sketch for each group and each cell of the result."""
        values = cells.values.astype(np.float64)
        retained = values.shape[1:]
        columns = values.reshape(len(values), -1).T.copy()  # a cell of the result, one row of cells
        stops = np.append(cells.starts[1:], len(values))
        out = np.empty((len(cells.groups), len(columns)), object)
        for row, (start, stop) in enumerate(zip(cells.starts, stops, strict=True)):
            out[row] = list(map(self._sketch_of, columns[:, start:stop]))
        return Partial(cells.groups, (out.reshape(len(out), *retained),))

    def _sketch_of(self, column: Values) -> NanSketch:
        sketch = kll_doubles_sketch(self.k)
        missing = np.isnan(column)
        sketch.update(np.ascontiguousarray(column[~missing]))
        return NanSketch(sketch, bool(missing.any()))

    def merge_fields(self, a: Fields, b: Fields) -> Fields:
        """Return the merged sketches."""
        return (_merge_sketches(a[0], b[0]),)

    def finish_fields(self, fields: Fields) -> Values:
        """Return the quantiles: (quantiles, groups, *retained)."""
        flat = fields[0].ravel()
        rows = np.array(list(map(self._answer, flat)), np.float64).reshape(len(flat), len(self.q))
        return rows.T.reshape(len(self.q), *fields[0].shape)

    def _answer(self, state: NanSketch | None) -> list[float]:
        if state is None or state.sketch.is_empty() or (state.nan and not self.skipna):
            return [np.nan] * len(self.q)
        inner = state.sketch.get_quantiles(list(self.q), True)
        # The sketch has the exact extremes, but does not return them for the ranks 0 and 1.
        ends = {0.0: state.sketch.get_min_value(), 1.0: state.sketch.get_max_value()}
        return list(map(ends.get, self.q, inner))


def _merge_two(a: NanSketch | None, b: NanSketch | None) -> NanSketch | None:
    if a is None or b is None:
        return a or b
    sketch = kll_doubles_sketch(a.sketch.k)
    sketch.merge(a.sketch)
    sketch.merge(b.sketch)
    return NanSketch(sketch, a.nan or b.nan)


_merge_sketches: Callable[..., Values] = np.frompyfunc(_merge_two, 2, 1)


@dataclass(frozen=True, slots=True)
class Exact:
    """Quantiles ``q`` of all cells of a column at once."""

    q: tuple[float, ...]
    skipna: bool = True

    def quantiles_of(self, values: Values, codes: Index | None, groups: int) -> Values:
        """Return the quantiles of cells: (quantiles, groups, *retained).

        ``values`` are (cells, *retained), ``codes`` are the groups (cells,) or None.
        """
        if codes is None:
            return exact_quantiles(values, self.q, skipna=self.skipna)[:, None]
        order = np.argsort(codes, kind="stable")
        borders = np.searchsorted(codes, np.arange(groups + 1), sorter=order)
        out = np.empty((len(self.q), groups, *values.shape[1:]))
        for group in range(groups):
            rows = order[borders[group] : borders[group + 1]]
            out[:, group] = exact_quantiles(values[rows], self.q, skipna=self.skipna)
        return out


def exact_quantiles(values: Values, q: tuple[float, ...], *, skipna: bool = True) -> Values:
    """Return quantiles along the first axis, with linear interpolation: (quantiles, *retained dimensions).

    A column without values is NaN. ``values`` are sorted in place.

    >>> exact_quantiles(np.array([4.0, 1.0, np.nan, 2.0]), (0.5, 1.0)).tolist()
    [2.0, 4.0]
    """
    retained = values.shape[1:]
    if not len(values):
        return np.full((len(q), *retained), np.nan)
    ordered = values if values.dtype.kind in "iuf" else values.astype(np.float64)
    ordered.sort(axis=0)  # in place: it may be large; NaN last
    count = np.full(retained, len(ordered))
    if ordered.dtype.kind == "f":
        for part in slabs(ordered.shape, ordered.itemsize):
            count[part[1:]] -= np.isnan(ordered[part]).sum(axis=0)
    out = np.empty((len(q), *retained))
    for row, each in enumerate(q):
        at = np.maximum(count - 1, 0) * each
        below = np.floor(at).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(count - 1, 0))
        low = np.take_along_axis(ordered, below[None], axis=0)[0].astype(np.float64)
        high = np.take_along_axis(ordered, above[None], axis=0)[0].astype(np.float64)
        out[row] = _interpolated(low, high, at - below)
    whole = count > 0 if skipna else count == len(ordered)
    return np.where(whole, out, np.nan)


def _interpolated(low: Values, high: Values, part: Values) -> Values:
    """Interpolate linearly. An infinite neighbour with the weight 0 does not make the result NaN.

    >>> low, high = np.array([20.0, -np.inf, 1.0]), np.array([np.inf, 20.0, 2.0])
    >>> _interpolated(low, high, np.array([0.0, 0.5, 0.5])).tolist()
    [20.0, -inf, 1.5]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        step = high - low
        out = np.where(np.isfinite(step), low + step * part, low * (1 - part) + high * part)
    return np.where((low == high) | (part == 0), low, out)
