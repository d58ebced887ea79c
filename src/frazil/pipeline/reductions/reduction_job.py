"""From what a user asks for to a job: fields, groups and weights; arrays and coordinates of the result."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict

import numpy as np
import xarray as xr
import zarr

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs import cf
from frazil.jobs.blocks import parse_bytes, split
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Phase, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Limits
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Source, Target, Version, same_storage
from frazil.pipeline.reductions import partials
from frazil.pipeline.reductions.coordinates import CoordinateWriter
from frazil.pipeline.reductions.fields import (
    ENCODING,
    ArrayLookup,
    Field,
    coordinate,
    coordinates_of,
    dimensions,
    is_there,
    open_array,
    open_field,
    require_same_labels,
)
from frazil.pipeline.reductions.groups import Grouping, digest_of
from frazil.pipeline.reductions.partials import Options, Values
from frazil.pipeline.reductions.plan import Item, Measure, Meeting, Planned, Reduction, planned
from frazil.pipeline.reductions.quantiles import Exact, Sketch, rank_error
from frazil.pipeline.reductions.tasks import (
    Shared,
    combine_item,
    reduce_item,
    scratch_path,
    written_by_driver,
)
from frazil.repository.session.session import Session

#: ``"coslat"``, an array of xarray, or arrays by dimension.
type Weights = str | xr.DataArray | Mapping[str, Any]
type How = str | Sequence[str]


class Settings(TypedDict, total=False):
    """What every reduction can be told, by name.

    skipna         leave NaN out; True unless said otherwise
    min_count      NaN where fewer cells than that are there
    ddof           of ``std`` and ``var``: divide by the count less this
    q              of ``quantile``: a number or several, between 0 and 1
    weights        "coslat" (cosine of the latitude), a DataArray, or {dimension: values}; weights of a
                   cell multiply
    decode         CF conventions: fill values, packed data. True unless said otherwise
    valid_range    also leave out what is outside of ``valid_range``, ``valid_min``, ``valid_max``
    keep_attrs     True unless said otherwise
    exact_below    quantiles are exact as long as the cells of a task take fewer bytes ("256MB")
    k              size of the sketches beyond that: see `frazil.pipeline.reductions.quantiles`
    limits         `Limits`: how much a task reads, and when partial results go through the storage
    to             `Target`: where results go; a group named after the operation unless told
    engine, job_id, message, progress    as for all jobs
    """

    skipna: bool
    min_count: int | None
    ddof: int
    q: float | Sequence[float]
    weights: Weights | None
    decode: bool
    valid_range: bool
    keep_attrs: bool
    exact_below: int | str
    k: int
    limits: Limits
    to: Target | None
    engine: Engine | EngineName | None
    job_id: str | None
    message: str | None
    progress: Progress | None


_RECORDED: Final = ("skipna", "min_count", "ddof", "decode", "valid_range", "keep_attrs", "k")
_SCRATCH: Final = "frazil_partials"


@dataclass(frozen=True, slots=True)
class Asked:
    """One call. ``groups`` gives the grouping of an array, whose dimensions go with ``dims``; it reads the
    coordinates ``labels`` of the array's group.
    """

    name: str
    paths: tuple[str, ...]
    dims: tuple[str, ...] | None
    how: tuple[str, ...]
    several: bool
    groups: Callable[[Session, Field], Grouping] | None
    parameters: Mapping[str, Any]
    settings: Settings
    cell_methods: str | None = None
    labels: tuple[str, ...] = ()


def several(paths: str | Sequence[str]) -> tuple[str, ...]:
    """One name or many."""
    given = (paths,) if isinstance(paths, str) else tuple(paths) if isinstance(paths, Iterable) else (paths,)
    if not all(isinstance(each, str) for each in given):
        raise InvalidInputError(f"expected a name or several, found {paths!r}", ErrorKind.NOT_ALLOWED)
    return given


def target_of(version: Version, to: Target | None, name: str) -> Target:
    """Where results go: unless told, to a group of that name, on the branch that was read."""
    if to is not None:
        if not isinstance(to, Target):
            raise wrong_type("to", to, "Target", "None")
        return to
    if version.branch is None:
        raise InvalidInputError(
            "to: expected a target (`to=Target(repo, branch, group)`), as the source is not on a branch; "
            "found none",
            ErrorKind.NOT_ON_BRANCH,
        )
    return Target(version.repo, version.branch, f"/{name}")


def run(source: Source, asked: Asked) -> JobResult:
    """Plan and do it."""
    version = Version.of(source)
    settings = asked.settings
    unknown = settings.keys() - Settings.__annotations__.keys()
    if unknown:
        raise InvalidInputError(
            f"expected settings out of {', '.join(Settings.__annotations__)}, found {', '.join(unknown)}",
            ErrorKind.NOT_ALLOWED,
        )
    for name, given in (("paths", asked.paths), ("how", asked.how)):
        if not given:
            raise InvalidInputError(f"{name}: expected at least one, found none", ErrorKind.NOT_ALLOWED)
    target = target_of(version, settings.get("to"), asked.name)
    session = version.session()
    arrays = ArrayLookup(session)
    reductions = tuple(
        reduction for path in asked.paths for reduction in _reductions(arrays, target, asked, path)
    )
    writes = tuple(measure.path for reduction in reductions for measure in reduction.measures)
    fields = tuple(reduction.field for reduction in reductions)
    check_targets(version, target, writes, fields)
    limits = settings.get("limits", Limits())
    plans = tuple(planned(number, reduction, limits) for number, reduction in enumerate(reductions))
    coordinates = _coordinate_paths(arrays, fields, asked.labels)
    shared = Shared(
        session,
        reductions,
        tuple(plan.meeting for plan in plans),
        target.path(_SCRATCH),
        limits.block,
    )
    stored = [number for number, plan in enumerate(plans) if plan.meeting is Meeting.STORED]
    job = Job(
        asked.name,
        target,
        functools.partial(_prepare, arrays, asked, reductions, plans, shared),
        reduce_item,
        functools.partial(_finish, reductions, plans, shared),
        _parameters(asked),
        (version.input((*sorted({field.path for field in fields}), *coordinates)),),
        writes,
        settings.get("message"),
        id=settings.get("job_id"),
        phases=(Phase(functools.partial(_second, reductions, plans, shared), combine_item),)
        if stored
        else (),
    )
    return run_job(job, settings.get("engine"), progress=settings.get("progress"))


def _parameters(asked: Asked) -> dict[str, Any]:
    settings = asked.settings
    told: dict[str, Any] = {name: value for name, value in settings.items() if name in _RECORDED}
    if "q" in settings:
        told["q"] = np.asarray(settings["q"]).tolist()
    if "exact_below" in settings:
        told["exact_below"] = parse_bytes(settings["exact_below"])
    if (weights := settings.get("weights")) is not None:
        told["weights"] = weights if isinstance(weights, str) else _weights_said(weights)
    dims = None if asked.dims is None else list(asked.dims)
    return {"paths": list(asked.paths), "dims": dims, "how": list(asked.how), **asked.parameters, **told}


def _weights_said(weights: xr.DataArray | Mapping[str, Any]) -> dict[str, str]:
    if isinstance(weights, xr.DataArray):
        return {",".join(map(str, weights.dims)): digest_of(weights.values)}
    return {dim: digest_of(np.asarray(values)) for dim, values in weights.items()}


def _reductions(arrays: ArrayLookup, target: Target, asked: Asked, path: str) -> list[Reduction]:
    """One reduction for everything but quantiles, and one for those."""
    session, settings = arrays.session, asked.settings
    field = open_field(
        session, path, decode=settings.get("decode", True), valid_range=settings.get("valid_range", False)
    )
    grouping = None if asked.groups is None else asked.groups(session, field)
    if grouping is not None:
        _check_grouping(field, grouping)
    going = asked.dims if asked.dims is not None else (field.dims if grouping is None else grouping.dims)
    unknown = [dim for dim in going if dim not in field.dims]
    if unknown:
        raise InvalidInputError(
            f"dims: expected some of {', '.join(field.dims)} of `{field.path}`, found {', '.join(unknown)}",
            ErrorKind.NOT_ALLOWED,
        )
    going = (*going, *(() if grouping is None else grouping.dims))
    taken = {*field.dims} - {*going} | {field.name}
    if grouping is not None and grouping.name in taken:
        raise InvalidInputError(
            f"by: expected labels with a name of their own, found `{grouping.name}`; the result has "
            f"{', '.join(sorted(taken))} already: rename them",
            ErrorKind.NOT_ALLOWED,
        )
    over = tuple(axis for axis, dim in enumerate(field.dims) if dim in going)
    weights = _weights_of(arrays, field, settings.get("weights"))
    skipna = settings.get("skipna", True)
    empty = None if grouping is None else grouping.empty()
    if empty is not None and not empty.any():
        empty = None
    plain = Reduction(field, over, (), grouping, weights, skipna, empty)
    measures = {how: _measure(plain, target, asked, how) for how in asked.how}
    quantiles = {how for how in asked.how if measures[how].q is not None or how in ("quantile", "median")}
    parts = [[measures[how] for how in asked.how if (how in quantiles) is which] for which in (False, True)]
    return [replace(plain, measures=tuple(part)) for part in parts if part]


def _measure(reduction: Reduction, target: Target, asked: Asked, how: str) -> Measure:
    settings, field = asked.settings, reduction.field
    path = target.path(f"{field.path}_{how}" if asked.several else field.path)
    dtype = field.dtype
    weighted = reduction.weights is not None
    if how in ("quantile", "median"):
        if weighted:
            raise InvalidInputError(
                f"weights: expected one of {', '.join(partials.WEIGHTED)}, found {how!r}",
                ErrorKind.NOT_ALLOWED,
            )
        given = 0.5 if how == "median" else settings.get("q", 0.5)
        try:
            q = tuple(map(float, np.atleast_1d(np.asarray(given, np.float64))))
        except (TypeError, ValueError):
            q = ()
        if not q or not all(0 <= each <= 1 for each in q):
            raise InvalidInputError(f"q: expected numbers from 0 to 1, found {given}", ErrorKind.NOT_ALLOWED)
        return Measure(
            path,
            how,
            _quantile(reduction, q, settings),
            dtype if dtype.kind == "f" else np.dtype(np.float64),
            None if np.ndim(given) == 0 else q,
        )
    options = Options(settings.get("ddof", 0), settings.get("min_count"))
    kernel = partials.kernel(how, dtype, weighted=weighted, options=options)
    result = partials.result_dtype(how, dtype, weighted=weighted)
    if result.kind in "iub" and _may_be_missing(reduction, how, options):
        # An empty group makes float32 of integers of up to 16 bits, as in xarray.
        is_small = result.kind in "iu" and result.itemsize <= 2 and reduction.empty is not None
        result = np.dtype(np.float32 if is_small else np.float64)
    return Measure(path, how, kernel, result)


def _may_be_missing(reduction: Reduction, how: str, options: Options) -> bool:
    """Whether a result of integers may have no value: then it is of floats, to say NaN."""
    if reduction.empty is not None:
        return True
    if how in ("count", "any", "all"):
        return False
    if options.min_count:
        return True
    return how != "sum" and not all(reduction.field.shape[axis] for axis in reduction.over)


def _quantile(reduction: Reduction, q: tuple[float, ...], settings: Settings) -> Exact | Sketch:
    """Exact where a chunk of the result, with all that it needs, fits into the given number of bytes."""
    cells = math.prod(reduction.field.shape[axis] for axis in reduction.over) * math.prod(reduction.kept_grid)
    if 8 * cells <= parse_bytes(settings.get("exact_below", "256MB")):
        return Exact(q, reduction.skipna)
    k = settings.get("k", 200)
    if not isinstance(k, int) or not 8 <= k <= 65535:
        raise InvalidInputError(f"k: expected a number from 8 to 65535, found {k!r}", ErrorKind.NOT_ALLOWED)
    return Sketch(q, k, reduction.skipna)


def _check_grouping(field: Field, grouping: Grouping) -> None:
    lengths = dict(zip(field.dims, field.shape, strict=True))
    expected = tuple(lengths.get(dim, -1) for dim in grouping.dims)
    if expected != grouping.codes.shape:
        raise InvalidInputError(
            f"by: expected labels over dimensions of `{field.path}`, {lengths}; found "
            f"{dict(zip(grouping.dims, grouping.codes.shape, strict=True))}",
            ErrorKind.NOT_ALLOWED,
        )
    if not len(grouping):
        raise InvalidInputError(
            f"by: expected a label `{grouping.name}` for at least one cell of `{field.path}`, found none",
            ErrorKind.NOT_ALLOWED,
        )


def _weights_of(lookup: ArrayLookup, field: Field, weights: Weights | None) -> Values | None:
    """Weights with as many axes as the array, of length 1 where they do not vary."""
    if weights is None:
        return None
    session = lookup.session
    if isinstance(weights, str):
        if weights != "coslat":
            raise InvalidInputError(
                f"weights: expected 'coslat' or arrays, found {weights!r}", ErrorKind.NOT_ALLOWED
            )
        name = latitude_of(lookup, field)
        found = coordinate(session, field.parent, name)
        arrays = {dimensions(open_array(session, f"{field.parent}/{name}")): np.cos(np.deg2rad(found.values))}
    elif isinstance(weights, xr.DataArray):
        require_same_labels(session, field, weights, "weights")
        arrays = {tuple(map(str, weights.dims)): weights.values}
    elif isinstance(weights, Mapping):
        arrays = {(dim,): np.asarray(values) for dim, values in weights.items()}
    else:
        raise InvalidInputError(
            f"weights: expected 'coslat', a DataArray or arrays by dimension, found {weights!r}",
            ErrorKind.NOT_ALLOWED,
        )
    out: Values = np.ones((1,) * len(field.dims))
    lengths = dict(zip(field.dims, field.shape, strict=True))
    for dims, values in arrays.items():
        if not set(dims) <= set(field.dims) or tuple(map(lengths.__getitem__, dims)) != values.shape:
            raise InvalidInputError(
                f"weights: expected dimensions of `{field.path}`, {lengths}; found "
                f"{dict(zip(dims, values.shape, strict=False))}",
                ErrorKind.NOT_ALLOWED,
            )
        if values.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"weights: expected numbers, found the type {values.dtype}", ErrorKind.NOT_ALLOWED
            )
        if np.isnan(values).any():
            raise InvalidInputError("weights: expected numbers, found NaN", ErrorKind.NOT_ALLOWED)
        order = sorted(range(len(dims)), key=lambda axis: field.dims.index(dims[axis]))
        shape = [lengths[dim] if dim in dims else 1 for dim in field.dims]
        out = out * values.astype(np.float64).transpose(order).reshape(shape)
    return out


def latitude_of(arrays: ArrayLookup, field: Field) -> str:
    """The name of the latitude among the coordinates of an array."""
    among = coordinates_of(field, arrays, field.dims)
    for name, array in among.items():
        told = array.attrs
        if told.get("standard_name") == "latitude" or name in ("lat", "latitude"):
            return name
    raise InvalidInputError(
        f"expected a coordinate of `{field.path}` with the standard_name `latitude`, found "
        f"{', '.join(among) or 'none'}",
        ErrorKind.NOT_ALLOWED,
    )


def check_targets(version: Version, target: Target, writes: Sequence[str], fields: Sequence[Field]) -> None:
    """A result must not take the place of what it is made of."""
    if len(set(writes)) < len(writes):
        raise InvalidInputError(
            f"expected each result once, found {', '.join(writes)}", ErrorKind.NOT_ALLOWED
        )
    same = sorted({field.path for field in fields} & set(writes)) if same_storage(version, target) else []
    if same:
        raise InvalidInputError(
            f"to: expected a target of which `{same[0]}` is not an input of the job; give it another group: "
            f"`to=Target(repo, group='/{target.group.strip('/') or 'results'}')`",
            ErrorKind.NOT_ALLOWED,
        )


def _coordinate_paths(arrays: ArrayLookup, fields: Sequence[Field], labels: Sequence[str]) -> tuple[str, ...]:
    names = (
        (field.parent, name)
        for field in fields
        for name in (*labels, *coordinates_of(field, arrays, field.dims))
    )
    return tuple(sorted({f"/{parent}/{name}".replace("//", "/") for parent, name in names}))


# On the driver, with the session of the target


def _prepare(
    source: ArrayLookup,
    asked: Asked,
    reductions: tuple[Reduction, ...],
    plans: tuple[Planned, ...],
    shared: Shared,
    session: Session,
) -> Tasks:
    writes = (measure.path for reduction in reductions for measure in reduction.measures)
    coordinates = CoordinateWriter.of(source, session, tuple(writes))
    for number, (reduction, plan) in enumerate(zip(reductions, plans, strict=True)):
        for measure in reduction.measures:
            _create(coordinates, asked, reduction, plan, measure)
        if plan.meeting is Meeting.STORED:
            _create_scratch(session, shared.scratch, number, reduction, plan)
    _copy_coordinates(coordinates, reductions)
    return Tasks([item for plan in plans for item in plan.items], shared)


def _create(
    coordinates: CoordinateWriter, asked: Asked, reduction: Reduction, plan: Planned, measure: Measure
) -> None:
    lead = () if measure.q is None else (len(measure.q),)
    floats = measure.dtype.kind == "f"
    zarr.create_array(
        coordinates.session.store,
        name=measure.path.strip("/"),
        shape=(*lead, *reduction.shape),
        chunks=tuple(max(1, n) for n in (*lead, *plan.chunks)),
        dtype=measure.dtype,
        fill_value=np.nan if floats else None,
        attributes=_attributes(asked, reduction, measure),
        dimension_names=(*(("quantile",) if lead else ()), *reduction.dims),
        overwrite=is_there(coordinates.session, measure.path),
    )
    parent = measure.path.strip("/").rpartition("/")[0]
    if measure.q is not None:
        coordinates.put(f"{parent}/quantile", np.array(measure.q), {})
    if reduction.grouping is not None:
        grouping = reduction.grouping
        attributes = dict(grouping.attributes)
        if grouping.bounds is not None:
            attributes["bounds"] = bounds = f"{grouping.name}_bnds"
            pair = (grouping.name, "bnds")
            coordinates.put(f"{parent}/{bounds}", grouping.bounds, {}, dims=pair)
        coordinates.put(f"{parent}/{grouping.name}", grouping.labels, attributes)


def _attributes(asked: Asked, reduction: Reduction, measure: Measure) -> dict[str, Any]:
    field = reduction.field
    told = dict(field.attributes) if asked.settings.get("keep_attrs", True) else {}
    if field.decode:
        told = {
            name: value
            for name, value in told.items()
            if name not in ENCODING and (name, value) != cf.BOOLEAN
        }
    others = [
        name
        for name in str(field.attributes.get("coordinates", "")).split()
        if asked.settings.get("keep_attrs", True)
    ]
    if others:
        told["coordinates"] = " ".join(others)
    if measure.how in ("count", "any", "all"):
        told["units"] = "1"
    elif measure.how == "var" and "units" in told:
        told["units"] = f"({told['units']})2"
    dims = [field.dims[axis] for axis in reduction.over]
    method = f"{': '.join(dims)}: {_CELL_METHODS.get(measure.how, measure.how)}"
    before = str(field.attributes.get("cell_methods", "")).strip()
    told["cell_methods"] = f"{before} {asked.cell_methods or method}".strip()
    if isinstance(measure.kernel, Sketch):
        told["quantile_rank_error"] = round(rank_error(measure.kernel.k), 6)
    if measure.q is None and measure.how == "quantile":
        assert isinstance(measure.kernel, Exact | Sketch)
        told["quantile"] = measure.kernel.q[0]
    return told


_CELL_METHODS: Final = {
    "var": "variance",
    "std": "standard_deviation",
    "min": "minimum",
    "max": "maximum",
    "first": "point",
    "last": "point",
}


def _create_scratch(session: Session, scratch: str, number: int, reduction: Reduction, plan: Planned) -> None:
    """Arrays for partial results: a row for each slot."""
    kept = tuple(max(1, n) for n in plan.kept_box)
    for row, measure in enumerate(reduction.measures):
        assert not isinstance(measure.kernel, Exact)
        for place, (dtype, identity) in enumerate(measure.kernel.identities):
            path = scratch_path(scratch, number, row, place)
            zarr.create_array(
                session.store,
                name=path,
                shape=(plan.slots, reduction.groups, *reduction.kept_shape),
                chunks=(1, plan.group_chunk, *kept),
                dtype=dtype,
                fill_value=identity,
                overwrite=is_there(session, path),
            )


def _copy_coordinates(coordinates: CoordinateWriter, reductions: Sequence[Reduction]) -> None:
    """Coordinates of the dimensions that stay, as they are stored, once for each group and reduction."""
    parents = {
        (measure.path.rpartition("/")[0], number): measure.path
        for number, reduction in enumerate(reductions)
        for measure in reduction.measures
    }
    for (_, number), path in parents.items():
        reduction = reductions[number]
        dims = [reduction.field.dims[axis] for axis in reduction.kept]
        group = "" if reduction.grouping is None else reduction.grouping.name
        coordinates.copy(reduction.field, dims, path, without=group)


def _second(
    reductions: tuple[Reduction, ...],
    plans: tuple[Planned, ...],
    shared: Shared,
    session: Session,
    values: list[Any],
) -> Tasks:
    """One item for each chunk of the results whose partial results are stored. What the tasks of the first
    round returned is written first: a later ``finish`` would not get it.
    """
    _write_values(session, reductions, plans, values)
    items: list[Item] = []
    for number, plan in enumerate(plans):
        if plan.meeting is Meeting.STORED:
            reduction = reductions[number]
            zero = (0,) * len(reduction.over)
            starts, stops = split(
                (reduction.groups, *reduction.kept_shape), (plan.group_chunk, *plan.kept_box)
            )
            items += [
                Item(number, tuple(low[1:]), tuple(high[1:]), (low[0], high[0]), zero, zero, plan.slots)
                for low, high in zip(starts.tolist(), stops.tolist(), strict=True)
            ]
    return Tasks(items, shared)


def _finish(
    reductions: tuple[Reduction, ...],
    plans: tuple[Planned, ...],
    shared: Shared,
    session: Session,
    values: list[Any],
) -> None:
    if any(plan.meeting is Meeting.STORED for plan in plans):
        parent, _, name = shared.scratch.strip("/").rpartition("/")
        del zarr.open_group(session.store, path=parent, mode="r+")[name]
    else:
        _write_values(session, reductions, plans, values)


def _write_values(
    session: Session, reductions: tuple[Reduction, ...], plans: tuple[Planned, ...], values: list[Any]
) -> None:
    returned: dict[int, list[Any]] = {}
    for value in values:
        if value is not None:
            returned.setdefault(value[0].number, []).append(value)
    for number, plan in enumerate(plans):
        if plan.meeting is Meeting.VALUES:
            written_by_driver(session, reductions[number], plan, returned.get(number, []))
