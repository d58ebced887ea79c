"""The job of a reduction: its options, its plan, the arrays of its results, and their partial results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr

from frazil import cf
from frazil.answers.kernels import STATISTICS, WEIGHTED, Values
from frazil.arguments import conflicting, parse_bytes, require_choice, wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Limits, split
from frazil.jobs.job import Job, JobResult, Phase, RunOptions, Source, Target, Tasks, Version, with_options
from frazil.jobs.job_run import require_free, run_with_options
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    CoordinateWriter,
    Field,
    Grouping,
    coordinate,
    coordinates_of,
    digest_of,
    dimensions,
    has_node,
    open_field,
    require_same_labels,
)
from frazil.pipeline.reductions.plan import (
    Combination,
    Exact,
    FieldReduction,
    Item,
    Measure,
    ReductionPlan,
    Sketch,
    plan_reduction,
    rank_error,
)
from frazil.pipeline.reductions.tasks import (
    ReductionInputs,
    combine_item,
    reduce_item,
    scratch_path,
    write_driver_results,
)
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


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """How the cells of an array are grouped. ``labels`` are the coordinates that `grouping_of` reads."""

    grouping_of: Callable[[Session, Field], Grouping]
    labels: tuple[str, ...] = ()


def names_of(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple. Raise ``InvalidInputError`` for other values."""
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(each, str) for each in names):
        raise InvalidInputError(f"paths, dims and how must be text, got {value!r}")
    return names


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


def create_result(
    coordinates: CoordinateWriter,
    reduction: FieldReduction,
    plan: ReductionPlan,
    measure: Measure,
    *,
    keep_attrs: bool,
) -> None:
    """Create the array of a measure, and its coordinates of quantiles and groups."""
    session, path = coordinates.session, measure.path
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
    zarr.create_array(
        session.store,
        name=path.strip("/"),
        shape=(*lead, *reduction.shape),
        chunks=tuple(max(1, n) for n in (*lead, *plan.chunks)),
        dtype=measure.dtype,
        fill_value=np.nan if measure.dtype.kind == "f" else None,
        attributes=attributes,
        dimension_names=(*(("quantile",) if lead else ()), *reduction.dims),
        overwrite=has_node(session, path),
    )
    parent = path.strip("/").rpartition("/")[0]
    if measure.q is not None:
        coordinates.put_coordinate(f"{parent}/quantile", np.array(measure.q), {})
    if reduction.grouping is not None:
        grouping = reduction.grouping
        labels_attributes = dict(grouping.attributes)
        if grouping.bounds is not None:
            labels_attributes["bounds"] = bounds = f"{grouping.name}_bnds"
            dims = (grouping.name, "bnds")
            coordinates.put_coordinate(f"{parent}/{bounds}", grouping.bounds, {}, dims=dims)
        coordinates.put_coordinate(f"{parent}/{grouping.name}", grouping.labels, labels_attributes)


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
    """Return the reductions of one array: one for all quantiles, and one for all other statistics.

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
        raise conflicting(
            f"The name of the labels in by must differ from the names in the result "
            f"({', '.join(sorted(result_names))}), got `{grouping.name}`. Rename the labels"
        )
    over = tuple(axis for axis, dim in enumerate(field.dims) if dim in dims)
    weights = weights_of(arrays, field, options.get("weights"))
    has_empty = empty is not None and empty.any()
    plain = FieldReduction(
        field, over, (), grouping, weights, options["skipna"], empty if has_empty else None
    )
    named = [(how, path)] if isinstance(how, str) else [(each, f"{path}_{each}") for each in how]
    measures = [_measure(plain, own_path, options, each) for each, own_path in named]
    quantiles = tuple(each for each in measures if each.how in _QUANTILES)
    others = tuple(each for each in measures if each.how not in _QUANTILES)
    return [replace(plain, measures=part) for part in (others, quantiles) if part]


def _measure(reduction: FieldReduction, path: str, options: ReductionOptions, how: str) -> Measure:
    field, is_weighted = reduction.field, reduction.weights is not None
    require_choice("how", how, [*STATISTICS, *_QUANTILES])
    if is_weighted and how not in WEIGHTED:
        raise conflicting(f"how must be one of {', '.join(WEIGHTED)} with weights, got {how!r}")
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


_SCRATCH: Final = "frazil_partials"


@dataclass(frozen=True, slots=True)
class _ReductionJob:
    """What the driver does: the reductions of a request, and a plan for each of them."""

    arrays: ArrayLookup
    options: ReductionOptions
    reductions: tuple[FieldReduction, ...]
    plans: tuple[ReductionPlan, ...]
    scratch: str

    @property
    def writes(self) -> tuple[str, ...]:
        """The paths of the results."""
        return tuple(measure.path for reduction in self.reductions for measure in reduction.measures)

    @property
    def has_scratch(self) -> bool:
        """Whether any partial results are combined in scratch arrays."""
        return any(plan.combination is Combination.IN_SCRATCH for plan in self.plans)

    @property
    def shared(self) -> ReductionInputs:
        """Return the values that all tasks share."""
        combinations = tuple(plan.combination for plan in self.plans)
        block = self.options["limits"].block
        return ReductionInputs(self.arrays.session, self.reductions, combinations, self.scratch, block)


def run_reduction(
    name: str,
    source: Source,
    paths: str | Sequence[str],
    how: How,
    choices: ReductionOptions,
    *,
    dims: str | Sequence[str] | None = None,
    rule: GroupingRule | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> JobResult:
    """Run an operation as one job. ``choices`` are the options that the caller passes."""
    version = Version.of(source)
    all_paths, all_how, all_dims = names_of(paths), names_of(how), None if dims is None else names_of(dims)
    for argument, names in (("paths", all_paths), ("how", all_how)):
        if not names:
            raise InvalidInputError(f"{argument} must have at least one name, got none")
    options: ReductionOptions = {**REDUCTION_DEFAULTS, **choices}
    target = target_or_group(version, options.get("to"), name)
    arrays = ArrayLookup(version.session())
    reductions: list[FieldReduction] = []
    for path in all_paths:
        field = open_field(arrays.session, path, decode=options["decode"], valid_range=options["valid_range"])
        groups = None if rule is None else rule.grouping_of(arrays.session, field)
        statistics = how if isinstance(how, str) else all_how
        result = target.path(field.path)
        reductions += reductions_of(arrays, field, result, statistics, all_dims, groups, options)
    plans = [
        plan_reduction(number, each, options["limits"], options.get("engine"))
        for number, each in enumerate(reductions)
    ]
    work = _ReductionJob(arrays, options, tuple(reductions), tuple(plans), target.path(_SCRATCH))
    fields = [reduction.field for reduction in reductions]
    require_free(version, target, [field.path for field in fields], work.writes)
    coordinates = {
        f"/{field.parent}/{name}".replace("//", "/")
        for field in fields
        for name in (*(() if rule is None else rule.labels), *coordinates_of(field, arrays, field.dims))
    }
    second = Phase(functools.partial(_prepare_combination, work), combine_item)
    job = Job(
        name,
        target,
        functools.partial(_prepare, work),
        reduce_item,
        functools.partial(_finish, work),
        {
            "paths": list(all_paths),
            "dims": None if all_dims is None else list(all_dims),
            "how": list(all_how),
            **(parameters or {}),
            **recorded_options(choices),
        },
        (version.input((*sorted({field.path for field in fields}), *sorted(coordinates))),),
        work.writes,
        phases=(second,) if work.has_scratch else (),
    )
    return run_with_options(job, options)


# On the driver, with the session of the target


def _prepare(work: _ReductionJob, session: Session) -> Tasks:
    coordinates = CoordinateWriter.of(work.arrays, session, work.writes)
    parents: dict[tuple[str, int], str] = {}  # a result in each group, for the coordinates of a reduction
    for number, (reduction, plan) in enumerate(zip(work.reductions, work.plans, strict=True)):
        for measure_number, measure in enumerate(reduction.measures):
            parents[measure.path.rpartition("/")[0], number] = measure.path
            create_result(coordinates, reduction, plan, measure, keep_attrs=work.options["keep_attrs"])
            if plan.combination is not Combination.IN_SCRATCH:
                continue
            box = tuple(max(1, n) for n in plan.retained_box)
            for field, (dtype, identity) in enumerate(measure.kernel.identities):
                path = scratch_path(work.scratch, number, measure_number, field)
                zarr.create_array(
                    session.store,
                    name=path,
                    shape=(plan.slots, reduction.groups, *reduction.retained_shape),
                    chunks=(1, plan.group_chunk, *box),
                    dtype=dtype,
                    fill_value=identity,
                    overwrite=has_node(session, path),
                )
    for (_, number), path in parents.items():
        reduction = work.reductions[number]
        dims = [reduction.field.dims[axis] for axis in reduction.retained]
        group_dim = "" if reduction.grouping is None else reduction.grouping.name
        coordinates.copy_coordinates(reduction.field, dims, path, without=group_dim)
    return Tasks([item for plan in work.plans for item in plan.items], work.shared)


def _prepare_combination(work: _ReductionJob, session: Session, values: list[Any]) -> Tasks:
    """Return the tasks of the second phase: an item for each chunk of results with scratch arrays.

    Partial results that the tasks returned are combined first: a later ``finish`` does not get them.
    """
    _write_returned(work, session, values)
    items: list[Item] = []
    for number, (reduction, plan) in enumerate(zip(work.reductions, work.plans, strict=True)):
        if plan.combination is not Combination.IN_SCRATCH:
            continue
        zero = (0,) * len(reduction.over)
        shape, chunk = (reduction.groups, *reduction.retained_shape), (plan.group_chunk, *plan.retained_box)
        starts, stops = split(shape, chunk)
        items += [
            Item(number, tuple(low[1:]), tuple(high[1:]), (low[0], high[0]), zero, zero, plan.slots)
            for low, high in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
    return Tasks(items, work.shared)


def _finish(work: _ReductionJob, session: Session, values: list[Any]) -> None:
    if not work.has_scratch:
        _write_returned(work, session, values)
        return
    parent, _, name = work.scratch.strip("/").rpartition("/")
    del zarr.open_group(session.store, path=parent, mode="r+")[name]


def _write_returned(work: _ReductionJob, session: Session, values: Sequence[Any]) -> None:
    """Combine and write the partial results that tasks returned. ``values`` are (item, states), or None."""
    returned: dict[int, list[Any]] = {}
    for value in values:
        if value is not None:
            returned.setdefault(value[0].number, []).append(value)
    for number, plan in enumerate(work.plans):
        if plan.combination is Combination.ON_DRIVER:
            write_driver_results(session, work.reductions[number], returned.get(number, []))
