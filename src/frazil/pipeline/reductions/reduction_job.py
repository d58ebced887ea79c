"""Reductions as operations: options, weights, measures, and the arrays that are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, cast

import numpy as np
import xarray as xr

from frazil import cf
from frazil.answers.kernels import STATISTICS, WEIGHTED, FirstLast, Values
from frazil.arguments import parse_bytes, require_choice, wrong_type
from frazil.arrays.array import Array
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Limits, block_shape, halved
from frazil.jobs.engine import least_blocks, task_bytes, task_count
from frazil.jobs.job import BoundedRunOptions, JobResult, RunOptions, Source, Target, Version, with_options
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView, states_path
from frazil.pipeline.derivation.relations import Read, Relation, SpanTable, Whole, Window
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    Field,
    Grouping,
    coordinate,
    coordinates_of,
    digest_of,
    dimensions,
    open_field,
    recorded_argument,
    require_same_labels,
)
from frazil.pipeline.reductions.plan import (
    STATE_CELLS,
    Exact,
    FieldReduction,
    Measure,
    Sketch,
    children,
    rank_error,
)
from frazil.pipeline.reductions.tasks import ResultBlocks, StateBlocks
from frazil.pipeline.transform.arrays import ArrayInfo, array_info, names_of
from frazil.pipeline.transform.block_job import ComputedArrays, DriverArray, OutputArrays, same_repository
from frazil.repository.session.session import Session

#: ``"coslat"``, an array of xarray, or arrays by dimension.
type Weights = str | xr.DataArray | Mapping[str, Any]
#: A statistic, or several.
type How = str | Sequence[str]


class QuantileOptions(RunOptions, total=False):
    """The options of `quantile`: those of `ReductionOptions` without ``q``, which is an argument.

    Attributes:
        skipna: Whether NaN is ignored. The default is True.
        min_count: The least number of valid cells: a result of fewer cells is NaN. The default, None, sets
            no limit.
        ddof: ``std`` and ``var`` divide by the number of cells minus ``ddof``. The default is 0.
        weights: Weights of the cells for ``mean``, ``sum``, ``count``, ``std`` and ``var``: ``"coslat"`` (the
            cosine of the latitude), a DataArray, or a mapping of dimensions to values. The weights of a cell
            along several dimensions are multiplied. The default, None, is no weights.
        decode: Whether the CF conventions are applied: fill values become NaN, packed data are unpacked. The
            default is True.
        valid_range: Whether values outside of the attributes ``valid_range``, ``valid_min`` and ``valid_max``
            are ignored too. The default is False.
        keep_attrs: Whether the results get the attributes of the arrays. The default is True.
        exact_below: Quantiles are exact where the cells of a chunk of the result take at most this many
            bytes: a number, or a text such as the default, ``"256MB"``. Otherwise they are estimated by
            sketches.
        k: The size of the sketches, from 8 to 65535. A larger sketch is more accurate: the rank error is
            1.3 % for the default, 200.
        limits: `Limits`, in bytes: how much a task reads, and when partial results go through the storage.
        to: The `Target` of the results. The default, None, is a group on the branch of the source, which is
            named after the operation.
    """

    skipna: bool
    min_count: int | None
    ddof: int
    weights: Weights | None
    decode: bool
    valid_range: bool
    keep_attrs: bool
    exact_below: int | str
    k: int
    limits: Limits
    to: Target | None


class ReductionOptions(QuantileOptions, total=False):
    """The options of every reduction. ``help(frazil.pipeline.reduce)`` lists them.

    Attributes:
        q: For ``how="quantile"``: a quantile between 0 and 1, or several. The default is 0.5.
    """

    q: float | Sequence[float]


#: The defaults that are not None.
REDUCTION_DEFAULTS: Final[ReductionOptions] = {
    "skipna": True,
    "ddof": 0,
    "decode": True,
    "valid_range": False,
    "keep_attrs": True,
    "exact_below": "256MB",
    "k": 200,
    "limits": Limits(),
    "q": 0.5,
}
takes_options: Final = with_options(ReductionOptions, REDUCTION_DEFAULTS)
takes_quantile_options: Final = with_options(QuantileOptions, REDUCTION_DEFAULTS)


#: The options whose values are recorded unchanged, if the caller passes them.
_RECORDED: Final = ("skipna", "min_count", "ddof", "decode", "valid_range", "keep_attrs", "k")


def recorded_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the caller that change the result, as JSON."""
    out: dict[str, Any] = {name: value for name, value in options.items() if name in _RECORDED}
    if "q" in options:
        out["q"] = np.asarray(options["q"]).tolist()
    if "exact_below" in options:
        out["exact_below"] = parse_bytes(options["exact_below"])
    weights = options.get("weights")
    if isinstance(weights, xr.DataArray):
        out["weights"] = {",".join(map(str, weights.dims)): digest_of(weights.values)}
    elif isinstance(weights, Mapping):
        out["weights"] = {dim: digest_of(np.asarray(values)) for dim, values in weights.items()}
    elif weights is not None:
        out["weights"] = weights
    return out


def target_or_group(version: Version, to: Target | None, name: str) -> Target:
    """Return the target ``to``; without it, the group ``name`` on the branch that the job reads."""
    if to is not None:
        if not isinstance(to, Target):
            raise wrong_type("to", to, "Target", "None")
        return to
    if version.branch is None:
        raise InvalidInputError(
            "to must be a target if the source is not on a branch, got None. Pass "
            "`to=Target(repo, branch, group)`",
            ErrorKind.NOT_ON_BRANCH,
        )
    return Target(version.repo, version.branch, f"/{name}")


def weights_of(lookup: ArrayLookup, field: Field, weights: Weights | None) -> Values | None:
    """Return weights with as many axes as the array, of length 1 along axes where they do not vary."""
    session, arrays = lookup.session, dict[tuple[str, ...], Values]()
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "coslat":
            raise InvalidInputError(
                f"weights must be 'coslat' or arrays, got {weights!r}", ErrorKind.UNKNOWN_CHOICE
            )
        coordinates = coordinates_of(field, lookup, field.dims)
        for name, array in coordinates.items():
            if array.attrs.get("standard_name") == "latitude" or name in ("lat", "latitude"):
                break
        else:
            raise InvalidInputError(
                f"`{field.path}` must have a coordinate with the standard_name `latitude`, got "
                f"{', '.join(coordinates) or 'none'}",
                ErrorKind.UNSUPPORTED_ARRAY,
            )
        latitude = coordinate(session, field.parent, name)
        arrays[dimensions(array)] = np.cos(np.deg2rad(latitude.values))
    elif isinstance(weights, xr.DataArray):
        require_same_labels(session, field, weights, "weights")
        arrays[tuple(map(str, weights.dims))] = weights.values
    elif isinstance(weights, Mapping):
        arrays = {(dim,): np.asarray(values) for dim, values in weights.items()}
    else:
        raise InvalidInputError(
            f"weights must be 'coslat', a DataArray, or arrays by dimension, got {weights!r}"
        )
    out: Values = np.ones((1,) * len(field.dims))
    lengths = dict(zip(field.dims, field.shape, strict=True))
    for dims, values in arrays.items():
        if not set(dims) <= set(field.dims) or tuple(map(lengths.__getitem__, dims)) != values.shape:
            raise InvalidInputError(
                f"weights must have the lengths of dimensions of `{field.path}`, {lengths}, got "
                f"{dict(zip(dims, values.shape, strict=False))}"
            )
        if values.dtype.kind not in "biuf" or np.isnan(values).any():
            wrong = "NaN" if values.dtype.kind in "biuf" else f"the type {values.dtype}"
            raise InvalidInputError(f"weights must be numbers, got {wrong}")
        order = sorted(range(len(dims)), key=lambda axis: field.dims.index(dims[axis]))
        shape = [lengths[dim] if dim in dims else 1 for dim in field.dims]
        out = out * values.astype(np.float64).transpose(order).reshape(shape)
    return out


_QUANTILES: Final = ("quantile", "median")


def reductions_of(
    arrays: ArrayLookup,
    field: Field,
    path: str,
    how: How,
    dims: Sequence[str] | None,
    grouping: Grouping | None,
    options: ReductionOptions,
) -> list[FieldReduction]:
    """Return the reductions of one array: one for each quantile, and one for all other statistics.

    The result of one statistic is at ``path``, the results of several are at ``<path>_<how>``. ``dims`` are
    reduced in addition to the dimensions of the labels; None is all dimensions, or with a ``grouping`` only
    those of the labels. ``options`` have all their defaults.
    """
    empty = None
    if grouping is not None:
        lengths = dict(zip(field.dims, field.shape, strict=True))
        if tuple(lengths.get(dim, -1) for dim in grouping.dims) != grouping.codes.shape:
            raise InvalidInputError(
                f"by must have the lengths of dimensions of `{field.path}`, {lengths}, got "
                f"{dict(zip(grouping.dims, grouping.codes.shape, strict=True))}"
            )
        if not len(grouping):
            raise InvalidInputError(
                f"by must give a label `{grouping.name}` to at least one cell of `{field.path}`, got none"
            )
        empty = grouping.empty()
    label_dims = () if grouping is None else grouping.dims
    if dims is None:
        dims = field.dims if grouping is None else label_dims
    unknown = [dim for dim in dims if dim not in field.dims]
    if unknown:
        raise InvalidInputError(
            f"dims must be among {', '.join(field.dims)} of `{field.path}`, got {', '.join(unknown)}",
            ErrorKind.UNKNOWN_CHOICE,
        )
    dims = (*dims, *label_dims)
    result_names = {*field.dims} - {*dims} | {field.name}
    if grouping is not None and grouping.name in result_names:
        raise InvalidInputError(
            f"The name of the labels in by must differ from the names in the result "
            f"({', '.join(sorted(result_names))}), got `{grouping.name}`. Rename the labels",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    over = tuple(axis for axis, dim in enumerate(field.dims) if dim in dims)
    weights = weights_of(arrays, field, options.get("weights"))
    has_empty = empty is not None and empty.any()
    plain = FieldReduction(
        field, over, (), grouping, weights, options["skipna"], empty if has_empty else None
    )
    named = [(how, path)] if isinstance(how, str) else [(each, f"{path}_{each}") for each in how]
    measures = [_measure(plain, own_path, options, each) for each, own_path in named]
    others = tuple(each for each in measures if each.how not in _QUANTILES)
    parts = [others, *((each,) for each in measures if each.how in _QUANTILES)]
    return [replace(plain, measures=part) for part in parts if part]


def _measure(reduction: FieldReduction, path: str, options: ReductionOptions, how: str) -> Measure:
    field, is_weighted = reduction.field, reduction.weights is not None
    require_choice("how", how, [*STATISTICS, *_QUANTILES])
    if is_weighted and how not in WEIGHTED:
        raise InvalidInputError(
            f"how must be one of {', '.join(WEIGHTED)} with weights, got {how!r}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    if how in _QUANTILES:
        return _quantile_measure(reduction, path, options, how)
    ddof, min_count = options["ddof"], options.get("min_count")
    statistic = STATISTICS[how]
    kernel = statistic.kernel(field.dtype, is_weighted, ddof, min_count)
    dtype = statistic.dtype(field.dtype, is_weighted)
    # A result of integers that may have no value is of floats, which have NaN.
    has_few_cells = min_count or (statistic.needs_cells and not all(reduction.over_shape))
    may_be_missing = statistic.has_units and has_few_cells
    if dtype.kind in "iub" and (reduction.empty is not None or may_be_missing):
        # An empty group makes float32 of integers of up to 16 bits, as in xarray.
        is_small = dtype.kind in "iu" and dtype.itemsize <= 2 and reduction.empty is not None
        dtype = np.dtype(np.float32 if is_small else np.float64)
    return Measure(path, how, kernel, dtype)


def _quantile_measure(reduction: FieldReduction, path: str, options: ReductionOptions, how: str) -> Measure:
    """Return a measure with an exact kernel if the cells of a chunk of the result take few bytes."""
    quantiles: Any = 0.5 if how == "median" else options["q"]
    try:
        q = tuple(map(float, np.atleast_1d(np.asarray(quantiles, np.float64))))
    except (TypeError, ValueError):
        q = ()
    if not q or not all(0 <= each <= 1 for each in q):
        raise InvalidInputError(f"q must be numbers from 0 to 1, got {quantiles}")
    dtype, k = reduction.field.dtype, options["k"]
    cells = math.prod(reduction.over_shape) * math.prod(reduction.retained_grid)
    is_exact = 8 * cells <= parse_bytes(options["exact_below"])
    if not is_exact and (not isinstance(k, int) or not 8 <= k <= 65535):
        raise InvalidInputError(f"k must be a number from 8 to 65535, got {k!r}")
    estimate = Exact(q, reduction.skipna) if is_exact else Sketch(q, k, reduction.skipna)
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return Measure(path, how, estimate, dtype, None if np.ndim(quantiles) == 0 else q)


def result_array(
    source: ArrayInfo, reduction: FieldReduction, measure: Measure, chunks: Sequence[int], *, keep_attrs: bool
) -> ArrayInfo:
    """Return the metadata of a result. ``chunks`` are those of the dimensions without quantiles."""
    attributes = reduction.field.decoded_attributes() if keep_attrs else {}
    if measure.how in STATISTICS and not STATISTICS[measure.how].has_units:
        attributes["units"] = "1"
    elif measure.how == "var" and "units" in attributes:
        attributes["units"] = f"({attributes['units']})2"
    over = [reduction.field.dims[axis] for axis in reduction.over]
    method = f"{': '.join(over)}: {cf.cell_method(measure.how)}"
    earlier_methods = str(reduction.field.attributes.get("cell_methods", "")).strip()
    attributes["cell_methods"] = f"{earlier_methods} {method}".strip()
    if isinstance(measure.kernel, Sketch):
        attributes["quantile_rank_error"] = round(rank_error(measure.kernel.k), 6)
    if measure.q is None and measure.how == "quantile":
        assert isinstance(measure.kernel, Exact | Sketch)
        attributes["quantile"] = measure.kernel.q[0]
    lead = () if measure.q is None else (len(measure.q),)
    return source.with_dtype(
        measure.path,
        measure.dtype,
        shape=(*lead, *reduction.shape),
        dims=(*(("quantile",) if lead else ()), *reduction.dims),
        chunks=tuple(max(1, n) for n in (*lead, *chunks)),
        attributes=attributes,
    )


@dataclass(frozen=True, slots=True)
class ReductionArrays:
    """The arrays of one reduction of ``source``: states, and results with the limits of a run."""

    source: ArrayInfo
    reduction: FieldReduction
    to: Target
    limits: Limits
    engine: Any
    keep_attrs: bool

    def computed(self) -> list[ComputedArrays]:
        """Return the arrays that tasks compute, in rounds."""
        reduction, levels = self.reduction, self.reduction.levels
        states: list[ComputedArrays] = []
        below: tuple[str, Any] | None = None
        for number, offsets in enumerate(levels):
            states.append(self._states(number, offsets, below, None if below is None else states[-1].new[0]))
            below = states[-1].new[0].path, offsets
        box, groups, per_task = self._result_lengths(bool(levels))
        at = reduction.arranged(groups, box)
        new = tuple(
            result_array(self.source, reduction, measure, at, keep_attrs=self.keep_attrs)
            for measure in reduction.measures
        )
        lead = () if reduction.measures[0].q is None else (len(reduction.measures[0].q),)
        wide = box
        if below is None and not reduction.is_exact:  # several chunks, which are read together
            read = reduction.field.raw.itemsize * max(1, math.prod(reduction.over_shape))
            most = self.limits.state // (8 * reduction.words * max(per_task, reduction.inner))
            room = max(1, min(self.limits.task // 4 // read, most))
            wide = block_shape(reduction.retained_shape, box, 1, room)
        in_chunk = -(-reduction.groups * reduction.step // max(1, reduction.length)) if below is None else 1
        unit = (*lead, *reduction.arranged(-(-in_chunk // groups) * groups, box))
        block = halved((*lead, *reduction.arranged(per_task, wide)), unit, new[0].shape, self._blocks)
        group = None if reduction.group_axis is None else len(lead) + reduction.group_axis
        axes = [
            len(lead) + axis + (reduction.group_axis is not None and axis >= reduction.group_axis)
            for axis in range(len(reduction.retained))
        ]
        section = group if reduction.varies else None
        compute = ResultBlocks(reduction, self.limits.block, below)
        if below is None:
            reads = self._reads(section, axes, of_sections=True)
            return [ComputedArrays(self.source, new, block, compute, 0, self._tasks, (reads,), self._key)]
        first = levels[-1] if reduction.varies else levels[-1][[0, -1]]
        spans = SpanTable.of_rows(first[:-1], first[1:])
        inner: tuple[int | None, Relation] = (None, Whole()) if reduction.varies else (group, Window())
        reads = Read(
            below[0], ((section, spans), (None, Whole()), inner, *((axis, Window()) for axis in axes))
        )
        return [
            *states,
            ComputedArrays(states[-1].new[0], new, block, compute, len(levels), None, (reads,), self._key),
        ]

    def _states(
        self, number: int, offsets: Any, below: tuple[str, Any] | None, old: ArrayInfo | None
    ) -> ComputedArrays:
        """Return the states of one level: of the leaves, or of the nodes above the level ``below``."""
        reduction, limits = self.reduction, self.limits
        width = 8 * reduction.words * reduction.inner
        most = max(1, limits.state // width)
        size = reduction.column // reduction.step * min(reduction.unit, reduction.length)
        box = reduction.joined_chunks(min(STATE_CELLS, limits.block // max(1, size)))
        if math.prod(box) > most:
            box = block_shape(box, (1,) * len(box), 1, most)
        room = min(most, limits.block // max(1, size))
        blocks = block_shape(reduction.retained_shape, box, 1, max(1, room))
        rows = max(1, min(limits.block // (size * reduction.per_leaf), most) // max(1, math.prod(blocks)))
        path = f"{states_path(self.to, reduction.measures[0].path)}/{number}"
        shape = (int(offsets[-1]), reduction.words, reduction.inner, *reduction.retained_shape)
        chunks = tuple(max(1, n) for n in (1, *shape[1:3], *box))
        new = self.source.with_dtype(
            path,
            np.uint64,
            shape=shape,
            dims=[f"{number}_{axis}" for axis in range(len(shape))],
            chunks=chunks,
            attributes={},
        )
        compute = StateBlocks(reduction, limits.block, below)
        axes = range(3, len(shape))
        if below is None or old is None:
            reads, tasks, old = self._reads(0, axes, of_sections=False), self._tasks, self.source
        else:
            spans = SpanTable.of_rows(*children(below[1]))
            reads, tasks = (
                Read(below[0], ((0, spans), *((axis, Window()) for axis in range(1, len(shape))))),
                None,
            )
            rows = 1
        block = halved((rows, *chunks[1:3], *(max(1, n) for n in blocks)), chunks, shape, self._blocks)
        return ComputedArrays(old, (new,), block, compute, number, tasks, (reads,), self._key)

    @property
    def _tasks(self) -> int:
        size = math.prod(self.reduction.field.shape) * self.reduction.field.raw.itemsize
        return task_count(size, self.limits.task, self.engine)

    @property
    def _blocks(self) -> int:
        size = math.prod(self.reduction.field.shape) * self.reduction.field.raw.itemsize
        return least_blocks(size, self.engine)

    @property
    def _key(self) -> Any:
        """All but chunks that has an influence on the values."""
        reduction = self.reduction
        labels = None
        if reduction.grouping is not None and reduction.label_axes != (reduction.sequence,):
            labels = digest_of(reduction.grouping.codes)
        weights = None if reduction.weights is None else digest_of(reduction.weights)
        division = [reduction.unit, min(reduction.per_leaf, 1 << 40), reduction.piece, reduction.slab]
        return {"division": division, "labels": labels, "weights": weights}

    def _reads(self, section: int | None, retained: Sequence[int], *, of_sections: bool) -> Read:
        """Return what the rows or the sections read of the array."""
        reduction = self.reduction
        lengths = (1,) * len(reduction.field.shape) if reduction.weights is None else reduction.weights.shape
        axes: list[tuple[int | None, Relation]] = [(None, Whole())] * len(lengths)
        for axis, to in zip(reduction.retained, retained, strict=True):
            axes[axis] = (to, Window(moves=lengths[axis] == 1))
        if reduction.sequence is not None:
            has_positions = any(isinstance(measure.kernel, FirstLast) for measure in reduction.measures)
            moves = lengths[reduction.sequence] == 1 and not has_positions
            axes[reduction.sequence] = (section, reduction.leaves.spans(of_sections=of_sections, moves=moves))
        return Read(reduction.field.path, tuple(axes))

    def _result_lengths(self, has_states: bool) -> tuple[tuple[int, ...], int, int]:
        """Return chunks of the retained axes and of the groups of the result, and the groups of a task."""
        reduction, limits = self.reduction, self.limits
        groups, over = reduction.groups, max(1, math.prod(reduction.over_shape))
        read = reduction.field.raw.itemsize * over
        width = 8 * reduction.words
        if reduction.is_exact:
            room = min(limits.chunk // (width * groups), limits.task // (8 * over))
        else:
            # An axis that grows is the first one: a refresh computes its last chunk.
            most_read = limits.chunk if reduction.retained[:1] == (0,) else limits.task // 4
            room = min(limits.chunk // 8, limits.state // width if has_states else most_read // read)
        box = reduction.joined_chunks(room)
        most = max(1, limits.state // (width * reduction.inner))
        if not reduction.is_exact and math.prod(box) > most:
            # A part of a chunk: the chunk is read more than once, but the state of the part fits.
            box = block_shape(box, (1,) * len(box), 1, most)
        cells = max(1, math.prod(box))
        per_group = max(1, read * cells // groups)
        chunk = max(1, min(groups, 4 * limits.chunk // (8 * cells)))
        if not reduction.varies:
            return box, chunk, -(-groups // chunk) * chunk
        if not reduction.is_exact:
            # A refresh computes whole chunks: so they have several groups only if these are small.
            chunk = max(1, min(chunk, limits.chunk // 64 // (8 * cells), limits.chunk // 16 // per_group))
        per_task = max(chunk, min(groups, limits.state // (cells * width)))
        if has_states:
            per_task = chunk
        elif reduction.is_exact:
            per_task = groups
        elif reduction.reads_once:
            total = math.prod(reduction.field.shape) * reduction.field.raw.itemsize
            task = task_bytes(total, limits.task, self.engine)
            in_chunk = -(-groups * reduction.step // max(1, reduction.length))
            per_task = min(per_task, max(1, task // per_group, 4 * in_chunk))
        return box, chunk, -(-per_task // chunk) * chunk


@dataclass(frozen=True, slots=True)
class ReductionOperation(ArrayOperation):
    """The operation of `reduce`. ``options`` are those of the caller that change the results."""

    name = "reduce"
    how: How
    dims: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def job_name(self) -> str:
        """The name of the function that users call: that of the statistic, if it is one."""
        return self.how if self.name == "reduce" and isinstance(self.how, str) else self.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The coordinates with the labels of groups."""
        return ()

    def grouping_of(self, session: Session, array: Field) -> Grouping | None:
        """Return the groups of the cells of an array."""
        return None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the states, the results, and their coordinates."""
        choices: Any = {**REDUCTION_DEFAULTS, **self.options}
        limits = cast("ReductionOptions", options).get("limits") or Limits()
        session, arrays = view.session, ArrayLookup(view.session)
        computed: list[ComputedArrays] = []
        coordinates: dict[str, DriverArray] = {}
        read: set[str] = set()
        for path in self.paths:
            array = open_field(session, path, decode=choices["decode"], valid_range=choices["valid_range"])
            groups = self.grouping_of(session, array)
            result = to.path(array.path)
            reductions = reductions_of(arrays, array, result, self.how, self.dims, groups, choices)
            info = array_info(session, array.path)
            read.add(array.path)
            for each in reductions:
                parts = ReductionArrays(info, each, to, limits, options.get("engine"), choices["keep_attrs"])
                computed += parts.computed()
                for one in result_coordinates(arrays, info, each):
                    coordinates.setdefault(one.new.path, one)
            own = coordinates_of(array, arrays, array.dims)
            read |= {f"/{array.parent}/{name}".replace("//", "/") for name in (*self.labels, *own)}
        results = {new.path for each in computed for new in each.new}
        drivers = coordinates_to_write(coordinates, view, to)
        drivers = [each for each in drivers if each.new.path not in results]
        inputs = [array_info(session, path) for path in sorted(read)]
        parameters = {
            "paths": list(self.paths),
            "dims": None if self.dims is None else list(self.dims),
            "how": list(names_of(self.how)),
            **{each.name: recorded_argument(getattr(self, each.name)) for each in fields(self)[4:]},
            **recorded_options(self.options),
        }
        return BlockPlan(inputs, OutputArrays(computed, (), drivers), parameters)


def result_coordinates(
    arrays: ArrayLookup, source: ArrayInfo, reduction: FieldReduction
) -> list[DriverArray]:
    """Return the coordinates of the results: of quantiles, of groups, and of the retained dimensions."""
    out: list[DriverArray] = []
    for measure in reduction.measures:
        group = measure.path.rpartition("/")[0]
        named: dict[str, tuple[tuple[str, ...], Values, Mapping[str, Any]]] = {}
        if measure.q is not None:
            named["quantile"] = ("quantile",), np.array(measure.q), {}
        grouping = reduction.grouping
        if grouping is not None:
            own = dict(grouping.attributes)
            if grouping.bounds is not None:
                own["bounds"] = bounds = f"{grouping.name}_bnds"
                named[bounds] = (grouping.name, "bnds"), grouping.bounds, {}
            named[grouping.name] = (grouping.name,), grouping.labels, own
        for name, (dims, values, attributes) in named.items():
            if values.dtype.kind in "UO":
                values = values.astype(np.dtypes.StringDType())
            chunks = tuple(max(1, n) for n in values.shape)
            new = source.with_dtype(
                f"{group}/{name}",
                values.dtype,
                shape=values.shape,
                dims=dims,
                chunks=chunks,
                attributes=attributes,
            )
            out.append(DriverArray(source, new, values))
        retained = [reduction.field.dims[axis] for axis in reduction.retained]
        copies = retained_coordinates(arrays, reduction.field, retained, group)
        out += [each for each in copies if each.new.name not in named]
    return out


def retained_coordinates(
    arrays: ArrayLookup, of: Field, dims: Sequence[str], group: str
) -> list[DriverArray]:
    """Return the coordinates of a field that have only the dimensions ``dims``, for results in ``group``."""
    out = []
    for name, array in coordinates_of(of, arrays, dims).items():
        info = array_info(arrays.session, array.path)
        new = replace(info, path=f"{group.rstrip('/')}/{name}")
        out.append(DriverArray(info, new, np.asarray(Array(arrays.session, info.path)[...])))
    return out


def coordinates_to_write(
    coordinates: Mapping[str, DriverArray], view: SourceView, to: Target
) -> list[DriverArray]:
    """Return the coordinates without those that are the arrays of the source themselves."""
    same = same_repository(view.version, to) and view.version.branch in (None, to.branch)
    return [each for path, each in coordinates.items() if not same or path != each.old.path]


def run_reduction(operation: ReductionOperation, source: Source, choices: ReductionOptions) -> JobResult:
    """Run an operation as one job. ``choices`` are the options that the caller passes."""
    version = Version.of(source)
    target = target_or_group(version, choices.get("to"), operation.job_name)
    others = {*RunOptions.__annotations__, "to", "limits"}
    own = {key: value for key, value in choices.items() if key not in others}
    for argument, names in (("paths", operation.paths), ("how", names_of(operation.how))):
        if not names:
            raise InvalidInputError(f"{argument} must have at least one name, got none")
    return replace(operation, options=own).run(version, target, cast("BoundedRunOptions", choices))
