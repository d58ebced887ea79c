"""The job of a reduction: plan it, create the arrays, run the tasks, combine their partial results."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import zarr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import split
from frazil.jobs.job import Job, Phase, Tasks
from frazil.jobs.job_result import JobResult
from frazil.jobs.job_run import run_with_options
from frazil.jobs.versions import Source, Version
from frazil.pipeline.reductions.coordinates import CoordinateWriter
from frazil.pipeline.reductions.fields import ArrayLookup, Field, coordinates_of, open_field
from frazil.pipeline.reductions.measures import reductions_of
from frazil.pipeline.reductions.options import REDUCTION_DEFAULTS, How, ReductionOptions
from frazil.pipeline.reductions.plan import Combination, Item, ReductionPlan, plan_reduction
from frazil.pipeline.reductions.reduction import Reduction
from frazil.pipeline.reductions.request import (
    GroupingRule,
    names_of,
    recorded_options,
    require_free_targets,
    target_or_group,
)
from frazil.pipeline.reductions.result_arrays import copy_coordinates, create_result, create_scratch
from frazil.pipeline.reductions.tasks import Shared, combine_item, reduce_item, write_driver_results
from frazil.repository.session.session import Session

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
