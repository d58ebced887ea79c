"""Anomalies: data less what is usual at their time of the year or day."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs import cf
from frazil.jobs.blocks import blocks, split
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Limits
from frazil.jobs.progress import Progress
from frazil.jobs.task_results import Outcome
from frazil.jobs.versions import Source, Target, Version
from frazil.pipeline.reductions.coordinates import CoordinateWriter
from frazil.pipeline.reductions.fields import (
    ENCODING,
    ArrayLookup,
    Field,
    coordinate,
    coordinates_of,
    is_there,
    open_array,
    open_field,
)
from frazil.pipeline.reductions.groups import labels_of
from frazil.pipeline.reductions.reduction_job import check_targets, several, target_of
from frazil.repository.session.session import ForkSession, Session


@dataclass(frozen=True, slots=True)
class _Usual:
    """Data, what is usual, and the row of the latter for each time; -1 where nothing is known."""

    field: Field
    usual: Field
    spread: Field | None
    codes: NDArray[np.int64]
    time: str
    period: str
    path: str

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.field.dtype if self.field.dtype.kind == "f" else np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class _Shared:
    data: Session
    usual: Session
    all: tuple[_Usual, ...]
    block: int


def anomaly(
    source: Source,
    paths: str | Sequence[str],
    climatology: Source | JobResult,
    *,
    group: str = "/climatology",
    spread: str | None = None,
    time: str = "time",
    to: Target | None = None,
    decode: bool = True,
    limits: Limits | None = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> JobResult:
    """Arrays less their climatology, in the shape and chunks of the arrays.

    ``climatology`` is where `climatology` wrote, or what it returned; ``group`` the group that it wrote to.
    The period (month, season, dayofyear, hour) is the dimension there. With ``spread``, a group of standard
    deviations by the same period, anomalies are divided by them. Times of which the climatology knows nothing
    (day 366) are NaN. Computed in float64, stored as the array's own float type.

    Raises ``NodeNotFoundError`` for an array without climatology, ``InvalidInputError`` if its dimensions
    do not fit.
    """
    version = Version.of(source)
    told = climatology.version if isinstance(climatology, JobResult) else Version.of(climatology)
    target = target_of(version, to, "anomaly")
    data, usual = version.session(), told.session()
    everything = tuple(
        _usual(data, usual, path, group, spread, time, target, decode) for path in several(paths)
    )
    fields = [each.field for each in everything]
    writes = tuple(each.path for each in everything)
    check_targets(version, target, writes, fields)
    read = [each.usual.path for each in everything]
    read += [each.spread.path for each in everything if each.spread is not None]
    read += sorted({f"{each.usual.path.rpartition('/')[0]}/{each.period}" for each in everything})
    names = {each.field.path for each in everything}
    arrays = ArrayLookup(data)
    for each in everything:
        among = coordinates_of(each.field, arrays, each.field.dims)
        names |= {each.field.path.rpartition("/")[0] + "/" + name for name in (*among, time)}
    sizes = limits or Limits()
    job = Job(
        "anomaly",
        target,
        functools.partial(_prepare, _Shared(data, usual, everything, sizes.block), sizes.task),
        _subtract,
        None,
        {"paths": list(several(paths)), "group": group, "spread": spread, "time": time, "decode": decode},
        (version.input(sorted(names)), told.input(read)),
        writes,
        message,
        id=job_id,
    )
    return run_job(job, engine, progress=progress)


def _usual(
    data: Session,
    usual: Session,
    path: str,
    group: str,
    spread: str | None,
    time: str,
    target: Target,
    decode: bool,
) -> _Usual:
    field = open_field(data, path, decode=decode)
    mean = open_field(usual, f"{group}/{field.path.strip('/')}", decode=decode)
    others = [dim for dim in mean.dims if dim not in field.dims]
    kept = {dim: n for dim, n in zip(field.dims, field.shape, strict=True) if dim != time}
    found = {dim: n for dim, n in zip(mean.dims, mean.shape, strict=True) if dim in field.dims}
    if time not in field.dims or len(others) != 1 or kept != found:
        raise InvalidInputError(
            f"climatology: expected at `{mean.path}` the dimensions of `{field.path}` with a period "
            f"instead of `{time}`, {kept}; found {dict(zip(mean.dims, mean.shape, strict=True))}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    period = others[0]
    known = np.asarray(coordinate(usual, mean.parent, period).values)
    labels = np.asarray(labels_of(data, field.parent, f"{time}.{period}").values)
    if known.dtype.kind not in "biuf":
        known, labels = known.astype(str), labels.astype(str)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known, labels, sorter=order), max(len(known) - 1, 0))
    codes = np.where(known[order[at]] == labels, order[at], -1).astype(np.int64)
    deviation = (
        None if spread is None else open_field(usual, f"{spread}/{field.path.strip('/')}", decode=decode)
    )
    return _Usual(field, mean, deviation, codes, time, period, target.path(field.path))


def _prepare(shared: _Shared, task: int, session: Session) -> Tasks:
    writes = [each.path for each in shared.all]
    coordinates = CoordinateWriter.of(ArrayLookup(shared.data), session, writes)
    items: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    for number, each in enumerate(shared.all):
        field = each.field
        told = {
            name: value
            for name, value in field.attributes.items()
            if name not in ENCODING - {"coordinates"} and (name, value) != cf.BOOLEAN
        }
        zarr.create_array(
            session.store,
            name=each.path.strip("/"),
            shape=field.shape,
            chunks=tuple(max(1, min(n, step)) for n, step in zip(field.shape, field.grid, strict=True)),
            dtype=each.dtype,
            fill_value=np.nan,
            attributes=told if field.decode else dict(field.attributes),
            dimension_names=field.dims,
            overwrite=is_there(session, each.path),
        )
        coordinates.copy(field, field.dims, each.path)
        starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, task)
        corners = zip(map(tuple, starts.tolist()), map(tuple, stops.tolist()), strict=True)
        items += [(number, low, high) for low, high in corners]
    return Tasks(items, shared)


def _subtract(
    fork: ForkSession, shared: _Shared, item: tuple[int, tuple[int, ...], tuple[int, ...]]
) -> Outcome:
    """A task: some chunks, one block after the other."""
    number, start, stop = item
    each = shared.all[number]
    source = open_array(shared.data, each.field.path)
    into = open_array(fork, each.path, "r+")
    shape = tuple(np.subtract(stop, start).tolist())
    read = written = count = 0
    for low, high in zip(*blocks(shape, each.field.grid, each.field.raw.itemsize, shared.block), strict=True):
        region = tuple(map(slice, (low + start).tolist(), (high + start).tolist()))
        raw = np.asarray(source[region])
        values = each.field.decoded(raw).astype(np.float64)
        values -= _rows(shared.usual, each, each.usual, region)
        if each.spread is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                values /= _rows(shared.usual, each, each.spread, region)
        into[region] = values.astype(each.dtype)
        read, written = read + raw.nbytes, written + values.size * each.dtype.itemsize
        count += len(split(raw.shape, [max(1, n) for n in each.field.grid])[0])
    return Outcome(None, shape[0] if shape else 1, count, read, written)


def _rows(session: Session, each: _Usual, usual: Field, region: tuple[slice, ...]) -> NDArray[np.float64]:
    """What is usual for a block, in its shape."""
    axis = each.field.dims.index(each.time)
    codes = each.codes[region[axis]]
    known = codes[codes >= 0]
    if not len(known):
        return np.full([part.stop - part.start for part in region], np.nan)
    first, last = int(known.min()), int(known.max()) + 1
    place = dict(zip(each.field.dims, region, strict=True)) | {each.period: slice(first, last)}
    raw = np.asarray(open_array(session, usual.path)[tuple(place[dim] for dim in usual.dims)])
    values = usual.decoded(raw).astype(np.float64)
    order = [each.period if dim == each.time else dim for dim in each.field.dims]
    turned = values.transpose([usual.dims.index(dim) for dim in order])
    out = np.take(turned, np.clip(codes - first, 0, None), axis=axis)
    out[(slice(None),) * axis + (codes < 0,)] = np.nan
    return np.asarray(out)
