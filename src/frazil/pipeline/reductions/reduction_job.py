"""The job of a reduction: plan it, create the arrays, run the tasks, combine their partial results."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil import cf
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import parse_bytes, split
from frazil.jobs.job import Job, JobResult, Phase, Source, Tasks, Version
from frazil.jobs.job_run import run_with_options
from frazil.pipeline.reductions.fields import (
    ENCODING,
    ArrayLookup,
    CoordinateWriter,
    Field,
    Grouping,
    coordinates_of,
    has_node,
    open_field,
)
from frazil.pipeline.reductions.kernels import WEIGHTED, kernel, result_dtype
from frazil.pipeline.reductions.options import (
    REDUCTION_DEFAULTS,
    GroupingRule,
    How,
    ReductionOptions,
    names_of,
    recorded_options,
    require_free_targets,
    target_or_group,
    weights_of,
)
from frazil.pipeline.reductions.plan import (
    Combination,
    Exact,
    Item,
    Measure,
    Reduction,
    ReductionPlan,
    Sketch,
    plan_reduction,
    rank_error,
)
from frazil.pipeline.reductions.tasks import (
    Shared,
    combine_item,
    reduce_item,
    scratch_path,
    write_driver_results,
)
from frazil.repository.session.session import Session


def create_result(
    coordinates: CoordinateWriter,
    reduction: Reduction,
    plan: ReductionPlan,
    measure: Measure,
    *,
    keep_attrs: bool,
) -> None:
    """Create the array of a measure, and its coordinates of quantiles and groups."""
    session, path = coordinates.session, measure.path
    lead = () if measure.q is None else (len(measure.q),)
    zarr.create_array(
        session.store,
        name=path.strip("/"),
        shape=(*lead, *reduction.shape),
        chunks=tuple(max(1, n) for n in (*lead, *plan.chunks)),
        dtype=measure.dtype,
        fill_value=np.nan if measure.dtype.kind == "f" else None,
        attributes=_result_attributes(reduction, measure, keep_attrs=keep_attrs),
        dimension_names=(*(("quantile",) if lead else ()), *reduction.dims),
        overwrite=has_node(session, path),
    )
    parent = path.strip("/").rpartition("/")[0]
    if measure.q is not None:
        coordinates.put_coordinate(f"{parent}/quantile", np.array(measure.q), {})
    if reduction.grouping is not None:
        grouping = reduction.grouping
        attributes = dict(grouping.attributes)
        if grouping.bounds is not None:
            attributes["bounds"] = bounds = f"{grouping.name}_bnds"
            dims = (grouping.name, "bnds")
            coordinates.put_coordinate(f"{parent}/{bounds}", grouping.bounds, {}, dims=dims)
        coordinates.put_coordinate(f"{parent}/{grouping.name}", grouping.labels, attributes)


def _result_attributes(reduction: Reduction, measure: Measure, *, keep_attrs: bool) -> dict[str, Any]:
    field = reduction.field
    out = dict(field.attributes) if keep_attrs else {}
    if field.decode:
        out = {
            name: value for name, value in out.items() if name not in ENCODING and (name, value) != cf.BOOLEAN
        }
    coordinates = str(field.attributes.get("coordinates", "")).split() if keep_attrs else []
    if coordinates:
        out["coordinates"] = " ".join(coordinates)
    if measure.how in ("count", "any", "all"):
        out["units"] = "1"
    elif measure.how == "var" and "units" in out:
        out["units"] = f"({out['units']})2"
    dims = [field.dims[axis] for axis in reduction.over]
    method = f"{': '.join(dims)}: {cf.cell_method(measure.how)}"
    earlier_methods = str(field.attributes.get("cell_methods", "")).strip()
    out["cell_methods"] = f"{earlier_methods} {method}".strip()
    if isinstance(measure.kernel, Sketch):
        out["quantile_rank_error"] = round(rank_error(measure.kernel.k), 6)
    if measure.q is None and measure.how == "quantile":
        assert isinstance(measure.kernel, Exact | Sketch)
        out["quantile"] = measure.kernel.q[0]
    return out


def copy_coordinates(coordinates: CoordinateWriter, reductions: Sequence[Reduction]) -> None:
    """Copy the stored coordinates of the retained dimensions, once for each group of results."""
    paths = {
        (measure.path.rpartition("/")[0], number): measure.path
        for number, reduction in enumerate(reductions)
        for measure in reduction.measures
    }
    for (_, number), path in paths.items():
        reduction = reductions[number]
        dims = [reduction.field.dims[axis] for axis in reduction.retained]
        group_dim = "" if reduction.grouping is None else reduction.grouping.name
        coordinates.copy_coordinates(reduction.field, dims, path, without=group_dim)


def create_scratch(
    session: Session, scratch: str, number: int, reduction: Reduction, plan: ReductionPlan
) -> None:
    """Create the scratch arrays of a reduction, with a row for each slot."""
    box = tuple(max(1, n) for n in plan.retained_box)
    for measure_number, measure in enumerate(reduction.measures):
        assert not isinstance(measure.kernel, Exact)
        for field, (dtype, identity) in enumerate(measure.kernel.identities):
            path = scratch_path(scratch, number, measure_number, field)
            zarr.create_array(
                session.store,
                name=path,
                shape=(plan.slots, reduction.groups, *reduction.retained_shape),
                chunks=(1, plan.group_chunk, *box),
                dtype=dtype,
                fill_value=identity,
                overwrite=has_node(session, path),
            )


_QUANTILES: Final = ("quantile", "median")


def reductions_of(
    arrays: ArrayLookup,
    field: Field,
    path: str,
    how: How,
    dims: Sequence[str] | None,
    grouping: Grouping | None,
    options: ReductionOptions,
) -> list[Reduction]:
    """Return the reductions of one array: one for all quantiles, and one for all other statistics.

    The result of one statistic is at ``path``, the results of several are at ``<path>_<how>``. ``dims`` are
    reduced in addition to the dimensions of the labels; None is all dimensions, or with a ``grouping`` only
    those of the labels. ``options`` have all their defaults.
    """
    if grouping is not None:
        _require_labels(field, grouping)
    over = _reduced_axes(dims, field, grouping)
    weights = weights_of(arrays, field, options.get("weights"))
    plain = Reduction(field, over, (), grouping, weights, options["skipna"], _empty_groups(grouping))
    named = [(how, path)] if isinstance(how, str) else [(each, f"{path}_{each}") for each in how]
    measures = [_measure(plain, own_path, options, each) for each, own_path in named]
    quantiles = tuple(each for each in measures if each.how in _QUANTILES)
    others = tuple(each for each in measures if each.how not in _QUANTILES)
    return [replace(plain, measures=part) for part in (others, quantiles) if part]


def _require_labels(field: Field, grouping: Grouping) -> None:
    lengths = dict(zip(field.dims, field.shape, strict=True))
    expected = tuple(lengths.get(dim, -1) for dim in grouping.dims)
    if expected != grouping.codes.shape:
        raise InvalidInputError(
            f"by must have the lengths of dimensions of `{field.path}`, {lengths}, got "
            f"{dict(zip(grouping.dims, grouping.codes.shape, strict=True))}",
            ErrorKind.INVALID_ARGUMENT,
        )
    if not len(grouping):
        raise InvalidInputError(
            f"by must give a label `{grouping.name}` to at least one cell of `{field.path}`, got none",
            ErrorKind.INVALID_ARGUMENT,
        )


def _reduced_axes(given: Sequence[str] | None, field: Field, grouping: Grouping | None) -> tuple[int, ...]:
    label_dims = () if grouping is None else grouping.dims
    default = field.dims if grouping is None else label_dims
    dims = default if given is None else given
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
    return tuple(axis for axis, dim in enumerate(field.dims) if dim in dims)


def _empty_groups(grouping: Grouping | None) -> NDArray[np.bool_] | None:
    """Return for each group whether it has no cell; None if all groups have cells."""
    empty = None if grouping is None else grouping.empty()
    return None if empty is None or not empty.any() else empty


def _measure(reduction: Reduction, path: str, options: ReductionOptions, how: str) -> Measure:
    field = reduction.field
    if how in _QUANTILES:
        return _quantile_measure(reduction, path, options, how)
    is_weighted = reduction.weights is not None
    ddof, min_count = options["ddof"], options.get("min_count")
    statistic = kernel(how, field.dtype, weighted=is_weighted, ddof=ddof, min_count=min_count)
    dtype = result_dtype(how, field.dtype, weighted=is_weighted)
    if dtype.kind in "iub" and _may_be_missing(reduction, how, min_count):
        # An empty group makes float32 of integers of up to 16 bits, as in xarray.
        is_small = dtype.kind in "iu" and dtype.itemsize <= 2 and reduction.empty is not None
        dtype = np.dtype(np.float32 if is_small else np.float64)
    return Measure(path, how, statistic, dtype)


def _quantile_measure(reduction: Reduction, path: str, options: ReductionOptions, how: str) -> Measure:
    if reduction.weights is not None:
        raise InvalidInputError(
            f"how must be one of {', '.join(WEIGHTED)} with weights, got {how!r}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    given: Any = 0.5 if how == "median" else options["q"]
    try:
        q = tuple(map(float, np.atleast_1d(np.asarray(given, np.float64))))
    except (TypeError, ValueError):
        q = ()
    if not q or not all(0 <= each <= 1 for each in q):
        raise InvalidInputError(f"q must be numbers from 0 to 1, got {given}", ErrorKind.INVALID_ARGUMENT)
    dtype = reduction.field.dtype
    return Measure(
        path,
        how,
        _quantile_kernel(reduction, q, options),
        dtype if dtype.kind == "f" else np.dtype(np.float64),
        None if np.ndim(given) == 0 else q,
    )


def _quantile_kernel(reduction: Reduction, q: tuple[float, ...], options: ReductionOptions) -> Exact | Sketch:
    """Return an exact kernel if the cells of a chunk of the result take at most ``exact_below`` bytes.

    Otherwise return a kernel of sketches.
    """
    cells = math.prod(reduction.over_shape) * math.prod(reduction.retained_grid)
    if 8 * cells <= parse_bytes(options["exact_below"]):
        return Exact(q, reduction.skipna)
    k = options["k"]
    if not isinstance(k, int) or not 8 <= k <= 65535:
        raise InvalidInputError(f"k must be a number from 8 to 65535, got {k!r}", ErrorKind.INVALID_ARGUMENT)
    return Sketch(q, k, reduction.skipna)


def _may_be_missing(reduction: Reduction, how: str, min_count: int | None) -> bool:
    """Return whether a result of integers may have no value: then it is of floats, which have NaN."""
    if reduction.empty is not None:
        return True
    if how in ("count", "any", "all"):
        return False
    if min_count:
        return True
    return how != "sum" and not all(reduction.over_shape)


_SCRATCH: Final = "frazil_partials"


@dataclass(frozen=True, slots=True)
class _ReductionJob:
    """What the driver does: the reductions of a request, and a plan for each of them."""

    arrays: ArrayLookup
    options: ReductionOptions
    labels: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    plans: tuple[ReductionPlan, ...]
    scratch: str

    @property
    def fields(self) -> tuple[Field, ...]:
        """The arrays that are reduced."""
        return tuple(reduction.field for reduction in self.reductions)

    @property
    def writes(self) -> tuple[str, ...]:
        """The paths of the results."""
        return tuple(measure.path for reduction in self.reductions for measure in reduction.measures)

    @property
    def has_scratch(self) -> bool:
        """Whether any partial results are combined in scratch arrays."""
        return any(plan.combination is Combination.IN_SCRATCH for plan in self.plans)

    @property
    def shared(self) -> Shared:
        """Return the values that all tasks share."""
        combinations = tuple(plan.combination for plan in self.plans)
        block = self.options["limits"].block
        return Shared(self.arrays.session, self.reductions, combinations, self.scratch, block)


def run_reduction(
    name: str,
    source: Source,
    paths: str | Sequence[str],
    how: How,
    given: ReductionOptions,
    *,
    dims: str | Sequence[str] | None = None,
    rule: GroupingRule | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> JobResult:
    """Run an operation as one job. ``given`` are the options that the caller passes."""
    version = Version.of(source)
    all_paths, all_how, all_dims = names_of(paths), names_of(how), None if dims is None else names_of(dims)
    for argument, names in (("paths", all_paths), ("how", all_how)):
        if not names:
            raise InvalidInputError(
                f"{argument} must have at least one name, got none", ErrorKind.INVALID_ARGUMENT
            )
    options: ReductionOptions = {**REDUCTION_DEFAULTS, **given}
    target = target_or_group(version, options.get("to"), name)
    arrays = ArrayLookup(version.session())
    reductions: list[Reduction] = []
    for path in all_paths:
        field = open_field(arrays.session, path, decode=options["decode"], valid_range=options["valid_range"])
        groups = None if rule is None else rule.grouping_of(arrays.session, field)
        statistics = how if isinstance(how, str) else all_how
        result = target.path(field.path)
        reductions += reductions_of(arrays, field, result, statistics, all_dims, groups, options)
    plans = [plan_reduction(number, each, options["limits"]) for number, each in enumerate(reductions)]
    labels = () if rule is None else rule.labels
    work = _ReductionJob(arrays, options, labels, tuple(reductions), tuple(plans), target.path(_SCRATCH))
    require_free_targets(version, target, work.writes, work.fields)
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
            **recorded_options(given),
        },
        (version.input((*sorted({field.path for field in work.fields}), *_coordinate_paths(work))),),
        work.writes,
        phases=(second,) if work.has_scratch else (),
    )
    return run_with_options(job, options)


def _coordinate_paths(work: _ReductionJob) -> tuple[str, ...]:
    """Return the paths of the coordinates that the job reads."""
    names = (
        (field.parent, name)
        for field in work.fields
        for name in (*work.labels, *coordinates_of(field, work.arrays, field.dims))
    )
    return tuple(sorted({f"/{parent}/{name}".replace("//", "/") for parent, name in names}))


# On the driver, with the session of the target


def _prepare(work: _ReductionJob, session: Session) -> Tasks:
    coordinates = CoordinateWriter.of(work.arrays, session, work.writes)
    keep_attrs = work.options["keep_attrs"]
    for number, (reduction, plan) in enumerate(zip(work.reductions, work.plans, strict=True)):
        for measure in reduction.measures:
            create_result(coordinates, reduction, plan, measure, keep_attrs=keep_attrs)
        if plan.combination is Combination.IN_SCRATCH:
            create_scratch(session, work.scratch, number, reduction, plan)
    copy_coordinates(coordinates, work.reductions)
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
