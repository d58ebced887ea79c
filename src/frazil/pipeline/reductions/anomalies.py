"""Anomalies: arrays minus their climatology."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.jobs.blocks import Limits, blocks, split
from frazil.jobs.engine import Engine, EngineName, task_bytes
from frazil.jobs.job import Job, JobResult, RunOptions, Source, Target, Tasks, Version, with_options
from frazil.jobs.job_run import require_free, run_with_options
from frazil.jobs.task_results import Outcome
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    CoordinateWriter,
    Field,
    coordinate,
    coordinates_of,
    has_node,
    labels_of,
    open_array,
    open_field,
)
from frazil.pipeline.reductions.reduction_job import names_of, target_or_group
from frazil.repository.session.session import ForkSession, Session


@dataclass(frozen=True, slots=True)
class _Baseline:
    """An array, its climatology and their deviations, and the path of the result.

    ``codes`` are the rows of the climatology for each position along ``time``; -1 where it has none.
    """

    field: Field
    climatology: Field
    spread: Field | None
    codes: NDArray[np.int64]
    time: str
    period: str
    path: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the result."""
        return self.field.dtype if self.field.dtype.kind == "f" else np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class _Anomalies:
    data: Session
    climatology: Session
    baselines: tuple[_Baseline, ...]
    block: int


@with_options(RunOptions)
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
    **options: Unpack[RunOptions],
) -> JobResult:
    """Subtract the climatology of arrays from them, in one commit.

    The results have the shape and the chunks of the arrays. Values are computed in float64 and stored in the
    float type of the array. Times that the climatology does not have (day 366) are NaN.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` of the arrays.
        paths: The path of an array of numbers, or several paths.
        climatology: The result of `climatology`, or the `Repository` or `Version` that holds the climatology.
            The period (month, season, dayofyear or hour) is the dimension that it has instead of ``time``.
        group: The group of the climatology.
        spread: The group of the standard deviations of the same period. The anomalies are divided by them.
            The default, None, does not divide.
        time: The name of the time dimension.
        to: The `Target` of the results. The default, None, is the group ``/anomaly`` on the branch of the
            source.
        decode: Whether the CF conventions are applied: fill values become NaN, packed data are unpacked. The
            default is True.
        limits: `Limits`, in bytes: how much a task reads. The default, None, is ``Limits()``.

    Returns:
        The `JobResult`, whose ``version`` has the anomalies.

    Raises:
        NodeNotFoundError: An array, or its climatology, does not exist.
        InvalidInputError: The dimensions of the climatology do not fit those of the array
            (``invalid-array-metadata``), a result would replace an array that the job reads
            (``conflicting-arguments``), or the source is not on a branch and ``to`` is missing
            (``not-on-branch``).

    Examples:
        >>> import frazil, pandas as pd, xarray as xr, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> times = pd.to_datetime(["2001-01-01", "2001-02-01", "2002-01-01", "2002-02-01"])
        >>> series = xr.Dataset({"t": ("time", [1.0, 4.0, 3.0, 8.0])}, {"time": times})
        >>> session = repo.writable_session("main")
        >>> _ = series.to_zarr(session.store, group="data", zarr_format=3, consolidated=False)
        >>> snapshot_id = session.commit("two years")
        >>> months = frazil.pipeline.climatology(repo, "data/t", "month", engine="inline")
        >>> result = frazil.pipeline.anomaly(repo, "data/t", months, engine="inline")
        >>> zarr.open_array(result.version.session().store, path="anomaly/data/t", mode="r")[:].tolist()
        [-1.0, -2.0, 1.0, 2.0]
    """
    version = Version.of(source)
    baseline = climatology.version if isinstance(climatology, JobResult) else Version.of(climatology)
    target = target_or_group(version, to, "anomaly")
    data, session, arrays = version.session(), baseline.session(), ArrayLookup(version.session())

    def baseline_of(path: str) -> _Baseline:
        field = open_field(data, path, decode=decode)
        name = field.path.strip("/")
        means = open_field(session, f"{group}/{name}", decode=decode)
        periods = [dim for dim in means.dims if dim not in field.dims]
        expected = {dim: n for dim, n in zip(field.dims, field.shape, strict=True) if dim != time}
        actual = {dim: n for dim, n in zip(means.dims, means.shape, strict=True) if dim in field.dims}
        if time not in field.dims or len(periods) != 1 or expected != actual:
            raise misfit(
                f"The climatology `{means.path}` must have the dimensions of `{field.path}` with a period "
                f"instead of `{time}`, {expected}, got "
                f"{dict(zip(means.dims, means.shape, strict=True))}"
            )
        deviations = None if spread is None else open_field(session, f"{spread}/{name}", decode=decode)
        rows = np.asarray(coordinate(session, means.parent, periods[0]).values)
        labels = np.asarray(labels_of(data, field.parent, f"{time}.{periods[0]}").values)
        if rows.dtype.kind not in "biuf":
            rows, labels = rows.astype(str), labels.astype(str)
        order = np.argsort(rows)
        at = np.minimum(np.searchsorted(rows, labels, sorter=order), max(len(rows) - 1, 0))
        codes = np.where(rows[order[at]] == labels, order[at], -1).astype(np.int64)
        return _Baseline(field, means, deviations, codes, time, periods[0], target.path(field.path))

    baselines = tuple(map(baseline_of, names_of(paths)))
    own_paths = {each.field.path for each in baselines}
    for field in (each.field for each in baselines):
        names = (*coordinates_of(field, arrays, field.dims), time)
        own_paths |= {f"{field.path.rpartition('/')[0]}/{name}" for name in names}
    writes = tuple(each.path for each in baselines)
    require_free(version, target, [each.field.path for each in baselines], writes)
    periods = sorted({f"{each.climatology.path.rpartition('/')[0]}/{each.period}" for each in baselines})
    fields = [field for each in baselines for field in (each.climatology, each.spread) if field is not None]
    limits = limits or Limits()
    job = Job(
        "anomaly",
        target,
        functools.partial(
            _prepare, _Anomalies(data, session, baselines, limits.block), limits.task, options.get("engine")
        ),
        _subtract,
        None,
        {"paths": list(names_of(paths)), "group": group, "spread": spread, "time": time, "decode": decode},
        (version.input(sorted(own_paths)), baseline.input([each.path for each in fields] + periods)),
        writes,
    )
    return run_with_options(job, options)


def _prepare(shared: _Anomalies, most: int, engine: Engine | EngineName | None, session: Session) -> Tasks:
    writes = [each.path for each in shared.baselines]
    coordinates = CoordinateWriter.of(ArrayLookup(shared.data), session, writes)
    items: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    for number, each in enumerate(shared.baselines):
        field = each.field
        zarr.create_array(
            session.store,
            name=each.path.strip("/"),
            shape=field.shape,
            chunks=tuple(max(1, min(n, step)) for n, step in zip(field.shape, field.grid, strict=True)),
            dtype=each.dtype,
            fill_value=np.nan,
            attributes=field.decoded_attributes(),
            dimension_names=field.dims,
            overwrite=has_node(session, each.path),
        )
        coordinates.copy_coordinates(field, field.dims, each.path)
        size = task_bytes(math.prod(field.shape) * field.raw.itemsize, most, engine)
        starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, size)
        corners = zip(map(tuple, starts.tolist()), map(tuple, stops.tolist()), strict=True)
        items += [(number, low, high) for low, high in corners]
    return Tasks(items, shared)


def _subtract(
    fork: ForkSession, shared: _Anomalies, item: tuple[int, tuple[int, ...], tuple[int, ...]]
) -> Outcome:
    """Subtract the climatology from some chunks, one block after the other: the task."""
    number, start, stop = item
    each = shared.baselines[number]
    source = open_array(shared.data, each.field.path)
    result = open_array(fork, each.path, "r+")
    shape = tuple(np.subtract(stop, start).tolist())
    count = 0
    for low, high in zip(*blocks(shape, each.field.grid, each.field.raw.itemsize, shared.block), strict=True):
        region = tuple(map(slice, (low + start).tolist(), (high + start).tolist()))
        raw = np.asarray(source[region])
        values = each.field.decoded(raw).astype(np.float64)
        values -= _baseline_values(shared.climatology, each, each.climatology, region)
        if each.spread is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                values /= _baseline_values(shared.climatology, each, each.spread, region)
        result[region] = values.astype(each.dtype)
        count += len(split(raw.shape, [max(1, n) for n in each.field.grid])[0])
    return Outcome(rows=shape[0] if shape else 1, chunks=count)


def _baseline_values(
    session: Session, each: _Baseline, baseline: Field, region: tuple[slice, ...]
) -> NDArray[np.float64]:
    """Return the climatology or the deviations for a block, in its shape."""
    axis = each.field.dims.index(each.time)
    codes = each.codes[region[axis]]
    rows = codes[codes >= 0]
    if not len(rows):
        return np.full([part.stop - part.start for part in region], np.nan)
    first, last = int(rows.min()), int(rows.max()) + 1
    spans = dict(zip(each.field.dims, region, strict=True)) | {each.period: slice(first, last)}
    raw = np.asarray(open_array(session, baseline.path)[tuple(spans[dim] for dim in baseline.dims)])
    values = baseline.decoded(raw).astype(np.float64)
    order = [each.period if dim == each.time else dim for dim in each.field.dims]
    turned = values.transpose([baseline.dims.index(dim) for dim in order])
    out = np.take(turned, np.clip(codes - first, 0, None), axis=axis)
    out[(slice(None),) * axis + (codes < 0,)] = np.nan
    return np.asarray(out)
