"""What a reduction computes, and how its cells are divided: slabs, units, leaves and a tree of states.

The *sequence axis* is the axis of the labels, or the first reduced axis. A *unit* is a run of whole chunks
along it, at multiples of a power of two of chunks. The state of a *leaf* is the fold of the cells of one
*section* (a group whose labels vary along the sequence axis, or all groups) in a fixed number of its units:
slab by slab, in the order of the array. Each node of the tree of a section is the fold of `FAN` neighbours
below it. So the values of a result follow from positions only: neither tasks nor the layout of results have
an influence on their bits, and what is appended changes only one path of the tree.

Quantiles sort all cells, or use KLL sketches (Karnin, Lang, Liberty 2016) with a bound of the error of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from datasketches import kll_doubles_sketch  # type: ignore[import-not-found,import-untyped,unused-ignore]
from numpy.typing import NDArray

from frazil.answers.kernels import Cells, Count, Extreme, Fields, Index, Kernel, Partial, Sum, Values
from frazil.jobs.blocks import SLAB, block_shape, slabs
from frazil.pipeline.derivation.relations import SpanTable
from frazil.pipeline.reductions.fields import Field, Grouping

#: Bytes of a sketch of size ``k``: at most 3.5 k numbers, and some for each of its levels.
_BYTES_PER_K: Final = 28
_BYTES_OF_LEVELS: Final = 2048


def rank_error(k: int) -> float:
    """Return how far the rank of an answer may be off, with 99 % confidence."""
    return float(kll_doubles_sketch.get_normalized_rank_error(k, False))


class NanSketch:
    """A sketch that can be pickled, and whether a cell was NaN."""

    __slots__ = ("nan", "sketch")

    def __init__(self, sketch: Any, nan: bool = False) -> None:
        self.sketch: Any = sketch
        self.nan: bool = nan

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self.sketch.serialize(), self.nan))


def _unpickled(data: bytes, nan: bool) -> NanSketch:
    return NanSketch(kll_doubles_sketch.deserialize(data), nan)


@dataclass(frozen=True, slots=True)
class Sketch(Kernel):
    """Quantiles ``q`` by sketches. Its one field is an array of `NanSketch`, or None for no cells."""

    q: tuple[float, ...]
    k: int = 200
    skipna: bool = True

    @property
    def identities(self) -> tuple[tuple[Any, Any], ...]:
        """The field of sketches."""
        return ((object, None),)

    @property
    def words(self) -> int:
        """The most words of a sketch, after one word with its length."""
        return 1 + (_BYTES_PER_K * self.k + _BYTES_OF_LEVELS) // 8

    def partial_of(self, cells: Cells) -> Partial:
        """Return one sketch for each group and each cell of the result."""
        values = cells.values.astype(np.float64)
        retained = values.shape[1:]
        columns = values.reshape(len(values), -1).T.copy()  # a cell of the result, one row of cells
        stops = np.append(cells.starts[1:], len(values))
        out = np.empty((len(cells.groups), len(columns)), object)
        for row, (start, stop) in enumerate(zip(cells.starts, stops, strict=True)):
            for number, column in enumerate(columns[:, start:stop]):
                sketch, missing = kll_doubles_sketch(self.k), np.isnan(column)
                sketch.update(np.ascontiguousarray(column[~missing]))
                out[row, number] = NanSketch(sketch, bool(missing.any()))
        return Partial(cells.groups, (out.reshape(len(out), *retained),))

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
class Exact(Kernel):
    """Quantiles ``q`` of all cells of a column at once. It has no partial results."""

    q: tuple[float, ...]
    skipna: bool = True

    @property
    def identities(self) -> tuple[tuple[Any, Any], ...]:
        """A number for each quantile."""
        return ((np.float64, np.nan),) * len(self.q)

    def quantiles_of(self, values: Values, codes: Index | None, groups: int) -> Values:
        """Return the quantiles of cells: (quantiles, groups, *retained)."""
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
    """Return quantiles along the first axis, with linear interpolation: (quantiles, *retained dimensions)."""
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
        part = at - below
        with np.errstate(invalid="ignore", over="ignore"):
            step = high - low
            between = np.where(np.isfinite(step), low + step * part, low * (1 - part) + high * part)
        # An infinite neighbour with the weight 0 does not make the result NaN.
        out[row] = np.where((low == high) | (part == 0), low, between)
    whole = count > 0 if skipna else count == len(ordered)
    return np.where(whole, out, np.nan)


@dataclass(frozen=True, slots=True)
class Measure:
    """One result: the statistic ``how``, its ``path`` and ``dtype``. ``q`` are several quantiles, or None."""

    path: str
    how: str
    kernel: Kernel
    dtype: np.dtype[Any]
    q: tuple[float, ...] | None = None

    @property
    def words(self) -> int:
        """Words of 8 bytes of the state of a cell of the result."""
        return self.kernel.words if isinstance(self.kernel, Sketch) else len(self.kernel.identities)


def state_words(kernel: Kernel, fields: Fields) -> Values:
    """Return the fields of states (rows, *cells) as words: (rows, words, *cells) of uint64."""
    if isinstance(kernel, Sketch):
        return _sketch_words(fields[0], kernel.words)
    wide = (field.astype(f"{_WIDE[field.dtype.kind]}8").view(np.uint64) for field in fields)
    return np.stack(list(wide), axis=1)


def state_fields(kernel: Kernel, words: Values) -> Fields:
    """Return the fields of states from their words: the inverse of `state_words`."""
    if isinstance(kernel, Sketch):
        return (_sketches(words),)
    kinds = (np.dtype(dtype) for dtype, _ in kernel.identities)
    return tuple(
        np.ascontiguousarray(words[:, number]).view(f"{_WIDE[dtype.kind]}8").astype(dtype)
        for number, dtype in enumerate(kinds)
    )


#: The kind of 8 bytes that holds all numbers of a kind.
_WIDE: Final = {"f": "f", "i": "i", "u": "u", "b": "u"}


def _sketch_words(states: Values, words: int) -> Values:
    """Return sketches as words: the number of bytes, whether a cell was NaN, and the bytes."""
    flat = states.reshape(-1)
    out = np.zeros((len(flat), words), np.uint64)
    for row, state in enumerate(flat):
        if state is not None:
            data = state.sketch.serialize()
            out[row, 0] = 2 * len(data) + state.nan
            out[row, 1:].view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
    return np.moveaxis(out.reshape(*states.shape, words), -1, 1)


def _sketches(words: Values) -> Values:
    turned = np.ascontiguousarray(np.moveaxis(words, 1, -1))
    out = np.empty(turned.shape[:-1], object)
    flat = turned.reshape(-1, turned.shape[-1])
    for row, (head, *_) in enumerate(flat[:, :1].tolist()):
        if head:
            data = flat[row, 1:].view(np.uint8)[: head // 2].tobytes()
            out.reshape(-1)[row] = NanSketch(kll_doubles_sketch.deserialize(data), bool(head % 2))
    return out


#: The number of neighbours that a node of the tree of states folds.
FAN: Final = 8
#: The least bytes of a section from which its states are stored, if it has several leaves.
STORED_FROM: Final = 2 * SLAB
#: Bytes of the state of a cell, for the lengths of units and leaves.
_WIDTH: Final = 16
#: The bytes of cells of a unit or a leaf, for each byte of their state.
_UNIT_SHARE, _LEAF_SHARE = 2, 16
#: The same, for a unit of small chunks. A slab has room for more, but a refresh reads the last unit again.
_SLAB_SHARE: Final = 64
#: The cells of the result that have states in one chunk, if chunks of the array are smaller.
STATE_CELLS: Final = 65_536
#: The most columns of cells in a slab of many cells.
_COLUMNS: Final = 256


def parents(offsets: Index) -> Index:
    """Return the offsets of the nodes of each section, from those of the rows below them."""
    return np.concatenate([[0], np.cumsum(-(-np.diff(offsets) // FAN))])


def children(offsets: Index) -> tuple[Index, Index]:
    """Return the first row below each node, and the end of these rows."""
    above = parents(offsets)
    counts = np.diff(above)
    first = np.repeat(offsets[:-1] - FAN * above[:-1], counts) + FAN * np.arange(above[-1])
    return first, np.minimum(first + FAN, np.repeat(offsets[1:], counts))


def fold_children(kernel: Kernel, fields: Fields, offsets: Index) -> Fields:
    """Return the states of the nodes above some rows: a fold of `FAN` neighbours, from left to right."""
    first, stop = children(offsets)
    out = tuple(field[first] for field in fields)
    for place in range(1, int((stop - first).max(initial=0))):
        more = np.flatnonzero(stop - first > place)
        merged = kernel.merge_fields(
            tuple(field[more] for field in out), tuple(field[first[more] + place] for field in fields)
        )
        for into, values in zip(out, merged, strict=True):
            into[more] = values
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The leaves of a reduction, as rows: those of one section after the other.

    ``keys`` are ``section * units + unit`` of the units with cells of a section, ``rows`` are their leaves.
    The ``positions`` along the sequence axis with cells of a section belong to the keys number ``pairs``.
    ``offsets`` are the first rows of each section.
    """

    unit: int
    units: int
    keys: Index
    rows: Index
    offsets: Index
    positions: Index
    pairs: Index

    @staticmethod
    def of(reduction: FieldReduction) -> Leaves:
        """Return the leaves of a reduction."""
        unit, length, sections = reduction.unit, reduction.length, reduction.sections
        units = -(-length // unit)
        positions, section = np.arange(length), np.zeros(length, np.int64)
        if reduction.varies:
            assert reduction.grouping is not None
            at = reduction.label_axes.index(reduction.sequence)
            codes = np.moveaxis(reduction.grouping.codes, at, 0).reshape(length, -1)
            inside = codes >= 0
            places = np.broadcast_to(positions[:, None], codes.shape)[inside]
            section, positions = np.divmod(np.unique(codes[inside] * length + places), max(length, 1))
        keys, pairs = np.unique(section * units + positions // unit, return_inverse=True)
        of_keys = keys // max(units, 1)
        begins = np.searchsorted(of_keys, np.arange(sections + 1))
        leaves = -(-np.diff(begins) // reduction.per_leaf)
        offsets = np.concatenate([[0], np.cumsum(leaves)])
        rows = offsets[of_keys] + (np.arange(len(keys)) - begins[of_keys]) // reduction.per_leaf
        return Leaves(unit, units, keys, rows, offsets, positions, pairs.reshape(-1))

    def rows_of(self, section: Index | int, positions: Index) -> Index:
        """Return the leaf of a section at positions of its cells."""
        at = np.searchsorted(self.keys, section * self.units + positions // self.unit)
        return np.asarray(self.rows[np.minimum(at, len(self.rows) - 1)])

    def positions_of(self, low: int, high: int) -> Index:
        """Return the positions with cells of the rows from ``low`` to ``high``."""
        ends = np.searchsorted(self.rows, (low, high))  # they follow each other, as keys do
        return self.positions[slice(*np.searchsorted(self.pairs, ends))]

    def spans(self, *, of_sections: bool, moves: bool) -> SpanTable:
        """Return which positions the rows, or the sections, read.

        An empty span marks the start of each unit, which has an influence on the bits of states.
        """
        first = np.ones(len(self.positions), np.bool_)
        first[1:] = (np.diff(self.positions) != 1) | (np.diff(self.pairs) != 0)
        starts = np.flatnonzero(first)
        stops = np.append(starts[1:], len(self.positions))[: len(starts)] - 1
        marks = self.keys % max(self.units, 1) * self.unit
        owners = np.concatenate([np.arange(len(self.keys)), self.pairs[starts]])
        order = np.argsort(owners, kind="stable")
        low = np.concatenate([marks, self.positions[starts]])[order]
        high = np.concatenate([marks, self.positions[stops] + 1])[order]
        offsets = np.searchsorted(self.rows[owners[order]], np.arange(self.offsets[-1] + 1))
        return SpanTable(offsets[self.offsets] if of_sections else offsets, low, high, moves)


@dataclass(frozen=True, eq=False)
class FieldReduction:
    """An array, the axes ``over`` that it is reduced along, its groups, and the measures of one pass.

    ``weights`` have as many axes as the array, of length 1 along axes where they do not vary. ``empty`` is
    True for groups without a cell; None if all groups have cells.
    """

    field: Field
    over: tuple[int, ...]
    measures: tuple[Measure, ...]
    grouping: Grouping | None = None
    weights: Values | None = None
    skipna: bool = True
    empty: NDArray[np.bool_] | None = None

    @cached_property
    def retained(self) -> tuple[int, ...]:
        """The axes that the result retains."""
        return tuple(axis for axis in range(len(self.field.shape)) if axis not in self.over)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return 1 if self.grouping is None else len(self.grouping)

    @property
    def words(self) -> int:
        """Words of 8 bytes of the state of a cell of the result, of all measures."""
        return sum(measure.words for measure in self.measures)

    @cached_property
    def label_axes(self) -> tuple[int, ...]:
        """The axis of the array for each dimension of the labels."""
        return () if self.grouping is None else tuple(map(self.field.dims.index, self.grouping.dims))

    @property
    def group_axis(self) -> int | None:
        """The position of the group dimension in the result: that of the first axis of the labels."""
        if self.grouping is None:
            return None
        return sum(axis < min(self.label_axes) for axis in self.retained)

    @property
    def retained_shape(self) -> tuple[int, ...]:
        """The lengths of the retained axes."""
        return tuple(self.field.shape[axis] for axis in self.retained)

    @property
    def retained_grid(self) -> tuple[int, ...]:
        """The chunks of the array along the retained axes."""
        return tuple(self.grid[axis] for axis in self.retained)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The chunks of the array, no longer than the array; along the sequence axis as they are."""
        pairs = enumerate(zip(self.field.grid, self.field.shape, strict=True))
        return tuple(max(1, step if axis == self.sequence else min(step, n)) for axis, (step, n) in pairs)

    @property
    def over_shape(self) -> tuple[int, ...]:
        """The lengths of the reduced axes."""
        return tuple(self.field.shape[axis] for axis in self.over)

    def arranged[T](self, group: T, retained: tuple[T, ...]) -> tuple[T, ...]:
        """Return one value for each dimension of the result: of the groups, and of the retained axes."""
        at = self.group_axis
        return retained if at is None else (*retained[:at], group, *retained[at:])

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dimensions of the result."""
        name = "" if self.grouping is None else self.grouping.name
        return self.arranged(name, tuple(self.field.dims[axis] for axis in self.retained))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.arranged(self.groups, self.retained_shape)

    @property
    def is_exact(self) -> bool:
        """Whether a task needs all cells of its part of the result at once."""
        return isinstance(self.measures[0].kernel, Exact)

    @property
    def takes_tiles(self) -> bool:
        """Whether the statistics of tiles give all measures, with the bits that the cells give."""
        is_integer = self.field.dtype.kind in "iub"
        is_small = self.field.dtype.itemsize <= 2  # their sums are exact in float64, too
        return self.weights is None and all(
            isinstance(each, Count | Extreme)
            or (isinstance(each, Sum) and is_integer and (np.dtype(each.dtype).kind in "iu" or is_small))
            for each in (measure.kernel for measure in self.measures)
        )

    def joined_chunks(self, room: int) -> tuple[int, ...]:
        """Return chunks of the retained axes, put together to at most ``room`` cells."""
        return block_shape(self.retained_shape, self.retained_grid, 1, max(1, room))

    # The division of the cells

    @cached_property
    def sequence(self) -> int | None:
        """The sequence axis; None if no axis is reduced."""
        if len(self.label_axes) == 1:
            return self.label_axes[0]
        return self.over[0] if self.over else None

    @property
    def length(self) -> int:
        """The length of the sequence axis."""
        return 1 if self.sequence is None else self.field.shape[self.sequence]

    @property
    def varies(self) -> bool:
        """Whether the labels vary along the sequence axis, so that each group is a section."""
        return self.sequence in self.label_axes

    @property
    def sections(self) -> int:
        """The number of sections."""
        return self.groups if self.varies else 1

    @property
    def reads_once(self) -> bool:
        """Whether tasks that have some groups each read few chunks more than once."""
        leaves = self.leaves
        sections = leaves.keys[leaves.pairs] // max(leaves.units, 1)
        order = np.argsort(leaves.positions, kind="stable")
        chunks = leaves.positions // self.step
        parts = len(np.unique(sections * (self.length // self.step + 1) + chunks))
        return bool((np.diff(sections[order]) >= 0).all()) or 2 * parts <= 3 * len(np.unique(chunks))

    @property
    def inner(self) -> int:
        """The number of groups in a section."""
        return 1 if self.varies else self.groups

    @property
    def others(self) -> tuple[int, ...]:
        """The reduced axes without the sequence axis."""
        return tuple(axis for axis in self.over if axis != self.sequence)

    @property
    def others_shape(self) -> tuple[int, ...]:
        """The lengths of the other reduced axes."""
        return tuple(self.field.shape[axis] for axis in self.others)

    @property
    def others_grid(self) -> tuple[int, ...]:
        """The chunks of the array along the other reduced axes."""
        return tuple(self.grid[axis] for axis in self.others)

    @property
    def has_cells_inside(self) -> bool:
        """Whether the last axis is reduced, so that the cells of a cell of the result follow each other."""
        return bool(self.over) and self.over[-1] == len(self.field.shape) - 1

    @property
    def step(self) -> int:
        """The chunks of the array along the sequence axis."""
        return 1 if self.sequence is None else self.grid[self.sequence]

    @property
    def column(self) -> int:
        """The bytes of all cells of a cell of the result in one chunk along the sequence axis."""
        return self.field.raw.itemsize * self.step * max(1, math.prod(self.others_shape))

    @property
    def _width(self) -> int:
        is_sketch = isinstance(self.measures[0].kernel, Sketch)
        return self.inner * (8 * self.words if is_sketch else _WIDTH)

    @property
    def _columns(self) -> int:
        """The cells of the result in whose columns a unit has about the bytes of a slab.

        They do not change if the array grows along its first axis.
        """
        grown = (self.grid[axis] if axis == 0 else self.field.shape[axis] for axis in self.retained)
        own = math.prod(self.retained_grid)
        return max(own, min(math.prod(grown), STATE_CELLS))

    @cached_property
    def unit(self) -> int:
        """The length of a unit."""
        chunks, size = 1, self.column * self._columns
        for share, most in ((_SLAB_SHARE, SLAB), (_UNIT_SHARE, 8 * SLAB)):
            while chunks * self.column < share * self._width and 2 * chunks * size <= most:
                chunks *= 2
        return chunks * self.step

    @cached_property
    def per_leaf(self) -> int:
        """The number of units of a leaf. Exact quantiles take all units together."""
        if self.is_exact:
            return 1 << 62
        units, size = 1, self.column * self.unit // self.step
        while units * size < _LEAF_SHARE * self._width:
            units *= 2
        return units

    @cached_property
    def piece(self) -> tuple[int, ...]:
        """The lengths of a piece of a unit along the other reduced axes: whole chunks."""
        size = self.field.raw.itemsize * self.unit * self._columns
        return block_shape(self.others_shape, self.others_grid, size, SLAB)

    @cached_property
    def slab(self) -> tuple[int, ...]:
        """The lengths of a slab of a piece along all reduced axes: less than a piece only in large chunks."""
        lengths = dict(zip(self.others, self.piece, strict=True))
        shape = tuple(lengths.get(axis, self.unit) for axis in self.over)
        if self.unit > self.step:
            return shape
        columns = 1 if self.has_cells_inside else min(math.prod(self.retained_grid), _COLUMNS)
        return block_shape(shape, (1,) * len(shape), self.field.raw.itemsize * columns, SLAB)

    @cached_property
    def leaves(self) -> Leaves:
        """The leaves of all sections."""
        return Leaves.of(self)

    @property
    def levels(self) -> list[Index]:
        """The offsets of the rows of each level of states that is stored; none if states are not stored."""
        offsets = self.leaves.offsets
        counts = np.diff(offsets)
        sections = self.leaves.keys[self.leaves.pairs] // max(self.leaves.units, 1)
        per_position = self.field.raw.itemsize * math.prod((*self.others_shape, *self.retained_shape))
        sizes = np.bincount(sections, minlength=len(counts)) * per_position
        if self.is_exact or not ((counts > 1) & (sizes >= STORED_FROM)).any():
            return []
        out = [offsets]
        while np.diff(out[-1]).max() > FAN:
            out.append(parents(out[-1]))
        return out
